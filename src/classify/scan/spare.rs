//! The buffers of the last scan of a thread, for the next one.

use std::cell::Cell;

/// Most bytes of a buffer that is kept: what ordinary pages need.
const MAX_SPARE: usize = 64 * 1024;

/// Buffers, empty.
#[derive(Default)]
pub(super) struct Spare {
    pub(super) source: String,
    pub(super) visible: String,
    pub(super) candidates: Vec<usize>,
}

thread_local! {
    static SPARE: Cell<Spare> = Cell::default();
}

impl Spare {
    /// Those of the last scan, or new ones.
    pub(super) fn take() -> Self {
        SPARE.take()
    }

    /// Keeps them, unless they are large.
    pub(super) fn keep(mut self) {
        if self.source.capacity() <= MAX_SPARE && self.visible.capacity() <= MAX_SPARE {
            self.source.clear();
            self.visible.clear();
            self.candidates.clear();
            SPARE.set(self);
        }
    }
}
