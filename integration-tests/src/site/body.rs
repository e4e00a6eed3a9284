//! A scripted response body: one chunk, repeated, with pauses, complete or cut off.

use std::{
    future::Future,
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::Sleep;

/// A scripted body.
#[derive(Debug, Default)]
pub struct Script {
    chunk: Bytes,
    left: u64,
    pause: Duration,
    sleeping: Option<Pin<Box<Sleep>>>,
    cut_off: bool,
    length_known: bool,
}

impl Script {
    /// All of `bytes` at once.
    #[must_use]
    pub fn whole(bytes: impl Into<Bytes>) -> Self {
        let chunk = bytes.into();
        let left = u64::from(!chunk.is_empty());
        Self { chunk, left, length_known: true, ..Self::default() }
    }

    /// `chunk`, `times` times.
    #[must_use]
    pub fn repeat(chunk: impl Into<Bytes>, times: u64) -> Self {
        Self { chunk: chunk.into(), left: times, length_known: true, ..Self::default() }
    }

    /// With a pause before each chunk.
    #[must_use]
    pub fn paced(self, pause: Duration) -> Self {
        Self { pause, ..self }
    }

    /// Chunked, without a stated length.
    #[must_use]
    pub fn chunked(self) -> Self {
        Self { length_known: false, ..self }
    }

    /// Cut off after the last chunk: the connection ends inside the body.
    #[must_use]
    pub fn cut_off(self) -> Self {
        Self { cut_off: true, length_known: false, ..self }
    }
}

impl Body for Script {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if self.left == 0 {
            let broken = || Err(io::Error::other("cut off by the script"));
            return Poll::Ready(self.cut_off.then(broken));
        }
        if !self.pause.is_zero() {
            let pause = self.pause;
            let sleeping = self.sleeping.get_or_insert_with(|| Box::pin(tokio::time::sleep(pause)));
            std::task::ready!(sleeping.as_mut().poll(context));
            self.sleeping = None;
        }
        self.left -= 1;
        Poll::Ready(Some(Ok(Frame::data(self.chunk.clone()))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0 && !self.cut_off
    }

    fn size_hint(&self) -> SizeHint {
        if self.length_known {
            SizeHint::with_exact(self.left * self.chunk.len() as u64)
        } else {
            SizeHint::default()
        }
    }
}
