//! Slots of a fleet, and this member's part of them while the store is away.

use std::sync::atomic::Ordering;

use super::{Shared, recover::Heard, share::part};
use crate::{
    rules::settings::OnFailure,
    store::{Scope, SlotAsk, SlotsGranted, StoreError, keys::Keys, scripts},
};

impl Shared {
    /// Asks the store for slots; `None` if it does not answer.
    pub(super) async fn ask_for_slots(
        &self,
        scope: &Scope,
        keys: &Keys,
        ask: &SlotAsk,
    ) -> Option<SlotsGranted> {
        let since = keys.memory.since();
        let was_alone = keys.slots_alone.load(Ordering::Relaxed);
        let (command, channel) = keys.channel();
        let name = format!("{}\x1f{}", scope.name.rule, scope.name.bucket);
        let arguments = vec![
            ask.queue.to_string(),
            ask.most.to_string(),
            ask.under_way.to_string(),
            ask.wanted.to_string(),
            self.members().to_string(),
            u8::from(was_alone).to_string(),
            since.to_string(),
            command.to_owned(),
            channel.to_owned(),
            name,
        ];
        let reply = self.call(&self.scripts.slots, keys.slots(), arguments).await;
        match reply.map(scripts::slots)? {
            Ok((granted, memory)) => {
                keys.slots_alone.store(false, Ordering::Relaxed);
                if keys.memory.hears(memory, since) == Heard::Lost {
                    self.rejoin.tell();
                }
                Some(granted)
            }
            Err(bad) => {
                self.failed(&bad.into());
                None
            }
        }
    }

    /// The answer while the store is away. Like a rate, the slots are divided evenly; what has begun goes on.
    pub(super) fn slots_alone(
        &self,
        keys: &Keys,
        ask: &SlotAsk,
    ) -> Result<SlotsGranted, StoreError> {
        let own = match self.on_failure() {
            OnFailure::Closed => return Err(StoreError::Away(self.why_down())),
            OnFailure::Open => u32::MAX,
            OnFailure::Local if self.keeps_slots_still(keys) => 0,
            OnFailure::Local => {
                keys.slots_alone.store(true, Ordering::Relaxed);
                u32::try_from(part(u64::from(ask.most), self.fleet().share.min(1.0)))
                    .unwrap_or(ask.most)
            }
        };
        let slots = ask.under_way.max(own.min(ask.wanted));
        Ok(SlotsGranted { now: 0, slots, contended: false, come_back: 0, alone: true })
    }
}
