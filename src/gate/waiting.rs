//! Why a request is held: the cause in the access log.

use std::{sync::Arc, time::Duration};

use super::{Entry, Gate, active_scope::ActiveScope, cache::CachedPhase};
use crate::{
    observability::event::HoldCause,
    runtime::clock::{self, Instant},
    target::Target,
};

/// A wait that exceeds the rate's by more than this is caused by a quota. A store plans a quarter of a second ahead.
const PLANNED: Duration = Duration::from_millis(250);

/// One request at the gate, watched from its arrival on.
#[derive(Debug)]
pub struct Waiting {
    scope: Arc<ActiveScope>,
    since: Instant,
    ahead: usize,
    /// The scope was closed on arrival.
    closed: bool,
    /// It arrived outside of the rule's hours.
    early: bool,
    /// `parallel` requests were in flight when it arrived.
    full: bool,
}

impl Gate {
    /// Watches a request that is about to be held.
    #[must_use]
    pub fn watch_hold(&self, entry: &Arc<Entry>, target: &Target) -> Waiting {
        let scope = entry.scopes.find(entry, target);
        let closed = is_closed(&scope);
        let early = entry.rule.opens_in().is_some();
        let full = scope.queue.is_full();
        Waiting { ahead: scope.held(), since: clock::now(), closed, early, full, scope }
    }
}

impl Waiting {
    /// How long it has been at the gate.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.since.elapsed()
    }

    /// What it waits for, or has waited for. `more`: how much longer it would have had to wait, if it was refused.
    #[must_use]
    pub fn cause(&self, more: Option<Duration>) -> HoldCause {
        let cooldown = &self.scope.cooldown;
        if self.early {
            return HoldCause::Hours;
        }
        let reopened = cooldown.opened().is_some_and(|opened| opened > self.since);
        if self.closed || reopened || is_closed(&self.scope) {
            return HoldCause::Cooldown;
        }
        if self.full || self.scope.queue.is_full() {
            return HoldCause::Parallel;
        }
        let waits = self.scope.queue.waits();
        if waits.local {
            return HoldCause::Store;
        }
        let due = waits.come_back.map(|at| at.saturating_duration_since(self.since));
        let wait = self.elapsed() + more.unwrap_or_default();
        if self.is_quota(wait.max(due.unwrap_or_default()), waits.members) {
            return HoldCause::Quota;
        }
        if more.is_none() && due.is_none() && wait < waits.round_trip * 2 {
            return HoldCause::Store;
        }
        if self.ahead > 0 { HoldCause::Queue } else { HoldCause::Rate }
    }

    /// Whether the rate alone would have released it long ago.
    fn is_quota(&self, wait: Duration, members: u32) -> bool {
        let entry = self.scope.entry();
        let limits = &entry.rule.limits;
        if limits.quotas.is_empty() {
            return false;
        }
        let Some(rate) = self.scope.queue.rate_in_force(&entry.rule) else { return true };
        #[allow(clippy::cast_precision_loss, reason = "a queue has far fewer than 2^52 places")]
        let tokens = (self.ahead + 1) as f64 * f64::from(limits.cost) * f64::from(members);
        wait.saturating_sub(PLANNED).as_secs_f64() > tokens / rate
    }
}

fn is_closed(scope: &ActiveScope) -> bool {
    matches!(scope.cooldown.phase(), CachedPhase::Cooling(_) | CachedPhase::Probing(_))
}
