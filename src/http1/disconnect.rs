//! Notices a client that disconnects before its response, and reports what the connection waits
//! for.
//!
//! hyper notices it too, but with a pending read that keeps 8 KiB until the response is sent, and a
//! request may be held for hours. With `half_close` it does not. So this module reads after hyper
//! has written everything, which happens each time that hyper is polled.

use std::{
    io,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite};

use super::{Connection, Framing, MAX_EARLY, Refuse};

/// What the connection waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiting {
    /// The first byte of a connection.
    FirstRequest,
    /// The rest of a head.
    Head,
    /// A request on a kept-alive connection.
    NextRequest,
    /// Not for the client: a request is being answered or its body read, and other time limits
    /// apply.
    Nothing,
}

impl<S, R: Refuse> Connection<S, R> {
    /// What the connection waits for, after a read without data.
    pub fn waiting(&self) -> Waiting {
        match &self.phase {
            Framing::Head(_) if !self.buffered.is_empty() => Waiting::Head,
            Framing::Head(_) if self.requests == 0 => Waiting::FirstRequest,
            Framing::Head(_) if self.handle.answered() >= self.requests => Waiting::NextRequest,
            Framing::Head(_)
            | Framing::Length(_)
            | Framing::Chunks(_)
            | Framing::Undecided(_)
            | Framing::Through
            | Framing::Refused(_) => Waiting::Nothing,
        }
    }

    /// Whether everything written is flushed.
    pub fn is_flushed(&self) -> bool {
        self.flushed
    }

    /// The latest value of [`Connection::set_parkable`].
    pub fn is_parkable(&self) -> bool {
        self.handle.is_parkable()
    }

    /// From now on only passes on heads in title case, until [`Connection::resume`].
    pub fn require_title_case(&mut self) {
        self.title_case = true;
    }

    /// Resumes reading after [`Connection::poll_ahead`]. True if the next head is in title case;
    /// then only such heads are passed on, and another one waits, which [`super::Handle::is_parkable`]
    /// reports.
    pub fn resume(&mut self) -> bool {
        self.title_case = !std::mem::take(&mut self.needs_case_map);
        if !self.title_case {
            self.scan_buffered();
        }
        self.title_case
    }

    /// Sets whether hyper may release the connection for now.
    pub fn set_parkable(&self, parkable: bool) {
        self.handle.set_parkable(parkable);
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin, R: Refuse + Unpin> Connection<S, R> {
    /// Checks whether the client is still connected during a response. A bounded part of its data
    /// is kept.
    ///
    /// # Errors
    /// The client has closed its side or the connection failed, so the response has no receiver.
    pub(super) fn watch_for_disconnect(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.handle.answered() >= self.requests {
            return Ok(());
        }
        let left = match self.phase {
            Framing::Head(_) => self.poll_ahead(cx),
            Framing::Undecided(_) if !self.handle.passes_through() => self.poll_early(cx),
            Framing::Undecided(_)
            | Framing::Length(_)
            | Framing::Chunks(_)
            | Framing::Through
            | Framing::Refused(_) => Poll::Pending,
        };
        match left {
            Poll::Ready(Ok(true)) => Err(io::ErrorKind::UnexpectedEof.into()),
            Poll::Ready(Err(error)) => Err(error),
            Poll::Ready(Ok(false)) | Poll::Pending => Ok(()),
        }
    }

    /// Reads until there is something to pass on: a complete head or a violation. True at the end
    /// of the stream.
    pub fn poll_ahead(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        while matches!(self.phase, Framing::Head(_)) && self.valid == 0 && !self.needs_case_map {
            if ready!(self.poll_read_more(cx))? {
                return Poll::Ready(Ok(true));
            }
            self.scan_buffered();
        }
        Poll::Ready(Ok(false))
    }

    /// Buffers the bytes after an undecided CONNECT or Upgrade. True if the stream has ended and
    /// nothing is buffered.
    pub(super) fn poll_early(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        while !self.ended && self.buffered.len() < MAX_EARLY {
            self.ended = ready!(self.poll_read_more(cx))?;
        }
        if self.ended && self.buffered.is_empty() { Poll::Ready(Ok(true)) } else { Poll::Pending }
    }
}
