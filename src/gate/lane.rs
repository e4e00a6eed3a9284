//! One scope at the gate: its cooldown as this member knows it, what was sent, and the queue of its bucket.

use std::{
    fmt,
    hash::{Hash, Hasher},
    ptr,
    sync::{Arc, atomic::AtomicU64},
};

use arc_swap::Guard;
use parking_lot::Mutex;

use super::{
    Entry, Shared, bucket::BucketQueue, cache::Gateway, observe::Untold, overload::Metering,
    view::View,
};
use crate::{
    classify::verdict::Verdict,
    runtime::clock::Instant,
    store::{Backend, Scope},
};

/// One scope at the gate. Two of them are equal only if they are the same object.
pub(super) struct Lane {
    pub(super) shared: Arc<Shared>,
    pub(super) scope: Scope,
    pub(super) view: Arc<View>,
    /// The queue of its bucket, which it may share with other scopes.
    pub(super) queue: Arc<BucketQueue>,
    pub(super) sent: AtomicU64,
    pub(super) verdicts: [AtomicU64; Verdict::ALL.len()],
    /// Observations of `mode: observe` that are not reported yet.
    pub(super) untold: Mutex<Untold>,
    /// Epoch and ticket of a probe that does not go through the proxy (`acquire`).
    pub(super) outside_probe: Mutex<Option<(u64, i64)>>,
    /// How its site bears the load.
    pub(super) metering: Metering,
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A lane and its rule refer to each other: the whole would never end.
        f.debug_struct("Lane").field("name", &self.scope.name).finish_non_exhaustive()
    }
}

impl PartialEq for Lane {
    fn eq(&self, other: &Self) -> bool {
        ptr::eq(self, other)
    }
}

impl Eq for Lane {}

impl Hash for Lane {
    fn hash<H: Hasher>(&self, state: &mut H) {
        ptr::from_ref(self).hash(state);
    }
}

impl Lane {
    pub(super) fn new(
        shared: Arc<Shared>,
        scope: Scope,
        view: Arc<View>,
        queue: Arc<BucketQueue>,
    ) -> Arc<Self> {
        view.wakes(&queue.wake);
        Arc::new(Self {
            shared,
            scope,
            view,
            queue,
            sent: 0.into(),
            verdicts: std::array::from_fn(|_| 0.into()),
            untold: Mutex::default(),
            outside_probe: Mutex::default(),
            metering: Metering::default(),
        })
    }

    /// Its rule, as it is now.
    pub(super) fn entry(&self) -> Guard<Arc<Entry>> {
        self.queue.entry.load()
    }

    /// The epoch, if requests may go as far as this member knows. A request that goes without an answer of the store
    /// for this scope relies on news, so a member that receives none keeps asking.
    pub(super) fn usable_epoch(&self) -> Option<u64> {
        let epoch = self.view.open_epoch()?;
        // An embedded store has no news that could be missed: most requests need no look at the rule.
        let Backend::Shared(store) = &self.shared.store else { return Some(epoch) };
        let hears = !self.queue.relies_on_news() || !store.is_deaf() || self.view.is_recent();
        (hears && self.is_in_touch()).then_some(epoch)
    }

    /// Whether what this member knows of the cooldown is as recent as its contact with the store.
    pub(super) fn is_in_touch(&self) -> bool {
        let Some(store) = self.shared.store.shared() else { return true };
        self.entry().rule.cooldown.is_none() || store.trusts(self.view.heard())
    }

    /// The gateway as confirmed by the store. News of a trip hold requests but refuse none.
    pub(super) fn confirmed(&self) -> Gateway<Instant> {
        if self.view.is_hinted() { Gateway::Ask } else { self.view.gateway() }
    }

    /// Whether its cooldown is over as far as this member knows, so that the next request may be a probe.
    pub(super) fn is_due(&self) -> bool {
        self.view.gateway() != Gateway::Open && self.view.epoch() > 0
    }

    /// How many of its requests are held.
    pub(super) fn held(self: &Arc<Self>) -> usize {
        self.queue.held_of(self)
    }

    /// Whether it can be dropped: no request waits or is under way, and no cooldown is in force or being probed. The store remembers a
    /// cooldown that is over; otherwise a site that is never asked for again would be kept for ever.
    pub(super) fn is_idle(self: &Arc<Self>) -> bool {
        self.held() == 0 && self.queue.under_way() == 0 && !self.view.is_closed()
    }
}
