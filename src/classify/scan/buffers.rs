//! Reuses the buffers of a thread's last scan for its next one.

use std::cell::Cell;

/// Largest buffer that is kept: ordinary pages need no more.
const MAX_KEPT: usize = 64 * 1024;

/// Empty buffers.
#[derive(Default)]
pub(super) struct Buffers {
    pub(super) source: String,
    pub(super) visible: String,
    pub(super) candidates: Vec<usize>,
}

thread_local! {
    static BUFFERS: Cell<Buffers> = Cell::default();
}

impl Buffers {
    /// The buffers of the last scan, or new ones.
    pub(super) fn take() -> Self {
        BUFFERS.take()
    }

    /// Keeps the buffers for the next scan, unless they are large.
    pub(super) fn keep(mut self) {
        if self.source.capacity() <= MAX_KEPT && self.visible.capacity() <= MAX_KEPT {
            self.source.clear();
            self.visible.clear();
            self.candidates.clear();
            BUFFERS.set(self);
        }
    }
}
