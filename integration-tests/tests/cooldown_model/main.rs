//! Compares the cooldown's state machine with a plain model of its promises.
//!
//! Random sequences of requests, responses (also of older epochs), deaths, time, trips and manual
//! clears run against the embedded store with a simulated clock. The model keeps the whole history
//! of a scope and derives every reply from it. A second check uses only the store's own replies.

#![allow(clippy::unwrap_used)]

mod plain;
mod world;

use std::time::Duration;

use proptest::{prelude::*, test_runner::TestRunner};
use tidegate::limiter::policy::{CooldownPolicy, Ratio, Split, Weights};

use crate::world::World;

/// One step.
#[derive(Debug, Clone)]
pub(crate) enum Op {
    /// A request.
    Ask,
    /// The response to an earlier grant.
    Answer { which: usize, answer: Reply, oks: u32, draw: f64 },
    /// The process that holds a grant dies without a word.
    Die(usize),
    /// Time passes, in milliseconds.
    Wait(i64),
    /// A manual trip.
    Trip(i64),
    /// A manual clear.
    Clear,
}

/// A response of a site.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Reply {
    /// A page.
    Ok,
    /// A block of this many quarters of a whole one, with this Retry-After in milliseconds (0 = none).
    Block(u8, i64),
    /// Nothing that counts.
    Nothing,
}

fn op() -> impl Strategy<Value = Op> {
    let retry_after = prop_oneof![9 => Just(0i64), 1 => 1..40_000i64];
    let reply = prop_oneof![
        4 => Just(Reply::Ok),
        6 => (1..12u8, retry_after).prop_map(|(quarters, wait)| Reply::Block(quarters, wait)),
        1 => Just(Reply::Nothing),
    ];
    let wait = prop_oneof![4 => 0..50i64, 4 => 50..5_000i64, 1 => 5_000..90_000i64];
    prop_oneof![
        8 => Just(Op::Ask),
        8 => (0..32usize, reply, 0..4u32, 0.0..1.0f64).prop_map(|(which, answer, oks, draw)| {
            Op::Answer { which, answer, oks, draw }
        }),
        1 => (0..32usize).prop_map(Op::Die),
        5 => wait.prop_map(Op::Wait),
        1 => (1..20_000i64).prop_map(Op::Trip),
        1 => Just(Op::Clear),
    ]
}

fn policy() -> impl Strategy<Value = CooldownPolicy> {
    let ratio = prop_oneof![
        Just(None),
        Just(Some(Ratio { share: 0.5, of: 6 })),
        Just(Some(Ratio { share: 0.3, of: 10 })),
    ];
    let lengths = (500..2_000u64, 0..2_000u64);
    (ratio, lengths, prop::bool::weighted(0.8), 4..13u8, 0..5u8, any::<bool>()).prop_map(
        |(ratio, (shortest, more), probe, grow, after, respect_retry_after)| CooldownPolicy {
            per: Split::All,
            after: 1.0 + f64::from(after),
            ratio,
            silence: None,
            on: Weights::default(),
            length: (Duration::from_millis(shortest), Duration::from_millis(shortest + more)),
            forget_after: Duration::from_secs(20),
            probe,
            grow: f64::from(grow) / 4.0,
            max: Duration::from_secs(15),
            respect_retry_after,
            ramp: Duration::ZERO,
        },
    )
}

#[test]
fn every_interleaving_agrees_with_the_plain_model() {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(2_000);
    let mut runner = TestRunner::new(ProptestConfig {
        cases,
        failure_persistence: None,
        max_shrink_iters: 5_000,
        ..ProptestConfig::default()
    });
    let tally = std::cell::Cell::new((0u64, 0u64, 0u64));
    let result = runner.run(&(policy(), prop::collection::vec(op(), 1..120)), |(policy, ops)| {
        let mut world = World::new(policy);
        for op in &ops {
            world.step(op)?;
        }
        let (trips, probes, late) = tally.get();
        let seen = world.tally;
        tally.set((trips + seen.trips, probes + seen.probes, late + seen.late));
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
    let (trips, probes, late) = tally.get();
    assert!(
        trips > 0 && probes > 0 && late > 0,
        "nothing happened: {trips} trips, {probes} probes, {late} late answers"
    );
}
