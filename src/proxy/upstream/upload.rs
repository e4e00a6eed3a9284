//! Request bodies for the site, with a limit on how long a client may send nothing.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep};

use super::interim::{ContinueWait, HeldBody, Interim};
use crate::runtime::clock;

/// Why a body ended early.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// No data arrived within the idle time.
    #[error("no bytes of the body came for {0:?}")]
    Idle(Duration),
    /// The client's connection broke, or its framing is malformed.
    #[error("the body broke off")]
    Broken(#[from] hyper::Error),
    /// The site responded without the body, and the response was relayed.
    #[error("the body was not wanted")]
    Unwanted,
}

/// The body of a request to the site.
#[derive(Debug)]
pub(crate) enum Upload {
    /// None.
    Empty,
    /// The client's body. The client gets its `100 Continue` when this is first read, which happens after the head was
    /// sent and the site asked for the body. So a held request's client keeps its body.
    Client {
        /// The client's body.
        body: Incoming,
        /// Ends a body that stalls.
        idle: IdleTimer,
        /// Counts the bytes, for the response timeout.
        progress: Progress,
        /// Present if the client waits for `100 Continue`.
        wait: Option<ContinueWait>,
    },
    /// A body that the client kept and the site did not ask for.
    Unwanted(Interim),
}

impl Upload {
    /// Ready when the body may be requested. A body that is not needed is dropped, so that the client's connection ends
    /// with its response.
    fn poll_wanted(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Self::Client { wait, .. } = self else { return Poll::Ready(()) };
        let Some(waiting) = wait else { return Poll::Ready(()) };
        let is_wanted = ready!(waiting.poll(cx)) == HeldBody::Wanted;
        if let Some(waited) = wait.take()
            && !is_wanted
        {
            *self = Self::Unwanted(waited.into_interim());
        }
        Poll::Ready(())
    }
}

impl HttpBody for Upload {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        ready!(this.poll_wanted(cx));
        let (body, idle, progress) = match this {
            Self::Empty => return Poll::Ready(None),
            Self::Unwanted(interim) => {
                ready!(interim.poll_body(cx, HeldBody::Unwanted));
                return Poll::Ready(Some(Err(BodyError::Unwanted)));
            }
            Self::Client { body, idle, progress, .. } => (body, idle, progress),
        };
        let frame = ready!(idle.poll(cx, body))?;
        progress.record(frame.as_ref());
        Poll::Ready(frame.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Client { body, .. } => body.is_end_stream(),
            Self::Unwanted(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Client { body, .. } => body.size_hint(),
            Self::Unwanted(_) => SizeHint::default(),
        }
    }
}

/// How much of an upload was sent. A site may wait for the whole request before it responds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Progress(Arc<Uploaded>);

#[derive(Debug, Default)]
struct Uploaded {
    frames: AtomicU64,
    bytes: AtomicU64,
}

impl Progress {
    /// Frames so far.
    pub(crate) fn frames(&self) -> u64 {
        self.0.frames.load(Ordering::Relaxed)
    }

    /// Bytes so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.bytes.load(Ordering::Relaxed)
    }

    fn record(&self, frame: Option<&Frame<Bytes>>) {
        self.0.frames.fetch_add(1, Ordering::Relaxed);
        let bytes = frame.and_then(Frame::data_ref).map_or(0, Bytes::len);
        self.0.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// A timer that runs only while nothing arrives. While bytes flow it costs almost nothing. The default is for
/// [`IdleTimer::poll_expired`], which gets the limit as an argument.
#[derive(Debug, Default)]
pub(crate) struct IdleTimer {
    limit: Duration,
    /// When the wait exceeds the limit; `None` while bytes arrive.
    deadline: Option<Instant>,
    /// May be set to an earlier time than the deadline: it is moved when it fires, not whenever bytes arrive.
    sleep: Option<Pin<Box<Sleep>>>,
}

impl IdleTimer {
    /// A timer for waits of at most `limit`.
    pub(crate) fn new(limit: Duration) -> Self {
        Self { limit, deadline: None, sleep: None }
    }

    /// The next frame of `body`, or an error if none came in time.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        body: &mut Incoming,
    ) -> Poll<Result<Option<Frame<Bytes>>, BodyError>> {
        if let Poll::Ready(frame) = Pin::new(body).poll_frame(cx) {
            self.reset();
            return Poll::Ready(frame.transpose().map_err(BodyError::Broken));
        }
        ready!(self.poll_expired(cx, self.limit));
        Poll::Ready(Err(BodyError::Idle(self.limit)))
    }

    /// Ready when the wait has lasted for `limit`. Call this whenever the awaited operation is
    /// pending.
    pub(crate) fn poll_expired(&mut self, cx: &mut Context<'_>, limit: Duration) -> Poll<()> {
        let deadline = *self.deadline.get_or_insert_with(|| clock::now() + limit);
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        if sleep.deadline() > deadline {
            sleep.as_mut().reset(deadline);
        }
        loop {
            ready!(sleep.as_mut().poll(cx));
            if sleep.deadline() >= deadline {
                return Poll::Ready(());
            }
            sleep.as_mut().reset(deadline);
        }
    }

    /// Ends the wait; the next one begins with the next poll.
    pub(crate) fn reset(&mut self) {
        self.deadline = None;
    }

    /// Begins a wait at `start` that may last for `limit`.
    pub(crate) fn reset_at(&mut self, start: Instant, limit: Duration) {
        self.deadline = Some(start + limit);
    }
}
