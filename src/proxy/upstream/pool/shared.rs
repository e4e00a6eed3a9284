//! HTTP/2 connections to sites. They are shared, because one carries many requests at a time.

use std::{sync::Arc, time::Duration};

use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::time::Instant;

use super::{ConnKey, Sites};
use crate::{
    proxy::{stream::Stream, upstream::upload::Upload},
    runtime::clock,
};

/// Most concurrent requests on one connection. Servers allow 100 (RFC 9113 section 6.5.2 advises no less).
const MAX_STREAMS: usize = 100;
/// Connections of one site that are kept for sharing.
const MAX_PER_SITE: usize = 4;
/// The interval of pings on a connection in use, and the time for a reply.
const PING: Duration = Duration::from_secs(20);
/// Windows of a stream and of a connection: the bytes buffered for a slow client.
const STREAM_WINDOW: u32 = 256 * 1024;
const CONNECTION_WINDOW: u32 = 1024 * 1024;
/// Largest list of response fields.
const MAX_HEADER_LIST: u32 = 64 * 1024;

/// A slot on a shared connection, freed on drop.
#[derive(Debug)]
pub(crate) struct StreamSlot {
    pub(super) sender: SendRequest<Upload>,
    _slot: Arc<()>,
}

#[derive(Debug)]
struct SharedConn {
    sender: SendRequest<Upload>,
    /// Each stream has a clone.
    slots: Arc<()>,
    since: Instant,
}

impl SharedConn {
    fn stream(&mut self) -> StreamSlot {
        self.since = clock::now();
        StreamSlot { sender: self.sender.clone(), _slot: Arc::clone(&self.slots) }
    }

    fn streams(&self) -> usize {
        Arc::strong_count(&self.slots) - 1
    }

    fn is_idle(&self) -> bool {
        self.streams() == 0
    }
}

/// The shared connections of the process.
#[derive(Debug, Default)]
pub(super) struct SharedConns {
    sites: Sites<Vec<SharedConn>>,
}

impl SharedConns {
    /// A slot on a connection to `key`, if one is free.
    pub(super) fn take(&mut self, key: &ConnKey) -> Option<StreamSlot> {
        let connections = self.sites.get_mut(key)?;
        connections.retain(|one| !one.sender.is_closed());
        let free = |one: &&mut SharedConn| one.streams() < MAX_STREAMS;
        let found = connections.iter_mut().find(free).map(SharedConn::stream);
        if connections.is_empty() {
            self.sites.remove(key);
        }
        found
    }

    /// Returns the first slot on a new connection. The connection is kept for other requests if it `shares` and its
    /// site has few. Otherwise it serves only this request.
    pub(super) fn put(
        &mut self,
        key: ConnKey,
        sender: SendRequest<Upload>,
        shares: bool,
    ) -> StreamSlot {
        let mut connection = SharedConn { sender, slots: Arc::default(), since: clock::now() };
        let stream = connection.stream();
        if !shares {
            return stream;
        }
        let connections = self.sites.entry(key).or_default();
        if connections.len() < MAX_PER_SITE {
            connections.push(connection);
        }
        stream
    }

    /// Drops connections that were unused for `limit`; hyper then closes them. True if any is left.
    pub(super) fn sweep(&mut self, now: Instant, limit: Duration) -> bool {
        self.sites.retain(|_, connections| {
            let rested = |one: &SharedConn| now.duration_since(one.since) > limit;
            connections.retain(|one| !one.sender.is_closed() && (!one.is_idle() || !rested(one)));
            !connections.is_empty()
        });
        !self.sites.is_empty()
    }

    /// Makes room: closes idle connections of any site.
    pub(super) fn shrink(&mut self, most: usize) {
        if self.sites.len() >= most {
            self.sites.retain(|_, connections| {
                connections.retain(|one| !one.is_idle());
                !connections.is_empty()
            });
        }
    }
}

/// Starts HTTP/2 over `stream`.
pub(super) async fn handshake<S: Stream + 'static>(
    stream: S,
) -> Result<
    (SendRequest<Upload>, impl Future<Output = Result<(), hyper::Error>> + Send + 'static),
    hyper::Error,
> {
    Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(MAX_HEADER_LIST)
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING)
        .handshake(TokioIo::new(stream))
        .await
}
