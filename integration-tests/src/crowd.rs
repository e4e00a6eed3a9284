//! Counts how many requests are under way at once.

use std::sync::Arc;

use parking_lot::Mutex;

/// Those that are under way, and the most there were.
#[derive(Debug, Clone, Default)]
pub struct Crowd(Arc<Mutex<Counts>>);

#[derive(Debug, Default)]
struct Counts {
    now: usize,
    most: usize,
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub struct Visit {
    crowd: Crowd,
    /// How many there were with it.
    pub number: usize,
}

impl Crowd {
    /// One more.
    #[must_use]
    pub fn begin(&self) -> Visit {
        let mut counts = self.0.lock();
        counts.now += 1;
        counts.most = counts.most.max(counts.now);
        Visit { crowd: self.clone(), number: counts.now }
    }

    /// The most there were at once.
    #[must_use]
    pub fn most(&self) -> usize {
        self.0.lock().most
    }

    /// Counts the most from now on.
    pub fn forget(&self) {
        let mut counts = self.0.lock();
        counts.most = counts.now;
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.crowd.0.lock().now -= 1;
    }
}
