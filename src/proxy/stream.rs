//! Connections to clients, sites and upstream proxies, as streams of bytes.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Buf as _, Bytes};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

use super::client::accept::ClientIo;

/// A connection that can be read and written.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// One end of a tunnel, with the bytes that were read before the tunnel began.
pub(crate) enum Side {
    /// A plain TCP connection, the usual case. It is copied without a lock, and without a buffer while idle.
    Tcp(TcpStream, Bytes),
    /// Anything else (TLS).
    Other(Box<dyn Stream>),
}

impl Side {
    /// An end that is not a plain TCP connection.
    pub(crate) fn other(stream: impl Stream + 'static) -> Self {
        Self::Other(Box::new(stream))
    }

    /// The client's end of an upgraded connection.
    pub(crate) fn of_client(upgraded: Upgraded) -> Self {
        match upgraded.downcast::<TokioIo<ClientIo>>() {
            Ok(parts) => {
                let (stream, later) = parts.io.into_inner().into_inner();
                let early = if later.is_empty() {
                    parts.read_buf
                } else {
                    [parts.read_buf, later].concat().into()
                };
                Self::Tcp(stream, early)
            }
            Err(upgraded) => Self::other(TokioIo::new(upgraded)),
        }
    }

    /// The site's end of an upgraded connection.
    pub(crate) fn of_site(upgraded: Upgraded) -> Self {
        match upgraded.downcast::<TokioIo<TcpStream>>() {
            Ok(parts) => Self::Tcp(parts.io.into_inner(), parts.read_buf),
            Err(upgraded) => Self::other(TokioIo::new(upgraded)),
        }
    }

    /// The end as a stream of any kind, and its early bytes.
    pub(crate) fn boxed(self) -> (Box<dyn Stream>, Bytes) {
        match self {
            Self::Tcp(stream, early) => (Box::new(stream), early),
            Self::Other(stream) => (stream, Bytes::new()),
        }
    }
}

/// A stream whose first bytes are read again.
#[derive(Debug)]
pub(crate) struct Peeked<S> {
    early: Bytes,
    stream: S,
}

impl<S> From<S> for Peeked<S> {
    fn from(stream: S) -> Self {
        Self::new(stream, Bytes::new())
    }
}

impl<S> Peeked<S> {
    /// A stream whose bytes in `early` have already been read.
    pub(crate) fn new(stream: S, early: Bytes) -> Self {
        Self { early, stream }
    }

    /// The stream, and the bytes to read first.
    pub(crate) fn into_parts(self) -> (S, Bytes) {
        (self.stream, self.early)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Peeked<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.early.is_empty() {
            return Pin::new(&mut this.stream).poll_read(cx, buf);
        }
        let length = this.early.len().min(buf.remaining());
        buf.put_slice(&this.early[..length]);
        this.early.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Peeked<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
