//! Slots of a fleet, and this member's part of them while the store is away.

use std::sync::{Arc, atomic::Ordering};

use super::{SharedStore, local_scope::part, recover::Heard};
use crate::{
    rules::settings::OnFailure,
    store::{
        Scope, SlotAsk, SlotsGranted, StoreError,
        keys::Keys,
        scripts::{Slots, SlotsArguments, SlotsReply},
    },
};

impl SharedStore {
    /// Asks the store for slots; `None` if it does not answer.
    pub(super) async fn ask_for_slots(
        &self,
        scope: &Scope,
        keys: &Keys,
        ask: &SlotAsk,
    ) -> Option<SlotsGranted> {
        let since = keys.memory.since();
        let arguments = SlotsArguments {
            member: Arc::clone(&ask.queue),
            most: ask.most,
            under_way: ask.under_way,
            wanted: ask.wanted,
            fleet: self.members(),
            was_local: keys.known.slots_local.load(Ordering::Relaxed),
            memory: since,
            news: keys.slots_news(&scope.name.rule),
        };
        let reply = self.call::<Slots>(keys.slots(), arguments).await?;
        keys.known.slots_local.store(false, Ordering::Relaxed);
        if keys.memory.hears(reply.memory, since) == Heard::Lost {
            self.memory_is_lost();
        }
        let SlotsReply { now, slots, contended, come_back, .. } = reply;
        Some(SlotsGranted { now, slots, contended, come_back, local: false })
    }

    /// The reply while the store is away. The slots are divided evenly, like a rate, and requests in flight continue.
    pub(super) fn slots_locally(
        &self,
        keys: &Keys,
        ask: &SlotAsk,
    ) -> Result<SlotsGranted, StoreError> {
        let Some(own) = self.own_slots(keys, ask.most) else {
            return Err(StoreError::Away(self.why_down()));
        };
        if self.on_failure() == OnFailure::Local && own > 0 {
            keys.known.slots_local.store(true, Ordering::Relaxed);
        }
        let slots = ask.under_way.max(own.min(ask.wanted));
        Ok(SlotsGranted { now: 0, slots, contended: false, come_back: 0, local: true })
    }

    /// Slots that this member may use while the store is away; `None` if nothing may be sent without it.
    pub(super) fn own_slots(&self, keys: &Keys, most: u32) -> Option<u32> {
        match self.on_failure() {
            OnFailure::Closed => None,
            OnFailure::Open => Some(u32::MAX),
            OnFailure::Local if self.keeps_slots_still(keys) => Some(0),
            OnFailure::Local => {
                let own = part(u64::from(most), self.fleet().share.min(1.0));
                Some(u32::try_from(own).unwrap_or(most))
            }
        }
    }
}
