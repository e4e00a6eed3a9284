//! TLS to the store: its certificate is verified against the system's roots and those of `store.ca`.

use std::path::PathBuf;

use fred::types::config::TlsConnector;

use crate::tls::roots;

/// Trusts the system's roots and those of the files `extra`. The files were checked with the rule file. If one is
/// missing now, that is reported, and the store is verified without it.
pub(super) fn connector(extra: &[PathBuf]) -> TlsConnector {
    let trusted = roots::with(extra).unwrap_or_else(|error| {
        tracing::warn!("`store.ca`: {error}; the store is verified without it");
        roots::system().clone()
    });
    roots::client(roots::provider()).with_root_certificates(trusted).with_no_client_auth().into()
}
