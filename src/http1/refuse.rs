//! The end of a connection on which something malformed came: one answer, then nothing.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Buf as _, Bytes};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Sleep,
};

use super::{Connection, PIECE, Phase, Refuse};

/// How long what the client still sends is read and thrown away, so that the system does not meet
/// it with a reset that destroys the answer on its way (RFC 9112 section 9.6).
const LINGER: Duration = Duration::from_secs(1);
/// How much of it.
const MAX_LINGER: usize = 256 * 1024;

/// Where a refusal stands.
#[derive(Debug)]
pub(super) struct Refusal {
    /// Requests before this one, whose answers go first.
    before: u64,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Wait(Bytes),
    Write(Bytes),
    Shutdown,
    Linger(Pin<Box<Sleep>>, usize),
    Done,
}

impl Refusal {
    /// `too_late`: an answer to this very request is under way already, so that the connection just
    /// ends.
    pub(super) fn new(answer: Bytes, before: u64, too_late: bool) -> Self {
        let stage = if too_late { Stage::Done } else { Stage::Wait(answer) };
        Self { before, stage }
    }

    fn has_begun(&self) -> bool {
        !matches!(self.stage, Stage::Wait(_))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin, R: Refuse + Unpin> Connection<S, R> {
    /// Once the refusal is being written, nothing else is.
    pub(super) fn begin_write(&mut self) -> io::Result<()> {
        if matches!(&self.phase, Phase::Refused(refusal) if refusal.has_begun()) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        (self.wrote, self.flushed) = (true, false);
        Ok(())
    }

    /// Answers and ends; whoever reads sees the end of the stream, so that an unfinished body stays
    /// unfinished.
    pub(super) fn poll_refusal(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Phase::Refused(refusal) = &mut self.phase else { return Poll::Ready(Ok(())) };
        loop {
            match &mut refusal.stage {
                Stage::Wait(answer) => {
                    // hyper polls again when it has flushed what it holds.
                    if !self.handle.is_answered(refusal.before, cx) || !self.flushed {
                        return Poll::Pending;
                    }
                    refusal.stage = Stage::Write(std::mem::take(answer));
                }
                Stage::Write(answer) if answer.has_remaining() => {
                    let written = ready!(Pin::new(&mut self.io).poll_write(cx, answer))?;
                    if written == 0 {
                        refusal.stage = Stage::Done;
                    } else {
                        answer.advance(written);
                    }
                }
                Stage::Write(_) => {
                    ready!(Pin::new(&mut self.io).poll_flush(cx))?;
                    refusal.stage = Stage::Shutdown;
                }
                Stage::Shutdown => {
                    ready!(Pin::new(&mut self.io).poll_shutdown(cx))?;
                    refusal.stage = Stage::Linger(Box::pin(tokio::time::sleep(LINGER)), 0);
                }
                Stage::Linger(until, thrown_away) => {
                    let mut piece = [0; PIECE];
                    let mut piece = ReadBuf::new(&mut piece);
                    let over = until.as_mut().poll(cx).is_ready() || *thrown_away > MAX_LINGER;
                    if !over {
                        ready!(Pin::new(&mut self.io).poll_read(cx, &mut piece))?;
                        *thrown_away += piece.filled().len();
                    }
                    if over || piece.filled().is_empty() {
                        refusal.stage = Stage::Done;
                    }
                }
                Stage::Done => return Poll::Ready(Ok(())),
            }
        }
    }
}
