//! One scope at the gate: this member's copy of its cooldown, its requests in flight, and the queue of its bucket.

use std::{
    fmt,
    hash::{Hash, Hasher},
    ptr,
    sync::{Arc, atomic::AtomicU64},
};

use arc_swap::Guard;
use parking_lot::Mutex;

use super::{
    Entry, GateContext, bucket::BucketQueue, cache::CachedPhase, local_cooldown::LocalCooldown,
    observe::Unreported, overload::Metering,
};
use crate::{
    classify::verdict::Verdict,
    runtime::clock::Instant,
    store::{Backend, Scope},
};

/// One scope at the gate. Two of them are equal only if they are the same object.
pub(super) struct ActiveScope {
    pub(super) shared: Arc<GateContext>,
    /// The scope in the store.
    pub(super) stored: Scope,
    pub(super) cooldown: Arc<LocalCooldown>,
    /// The queue of its bucket, which it may share with other scopes.
    pub(super) queue: Arc<BucketQueue>,
    pub(super) sent: AtomicU64,
    pub(super) verdicts: [AtomicU64; Verdict::ALL.len()],
    /// Observations of `mode: observe` without a report so far.
    pub(super) unreported: Mutex<Unreported>,
    /// Epoch and ticket of a probe that does not go through the proxy (`acquire`).
    pub(super) outside_probe: Mutex<Option<(u64, i64)>>,
    /// The load of its site.
    pub(super) metering: Metering,
}

impl fmt::Debug for ActiveScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A scope and its rule refer to each other, so printing both would never end.
        f.debug_struct("ActiveScope").field("name", &self.stored.name).finish_non_exhaustive()
    }
}

impl PartialEq for ActiveScope {
    fn eq(&self, other: &Self) -> bool {
        ptr::eq(self, other)
    }
}

impl Eq for ActiveScope {}

impl Hash for ActiveScope {
    fn hash<H: Hasher>(&self, state: &mut H) {
        ptr::from_ref(self).hash(state);
    }
}

impl ActiveScope {
    pub(super) fn new(
        shared: Arc<GateContext>,
        stored: Scope,
        cooldown: Arc<LocalCooldown>,
        queue: Arc<BucketQueue>,
    ) -> Arc<Self> {
        cooldown.wakes(&queue.wake);
        Arc::new(Self {
            shared,
            stored,
            cooldown,
            queue,
            sent: 0.into(),
            verdicts: std::array::from_fn(|_| 0.into()),
            unreported: Mutex::default(),
            outside_probe: Mutex::default(),
            metering: Metering::default(),
        })
    }

    /// Its current rule.
    pub(super) fn entry(&self) -> Guard<Arc<Entry>> {
        self.queue.entry.load()
    }

    /// The epoch, if requests may be sent as far as this member knows. A request without a reply of the store for its
    /// own scope relies on news, so a member that receives none keeps asking.
    pub(super) fn usable_epoch(&self) -> Option<u64> {
        let epoch = self.cooldown.open_epoch()?;
        // An embedded store has no news to miss, so most requests need not read the rule.
        let Backend::Shared(store) = &self.shared.store else { return Some(epoch) };
        let hears = !self.queue.relies_on_news() || !store.is_deaf() || self.cooldown.is_recent();
        (hears && self.is_in_touch()).then_some(epoch)
    }

    /// Whether this member's copy of the cooldown is as recent as its contact with the store.
    pub(super) fn is_in_touch(&self) -> bool {
        let Some(store) = self.shared.store.shared() else { return true };
        self.entry().rule.cooldown.is_none() || store.trusts(self.cooldown.heard())
    }

    /// The phase as confirmed by the store. News of a trip hold requests but refuse none.
    pub(super) fn confirmed(&self) -> CachedPhase<Instant> {
        if self.cooldown.is_hinted() { CachedPhase::Ask } else { self.cooldown.phase() }
    }

    /// Whether its cooldown is over as far as this member knows. Then the next request may be a probe.
    pub(super) fn is_due(&self) -> bool {
        self.cooldown.phase() != CachedPhase::Open && self.cooldown.epoch() > 0
    }

    /// How many of its requests are held.
    pub(super) fn held(self: &Arc<Self>) -> usize {
        self.queue.held_of(self)
    }

    /// Whether it can be dropped: no request waits or is in flight, and no cooldown is in force or being probed. The
    /// store remembers a cooldown that is over. Otherwise a site that gets no more requests would be kept forever.
    pub(super) fn is_idle(self: &Arc<Self>) -> bool {
        self.held() == 0 && self.queue.under_way() == 0 && !self.cooldown.is_closed()
    }
}
