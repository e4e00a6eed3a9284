//! Limits the number of client connections, in total and per address.

use std::{collections::HashMap, net::IpAddr, sync::Arc, time::Duration};

use http::{HeaderValue, header};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{
    observability::metrics::{Bound, Metrics},
    proxy::{Refusal, headers, upstream::pool::GaugeGuard},
    rules::settings::Bounds,
};

/// Most connections that get a refusal at the same time. Further ones are closed without a response.
const MAX_REFUSING: usize = 64;
/// How long a refused client has to read its response.
const REFUSING: Duration = Duration::from_secs(1);
/// Bytes that a refused client may still send. Closing with unread bytes would reset the connection
/// and lose the response.
const REFUSED_BYTES: u64 = 64 * 1024;

/// Counts open connections.
#[derive(Debug)]
pub(super) struct ConnectionSlots {
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    total: usize,
    refusing: usize,
    by_client: HashMap<IpAddr, usize>,
}

/// The limit that is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Full {
    /// `limits.connections`.
    Total,
    /// `limits.per_client`.
    Client,
}

impl Full {
    /// The exceeded limit, for a message.
    pub(super) const fn what(self) -> &'static str {
        match self {
            Self::Total => "client connections",
            Self::Client => "connections from one client",
        }
    }
}

/// One connection's slot, freed on drop.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    slots: Arc<ConnectionSlots>,
    client: IpAddr,
    _counted: GaugeGuard,
}

impl ConnectionSlots {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { open: Mutex::default() })
    }

    /// Takes a slot for a connection from `client`.
    ///
    /// # Errors
    /// A limit is reached.
    pub(super) fn enter(
        self: &Arc<Self>,
        client: IpAddr,
        limits: Bounds,
        metrics: &Metrics,
    ) -> Result<ConnectionSlot, Full> {
        let mut open = self.open.lock();
        if open.total >= limits.connections {
            return Err(Full::Total);
        }
        let own = open.by_client.get(&client).copied().unwrap_or(0);
        if own >= limits.per_client {
            return Err(Full::Client);
        }
        open.by_client.insert(client, own + 1);
        open.total += 1;
        let counted = GaugeGuard::new(&metrics.member.client_connections);
        Ok(ConnectionSlot { slots: Arc::clone(self), client, _counted: counted })
    }

    /// Refuses a client and closes its connection; `None` if too many are being refused already.
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
        let mut open = self.open.lock();
        if open.refusing >= MAX_REFUSING {
            return None;
        }
        open.refusing += 1;
        let slots = Arc::clone(self);
        Some(async move {
            // This ends in time whatever the client does, and the result does not matter.
            drop(tokio::time::timeout(REFUSING, turn_away(stream, response)).await);
            slots.open.lock().refusing -= 1;
        })
    }
}

async fn turn_away(
    mut stream: TcpStream,
    response: http::Response<crate::proxy::Body>,
) -> std::io::Result<()> {
    let (mut head, body) = response.into_parts();
    let body = body.collect().await.map_err(std::io::Error::other)?.to_bytes();
    head.headers.insert(header::CONTENT_LENGTH, body.len().into());
    head.headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    let mut text = Vec::new();
    headers::write_head(&mut text, head.status, &head.headers);
    text.extend_from_slice(&body);
    stream.write_all(&text).await?;
    stream.shutdown().await?;
    let mut rest = stream.take(REFUSED_BYTES);
    tokio::io::copy(&mut rest, &mut tokio::io::sink()).await.map(drop)
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut open = self.slots.open.lock();
        open.total -= 1;
        if let Some(own) = open.by_client.get_mut(&self.client) {
            *own -= 1;
            if *own == 0 {
                open.by_client.remove(&self.client);
            }
        }
    }
}
