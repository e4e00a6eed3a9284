//! Sends interim responses to the client. hyper's server cannot send any, so they are written
//! directly, while nothing else is being written.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Buf as _;
use tokio::io::{AsyncRead, AsyncWrite};

use super::{Connection, Refuse};

impl<S: AsyncRead + AsyncWrite + Unpin, R: Refuse + Unpin> Connection<S, R> {
    /// Writes the responses of [`super::Handle::interim`]. Must be called after everything that
    /// hyper wrote is sent. hyper writes no other response, because the handler of the request
    /// waits for this.
    pub(super) fn poll_interim(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.interim.is_empty() {
            match self.handle.take_interim() {
                Some(interim) => self.interim = interim,
                None => return Poll::Ready(Ok(())),
            }
        }
        self.flushed = false;
        ready!(self.poll_rest_of_interim(cx))?;
        ready!(Pin::new(&mut self.io).poll_flush(cx))?;
        self.flushed = true;
        self.handle.interim_is_written();
        Poll::Ready(Ok(()))
    }

    /// Completes a partly written interim response before anything else is written.
    pub(super) fn poll_rest_of_interim(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.interim.has_remaining() {
            match ready!(Pin::new(&mut self.io).poll_write(cx, &self.interim))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.interim.advance(written),
            }
        }
        Poll::Ready(Ok(()))
    }
}
