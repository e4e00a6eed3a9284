//! Accepts client connections, and closes them when the proxy stops.

mod connection_slots;
mod io;
mod malformed;

use std::{
    error::Error,
    future::poll_fn,
    io::ErrorKind,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context as TaskContext, Poll},
    time::Duration,
};

use hyper::{
    rt::{Sleep, Timer},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::connection_slots::{ConnectionSlot, ConnectionSlots};
pub(crate) use self::io::ClientIo;
use super::workers::move_to;
use crate::{
    observability::{
        event::{Access, Event},
        metrics::Reason,
    },
    proxy::{ClientConn, Context, HYPER_HEADERS, Workers, handle},
    rules::settings::Settings,
    runtime::clock::LogThrottle,
};

/// The pause after accept fails for lack of descriptors or memory. Without a pause the loop would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(250);
/// hyper's minimum for its read buffer.
const MIN_BUFFER: usize = 8 * 1024;

/// Serves clients of `listener` on the threads of `workers` until `stop`, then finishes the
/// requests in flight within `timeouts.drain` and closes the rest. Returns how many connections and
/// tunnels were closed.
pub async fn serve(
    listener: TcpListener,
    cx: Arc<Context>,
    workers: Arc<Workers>,
    stop: CancellationToken,
) -> usize {
    let connections = TaskTracker::new();
    let acceptor = Acceptor { cx, workers, connections, slots: ConnectionSlots::new(), stop };
    let throttle = LogThrottle::default();
    loop {
        let accepted = tokio::select! {
            () = acceptor.stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => acceptor.admit(stream, peer),
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => {
                if throttle.allows() {
                    tracing::error!(%error, "cannot accept connections; trying again");
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    let Acceptor { cx, connections, .. } = acceptor;
    drop(listener);
    cx.stopping.cancel();
    connections.close();
    cx.tunnels.close();
    let drained = async { tokio::join!(connections.wait(), cx.tunnels.wait()) };
    let limit = cx.live().settings.timeouts.drain;
    let mut cut_off = 0;
    if tokio::time::timeout(limit, drained).await.is_err() {
        let (left, tunnels) = (connections.len(), cx.tunnels.len());
        tracing::warn!(left, tunnels, "the drain time is over; closing open connections");
        cut_off = left + tunnels;
    }
    cx.end.cancel();
    tokio::join!(connections.wait(), cx.tunnels.wait());
    cut_off
}

/// Whether the client disconnected during accept. Accept continues with the next client.
fn is_of_one_connection(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionRefused | ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset
    )
}

/// Accepts connections.
struct Acceptor {
    cx: Arc<Context>,
    workers: Arc<Workers>,
    connections: TaskTracker,
    slots: Arc<ConnectionSlots>,
    stop: CancellationToken,
}

impl Acceptor {
    fn admit(&self, stream: TcpStream, peer: SocketAddr) {
        let Self { cx, slots, connections, .. } = self;
        let live = cx.live();
        let limits = live.settings.limits;
        let slot = match slots.enter(peer.ip(), limits, &cx.metrics) {
            Ok(slot) => slot,
            Err(full) => {
                if live.settings.log.access {
                    let detail =
                        format!("the proxy has as many {} as `limits` allows", full.what());
                    Access::unread(peer.ip(), Reason::Queue, Some(503), detail).log();
                }
                if let Some(refusing) = slots.refuse(full, stream, &cx.metrics) {
                    connections.spawn(refusing);
                }
                return;
            }
        };
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "cannot set TCP_NODELAY on a client connection");
        }
        let task = ConnectionTask { cx: Arc::clone(cx), peer, _slot: slot };
        let (there, stop) = (self.workers.least_busy(), self.stop.clone());
        match move_to(stream, &there) {
            Ok(stream) => {
                connections.spawn_on(async move { task.serve(stream, stop).await }, &there);
            }
            Err(error) => tracing::debug!(%error, %peer, "cannot serve a client connection"),
        }
    }
}

/// A connection. If its task panics, only this connection ends.
struct ConnectionTask {
    cx: Arc<Context>,
    peer: SocketAddr,
    _slot: ConnectionSlot,
}

impl ConnectionTask {
    /// Serves the connection until it ends. hyper holds it only while requests come. It is parked between them.
    async fn serve(&self, stream: TcpStream, stop: CancellationToken) {
        let (mut builder, mut io, connection) = {
            let live = self.cx.live();
            let (mut io, connection) = ClientIo::new(stream, &live.settings, &self.cx.metrics);
            io.log_refusals(self.peer.ip(), live.settings.log.access);
            (builder(&live.settings), io, connection)
        };
        let client_conn = ClientConn::new(self.peer, Some(connection), None);
        let mut stop = std::pin::pin!(stop.cancelled());
        loop {
            let request = tokio::select! {
                request = poll_fn(|cx| io.poll_request(cx)) => request,
                () = stop.as_mut() => return,
            };
            let served = match request {
                Ok(true) => {
                    builder.preserve_header_case(!io.resume());
                    // Boxed, so that a parked connection does not keep this memory.
                    Box::pin(self.serve_until_idle(&builder, io, &client_conn, stop.as_mut())).await
                }
                Ok(false) => return,
                Err(error) => Err(error.into()),
            };
            io = match served {
                Ok(Some(idle)) => idle,
                Ok(None) => return,
                Err(error) => {
                    tracing::debug!(%error, peer = %self.peer, "a client connection ended");
                    return;
                }
            };
        }
    }

    /// Serves requests until the connection ends or can be parked. Returns it in the latter case.
    async fn serve_until_idle(
        &self,
        builder: &http1::Builder,
        io: ClientIo,
        client_conn: &ClientConn,
        stop: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<Option<ClientIo>, Box<dyn Error + Send + Sync>> {
        let service = service_fn(|request| handle(&self.cx, client_conn, request));
        let mut connection = builder.serve_connection(TokioIo::new(io), service).with_upgrades();
        let serving = poll_fn(|cx| match Pin::new(&mut connection).poll(cx) {
            Poll::Pending if client_conn.is_parkable() => Poll::Ready(Ok(true)),
            served => served.map_ok(|()| false),
        });
        let is_parkable = tokio::select! {
            served = serving => served?,
            () = stop => {
                // Idle connections close now; a response in flight ends with `Connection: close`.
                Pin::new(&mut connection).graceful_shutdown();
                tokio::select! {
                    served = &mut connection => served?,
                    () = self.cx.end.cancelled() => {}
                }
                false
            }
        };
        // hyper's buffers are empty: it only gets whole requests, and each has a response.
        let parts = connection.into_parts().filter(|_| is_parkable);
        Ok(parts.map(|parts| parts.io.into_inner()))
    }
}

impl Drop for ConnectionTask {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let what = format!("the connection of {}", self.peer);
            self.cx.events.emit(Event::Panicked { what });
        }
    }
}

/// A timer for hyper that never fires and allocates nothing. [`ClientIo`] limits the time for heads, but hyper needs
/// some timer to wait for the next request after a response.
#[derive(Debug)]
struct NeverTimer;

impl Timer for NeverTimer {
    fn sleep(&self, _: Duration) -> Pin<Box<dyn Sleep>> {
        Box::pin(Self)
    }

    fn sleep_until(&self, _: std::time::Instant) -> Pin<Box<dyn Sleep>> {
        Box::pin(Self)
    }
}

impl Sleep for NeverTimer {}

impl Future for NeverTimer {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut TaskContext<'_>) -> Poll<()> {
        Poll::Pending
    }
}

/// How HTTP/1.1 is read from a client.
pub(crate) fn builder(settings: &Settings) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(NeverTimer)
        .header_read_timeout(settings.timeouts.header)
        .half_close(true)
        .preserve_header_case(true)
        .max_header_size(settings.limits.header_bytes)
        .max_buf_size(settings.limits.header_bytes.max(MIN_BUFFER));
    if settings.limits.headers != HYPER_HEADERS {
        builder.max_headers(settings.limits.headers);
    }
    builder
}

#[cfg(test)]
mod tests;
