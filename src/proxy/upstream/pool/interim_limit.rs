//! A limit on the heads of one HTTP/2 stream: interim responses (1xx) before the response.
//!
//! hyper ignores them, and h2 keeps each until the stream ends. So they are counted here, in the received frames. Only
//! the frame heads are parsed (RFC 9113 section 4.1).

use std::{
    collections::HashMap,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::observability::metrics::{Bound, Metrics};

/// Most heads of one stream. Real sites send one or two before the response.
const MAX_HEADS: u32 = 32;
/// Most streams that are counted at a time. The end of a stream that we reset is not visible here.
const MAX_STREAMS: usize = 1_000;

/// Types and flags of frames (RFC 9113 section 6).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const END_STREAM: u8 = 1;
/// Length of a frame's head.
const HEAD: usize = 9;

/// An HTTP/2 connection to a site.
#[derive(Debug)]
pub(super) struct InterimLimit<S> {
    stream: S,
    metrics: std::sync::Arc<Metrics>,
    counter: Counter,
}

impl<S> InterimLimit<S> {
    pub(super) fn new(stream: S, metrics: std::sync::Arc<Metrics>) -> Self {
        Self { stream, metrics, counter: Counter::default() }
    }
}

/// The position in the frames, and the counts so far.
#[derive(Debug, Default)]
struct Counter {
    /// The head of a frame, as far as it has arrived.
    head: [u8; HEAD],
    filled: usize,
    /// Bytes of the payload to come.
    skip: usize,
    /// Heads of each stream that has not ended.
    heads: HashMap<u32, u32>,
}

impl Counter {
    /// Reads on; false once a stream has more heads than it may have.
    fn read(&mut self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            let skipped = self.skip.min(bytes.len());
            (self.skip, bytes) = (self.skip - skipped, &bytes[skipped..]);
            let taken = if self.skip > 0 { 0 } else { (HEAD - self.filled).min(bytes.len()) };
            self.head[self.filled..self.filled + taken].copy_from_slice(&bytes[..taken]);
            (self.filled, bytes) = (self.filled + taken, &bytes[taken..]);
            if self.filled == HEAD {
                self.filled = 0;
                if !self.frame() {
                    return false;
                }
            }
        }
        true
    }

    fn frame(&mut self) -> bool {
        let [l1, l2, l3, kind, flags, s1, s2, s3, s4] = self.head;
        self.skip = usize::from(l1) << 16 | usize::from(l2) << 8 | usize::from(l3);
        let stream = u32::from_be_bytes([s1 & 0x7f, s2, s3, s4]);
        let ends = flags & END_STREAM != 0;
        match kind {
            RST_STREAM => drop(self.heads.remove(&stream)),
            DATA | HEADERS if ends => drop(self.heads.remove(&stream)),
            HEADERS => {
                if self.heads.len() >= MAX_STREAMS {
                    self.heads.clear();
                }
                let heads = self.heads.entry(stream).or_default();
                *heads += 1;
                return *heads <= MAX_HEADS;
            }
            _ => {}
        }
        true
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for InterimLimit<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        if self.counter.read(&buffer.filled()[before..]) {
            return Poll::Ready(Ok(()));
        }
        self.metrics.reached(Bound::Interim);
        Poll::Ready(Err(io::Error::other("interim answers without end")))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for InterimLimit<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, stream: u8, payload: usize) -> Vec<u8> {
        let length = u16::try_from(payload).expect("short").to_be_bytes();
        let head = [0, length[0], length[1], kind, flags, 0, 0, 0, stream];
        [&head[..], &vec![HEADERS; payload]].concat()
    }

    #[test]
    fn endless_heads_are_noticed_in_pieces_of_any_size() {
        for size in [1, 8, 9, 10, 100] {
            let mut counter = Counter::default();
            let answers = [frame(HEADERS, 0, 1, 30), frame(DATA, END_STREAM, 1, 500)].concat();
            for piece in answers.repeat(100).chunks(size) {
                assert!(counter.read(piece), "answers, each with its end");
            }
            let mixed = [frame(HEADERS, 0, 3, 30), frame(DATA, 0, 5, 10)].concat();
            let allowed = mixed.repeat(MAX_HEADS as usize);
            assert!(allowed.chunks(size).all(|piece| counter.read(piece)));
            assert!(!mixed.chunks(size).all(|piece| counter.read(piece)), "pieces of {size}");
        }
    }

    #[test]
    fn only_so_many_streams_are_remembered() {
        let mut counter = Counter::default();
        for stream in 0..100_000_u32 {
            let mut head = frame(HEADERS, 0, 0, 0);
            head[5..].copy_from_slice(&stream.to_be_bytes());
            assert!(counter.read(&head));
        }
        assert!(counter.heads.len() <= MAX_STREAMS);
    }
}
