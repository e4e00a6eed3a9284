//! TLS to the store: its certificate is verified against the system's roots and those of `store.ca`.

use std::{io, path::PathBuf, time::Duration};

use fred::types::config::TlsConnector;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::Place;
use crate::roots;

/// How long a server may take to answer without TLS.
const PLAIN: Duration = Duration::from_millis(500);

/// Whether a server that completes no TLS handshake answers without: it waits for the end of what it takes for a command,
/// and would look like one that hangs.
pub(super) async fn is_plain(places: &[Place]) -> bool {
    for (host, port) in places {
        let answer = async {
            let mut stream = TcpStream::connect((host.as_str(), *port)).await?;
            stream.write_all(b"PING\r\n").await?;
            stream.read_u8().await
        };
        let first: io::Result<u8> = tokio::time::timeout(PLAIN, answer)
            .await
            .unwrap_or(Err(io::ErrorKind::TimedOut.into()));
        if matches!(first, Ok(b'+' | b'-')) {
            return true;
        }
    }
    false
}

/// Trusts the system's roots and those of the files `extra`. They were checked with the rule file; one that has gone
/// since is said, and the store is verified without.
pub(super) fn connector(extra: &[PathBuf]) -> TlsConnector {
    let trusted = roots::with(extra).unwrap_or_else(|error| {
        tracing::warn!("`store.ca`: {error}; the store is verified without it");
        roots::system().clone()
    });
    roots::client(roots::provider()).with_root_certificates(trusted).with_no_client_auth().into()
}
