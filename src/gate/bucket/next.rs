//! When a scope is free again, as far as this member knows without a call: from its queue, the
//! store's last reply, and its own requests.

use std::{sync::Arc, time::Duration};

use super::{ActiveScope, BucketQueue, CachedPhase};
use crate::{
    gate::Client,
    limiter::policy::Limits,
    rules::Rule,
    runtime::clock::{self, Instant},
};

/// When to look again for the end of a probe, or of a request that is under way: nobody knows it.
pub(in crate::gate) const LOOK_AGAIN: Duration = Duration::from_secs(1);

impl BucketQueue {
    /// A ticket of this moment is used up by a request of `client` under `rule`.
    pub(in crate::gate) fn note_used(&self, rule: &Rule, client: &Client, at: Instant) {
        if let Some(rate) = self.rate_in_force(rule) {
            let mut full_at = self.full_at.lock();
            *full_at = Some(full_at.map_or(at, |full| full.max(at)) + refill(&rule.limits, rate));
        }
        if let Some((user, limits, rate)) = own_limits(rule, client) {
            let mut full_at = self.users_full_at.lock();
            let full = full_at.entry(Arc::clone(user)).or_insert(at);
            *full = (*full).max(at) + refill(limits, rate);
        }
    }

    /// How long from now until `scope` is free for the next request of `client`, once the present one has ended. Others may
    /// be first, so this is the earliest moment.
    pub(in crate::gate) fn next_in(&self, scope: &ActiveScope, client: &Client) -> Duration {
        let now = clock::now();
        let entry = self.entry.load();
        let rule = &entry.rule;
        let mut at = match scope.cooldown.phase() {
            CachedPhase::Cooling(until) => until,
            CachedPhase::Probing(_) => now + LOOK_AGAIN,
            CachedPhase::Open | CachedPhase::Ask => now,
        };
        {
            let state = self.state.lock();
            let queued = self.estimate(&state, rule, scope, state.queue.len(), now);
            at = at.max(queued.map_or(now, |queued| queued.at));
            at = at
                .max(client.user().and_then(|user| state.queue.blocked_until(user)).unwrap_or(now));
            if state.is_full_after_one(now) {
                at = at.max(now + LOOK_AGAIN);
            }
        }
        if let (Some(rate), Some(full)) = (self.rate_in_force(rule), *self.full_at.lock()) {
            at = at.max(next_before(full, &rule.limits, rate).unwrap_or(now));
        }
        if let Some((user, limits, rate)) = own_limits(rule, client) {
            let full = self.users_full_at.lock().get(user).copied();
            at = at.max(full.and_then(|full| next_before(full, limits, rate)).unwrap_or(now));
        }
        at.saturating_duration_since(now).max(rule.opens_in().unwrap_or_default())
    }
}

/// The user of a client and its own limits, if these have a rate.
fn own_limits<'a>(rule: &'a Rule, client: &'a Client) -> Option<(&'a Arc<str>, &'a Limits, f64)> {
    let limits = rule.each_user.as_ref()?;
    Some((client.user()?, limits, limits.rate?))
}

/// How long the tokens of one request take to come back.
fn refill(limits: &Limits, rate: f64) -> Duration {
    seconds(f64::from(limits.cost) / rate)
}

/// When a bucket that is full at `full` has the tokens of one request.
fn next_before(full: Instant, limits: &Limits, rate: f64) -> Option<Instant> {
    full.checked_sub(seconds(f64::from(limits.burst.saturating_sub(limits.cost)) / rate))
}

/// At most a day, which is the longest `max_wait`.
fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds.min(86_400.0))
}
