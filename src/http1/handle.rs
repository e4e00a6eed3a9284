//! How the proxy controls a [`super::Connection`]: which responses are complete, which interim
//! responses to send, and whether a tunnel has begun.

use std::{
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
};

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;

/// The proxy's handle of a [`super::Connection`].
#[derive(Debug, Clone, Default)]
pub struct Handle(Arc<HandleState>);

#[derive(Debug, Default)]
struct HandleState {
    answered: AtomicU64,
    through: AtomicBool,
    waiting: Mutex<Option<Waker>>,
    is_parkable: AtomicBool,
    /// Whether interim responses are pending; checked after each flush.
    has_interim: AtomicBool,
    interim: Mutex<Interim>,
}

/// Interim responses to send.
#[derive(Debug, Default)]
struct Interim {
    bytes: BytesMut,
    /// Woken when they are sent.
    sender: Option<Waker>,
}

impl HandleState {
    fn wake(&self) {
        if let Some(waker) = self.waiting.lock().take() {
            waker.wake();
        }
    }
}

/// A request with a response in progress; dropped when the last byte of the body was given to
/// hyper.
#[derive(Debug)]
pub struct Answering(Arc<HandleState>);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.answered.fetch_add(1, Ordering::Release);
        self.0.wake();
    }
}

impl Handle {
    /// Must be called once for every request that hyper passes to its service. The result must live
    /// as long as the body of the response.
    #[must_use]
    pub fn answering(&self) -> Answering {
        Answering(Arc::clone(&self.0))
    }

    /// Accepts the CONNECT or the Upgrade: from now on nothing is HTTP. Must be called before the
    /// response is given to hyper.
    pub fn pass_through(&self) {
        self.0.through.store(true, Ordering::Release);
        self.0.wake();
    }

    /// Writes complete interim responses and returns when they are sent. Only the handler of the
    /// current request may call this, before it responds, so that nothing else is written at the
    /// same time.
    pub async fn interim(&self, answers: &[u8]) {
        self.0.interim.lock().bytes.extend_from_slice(answers);
        self.0.has_interim.store(true, Ordering::Release);
        poll_fn(|cx| {
            if !self.0.has_interim.load(Ordering::Acquire) {
                return Poll::Ready(());
            }
            self.0.interim.lock().sender = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Whether the connection has been idle for so long that hyper need not keep its buffers until
    /// the next request.
    pub fn is_parkable(&self) -> bool {
        self.0.is_parkable.load(Ordering::Acquire)
    }

    pub(super) fn set_parkable(&self, parkable: bool) {
        self.0.is_parkable.store(parkable, Ordering::Release);
    }

    /// Takes the pending interim responses.
    pub(super) fn take_interim(&self) -> Option<Bytes> {
        if !self.0.has_interim.load(Ordering::Acquire) {
            return None;
        }
        Some(self.0.interim.lock().bytes.split().freeze())
    }

    pub(super) fn interim_is_written(&self) {
        let mut interim = self.0.interim.lock();
        if interim.bytes.is_empty() {
            self.0.has_interim.store(false, Ordering::Release);
            if let Some(sender) = interim.sender.take() {
                sender.wake();
            }
        }
    }

    pub(super) fn passes_through(&self) -> bool {
        self.0.through.load(Ordering::Acquire)
    }

    pub(super) fn answered(&self) -> u64 {
        self.0.answered.load(Ordering::Acquire)
    }

    /// Whether this many responses are complete. Otherwise wakes the task when that, or
    /// [`Handle::passes_through`], changes.
    pub(super) fn is_answered(&self, requests: u64, cx: &Context<'_>) -> bool {
        if self.answered() >= requests {
            return true;
        }
        *self.0.waiting.lock() = Some(cx.waker().clone());
        self.answered() >= requests
    }
}
