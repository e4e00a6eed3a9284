//! Estimates when a request would be released, and refuses at once the requests that would be too late.
//!
//! As long as the store has not said when the next ticket is due, a request is refused only if even the earliest
//! possible ticket is too late. Otherwise the store's next reply decides, even if the deadline is now.

use std::{sync::Arc, time::Duration};

use super::{
    ActiveScope, BucketQueue, CachedPhase, FRESH, Outcome, RefusalReason, State, next::LOOK_AGAIN,
};
use crate::{
    rules::Rule,
    runtime::clock::{self, Instant},
};

/// When a request would be released.
#[derive(Debug, Clone, Copy)]
pub(super) struct Estimate {
    pub(super) at: Instant,
    /// False if this is only the earliest possible time.
    sure: bool,
}

/// The state of a queue that explains a wait.
#[derive(Debug, Clone, Copy)]
pub(in crate::gate) struct Waits {
    /// The store said that no ticket is due before this time.
    pub(in crate::gate) come_back: Option<Instant>,
    /// The store is away, and this member grants from its own share.
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

    /// Whether a new request with this many in front of it will certainly be released in time; an error if it cannot
    /// be.
    pub(super) fn refuse_hopeless(
        &self,
        state: &State,
        rule: &Rule,
        scope: &ActiveScope,
        ahead: usize,
        deadline: Instant,
    ) -> Result<bool, (RefusalReason, Option<Duration>)> {
        let now = clock::now();
        if let Some(wait) = rule.opens_in() {
            // Outside of the hours nothing else matters, so the store is not asked.
            let late = now + wait > deadline;
            return if late { Err((RefusalReason::Hours, Some(wait))) } else { Ok(true) };
        }
        if let Some((until, why)) = self.closed_until(scope)
            && until > deadline
        {
            return Err((why, Some(until - now)));
        }
        match self.estimate(state, rule, scope, ahead, now) {
            Some(estimate) if estimate.at > deadline.max(now) => {
                Err((self.why_late(), Some(estimate.at - now)))
            }
            Some(estimate) => Ok(estimate.sure),
            None => Ok(scope.confirmed() != CachedPhase::Ask && rule.limits.is_unlimited()),
        }
    }

    /// Until when nothing of a scope is sent for certain, and the reason for those that cannot wait as long.
    pub(super) fn closed_until(&self, scope: &ActiveScope) -> Option<(Instant, RefusalReason)> {
        match scope.confirmed() {
            CachedPhase::Cooling(until) => Some((until, RefusalReason::Cooldown)),
            CachedPhase::Due(until) => Some((until, self.why_late())),
            CachedPhase::Open | CachedPhase::Probing(_) | CachedPhase::Ask => None,
        }
    }

    /// Judges the requests that arrived before the store's first reply. The store has now replied for `answered`, and
    /// `served` means that it granted everything. A request at its deadline is released if it need not wait any longer.
    pub(super) fn judge(
        &self,
        state: &mut State,
        rule: &Rule,
        answered: &Arc<ActiveScope>,
        served: bool,
    ) {
        let now = clock::now();
        let mut refused = 0;
        for (seq, one) in state.queue.unjudged() {
            let Some(scope) = state.queue.scope_of(seq).cloned() else { continue };
            let open = scope.cooldown.phase() == CachedPhase::Open;
            if !open && scope != *answered {
                continue;
            }
            let gone = usize::try_from(state.turns - one.turns).unwrap_or(usize::MAX);
            let ahead = one.ahead.saturating_sub(gone).saturating_sub(refused);
            match self.estimate(state, rule, &scope, ahead, now).filter(|_| open) {
                Some(estimate) if estimate.at > one.deadline.max(now) => {
                    if let Some(waiter) = state.queue.remove(seq) {
                        refused += 1;
                        let wait = Some(estimate.at - now);
                        waiter.sender.send(Outcome::Refused(self.why_late(), wait)).ok();
                    }
                }
                Some(Estimate { sure: false, .. }) => {}
                None if open && served && !rule.limits.is_unlimited() => {}
                _ => state.queue.set_judged(seq, one.deadline.max(now + FRESH)),
            }
        }
    }

    /// Tokens per second, configured or learned.
    pub(in crate::gate) fn rate_in_force(&self, rule: &Rule) -> Option<f64> {
        let learned = self.learned().rate;
        let learns = rule.limits.learn.is_some() && learned > 0.0;
        let rate = rule.limits.rate.map(|rate| if learns { learned } else { rate })?;
        Some(
            self.only
                .as_ref()
                .and_then(|cooldown| cooldown.named())
                .map_or(rate, |named| named.min(rate)),
        )
    }

    /// When a request with this many in front of it would be released, as far as this member knows; `None` if it need
    /// not wait.
    pub(super) fn estimate(
        &self,
        state: &State,
        rule: &Rule,
        scope: &ActiveScope,
        ahead: usize,
        now: Instant,
    ) -> Option<Estimate> {
        let phase = scope.confirmed();
        // The tickets in hand are for open scopes.
        let is_open = phase == CachedPhase::Open;
        if let Some(ticket) = state.tickets.get(ahead).filter(|_| is_open) {
            return Some(Estimate { at: ticket.at, sure: true });
        }
        let come_back = state.come_back.filter(|at| *at > now);
        let Some(rate) = self.rate_in_force(rule) else {
            return come_back.map(|at| Estimate { at, sure: true });
        };
        let after = |from: Instant, requests: usize, members: u32, sure: bool| {
            #[allow(clippy::cast_precision_loss)]
            let tokens = requests as f64 * f64::from(rule.limits.cost) * f64::from(members);
            // The longest `max_wait` is a day. The bound keeps the sum within the range of the clock.
            Some(Estimate {
                at: from + Duration::from_secs_f64((tokens / rate).min(86_401.0)),
                sure,
            })
        };
        let members = state.members.max(1);
        let last = state.tickets.back().map(|ticket| ticket.at).filter(|at| *at > now);
        match (phase, last, come_back) {
            (CachedPhase::Cooling(until), ..) => after(until, ahead, members, true),
            (_, Some(last), _) => {
                after(last, (ahead + 1).saturating_sub(state.tickets.len()), members, true)
            }
            (_, None, Some(at)) => after(at, ahead, members, true),
            _ => {
                // The bucket may be full, and no other member may need it.
                let burst =
                    usize::try_from(rule.limits.burst / rule.limits.cost).unwrap_or(usize::MAX);
                after(now, (ahead + 1).saturating_sub(burst), 1, false)
            }
        }
    }

    /// Why there is no ticket in time.
    fn why_late(&self) -> RefusalReason {
        if self.shared.store.knows_no_share() { RefusalReason::Store } else { RefusalReason::Limit }
    }

    /// Refuses the requests that would be too late: past their deadline, or with a deadline before the next ticket.
    pub(super) fn give_up_hopeless(&self, state: &mut State, now: Instant) {
        while let Some(waiter) = state.queue.pop_hopeless(now) {
            let is_open = waiter.scope.cooldown.open_epoch().is_some();
            let mut wait = state.come_back.map(|at| at.saturating_duration_since(now));
            let mut why = if is_open { self.why_late() } else { RefusalReason::Cooldown };
            if why == RefusalReason::Limit && state.is_full(now) {
                why = RefusalReason::Parallel;
                wait = Some(wait.unwrap_or_default().max(LOOK_AGAIN));
            }
            waiter.sender.send(Outcome::Refused(why, wait)).ok();
        }
        let nothing_in_hand = state.tickets.is_empty() && state.ready(now) > 0;
        if let Some(at) = state.come_back.filter(|_| nothing_in_hand) {
            while let Some(waiter) = state.queue.pop_hopeless(at) {
                waiter.sender.send(Outcome::Refused(self.why_late(), Some(at - now))).ok();
            }
        }
    }
}
