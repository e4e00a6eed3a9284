//! What the proxy tells a [`super::Wire`]: which answers are done, and that a tunnel has begun.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Waker},
};

use parking_lot::Mutex;

/// The proxy's end of a [`super::Wire`].
#[derive(Debug, Clone, Default)]
pub struct Handle(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    answered: AtomicU64,
    through: AtomicBool,
    waiting: Mutex<Option<Waker>>,
}

impl Shared {
    fn wake(&self) {
        if let Some(waker) = self.waiting.lock().take() {
            waker.wake();
        }
    }
}

/// A request that is being answered; dropped when the last byte of the answer's body was given to
/// hyper.
#[derive(Debug)]
pub struct Answering(Arc<Shared>);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.answered.fetch_add(1, Ordering::Release);
        self.0.wake();
    }
}

impl Handle {
    /// To be called once for every request that hyper hands to its service; the value must live as
    /// long as the body of the answer.
    #[must_use]
    pub fn answering(&self) -> Answering {
        Answering(Arc::clone(&self.0))
    }

    /// From now on nothing is HTTP: the CONNECT or the Upgrade is accepted. To be called before
    /// that answer is given to hyper.
    pub fn pass_through(&self) {
        self.0.through.store(true, Ordering::Release);
        self.0.wake();
    }

    pub(super) fn passes_through(&self) -> bool {
        self.0.through.load(Ordering::Acquire)
    }

    pub(super) fn answered(&self) -> u64 {
        self.0.answered.load(Ordering::Acquire)
    }

    /// Whether so many requests are answered; if not, the task is woken when that, or
    /// [`Handle::passes_through`], changes.
    pub(super) fn is_answered(&self, requests: u64, cx: &Context<'_>) -> bool {
        if self.answered() >= requests {
            return true;
        }
        *self.0.waiting.lock() = Some(cx.waker().clone());
        self.answered() >= requests
    }
}
