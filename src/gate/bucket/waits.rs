//! What a held request waits for, as its queue sees it at one time.

use std::time::Duration;

use super::BucketQueue;
use crate::runtime::clock::Instant;

/// The state of a queue that explains a wait.
#[derive(Debug, Clone, Copy)]
pub(in crate::gate) struct Waits {
    /// The store said that no ticket is due before this time.
    pub(in crate::gate) come_back: Option<Instant>,
    /// The store is away: the member grants its own share.
    pub(in crate::gate) local: bool,
    /// A round trip to the store, smoothed.
    pub(in crate::gate) round_trip: Duration,
    /// Members that wait for the bucket.
    pub(in crate::gate) members: u32,
}

impl BucketQueue {
    /// How long the longest held request has waited.
    pub(in crate::gate) fn oldest_wait(&self) -> Duration {
        self.state.lock().queue.oldest().map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// What its held requests wait for.
    pub(in crate::gate) fn waits(&self) -> Waits {
        let state = self.state.lock();
        Waits {
            come_back: state.come_back,
            local: state.local,
            round_trip: state.lead,
            members: state.members.max(1),
        }
    }
}
