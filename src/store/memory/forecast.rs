//! The next free time of a scope in the embedded store: the same as `lua/when.lua`.

use super::{LocalState, Memory, advance, news};
use crate::{
    limiter::{
        bucket::Bucket,
        cooldown::{Cause, Cooldown, Phase},
        learn::KnownRate,
        policy::Limits,
    },
    rules::Rule,
    runtime::clock,
    store::forecast::{Forecast, Query, Reading},
};

impl Memory {
    /// When the next request of a scope can be sent.
    #[must_use]
    pub fn forecast(&self, query: &Query) -> Forecast {
        let Query { scope, rule, learned, queue, user } = query;
        let reading = self.reading(&scope.here, rule, *learned);
        let user_moment = user
            .as_deref()
            .map_or(reading.now, |user| self.next_of_user(scope, rule, user, reading.now));
        let slots_left = rule.parallel.map_or(0, |most| self.slots_left(scope, most, queue));
        Reading { user_moment, slots_left, ..reading }.into()
    }

    /// When the limits of `rule` allow the next request of a scope.
    fn reading(&self, place: &LocalState, rule: &Rule, known: KnownRate) -> Reading {
        let now = self.now();
        // Copies, because reading a future state advances a bucket and a cooldown.
        let mut state: Cooldown = place.cooldown.lock().state.clone().unwrap_or_default();
        let phase = rule.cooldown.as_ref().map_or(Phase::Open, |policy| {
            state.observe(now);
            state.phase(now, policy)
        });
        let limits = &rule.limits;
        let kept = place.bucket.lock();
        let members = u32::from(kept.waited_until >= now);
        let open = Reading {
            now,
            epoch: state.epoch,
            phase,
            hold: 0,
            moment: now,
            by_rate: now,
            user_moment: now,
            slots_left: u32::MAX,
            rate: 0.0,
            members,
        };
        if limits.is_unlimited() {
            return open;
        }
        let mut bucket = kept.state.clone().unwrap_or_else(|| Bucket::full(now, limits));
        drop(kept);
        let own = rule.cooldown.as_ref().filter(|_| place.own);
        let ramp = own.map_or(0, |policy| clock::micros(policy.ramp));
        let news = (own.map(|_| news(&state, now)), &mut state.shares);
        let is_probe = phase != Phase::Open;
        let (under, pace) = advance(&mut bucket, rule, (now, ramp), news, known, is_probe);
        let limits = &*under;
        // Without a probe the scope opens by itself, with an empty bucket. A pause does not empty it.
        let is_pause = state.cause.is_some_and(Cause::is_pause);
        if let (Phase::Cooling(until), Some(false), false) =
            (phase, own.map(|policy| policy.probe), is_pause)
        {
            bucket.restart(until, limits);
        }
        let moment = bucket.next(now, limits, pace);
        let by_rate = bucket.next(now, &Limits { quotas: Vec::new(), ..limits.clone() }, pace);
        Reading { moment, by_rate, rate: pace.rate.unwrap_or(0.0), ..open }
    }
}
