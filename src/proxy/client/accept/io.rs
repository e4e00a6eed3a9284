//! A client's socket with a limit on every wait: for a head, for the next request, and for a client that does not read.

use std::{
    io,
    net::IpAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

use super::malformed::Malformed;
use crate::{
    http1::{Connection, Handle, Limits, Waiting},
    observability::metrics::{Bound, Metrics, Reason},
    proxy::upstream::upload::IdleTimer,
    rules::settings::{Settings, Timeouts},
};

/// A connection is parked when its client has been idle for this long. A parked connection uses little memory, but its
/// next request takes a ninth more instructions. Clients with continuous requests are never parked.
const PARK_AFTER: Duration = Duration::from_millis(40);

/// A client's socket.
///
/// hyper's timer for heads would also end idle connections, and hyper does not poll a body while the client does not
/// read. So this type measures both times.
#[derive(Debug)]
pub(crate) struct ClientIo<S = TcpStream> {
    connection: Connection<S, Malformed>,
    timeouts: Timeouts,
    metrics: Arc<Metrics>,
    idle_reads: IdleTimer,
    /// What the connection waits for, and whether it can be parked after this wait.
    awaited: (Waiting, bool),
    /// Whether hyper is dropped between requests; see [`ClientIo::poll_request`].
    can_park: bool,
    idle_writes: IdleTimer,
}

impl<S> ClientIo<S> {
    pub(crate) fn new(stream: S, settings: &Settings, metrics: &Arc<Metrics>) -> (Self, Handle) {
        let timeouts = settings.timeouts;
        let limits =
            Limits { bytes: settings.limits.header_bytes, fields: settings.limits.headers };
        let malformed = Malformed::new(Arc::clone(metrics));
        let (connection, handle) = Connection::new(stream, limits, malformed);
        let io = Self {
            connection,
            timeouts,
            metrics: Arc::clone(metrics),
            idle_reads: IdleTimer::new(timeouts.idle),
            awaited: (Waiting::FirstRequest, false),
            can_park: false,
            idle_writes: IdleTimer::new(timeouts.idle),
        };
        (io, handle)
    }

    /// Names the client, and whether requests that are refused before they can be read are logged.
    pub(crate) fn log_refusals(&mut self, client: IpAddr, logs: bool) {
        self.connection.refuse_mut().log_for(client, logs);
    }

    /// The socket, and the bytes that were already read, for a tunnel with its own time limits.
    pub(crate) fn into_inner(self) -> (S, Bytes) {
        self.connection.into_inner()
    }

    /// Limits the wait for the client: `header` for the first head on a connection and for a head from its first byte,
    /// `idle` for another request. Waits within a request have their own limits.
    fn poll_read_timeout(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Timeouts { header, idle, .. } = self.timeouts;
        let (waiting, is_parkable) = (self.connection.waiting(), self.connection.is_parkable());
        let becomes_parkable = waiting == Waiting::NextRequest
            && !is_parkable
            && self.can_park
            && idle > PARK_AFTER
            && self.connection.is_flushed();
        let limit = match waiting {
            Waiting::Head | Waiting::FirstRequest => header,
            Waiting::NextRequest if becomes_parkable => PARK_AFTER,
            Waiting::NextRequest if is_parkable => idle.saturating_sub(PARK_AFTER),
            Waiting::NextRequest => idle,
            Waiting::Nothing => {
                self.idle_reads.reset();
                return Poll::Pending;
            }
        };
        if self.awaited != (waiting, becomes_parkable) {
            self.awaited = (waiting, becomes_parkable);
            self.idle_reads.reset();
        }
        ready!(self.idle_reads.poll_expired(cx, limit));
        match waiting {
            Waiting::NextRequest if becomes_parkable => {
                self.connection.set_parkable(true);
                return Poll::Pending;
            }
            Waiting::NextRequest => self.metrics.reached(Bound::IdleConnection),
            Waiting::FirstRequest | Waiting::Nothing => self.metrics.reached(Bound::HeaderTime),
            Waiting::Head => {
                self.metrics.reached(Bound::HeaderTime);
                self.metrics.refused_without_rule(Reason::Timeout);
                let detail = "the request head was not complete within `timeouts.header`";
                self.connection.refuse_mut().log(Reason::Timeout, None, detail);
            }
        }
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    fn limit_write<T>(
        &mut self,
        cx: &mut Context<'_>,
        poll: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if poll.is_ready() {
            self.idle_writes.reset();
            return poll;
        }
        ready!(self.idle_writes.poll_expired(cx, self.timeouts.idle));
        self.metrics.reached(Bound::IdleAnswer);
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> ClientIo<S> {
    /// Waits for the client's next request, without hyper. A connection that waits here takes a few
    /// KiB; hyper would add two buffers of 8 KiB and the space for a whole request. False if the
    /// client has disconnected.
    ///
    /// After this, [`ClientIo::resume`] must be called. Later [`Handle::is_parkable`] reports that the client has been
    /// idle for a while, or has sent data that another hyper instance must read.
    ///
    /// # Errors
    /// It was idle for too long, or the connection failed.
    pub(super) fn poll_request(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        self.connection.require_title_case();
        let Poll::Ready(ended) = self.connection.poll_ahead(cx) else {
            return self.poll_read_timeout(cx).map_ok(|()| false);
        };
        self.idle_reads.reset();
        self.connection.set_parkable(false);
        self.can_park = true;
        Poll::Ready(ended.map(|ended| !ended))
    }

    /// hyper takes over the connection. True if it need not preserve the case of names.
    pub(super) fn resume(&mut self) -> bool {
        self.connection.resume()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for ClientIo<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Poll::Ready(read) = Pin::new(&mut self.connection).poll_read(cx, buffer) {
            self.idle_reads.reset();
            self.connection.set_parkable(false);
            return Poll::Ready(read);
        }
        self.poll_read_timeout(cx)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for ClientIo<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.connection).poll_write(cx, bytes);
        self.limit_write(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.connection).poll_write_vectored(cx, parts);
        self.limit_write(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.connection.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.connection).poll_flush(cx);
        self.limit_write(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_shutdown(cx)
    }
}
