//! When the next request of a scope could be sent, according to the store. Changes nothing.

use std::{sync::Arc, time::Duration};

use super::{Backend, Scope};
use crate::{
    limiter::{cooldown::Phase, learn::KnownRate},
    rules::Rule,
    runtime::clock,
};

/// The end of a probe is unknown, so look again after this many microseconds.
const LOOK_AGAIN: i64 = 1_000_000;

/// A scope for the forecast.
#[derive(Debug, Clone)]
pub struct Query {
    /// The scope.
    pub scope: Scope,
    /// Its rule.
    pub rule: Arc<Rule>,
    /// This member's knowledge of its learned rate.
    pub learned: KnownRate,
    /// The name of the asking queue in the slots; empty if the member has none.
    pub queue: Arc<str>,
    /// The proxy user whose request it would be.
    pub user: Option<Arc<str>>,
}

words! {
    /// What the next request of a scope waits for.
    pub enum WaitsFor {
        /// The rate.
        Rate = "rate",
        /// A quota.
        Quota = "quota",
        /// The limits of the user.
        User = "user",
        /// A request in flight to end.
        Parallel = "parallel",
        /// The cooldown.
        Cooldown = "cooldown",
        /// The rule's hours.
        Hours = "hours",
        /// The requests that are held in front of it.
        Queue = "queue",
        /// The store, which is away or has lost its memory.
        Store = "store",
        /// Nothing that ends by itself: no rule lets it through.
        Denied = "denied",
    }
}

/// When the next request of a scope could be sent if there are no others.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Forecast {
    /// The store's time; 0 if the store is away.
    pub now: i64,
    /// How long from now; `None` if unknown.
    pub wait: Option<Duration>,
    /// What the request waits for; `None` if it could be sent at once.
    pub reason: Option<WaitsFor>,
    /// The epoch of the cooldown.
    pub epoch: u64,
    /// The rate in force, in tokens per second; 0 = none.
    pub rate: f64,
    /// Members that wait for the bucket.
    pub members: u32,
    /// Slots that other members leave, of a rule with `parallel`.
    pub slots_left: u32,
}

/// The data that a store reads for one scope. Times are microseconds of its clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reading {
    pub(super) now: i64,
    pub(super) epoch: u64,
    pub(super) phase: Phase,
    /// The store grants nothing of the rule before this moment; 0 = it does.
    pub(super) hold: i64,
    /// The next ticket.
    pub(super) moment: i64,
    /// The next ticket if there were no quotas.
    pub(super) by_rate: i64,
    /// The next ticket of the user.
    pub(super) user_moment: i64,
    pub(super) slots_left: u32,
    pub(super) rate: f64,
    pub(super) members: u32,
}

impl From<Reading> for Forecast {
    fn from(reading: Reading) -> Self {
        let Reading { now, epoch, phase, hold, moment, by_rate, user_moment, .. } = reading;
        let ticket = (moment > now).then_some(moment);
        let limit = if by_rate < moment { WaitsFor::Quota } else { WaitsFor::Rate };
        let mut next = ticket.map(|at| (at, limit));
        let closed = match phase {
            Phase::Cooling(until) => until,
            Phase::Probing(lease) => lease.min(now + LOOK_AGAIN),
            Phase::Open | Phase::Due => 0,
        };
        let others =
            [(user_moment, WaitsFor::User), (hold, WaitsFor::Store), (closed, WaitsFor::Cooldown)];
        for (until, reason) in others {
            if until > next.map_or(now, |(at, _)| at) {
                next = Some((until, reason));
            }
        }
        if closed > now && next.is_some_and(|(_, reason)| reason == WaitsFor::Rate) {
            // The first token after the cooldown.
            next = next.map(|(at, _)| (at, WaitsFor::Cooldown));
        }
        let wait = next.map_or(Duration::ZERO, |(at, _)| clock::from_micros(at - now));
        let reason = next.map(|(_, reason)| reason);
        let Reading { rate, members, slots_left, .. } = reading;
        Self { now, wait: Some(wait), reason, epoch, rate, members, slots_left }
    }
}

impl Forecast {
    /// The request could be sent at once.
    pub(super) const NOW: Self = Self {
        now: 0,
        wait: Some(Duration::ZERO),
        reason: None,
        epoch: 0,
        rate: 0.0,
        members: 0,
        slots_left: u32::MAX,
    };

    /// The store is away. `wait`: how long it delays a request, if known.
    pub(super) const fn away(wait: Option<Duration>) -> Self {
        Self { wait, reason: Some(WaitsFor::Store), ..Self::NOW }
    }
}

impl Backend {
    /// When the next request of each scope could be sent. A fleet's store is read once for all of
    /// them, in one round trip.
    pub async fn forecast(&self, queries: &[Query]) -> Vec<Forecast> {
        match self {
            Self::Memory(memory) => queries.iter().map(|query| memory.forecast(query)).collect(),
            Self::Shared(shared) => shared.forecast(queries).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN: Reading = Reading {
        now: 1_000_000,
        epoch: 1,
        phase: Phase::Open,
        hold: 0,
        moment: 1_000_000,
        by_rate: 1_000_000,
        user_moment: 1_000_000,
        slots_left: u32::MAX,
        rate: 1.0,
        members: 0,
    };

    fn forecast(reading: Reading) -> (u64, Option<WaitsFor>) {
        let forecast = Forecast::from(reading);
        let wait = forecast.wait.map_or(u64::MAX, |wait| wait.as_secs());
        (wait, forecast.reason)
    }

    #[test]
    fn the_limit_that_ends_last_decides() {
        let rate = Reading { moment: 3_000_000, by_rate: 3_000_000, ..OPEN };
        let quota = Reading { moment: 9_000_000, by_rate: 3_000_000, ..OPEN };
        let cooling = Phase::Cooling(5_000_000);
        assert_eq!(forecast(OPEN), (0, None));
        assert_eq!(forecast(rate), (2, Some(WaitsFor::Rate)));
        assert_eq!(forecast(quota), (8, Some(WaitsFor::Quota)));
        assert_eq!(forecast(Reading { phase: cooling, ..rate }), (4, Some(WaitsFor::Cooldown)));
        assert_eq!(forecast(Reading { phase: cooling, ..quota }), (8, Some(WaitsFor::Quota)));
        assert_eq!(forecast(Reading { hold: 7_000_000, ..rate }), (6, Some(WaitsFor::Store)));
        assert_eq!(forecast(Reading { user_moment: 4_000_000, ..rate }), (3, Some(WaitsFor::User)));
        assert_eq!(forecast(Reading { user_moment: 2_000_000, ..rate }), (2, Some(WaitsFor::Rate)));
    }

    #[test]
    fn a_probe_in_flight_is_checked_long_before_its_lease_ends() {
        let lease = |end| Reading { phase: Phase::Probing(end), ..OPEN };
        assert_eq!(forecast(lease(90_000_000)), (1, Some(WaitsFor::Cooldown)));
        assert_eq!(forecast(lease(1_000_000)), (0, None));
    }
}
