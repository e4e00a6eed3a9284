//! The end of a connection after a malformed request: one response, then nothing.

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

use super::{Connection, Framing, READ_SIZE, Refuse};

/// How long the client's remaining data is read and discarded. Otherwise the kernel would send a
/// reset, which could destroy the response (RFC 9112 section 9.6).
const LINGER: Duration = Duration::from_secs(1);
/// Most bytes that are discarded.
const MAX_LINGER: usize = 256 * 1024;

/// A refusal and its progress.
#[derive(Debug)]
pub(super) struct Refusal {
    /// Earlier requests, whose responses go first.
    before: u64,
    stage: RefusalStage,
}

#[derive(Debug)]
enum RefusalStage {
    Wait(Bytes),
    Write(Bytes),
    Shutdown,
    Linger(Pin<Box<Sleep>>, usize),
    Done,
}

impl Refusal {
    /// `too_late`: a response to the same request has begun, so the connection just ends.
    pub(super) fn new(answer: Bytes, before: u64, too_late: bool) -> Self {
        let stage = if too_late { RefusalStage::Done } else { RefusalStage::Wait(answer) };
        Self { before, stage }
    }

    fn has_begun(&self) -> bool {
        !matches!(self.stage, RefusalStage::Wait(_))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin, R: Refuse + Unpin> Connection<S, R> {
    /// Once the refusal is being written, nothing else may be.
    pub(super) fn begin_write(&mut self) -> io::Result<()> {
        if matches!(&self.phase, Framing::Refused(refusal) if refusal.has_begun()) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        (self.wrote, self.flushed) = (true, false);
        Ok(())
    }

    /// Sends the response and ends the connection. The reader sees the end of the stream, so an
    /// incomplete body stays incomplete.
    pub(super) fn poll_refusal(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Framing::Refused(refusal) = &mut self.phase else { return Poll::Ready(Ok(())) };
        loop {
            match &mut refusal.stage {
                RefusalStage::Wait(answer) => {
                    // hyper polls again when it has flushed its data.
                    if !self.handle.is_answered(refusal.before, cx) || !self.flushed {
                        return Poll::Pending;
                    }
                    refusal.stage = RefusalStage::Write(std::mem::take(answer));
                }
                RefusalStage::Write(answer) if answer.has_remaining() => {
                    let written = ready!(Pin::new(&mut self.io).poll_write(cx, answer))?;
                    if written == 0 {
                        refusal.stage = RefusalStage::Done;
                    } else {
                        answer.advance(written);
                    }
                }
                RefusalStage::Write(_) => {
                    ready!(Pin::new(&mut self.io).poll_flush(cx))?;
                    refusal.stage = RefusalStage::Shutdown;
                }
                RefusalStage::Shutdown => {
                    ready!(Pin::new(&mut self.io).poll_shutdown(cx))?;
                    refusal.stage = RefusalStage::Linger(Box::pin(tokio::time::sleep(LINGER)), 0);
                }
                RefusalStage::Linger(until, thrown_away) => {
                    let mut piece = [0; READ_SIZE];
                    let mut piece = ReadBuf::new(&mut piece);
                    let over = until.as_mut().poll(cx).is_ready() || *thrown_away > MAX_LINGER;
                    if !over {
                        ready!(Pin::new(&mut self.io).poll_read(cx, &mut piece))?;
                        *thrown_away += piece.filled().len();
                    }
                    if over || piece.filled().is_empty() {
                        refusal.stage = RefusalStage::Done;
                    }
                }
                RefusalStage::Done => return Poll::Ready(Ok(())),
            }
        }
    }
}
