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

/// When to look again while a probe or a request is in flight, because its end is unknown.
pub(in crate::gate) const LOOK_AGAIN: Duration = Duration::from_secs(1);

impl BucketQueue {
    /// Records that a request of `client` under `rule` has used the ticket of this moment.
    pub(in crate::gate) fn note_used(&self, rule: &Rule, client: &Client, at: Instant) {
        let mut full_at = self.full_at.lock();
        for (user, limits, rate) in self.buckets_of(rule, client) {
            let full = full_at.entry(user.map(Arc::clone)).or_insert(at);
            *full = (*full).max(at) + seconds(f64::from(limits.cost) / rate);
        }
    }

    /// The buckets of a request that have a rate: the rule's and the user's.
    fn buckets_of<'a>(
        &self,
        rule: &'a Rule,
        client: &'a Client,
    ) -> impl Iterator<Item = (Option<&'a Arc<str>>, &'a Limits, f64)> {
        let shared = self.rate_in_force(rule).map(|rate| (None, &rule.limits, rate));
        let user = client.user().zip(rule.each_user.as_ref());
        let own = user.and_then(|(user, limits)| Some((Some(user), limits, limits.rate?)));
        shared.into_iter().chain(own)
    }

    /// How long from now until `scope` is free for the next request of `client`, once the current one has ended. This
    /// is the earliest moment, because other requests may come first.
    pub(in crate::gate) fn next_in(&self, scope: &ActiveScope, client: &Client) -> Duration {
        let now = clock::now();
        let entry = self.entry.load();
        let rule = &entry.rule;
        let mut at = match scope.cooldown.phase() {
            CachedPhase::Cooling(until) | CachedPhase::Due(until) => until,
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
        let full_at = self.full_at.lock();
        for (user, limits, rate) in self.buckets_of(rule, client) {
            let full = full_at.get(&user.map(Arc::clone)).copied();
            at = at.max(full.and_then(|full| next_before(full, limits, rate)).unwrap_or(now));
        }
        at.saturating_duration_since(now).max(rule.opens_in().unwrap_or_default())
    }
}

/// When a bucket that is full at `full` has the tokens of one request.
fn next_before(full: Instant, limits: &Limits, rate: f64) -> Option<Instant> {
    full.checked_sub(seconds(f64::from(limits.burst.saturating_sub(limits.cost)) / rate))
}

/// A duration of at most a day, the longest `max_wait`.
fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds.min(86_400.0))
}
