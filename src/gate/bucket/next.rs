//! When a scope is free again, as far as this member knows without a call: from its queue, the
//! store's last reply, and its own requests.

use std::time::Duration;

use super::{BucketQueue, Gateway, Lane};
use crate::{
    rules::Rule,
    runtime::clock::{self, Instant},
};

/// The assumed duration of a probe in flight, which nobody knows. `POST /api/v1/when` assumes the
/// same.
const PROBE: Duration = Duration::from_secs(1);

impl BucketQueue {
    /// A ticket of this moment is used up by a request under `rule`.
    pub(in crate::gate) fn note_used(&self, rule: &Rule, at: Instant) {
        let Some(rate) = self.rate_in_force(rule) else { return };
        let refill = seconds(f64::from(rule.limits.cost) / rate);
        let mut full_at = self.full_at.lock();
        *full_at = Some(full_at.map_or(at, |full| full.max(at)) + refill);
    }

    /// How long from now until `lane` is free again. Others may take the token first, so this is the earliest moment.
    pub(in crate::gate) fn next_in(&self, lane: &Lane) -> Duration {
        let now = clock::now();
        let entry = self.entry.load();
        let rule = &entry.rule;
        let mut at = match lane.view.gateway() {
            Gateway::Cooling(until) => until,
            Gateway::Probing(_) => now + PROBE,
            Gateway::Open | Gateway::Ask => now,
        };
        let queued = {
            let state = self.state.lock();
            self.estimate(&state, rule, lane, state.queue.len(), now)
        };
        at = at.max(queued.map_or(now, |queued| queued.at));
        if let (Some(rate), Some(full_at)) = (self.rate_in_force(rule), *self.full_at.lock()) {
            let spare = rule.limits.burst.saturating_sub(rule.limits.cost);
            let saved = seconds(f64::from(spare) / rate);
            at = at.max(full_at.checked_sub(saved).unwrap_or(now));
        }
        at.saturating_duration_since(now).max(rule.opens_in().unwrap_or_default())
    }
}

/// At most a day, which is the longest `max_wait`.
fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds.min(86_400.0))
}
