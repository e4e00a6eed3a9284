//! A client's connection, with strict checks of HTTP/1.1 framing in front of hyper.
//!
//! hyper accepts messages that a proxy must refuse: both Content-Length and Transfer-Encoding,
//! malformed lines that it repairs, fields that it skips. If two parsers read a message
//! differently, a request can be smuggled. [`Connection`] reads the raw bytes first. A message that
//! RFC 9112 does not allow never reaches hyper. Instead the owner of the connection ([`Refuse`])
//! writes the response, which is sent after the responses to earlier requests, and the connection
//! ends.
//!
//! Bodies pass through and are never stored. A head is buffered only until its last line is
//! complete, and a head that arrives in one piece is parsed in place. The owner limits the time for
//! a head.
//!
//! This module also notices clients that disconnect before their response (`disconnect`). hyper
//! must be configured with `half_close`; otherwise it would check too.
//!
//! To keep the case of field names, hyper needs a second map of them. So it is configured to do
//! that only for clients with unusual case. When such a head follows ordinary ones on a connection,
//! it waits here until another hyper instance has the connection.
//!
//! After a CONNECT or an Upgrade, nothing is read as HTTP and nothing is passed on until the owner
//! has accepted it ([`Handle::pass_through`]) or has responded.

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

/// Bytes per read while a head is incomplete.
const READ_SIZE: usize = 4096;
/// Most bytes that are kept while a CONNECT or an Upgrade is undecided: the TLS hello of a client
/// that does not wait.
const MAX_EARLY: usize = 4 * READ_SIZE;

/// The meaning of the next byte.
#[derive(Debug)]
enum Framing {
    Head(Head),
    Length(u64),
    Chunks(Chunks),
    /// A CONNECT (true) or an Upgrade without a response so far.
    Undecided(bool),
    /// A tunnel, without HTTP.
    Through,
    Refused(Refusal),
}

/// A client's socket that only delivers well-formed requests.
#[derive(Debug)]
pub struct Connection<S, R> {
    io: S,
    phase: Framing,
    /// Bytes that were read but not passed on; the first `valid` of them may be.
    buffered: BytesMut,
    valid: usize,
    /// The client has closed its side while a decision was pending.
    ended: bool,
    /// Requests that were passed on.
    requests: u64,
    /// Something was written since the last request was passed on.
    wrote: bool,
    /// Everything written is flushed.
    flushed: bool,
    /// The reader accepts only heads with field names in title case.
    title_case: bool,
    /// The next head has names in another case. It waits for a hyper instance that keeps the case.
    needs_case_map: bool,
    /// The unwritten rest of an interim response.
    interim: Bytes,
    limits: Limits,
    handle: Handle,
    refuse: R,
}

/// Responds to malformed requests.
pub trait Refuse {
    /// The complete response, after which the connection ends. Called once, when the violation is
    /// found. The response is not sent if another one to the same request has begun.
    ///
    /// `in_body`: the head was well formed and was passed on.
    fn refuse(&mut self, violation: Violation, in_body: bool) -> Bytes;
}

impl<S, R: Refuse> Connection<S, R> {
    /// Wraps a client's socket. The caller must call [`Handle::answering`] for every request.
    pub fn new(io: S, limits: Limits, refuse: R) -> (Self, Handle) {
        let handle = Handle::default();
        let connection = Self {
            io,
            phase: Framing::Head(Head::default()),
            buffered: BytesMut::new(),
            valid: 0,
            ended: false,
            requests: 0,
            wrote: false,
            flushed: true,
            title_case: false,
            needs_case_map: false,
            interim: Bytes::new(),
            limits,
            handle: handle.clone(),
            refuse,
        };
        (connection, handle)
    }

    /// The value that responds to malformed requests.
    pub fn refuse_mut(&mut self) -> &mut R {
        &mut self.refuse
    }

    /// The socket and the bytes that were read early, for a tunnel, after hyper has returned the
    /// connection.
    pub fn into_inner(self) -> (S, Bytes) {
        (self.io, self.buffered.freeze())
    }

    /// Scans `bytes`, which follow the bytes that were read before.
    fn scan(&mut self, bytes: &[u8]) -> Scanned {
        let mut valid = 0;
        while valid < bytes.len() {
            let rest = &bytes[valid..];
            match &mut self.phase {
                Framing::Head(head) => match head.advance(rest, self.limits) {
                    Ok(Progress::Incomplete) => break,
                    Ok(Progress::EmptyPath(at)) => {
                        self.phase = Framing::Head(Head::default());
                        return Scanned { valid, empty_path: Some(at) };
                    }
                    Ok(Progress::Complete(..)) if self.title_case && !head.is_in_title_case() => {
                        self.phase = Framing::Head(Head::default());
                        self.needs_case_map = true;
                        break;
                    }
                    Ok(Progress::Complete(length, follows)) => {
                        valid += length;
                        self.requests += 1;
                        self.wrote = false;
                        self.phase = after(follows);
                    }
                    Err(violation) => self.violated(violation, false),
                },
                Framing::Length(left) => {
                    let there = u64::try_from(rest.len()).unwrap_or(u64::MAX);
                    let taken = there.min(*left);
                    *left -= taken;
                    valid += usize::try_from(taken).unwrap_or(usize::MAX);
                    if *left == 0 {
                        self.phase = Framing::Head(Head::default());
                    }
                }
                Framing::Chunks(chunks) => {
                    let read = chunks.advance(rest);
                    valid += read.valid;
                    match read.end {
                        Ok(false) => {}
                        Ok(true) => self.phase = Framing::Head(Head::default()),
                        Err(violation) => self.violated(violation, true),
                    }
                }
                Framing::Undecided(_) | Framing::Through | Framing::Refused(_) => break,
            }
        }
        Scanned { valid, empty_path: None }
    }

    fn violated(&mut self, violation: Violation, in_body: bool) {
        let answer = self.refuse.refuse(violation, in_body);
        // A body belongs to a request with a response in progress. Either nothing of that response
        // was sent, or it is too late for another one.
        let before = if in_body { self.requests - 1 } else { self.requests };
        let too_late = in_body && (self.wrote || self.handle.answered() < before);
        self.phase = Framing::Refused(Refusal::new(answer, before, too_late));
    }

    /// Scans the buffered bytes.
    fn scan_buffered(&mut self) {
        let mut buffered = std::mem::take(&mut self.buffered);
        loop {
            let scanned = self.scan(&buffered[self.valid..]);
            self.valid += scanned.valid;
            match scanned.empty_path {
                Some(at) => spell_empty_path(&mut buffered, self.valid + at),
                None => break,
            }
        }
        self.buffered = buffered;
    }

    /// Passes on the valid part of the buffered bytes. False if there is none.
    fn pass_on(&mut self, buf: &mut ReadBuf<'_>) -> bool {
        let length = self.valid.min(buf.remaining());
        buf.put_slice(&self.buffered[..length]);
        self.buffered.advance(length);
        self.valid -= length;
        if self.buffered.is_empty() {
            // The buffer is not needed until the next head that arrives in pieces.
            self.buffered = BytesMut::new();
        }
        length > 0
    }
}

/// The result of a scan.
struct Scanned {
    valid: usize,
    empty_path: Option<usize>,
}

/// The `http` crate reads `OPTIONS http://host` like `OPTIONS http://host/`, which means something
/// else (RFC 9112 section 3.2.4). So an empty path gets an empty query, by which the parser of the
/// target recognises the former.
fn spell_empty_path(buffered: &mut BytesMut, at: usize) {
    let rest = buffered.split_off(at);
    buffered.extend_from_slice(b"?");
    buffered.unsplit(rest);
}

fn after(follows: Follows) -> Framing {
    match follows {
        Follows::Head => Framing::Head(Head::default()),
        Follows::Length(length) => Framing::Length(length),
        Follows::Chunks => Framing::Chunks(Chunks::default()),
        Follows::AfterConnect => Framing::Undecided(true),
        Follows::AfterUpgrade => Framing::Undecided(false),
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin, R: Refuse + Unpin> Connection<S, R> {
    /// The usual read: into hyper's own buffer, checked in place. False if nothing can be passed on
    /// yet.
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
        if scanned.valid < new.len() && !matches!(self.phase, Framing::Refused(_)) {
            self.buffered.extend_from_slice(&new[scanned.valid..]);
            if let Some(at) = scanned.empty_path {
                spell_empty_path(&mut self.buffered, at);
                self.scan_buffered();
            }
        }
        buf.set_filled(before + scanned.valid);
        Poll::Ready(Ok(scanned.valid > 0))
    }

    /// Appends another piece to the buffer; true at the end of the stream.
    fn poll_read_more(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let mut piece = [const { MaybeUninit::uninit() }; READ_SIZE];
        let mut piece = ReadBuf::uninit(&mut piece);
        ready!(Pin::new(&mut self.io).poll_read(cx, &mut piece))?;
        self.buffered.extend_from_slice(piece.filled());
        Poll::Ready(Ok(piece.filled().is_empty()))
    }

    /// Waits for the decision about a CONNECT or an Upgrade. True if the stream ends for the
    /// reader.
    fn poll_decision(&mut self, connect: bool, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let answered = self.handle.is_answered(self.requests, cx);
        if self.handle.passes_through() {
            return Poll::Ready(Ok(false));
        }
        if answered {
            // A refused CONNECT ends the connection (RFC 9931). A refused Upgrade is an ordinary
            // request.
            self.phase = Framing::Head(Head::default());
            self.scan_buffered();
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
            if this.handle.passes_through() && !matches!(this.phase, Framing::Through) {
                (this.phase, this.valid) = (Framing::Through, this.buffered.len());
            }
            if this.pass_on(buf) {
                return Poll::Ready(Ok(()));
            }
            if this.needs_case_map {
                this.set_parkable(this.flushed && this.handle.answered() >= this.requests);
                return Poll::Pending;
            }
            match &this.phase {
                Framing::Through if this.ended => return Poll::Ready(Ok(())),
                Framing::Through => return Pin::new(&mut this.io).poll_read(cx, buf),
                Framing::Refused(_) => return this.poll_refusal(cx),
                Framing::Undecided(connect) => {
                    let connect = *connect;
                    if ready!(this.poll_decision(connect, cx))? {
                        return Poll::Ready(Ok(()));
                    }
                }
                Framing::Head(_) if !this.buffered.is_empty() => {
                    let ended = this.ended || ready!(this.poll_read_more(cx))?;
                    if ended {
                        return Poll::Ready(Ok(()));
                    }
                    this.scan_buffered();
                }
                Framing::Head(_) | Framing::Length(_) | Framing::Chunks(_) => {
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
        if !std::mem::replace(&mut this.flushed, true) && this.needs_case_map {
            // Makes hyper read once more.
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
