//! Manual changes of a learned rate in the embedded store: the same as `lua/rate.lua`.

use super::{Memory, Scope, closed_at_most, news};
use crate::{
    limiter::{
        bucket::{Bucket, HORIZON, Pace},
        learn::{KnownRate, RateOverride},
    },
    rules::Rule,
    runtime::clock,
};

impl Memory {
    /// Changes a learned rate manually, at once. `known`: this member's copy of it.
    #[must_use]
    pub fn override_rate_now(
        &self,
        scope: &Scope,
        rule: &Rule,
        known: KnownRate,
        change: RateOverride,
    ) -> KnownRate {
        let now = self.now();
        let limits = &rule.limits;
        let mut cooldown = scope.here.cooldown.lock();
        let state = cooldown.state.get_or_insert_default();
        state.observe(now);
        let ramp = rule.cooldown.as_ref().map_or(0, |policy| clock::micros(policy.ramp));
        let mut kept = scope.here.bucket.lock();
        let fresh = kept.state.is_none();
        let bucket = kept.state.get_or_insert_with(|| Bucket::full(now, limits));
        bucket.observe(now, limits);
        if fresh {
            // A missing bucket may have been lost, so it grants nothing while its tickets may be outstanding.
            bucket.drain(now + HORIZON, limits);
        }
        bucket.override_rate(now, limits, ramp, news(state, now), known, change);
        let known = bucket.learned.known();
        let pace = Pace { rate: Some(bucket.learned.rate), ramp };
        let forget = bucket.forgettable_in(now, limits, pace, closed_at_most(rule));
        kept.forget_at = now.saturating_add(forget);
        known
    }
}
