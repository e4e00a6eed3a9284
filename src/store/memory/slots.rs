//! Slots of the embedded store. Its queues share them as the members of a fleet do.

use std::sync::Arc;

use super::{Memory, find_or_make};
use crate::{
    limiter::slots::Need,
    store::{Scope, SlotAsk, SlotsGranted},
};

impl Memory {
    /// Slots that other queues than `queue` leave of `most`. Changes nothing.
    pub(super) fn slots_left(&self, scope: &Scope, most: u32, queue: &str) -> u32 {
        let name = (Arc::clone(&scope.name.rule), Arc::clone(&scope.name.bucket));
        let place = self.slots.lock().get(&name).map(Arc::clone);
        let in_use = place.map_or(0, |place| {
            let kept = place.lock();
            kept.state.as_ref().map_or(0, |slots| slots.in_use(self.now(), queue))
        });
        most.saturating_sub(in_use)
    }

    /// Allots slots, at once.
    pub(super) fn slots_now(&self, scope: &Scope, ask: &SlotAsk) -> SlotsGranted {
        let now = self.now();
        let name = (Arc::clone(&scope.name.rule), Arc::clone(&scope.name.bucket));
        let place = find_or_make(&mut self.slots.lock(), name, now);
        let mut kept = place.lock();
        let need = Need {
            member: Arc::clone(&ask.queue),
            under_way: ask.under_way,
            wanted: ask.wanted,
            fleet: 1,
            was_local: false,
        };
        let slots = kept.state.get_or_insert_default();
        let allotted = slots.allot(now, ask.most, &need, 0);
        kept.forget_at = kept.state.as_ref().map_or(now, |slots| slots.ends());
        SlotsGranted {
            now,
            slots: allotted.slots,
            contended: allotted.contended,
            come_back: allotted.come_back,
            local: false,
        }
    }
}
