//! Notices a client that leaves before it has its answer, and says what a client is waited for.
//!
//! hyper notices it too, by a read that keeps 8 KiB for as long as the answer takes, and a request may be held for hours.
//! With `half_close` it does not. So this module reads whenever hyper has written all that it has, which happens each time
//! that hyper is polled.

use std::{
    io,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite};

use super::{Connection, MAX_EARLY, Phase, Refuse};

/// What a client is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiting {
    /// The first byte of a connection.
    FirstRequest,
    /// The rest of a head.
    Head,
    /// A request on a kept-alive connection.
    NextRequest,
    /// A request is being answered (or its body read): other times count.
    Nothing,
}

impl<S, R: Refuse> Connection<S, R> {
    /// What the client is waited for, after a read that found nothing.
    pub fn waiting(&self) -> Waiting {
        match &self.phase {
            Phase::Head(_) if !self.held.is_empty() => Waiting::Head,
            Phase::Head(_) if self.requests == 0 => Waiting::FirstRequest,
            Phase::Head(_) if self.handle.answered() >= self.requests => Waiting::NextRequest,
            Phase::Head(_)
            | Phase::Length(_)
            | Phase::Chunks(_)
            | Phase::Undecided(_)
            | Phase::Through
            | Phase::Refused(_) => Waiting::Nothing,
        }
    }

    /// Whether the client has all that was written.
    pub fn is_flushed(&self) -> bool {
        self.flushed
    }

    /// Whether [`Connection::rest`] was said.
    pub fn rests(&self) -> bool {
        self.handle.rests()
    }

    /// From now on only heads in title case are handed over, until [`Connection::take_up`].
    pub fn watch_case(&mut self) {
        self.title_case = true;
    }

    /// Somebody reads again, after [`Connection::poll_ahead`]. True where what is to be handed over is in
    /// title case, and so will be all that follows; a head that is not then waits, and
    /// [`super::Handle::rests`] tells so.
    pub fn take_up(&mut self) -> bool {
        self.title_case = !std::mem::take(&mut self.waits);
        if !self.title_case {
            self.scan_held();
        }
        self.title_case
    }

    /// Says that hyper may let go of the connection for now, or that it has it back.
    pub fn rest(&self, rests: bool) {
        self.handle.rest(rests);
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin, R: Refuse + Unpin> Connection<S, R> {
    /// Looks whether the client is still there while something is answered. Of what it sends
    /// meanwhile the beginning is kept.
    ///
    /// # Errors
    /// It has closed its side, or the connection broke: nobody waits for the answer.
    pub(super) fn watch_for_disconnect(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.handle.answered() >= self.requests {
            return Ok(());
        }
        let left = match self.phase {
            Phase::Head(_) => self.poll_ahead(cx),
            Phase::Undecided(_) if !self.handle.passes_through() => self.poll_early(cx),
            Phase::Undecided(_)
            | Phase::Length(_)
            | Phase::Chunks(_)
            | Phase::Through
            | Phase::Refused(_) => Poll::Pending,
        };
        match left {
            Poll::Ready(Ok(true)) => Err(io::ErrorKind::UnexpectedEof.into()),
            Poll::Ready(Err(error)) => Err(error),
            Poll::Ready(Ok(false)) | Poll::Pending => Ok(()),
        }
    }

    /// Reads until there is something to hand over: a whole head, or what is to be refused. True at
    /// the end of the stream.
    pub fn poll_ahead(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        while matches!(self.phase, Phase::Head(_)) && self.good == 0 && !self.waits {
            if ready!(self.poll_piece(cx))? {
                return Poll::Ready(Ok(true));
            }
            self.scan_held();
        }
        Poll::Ready(Ok(false))
    }

    /// Keeps what follows a CONNECT or an Upgrade that is undecided; true where the stream has ended
    /// and nothing is kept.
    pub(super) fn poll_early(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        while !self.ended && self.held.len() < MAX_EARLY {
            self.ended = ready!(self.poll_piece(cx))?;
        }
        if self.ended && self.held.is_empty() { Poll::Ready(Ok(true)) } else { Poll::Pending }
    }
}
