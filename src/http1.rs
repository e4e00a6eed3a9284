//! A client's connection, with a strict reading of HTTP/1.1 framing in front of hyper.
//!
//! hyper accepts what a proxy must refuse: a Content-Length beside Transfer-Encoding, lines that it repairs, fields that
//! it skips. Where two parsers read a message differently, a request can be smuggled. [`Connection`] reads the raw bytes
//! first. A message that is not exactly what RFC 9112 describes never reaches hyper: the owner of the connection
//! ([`Refuse`]) writes the answer, which goes out after the answers to earlier requests, and the connection ends.
//!
//! Bodies pass as they come and are never kept. A head is kept only until its last line is there, and a head that arrives
//! in one piece is read where it lies. How long a head may take is for the owner to decide.
//!
//! A client that leaves before it has its answer is noticed here (`disconnect`). hyper must be given `half_close`, or it
//! would look as well.
//!
//! To keep the case of field names costs hyper a second map of them. So hyper is asked to only for clients that write
//! names otherwise than hyper would. A head with such names that follows heads without waits here until another hyper
//! has the connection.
//!
//! After a CONNECT or an Upgrade nothing is read as HTTP, and nothing is passed on, until the owner has decided
//! ([`Handle::pass_through`]) or has answered.

mod ascii;
mod chunks;
mod disconnect;
mod handle;
mod head;
mod interim;
mod refuse;
mod violation;

use std::{
    io,
    mem::MaybeUninit,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf as _, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use self::{
    chunks::Chunks,
    head::{Follows, Head, Progress},
    refuse::Refusal,
};
pub use self::{
    disconnect::Waiting,
    handle::{Answering, Handle},
    head::Limits,
    violation::Violation,
};

/// Bytes taken at a time while a head is incomplete, and kept at most while a CONNECT or an Upgrade
/// is undecided: a TLS hello that a client sends without waiting.
const PIECE: usize = 4096;
/// Most bytes that are kept while a CONNECT or an Upgrade is undecided.
const MAX_EARLY: usize = 4 * PIECE;

/// What the next byte belongs to.
#[derive(Debug)]
enum Phase {
    Head(Head),
    Length(u64),
    Chunks(Chunks),
    /// A CONNECT (true) or an Upgrade was read, and is not yet answered.
    Undecided(bool),
    /// A tunnel: nothing is HTTP any more.
    Through,
    Refused(Refusal),
}

/// A client's socket whose requests are well formed, as far as one who reads from it can tell.
#[derive(Debug)]
pub struct Connection<S, R> {
    io: S,
    phase: Phase,
    /// Bytes that are read but not handed over; the first `good` of them may be.
    held: BytesMut,
    good: usize,
    /// The client has closed its side while something was undecided.
    ended: bool,
    /// Requests handed over.
    requests: u64,
    /// Something was written since the last request was handed over.
    wrote: bool,
    /// Everything written is flushed: nothing of an answer is under way.
    flushed: bool,
    /// Whoever reads takes only heads whose names are in title case.
    title_case: bool,
    /// A head that has others is held: it waits for somebody who takes it.
    waits: bool,
    /// What is left of an interim answer that is being written.
    interim: Bytes,
    limits: Limits,
    handle: Handle,
    refuse: R,
}

/// Answers requests that are malformed.
pub trait Refuse {
    /// The answer, as it stands on the wire; the connection ends after it. Called once, when the violation is found. It is
    /// not sent where an answer to the same request is already under way.
    ///
    /// `in_body`: the head was well formed and was handed over.
    fn refuse(&mut self, violation: Violation, in_body: bool) -> Bytes;
}

impl<S, R: Refuse> Connection<S, R> {
    /// Wraps a client's socket. The caller must call [`Handle::answering`] for every request.
    pub fn new(io: S, limits: Limits, refuse: R) -> (Self, Handle) {
        let handle = Handle::default();
        let connection = Self {
            io,
            phase: Phase::Head(Head::default()),
            held: BytesMut::new(),
            good: 0,
            ended: false,
            requests: 0,
            wrote: false,
            flushed: true,
            title_case: false,
            waits: false,
            interim: Bytes::new(),
            limits,
            handle: handle.clone(),
            refuse,
        };
        (connection, handle)
    }

    /// Who answers malformed requests.
    pub fn refuse_mut(&mut self) -> &mut R {
        &mut self.refuse
    }

    /// The socket, and what was read from it early; for a tunnel, once hyper gave the connection
    /// back.
    pub fn into_inner(self) -> (S, Bytes) {
        (self.io, self.held.freeze())
    }

    /// Reads on in `bytes`, which follow what was read before.
    fn scan(&mut self, bytes: &[u8]) -> Scanned {
        let mut good = 0;
        while good < bytes.len() {
            let rest = &bytes[good..];
            match &mut self.phase {
                Phase::Head(head) => match head.advance(rest, self.limits) {
                    Ok(Progress::Incomplete) => break,
                    Ok(Progress::EmptyPath(at)) => {
                        self.phase = Phase::Head(Head::default());
                        return Scanned { good, empty_path: Some(at) };
                    }
                    Ok(Progress::Complete(..)) if self.title_case && !head.is_in_title_case() => {
                        self.phase = Phase::Head(Head::default());
                        self.waits = true;
                        break;
                    }
                    Ok(Progress::Complete(length, follows)) => {
                        good += length;
                        self.requests += 1;
                        self.wrote = false;
                        self.phase = after(follows);
                    }
                    Err(violation) => self.violated(violation, false),
                },
                Phase::Length(left) => {
                    let there = u64::try_from(rest.len()).unwrap_or(u64::MAX);
                    let taken = there.min(*left);
                    *left -= taken;
                    good += usize::try_from(taken).unwrap_or(usize::MAX);
                    if *left == 0 {
                        self.phase = Phase::Head(Head::default());
                    }
                }
                Phase::Chunks(chunks) => {
                    let read = chunks.advance(rest);
                    good += read.good;
                    match read.end {
                        Ok(false) => {}
                        Ok(true) => self.phase = Phase::Head(Head::default()),
                        Err(violation) => self.violated(violation, true),
                    }
                }
                Phase::Undecided(_) | Phase::Through | Phase::Refused(_) => break,
            }
        }
        Scanned { good, empty_path: None }
    }

    fn violated(&mut self, violation: Violation, in_body: bool) {
        let answer = self.refuse.refuse(violation, in_body);
        // A body belongs to a request that is being answered: either nothing of that answer is out,
        // or it is too late for another one.
        let before = if in_body { self.requests - 1 } else { self.requests };
        let too_late = in_body && (self.wrote || self.handle.answered() < before);
        self.phase = Phase::Refused(Refusal::new(answer, before, too_late));
    }

    /// Reads on in what is held.
    fn scan_held(&mut self) {
        let mut held = std::mem::take(&mut self.held);
        loop {
            let scanned = self.scan(&held[self.good..]);
            self.good += scanned.good;
            match scanned.empty_path {
                Some(at) => spell_empty_path(&mut held, self.good + at),
                None => break,
            }
        }
        self.held = held;
    }

    /// Hands over what is held and good. False where there is nothing.
    fn hand_over(&mut self, buf: &mut ReadBuf<'_>) -> bool {
        let length = self.good.min(buf.remaining());
        buf.put_slice(&self.held[..length]);
        self.held.advance(length);
        self.good -= length;
        if self.held.is_empty() {
            // Nobody needs its room before the next head that comes in pieces.
            self.held = BytesMut::new();
        }
        length > 0
    }
}

/// What a scan found.
struct Scanned {
    good: usize,
    empty_path: Option<usize>,
}

/// The `http` crate reads `OPTIONS http://host` like `OPTIONS http://host/`, which asks for
/// something else (RFC 9112 section 3.2.4). So an empty path gets an empty query, which the reader of
/// the target must take for the former.
fn spell_empty_path(held: &mut BytesMut, at: usize) {
    let rest = held.split_off(at);
    held.extend_from_slice(b"?");
    held.unsplit(rest);
}

fn after(follows: Follows) -> Phase {
    match follows {
        Follows::Head => Phase::Head(Head::default()),
        Follows::Length(length) => Phase::Length(length),
        Follows::Chunks => Phase::Chunks(Chunks::default()),
        Follows::AfterConnect => Phase::Undecided(true),
        Follows::AfterUpgrade => Phase::Undecided(false),
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin, R: Refuse + Unpin> Connection<S, R> {
    /// The usual read: into hyper's own buffer, judged there. False where nothing can be handed
    /// over yet.
    fn poll_in_place(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<bool>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, buf))?;
        let new = &buf.filled()[before..];
        if new.is_empty() {
            return Poll::Ready(Ok(true));
        }
        let scanned = self.scan(new);
        if scanned.good < new.len() && !matches!(self.phase, Phase::Refused(_)) {
            self.held.extend_from_slice(&new[scanned.good..]);
            if let Some(at) = scanned.empty_path {
                spell_empty_path(&mut self.held, at);
                self.scan_held();
            }
        }
        buf.set_filled(before + scanned.good);
        Poll::Ready(Ok(scanned.good > 0))
    }

    /// Reads another piece behind what is held; true at the end of the stream.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let mut piece = [const { MaybeUninit::uninit() }; PIECE];
        let mut piece = ReadBuf::uninit(&mut piece);
        ready!(Pin::new(&mut self.io).poll_read(cx, &mut piece))?;
        self.held.extend_from_slice(piece.filled());
        Poll::Ready(Ok(piece.filled().is_empty()))
    }

    /// Waits for the decision about a CONNECT or an Upgrade. True where the stream ends for whoever
    /// reads.
    fn poll_decision(&mut self, connect: bool, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let answered = self.handle.is_answered(self.requests, cx);
        if self.handle.passes_through() {
            return Poll::Ready(Ok(false));
        }
        if answered {
            // A refused CONNECT ends the connection (RFC 9931), a refused Upgrade is a request like
            // any other.
            self.phase = Phase::Head(Head::default());
            self.scan_held();
            return Poll::Ready(Ok(connect));
        }
        self.poll_early(cx)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin, R: Refuse + Unpin> AsyncRead for Connection<S, R> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        loop {
            if this.handle.passes_through() && !matches!(this.phase, Phase::Through) {
                (this.phase, this.good) = (Phase::Through, this.held.len());
            }
            if this.hand_over(buf) {
                return Poll::Ready(Ok(()));
            }
            if this.waits {
                this.rest(this.flushed && this.handle.answered() >= this.requests);
                return Poll::Pending;
            }
            match &this.phase {
                Phase::Through if this.ended => return Poll::Ready(Ok(())),
                Phase::Through => return Pin::new(&mut this.io).poll_read(cx, buf),
                Phase::Refused(_) => return this.poll_refusal(cx),
                Phase::Undecided(connect) => {
                    let connect = *connect;
                    if ready!(this.poll_decision(connect, cx))? {
                        return Poll::Ready(Ok(()));
                    }
                }
                Phase::Head(_) if !this.held.is_empty() => {
                    let ended = this.ended || ready!(this.poll_piece(cx))?;
                    if ended {
                        return Poll::Ready(Ok(()));
                    }
                    this.scan_held();
                }
                Phase::Head(_) | Phase::Length(_) | Phase::Chunks(_) => {
                    if this.ended || ready!(this.poll_in_place(cx, buf))? {
                        return Poll::Ready(Ok(()));
                    }
                }
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin, R: Refuse + Unpin> AsyncWrite for Connection<S, R> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_rest_of_interim(cx))?;
        this.begin_write()?;
        Pin::new(&mut this.io).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_rest_of_interim(cx))?;
        this.begin_write()?;
        Pin::new(&mut this.io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(Pin::new(&mut this.io).poll_flush(cx))?;
        if !std::mem::replace(&mut this.flushed, true) && this.waits {
            // So that hyper reads once more.
            cx.waker().wake_by_ref();
        }
        this.watch_for_disconnect(cx)?;
        this.poll_interim(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
