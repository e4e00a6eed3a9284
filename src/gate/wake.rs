//! Wakes the scheduler of a queue, and records whether a cooldown has changed.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{Notify, futures::Notified};

/// Wakes one scheduler.
#[derive(Debug, Default)]
pub(super) struct Wake {
    notify: Notify,
    changed: AtomicBool,
}

impl Wake {
    /// Something has happened to the queue.
    pub(super) fn now(&self) {
        self.notify.notify_one();
    }

    /// The cooldown of one of its scopes has changed.
    pub(super) fn cooldown_changed(&self) {
        self.changed.store(true, Ordering::Release);
        self.now();
    }

    /// Whether a cooldown has changed since the last look.
    pub(super) fn take_change(&self) -> bool {
        self.changed.swap(false, Ordering::Acquire)
    }

    /// Waits until something happens.
    pub(super) fn wait(&self) -> Notified<'_> {
        self.notify.notified()
    }
}
