//! Compares the bucket with a plain model of its promises, and with its formulation by timestamps
//! (GCRA).
//!
//! Random sequences of takes, time, returned tickets, reports that trip, manual trips and clears,
//! outages and reloads run against the embedded store with a simulated clock, and against a real
//! Redis with its own clock. Every ticket must be the first moment at which all limits hold,
//! according to a model that keeps only the history. The model shares neither arithmetic nor state
//! with the stores.

#![allow(clippy::unwrap_used)]

mod plain;
mod world;

use std::{cell::Cell, time::Duration};

use integration_tests::redis::Redis;
use proptest::{prelude::*, test_runner::TestRunner};
use tidegate::limiter::policy::{Limits, Quota};

use crate::{
    plain::Gcra,
    world::{Subject, World},
};

/// One step.
#[derive(Debug, Clone)]
pub(crate) enum Op {
    /// Requests this many tickets, waiting at most this long (us).
    Take { wanted: u32, bound: i64 },
    /// Returns this many of the latest tickets.
    HandBack(usize),
    /// A block, which trips with the second in a row.
    Block,
    /// A success.
    Ok,
    /// A manual trip, for this many milliseconds.
    Trip(i64),
    /// A manual clear.
    Clear,
    /// The member was away from the store.
    Outage,
    /// Other limits; with tickets ahead they are void.
    Reload(Limits, bool),
    /// Time passes, in milliseconds.
    Wait(i64),
}

fn op(longest: i64) -> impl Strategy<Value = Op> {
    let bound = prop_oneof![Just(0i64), 1_000..400_000i64, Just(3_600_000_000i64)];
    prop_oneof![
        10 => (1..30u32, bound).prop_map(|(wanted, bound)| Op::Take { wanted, bound }),
        2 => (1..5usize).prop_map(Op::HandBack),
        1 => Just(Op::Block),
        1 => Just(Op::Ok),
        1 => (1..longest).prop_map(Op::Trip),
        1 => Just(Op::Clear),
        1 => Just(Op::Outage),
        2 => (limits(), any::<bool>()).prop_map(|(limits, void)| Op::Reload(limits, void)),
        6 => (0..longest).prop_map(Op::Wait),
    ]
}

fn limits() -> impl Strategy<Value = Limits> {
    let quota = (3..200u64, 1..60_000u64)
        .prop_map(|(tokens, ms)| Quota { tokens, window: Duration::from_millis(ms) });
    let rate = prop_oneof![Just(0.2), Just(1.0 / 3.0), Just(3.0), Just(77.7), Just(5_000.0)];
    (rate, 3..50u32, prop::collection::vec(quota, 0..3), 1..4u32).prop_map(
        |(rate, burst, quotas, cost)| Limits { rate: Some(rate), burst, quotas, cost, learn: None },
    )
}

fn check<S: Strategy>(cases: u32, of: &S, test: impl Fn(S::Value) -> Result<(), TestCaseError>) {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(cases);
    let config = ProptestConfig {
        cases,
        failure_persistence: None,
        max_shrink_iters: 2_000,
        ..ProptestConfig::default()
    };
    if let Err(error) = TestRunner::new(config).run(of, test) {
        panic!("{error}");
    }
}

/// Runs sequences on subjects and returns the numbers of tickets, reloads and trips.
fn play(cases: u32, longest: i64, length: usize, subject: impl Fn(u64) -> Subject) {
    let seen = Cell::new([0u64; 3]);
    let run = Cell::new(0u64);
    let ramps = prop_oneof![Just(0u64), 1..20_000u64];
    let sequences = (limits(), ramps, prop::collection::vec(op(longest), 1..length));
    check(cases, &sequences, |(limits, ramp, ops)| {
        run.set(run.get() + 1);
        let mut world = World::new(subject(run.get()), limits, Duration::from_millis(ramp));
        for op in &ops {
            world.step(op)?;
        }
        let (before, tally) = (seen.get(), world.tally);
        seen.set(std::array::from_fn(|n| before[n] + tally[n]));
        Ok(())
    });
    assert!(seen.get().iter().all(|n| *n > 10), "too little happened: {:?}", seen.get());
}

#[test]
fn the_embedded_store_gives_every_ticket_at_the_first_moment_that_the_model_allows() {
    play(1_500, 30_000, 80, |_| Subject::memory());
}

#[test]
fn redis_gives_every_ticket_at_the_first_moment_that_the_model_allows() {
    let redis = Redis::start();
    let shared = world::connect(&redis);
    play(60, 4, 40, |run| Subject::redis(&shared, run));
}

#[test]
fn the_bucket_is_the_one_that_timestamps_describe() {
    let limits = (1..10_000u32, 1..60u32, 1..4u32);
    let take = (1..20u32, prop::bool::weighted(0.05), 0..3_000i64);
    let sequences = (limits, prop::collection::vec(take, 1..60));
    check(1_500, &sequences, |((rate, more, cost), takes)| {
        let burst = cost - 1 + more;
        let limits =
            Limits { rate: Some(f64::from(rate)), burst, quotas: vec![], cost, learn: None };
        let mut subject = Subject::memory();
        let rule = world::rule(limits, Duration::ZERO);
        let mut gcra = Gcra::new(subject.now(), rate, burst, cost);
        let mut latest = i64::MIN;
        for (wanted, outage, pause) in takes {
            let granted = subject.take(&rule, wanted, i64::MAX / 4, outage, false, vec![]);
            if outage {
                latest = latest.max(granted.now);
                gcra.drain(latest);
            }
            for ticket in granted.tickets {
                let expected = gcra.next(latest.max(granted.now));
                prop_assert!((ticket - expected).abs() <= 1, "{ticket}, and not {expected}");
                gcra.take(ticket);
                latest = ticket;
            }
            subject.wait(pause);
        }
        Ok(())
    });
}
