//! How many connections there may be, in all and from one address.

use std::{collections::HashMap, net::IpAddr, sync::Arc, time::Duration};

use http_body_util::BodyExt;
use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{
    observability::metrics::{Bound, Metrics},
    proxy::{Refusal, pool::Counted},
    rules::settings::Bounds,
};

/// Connections that are being told that there is no room; beyond, they are closed without a word.
const MAX_REFUSING: usize = 64;
/// How long such a client has to read its answer.
const REFUSING: Duration = Duration::from_secs(1);
/// What such a client may still send; closing on unread bytes would reset the connection under our
/// answer.
const REFUSED_BYTES: u64 = 64 * 1024;

/// Counts who is in.
#[derive(Debug)]
pub(super) struct Doors {
    inside: Mutex<Inside>,
}

#[derive(Debug, Default)]
struct Inside {
    total: usize,
    refusing: usize,
    by_client: HashMap<IpAddr, usize>,
}

/// Which bound is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Full {
    /// `limits.connections`.
    Total,
    /// `limits.per_client`.
    Client,
}

impl Full {
    /// What there are too many of.
    pub(super) const fn what(self) -> &'static str {
        match self {
            Self::Total => "client connections",
            Self::Client => "connections from one client",
        }
    }
}

/// A place inside, for as long as it lives.
#[derive(Debug)]
pub(super) struct Seat {
    doors: Arc<Doors>,
    client: IpAddr,
    _counted: Counted,
}

impl Doors {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { inside: Mutex::default() })
    }

    /// Takes a place for a connection from `client`.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn enter(
        self: &Arc<Self>,
        client: IpAddr,
        limits: Bounds,
        metrics: &Metrics,
    ) -> Result<Seat, Full> {
        let mut inside = self.inside.lock();
        if inside.total >= limits.connections {
            return Err(Full::Total);
        }
        let own = inside.by_client.get(&client).copied().unwrap_or(0);
        if own >= limits.per_client {
            return Err(Full::Client);
        }
        inside.by_client.insert(client, own + 1);
        inside.total += 1;
        let counted = Counted::new(&metrics.client_connections);
        Ok(Seat { doors: Arc::clone(self), client, _counted: counted })
    }

    /// Tells a client that there is no room, and closes; `None` where even that would be too many.
    pub(super) fn refuse(
        self: &Arc<Self>,
        full: Full,
        stream: TcpStream,
        metrics: &Arc<Metrics>,
    ) -> Option<impl Future<Output = ()> + Send + 'static> {
        metrics.reached(match full {
            Full::Total => Bound::Connections,
            Full::Client => Bound::PerClient,
        });
        let response = Refusal::busy(full.what()).into_response(metrics);
        let mut inside = self.inside.lock();
        if inside.refusing >= MAX_REFUSING {
            return None;
        }
        inside.refusing += 1;
        let doors = Arc::clone(self);
        Some(async move {
            // Ends in time whatever the client does; the outcome is the client's.
            drop(tokio::time::timeout(REFUSING, turn_away(stream, response)).await);
            doors.inside.lock().refusing -= 1;
        })
    }
}

async fn turn_away(
    mut stream: TcpStream,
    response: http::Response<crate::proxy::Body>,
) -> std::io::Result<()> {
    let (head, body) = response.into_parts();
    let mut text = format!("HTTP/1.1 {}\r\n", head.status).into_bytes();
    for (name, value) in &head.headers {
        text.extend_from_slice(name.as_str().as_bytes());
        text.extend_from_slice(b": ");
        text.extend_from_slice(value.as_bytes());
        text.extend_from_slice(b"\r\n");
    }
    let body = body.collect().await.map_err(std::io::Error::other)?.to_bytes();
    text.extend_from_slice(
        format!("content-length: {}\r\nconnection: close\r\n\r\n", body.len()).as_bytes(),
    );
    text.extend_from_slice(&body);
    stream.write_all(&text).await?;
    stream.shutdown().await?;
    let mut rest = stream.take(REFUSED_BYTES);
    tokio::io::copy(&mut rest, &mut tokio::io::sink()).await.map(drop)
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut inside = self.doors.inside.lock();
        inside.total -= 1;
        if let Some(own) = inside.by_client.get_mut(&self.client) {
            *own -= 1;
            if *own == 0 {
                inside.by_client.remove(&self.client);
            }
        }
    }
}
