//! A client's socket that does not wait for ever: neither for a head, nor for the next request, nor
//! for a client that stopped reading.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

use crate::{
    metrics::{Bound, Metrics, Reason},
    proxy::{
        body::Idle,
        wire::{Handle, Waiting, Wire},
    },
    settings::{Settings, Timeouts},
};

/// A client's socket.
///
/// hyper's own timer for heads also ends idle kept-alive connections, and it does not poll a body
/// (whose timer then never runs) while a client reads nothing; so both times are kept here.
#[derive(Debug)]
pub(in crate::proxy) struct ClientIo<S = TcpStream> {
    wire: Wire<S>,
    timeouts: Timeouts,
    metrics: Arc<Metrics>,
    silent: Idle,
    in_head: bool,
    stalled: Idle,
}

impl<S> ClientIo<S> {
    pub(in crate::proxy) fn new(
        stream: S,
        settings: &Settings,
        metrics: &Arc<Metrics>,
    ) -> (Self, Handle) {
        let timeouts = settings.timeouts;
        let (wire, handle) = Wire::new(stream, &settings.limits, Arc::clone(metrics));
        let io = Self {
            wire,
            timeouts,
            metrics: Arc::clone(metrics),
            silent: Idle::new(timeouts.idle),
            in_head: false,
            stalled: Idle::new(timeouts.idle),
        };
        (io, handle)
    }

    /// The socket and what was read from it early, for a tunnel that keeps its own time.
    pub(in crate::proxy) fn into_inner(self) -> (S, Bytes) {
        self.wire.into_inner()
    }

    /// Ends a wait for the client: of `header` for a head from its first byte and for the first one
    /// on a connection, of `idle` for another request. What happens within a request has its own
    /// times.
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Timeouts { header, idle, .. } = self.timeouts;
        let (limit, in_head, bound) = match self.wire.waiting() {
            Waiting::Head => (header, true, Bound::HeaderTime),
            Waiting::FirstRequest => (header, false, Bound::HeaderTime),
            Waiting::NextRequest => (idle, false, Bound::IdleConnection),
            Waiting::Nothing => {
                self.silent.moved();
                return Poll::Pending;
            }
        };
        if in_head != self.in_head {
            self.in_head = in_head;
            self.silent.moved();
        }
        ready!(self.silent.poll_expired(cx, limit));
        self.metrics.reached(bound);
        if in_head {
            self.metrics.refused_without_rule(Reason::Timeout);
        }
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    fn progress<T>(
        &mut self,
        cx: &mut Context<'_>,
        poll: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if poll.is_ready() {
            self.stalled.moved();
            return poll;
        }
        ready!(self.stalled.poll_expired(cx, self.timeouts.idle));
        self.metrics.reached(Bound::IdleAnswer);
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for ClientIo<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Poll::Ready(read) = Pin::new(&mut self.wire).poll_read(cx, buffer) {
            self.silent.moved();
            return Poll::Ready(read);
        }
        self.poll_silence(cx)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for ClientIo<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.wire).poll_write(cx, bytes);
        self.progress(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.wire).poll_write_vectored(cx, parts);
        self.progress(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.wire.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.wire).poll_flush(cx);
        self.progress(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.wire).poll_shutdown(cx)
    }
}
