//! A member's decisions in a scope while its store does not reply.
//!
//! A failed call says nothing about the other members. They may still take tokens, and requests without the store would
//! add to theirs. So a member first uses only the tickets that it holds, for [`OUTAGE_TIMEOUT`]. Then it calls once
//! more, and decides in local mode only if that call fails too. If a member is cut off for a shorter time, it sends
//! nothing without a ticket of the store, so the fleet never exceeds a limit. After a longer outage the store reserves
//! the shares of the members that are still away (`AWAY` in `lua/lib/away.lua`).
//!
//! A member without other members continues at once. A member that has not reached the store since
//! it started sends nothing until it has.

use std::{sync::Arc, time::Duration};

use super::{
    SharedStore,
    local_scope::{BeforeOutage, LocalScope, fixed, scaled},
};
use crate::{
    limiter::policy::Limits,
    rules::{Rule, settings::OnFailure},
    runtime::clock,
    store::{Ask, Granted, Scope, keys::Keys},
};

/// How long a member of a fleet sends nothing without a ticket. This is longer than a restart or a failover of the
/// store and the time to connect again. `AWAY` in `lua/lib/away.lua` is shorter by the time to connect.
const OUTAGE_TIMEOUT: Duration = Duration::from_secs(3);
/// When waiting requests check again: as often as the store is tried.
const AGAIN: Duration = Duration::from_millis(250);

impl SharedStore {
    /// How long the store has not replied: in total, or in this scope (one node of a cluster may be away, or one script
    /// may be refused).
    pub(super) fn silent_for(&self, keys: &Keys) -> Duration {
        let since = [self.unanswered.since(), keys.unanswered.since()].into_iter().flatten().min();
        since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Whether this member may decide in local mode.
    fn may_go_local(&self, keys: &Keys) -> bool {
        self.members() < 2
            || self.unanswered.lasted().max(keys.unanswered.lasted()) >= OUTAGE_TIMEOUT
    }

    /// Whether to call a store that is away once more before local mode.
    pub(super) fn asks_once_more(&self, keys: &Keys) -> bool {
        self.settings.on_failure == OnFailure::Local
            && !self.may_go_local(keys)
            && self.silent_for(keys) >= OUTAGE_TIMEOUT
    }

    /// Whether this member pauses for now: the rule has limits that other members may use too.
    pub(super) fn keeps_still(&self, keys: &Keys, limits: &Limits) -> bool {
        self.settings.on_failure == OnFailure::Local
            && !limits.is_unlimited()
            && self.keeps_slots_still(keys)
    }

    /// Whether this member begins no requests under `parallel` for now.
    pub(super) fn keeps_slots_still(&self, keys: &Keys) -> bool {
        self.knows_no_share() || !self.may_go_local(keys)
    }

    /// The reply in the meantime: no tickets. Tokens that this member saved up in local mode are dropped.
    pub(super) fn still(
        &self,
        scope: &Scope,
        keys: &Keys,
        rule: &Rule,
        whole: &Limits,
        ask: &Ask,
    ) -> Granted {
        let limits = scaled(whole, self.fleet().share);
        let rule = Rule { limits, ..rule.clone() };
        let ask = Ask { wanted: 0, drain: true, returned: Vec::new(), ..ask.clone() };
        let here = self.here.take_now(scope, &rule, &ask);
        let left = OUTAGE_TIMEOUT.saturating_sub(self.silent_for(keys));
        let again = if left.is_zero() { AGAIN } else { left.min(AGAIN) };
        Granted {
            rate: whole.rate.unwrap_or(0.0),
            come_back: here.come_back.max(here.now + clock::micros(again)),
            learned: ask.learned,
            local: true,
            ..here
        }
    }

    /// This member's share of each user's limits; `None` if there are none without the store.
    pub(super) fn each_user_locally(&self, rule: &Rule) -> Option<Limits> {
        let each_user = rule.each_user.as_ref();
        let limits = each_user.filter(|_| self.settings.on_failure == OnFailure::Local)?;
        Some(scaled(limits, self.fleet().share.min(1.0)))
    }

    /// Decides without the store.
    pub(super) fn take_locally(
        &self,
        scope: &Scope,
        keys: &Arc<Keys>,
        rule: &Rule,
        ask: &Ask,
    ) -> Option<Granted> {
        let mode = self.settings.on_failure;
        let whole = fixed(&rule.limits, ask.learned.rate);
        if self.keeps_still(keys, &whole) {
            return Some(self.still(scope, keys, rule, &whole, ask));
        }
        self.metrics.store_fallback(mode.as_str()).inc();
        let mut local = keys.known.local.lock();
        if mode == OnFailure::Closed {
            return None;
        }
        let goes_on = local.as_ref().is_some_and(|local| local.is_of(&whole));
        if !goes_on {
            let before = BeforeOutage {
                heard: keys.known.heard(),
                due: keys.latest_due(ask.known.epoch),
                silent: self.silent_for(keys),
                taken: local.as_ref().map_or(0, LocalScope::taken),
            };
            let place = (&self.here, &scope.here);
            let new = LocalScope::begin(place, &whole, self.fleet(), &before);
            if local.replace(new).is_none() {
                self.rejoin.diverged(keys);
            }
        }
        let local = local.as_mut()?;
        let limits = match mode {
            OnFailure::Open => Limits { rate: None, quotas: Vec::new(), ..whole.clone() },
            OnFailure::Local | OnFailure::Closed => local.limits(&whole),
        };
        // Return the fleet's rate. Otherwise the member would take a share of a share next time.
        let rate = limits.rate.and(whole.rate).unwrap_or(0.0);
        let now = self.here.now();
        let never = local.never(now).filter(|_| !limits.quotas.is_empty());
        let wanted = if never.is_some() { 0 } else { ask.wanted };
        let bound = ask.bound.min(local.ends_in(now) - 1);
        let each_user = self.each_user_locally(rule);
        let rule = Rule { limits, each_user, ..rule.clone() };
        // Tickets of the store that are still in hand count, because they are used first.
        let ask = Ask { wanted, bound, drain: false, returned: Vec::new(), ..ask.clone() };
        let here = self.here.take_now(scope, &rule, &ask);
        local.granted(&here);
        let come_back = never.unwrap_or(here.come_back);
        Some(Granted { rate, come_back, learned: ask.learned, local: true, ..here })
    }
}
