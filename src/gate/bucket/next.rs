//! When a scope is free again, as far as this member knows without a call: from its queue, the
//! store's last reply, and its own requests.

use std::{sync::Arc, time::Duration};

use super::{BucketQueue, Gateway, Lane};
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
        let mut full_at = self.full_at.lock();
        for (user, limits, rate) in self.limits_of(rule, client) {
            let full = full_at.entry(user).or_insert(at);
            *full = (*full).max(at) + seconds(f64::from(limits.cost) / rate);
        }
    }

    /// The limits of the bucket, and those of the client's user, each with its rate in force.
    fn limits_of<'r>(
        &self,
        rule: &'r Rule,
        client: &Client,
    ) -> impl Iterator<Item = (Option<Arc<str>>, &'r Limits, f64)> {
        let shared = self.rate_in_force(rule).map(|rate| (None, &rule.limits, rate));
        let own = rule.each_user.as_ref().zip(client.user()).and_then(|(limits, user)| {
            limits.rate.map(|rate| (Some(Arc::clone(user)), limits, rate))
        });
        shared.into_iter().chain(own)
    }

    /// How long from now until `lane` is free for the next request of `client`, once the present one has ended. Others may
    /// be first, so this is the earliest moment.
    pub(in crate::gate) fn next_in(&self, lane: &Lane, client: &Client) -> Duration {
        let now = clock::now();
        let entry = self.entry.load();
        let rule = &entry.rule;
        let mut at = match lane.view.gateway() {
            Gateway::Cooling(until) => until,
            Gateway::Probing(_) => now + LOOK_AGAIN,
            Gateway::Open | Gateway::Ask => now,
        };
        {
            let state = self.state.lock();
            let queued = self.estimate(&state, rule, lane, state.queue.len(), now);
            at = at.max(queued.map_or(now, |queued| queued.at));
            at = at
                .max(client.user().and_then(|user| state.queue.blocked_until(user)).unwrap_or(now));
            if state.is_full_after_one(now) {
                at = at.max(now + LOOK_AGAIN);
            }
        }
        let full_at = self.full_at.lock();
        for (user, limits, rate) in self.limits_of(rule, client) {
            let Some(full) = full_at.get(&user) else { continue };
            let saved = seconds(f64::from(limits.burst.saturating_sub(limits.cost)) / rate);
            at = at.max(full.checked_sub(saved).unwrap_or(now));
        }
        at.saturating_duration_since(now).max(rule.opens_in().unwrap_or_default())
    }
}

/// At most a day, which is the longest `max_wait`.
fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds.min(86_400.0))
}
