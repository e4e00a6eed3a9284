//! A fleet that crawls one wall, event by event.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap},
};

use integration_tests::walls::{Answer, Wall};

use super::{policy::Policy, seconds};

/// Requests at a time: three members of four.
const SLOTS: usize = 12;
/// Answers take so long, at least and at most.
const LATENCY: (f64, f64) = (0.15, 0.45);

/// A policy and the wall that it meets.
pub(crate) struct Crawl {
    /// The wall.
    pub(crate) wall: Wall,
    /// Who decides when to send.
    pub(crate) policy: Box<dyn Policy>,
}

/// What a crawl has brought up to a moment.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Tally {
    /// Good pages.
    pub(crate) pages: f64,
    /// Blocks.
    pub(crate) blocks: f64,
    /// Seconds between a block and the next good page.
    pub(crate) blocked: f64,
}

/// Leave to send: what it says when the answer is in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Pass {
    /// Epoch of the grant.
    pub(crate) epoch: u64,
    /// The probe's moment; 0 = none.
    pub(crate) probe: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Ask,
    Send(Pass),
    Hear(Pass, bool, i64, bool),
}

/// Crawls until the last of `moments`; the tallies at each.
pub(crate) fn crawl(mut crawl: Crawl, moments: [i64; 2], seed: u64) -> [Tally; 2] {
    let mut draw = fastrand::Rng::with_seed(seed ^ 0xA5A5);
    let mut events = BinaryHeap::new();
    for slot in 0..SLOTS {
        events.push(Reverse((1, slot, Step::Ask)));
    }
    let (mut tally, mut blocked_from) = (Tally::default(), None);
    let mut left: BTreeSet<i64> = moments.into();
    let mut tallies = Vec::new();
    while let Some(Reverse((now, slot, step))) = events.pop() {
        while let Some(moment) = left.first().copied().filter(|moment| now >= *moment) {
            left.remove(&moment);
            let open = blocked_from.map_or(0.0, |from| seconds(moment - from));
            tallies.push(Tally { blocked: tally.blocked + open, ..tally });
        }
        if left.is_empty() {
            break;
        }
        let next = match step {
            Step::Ask => match crawl.policy.ask(slot, now) {
                Ok((at, pass)) => (at.max(now), slot, Step::Send(pass)),
                Err(again) => (again.max(now + 1_000), slot, Step::Ask),
            },
            Step::Send(pass) if !crawl.policy.may_send(pass) => (now, slot, Step::Ask),
            Step::Send(pass) => {
                let answer = crawl.wall.answer(now);
                let (good, retry_after, sure) = match answer {
                    Answer::Page => (true, 0, false),
                    Answer::Block { retry_after, sure } => (false, retry_after, sure),
                };
                if good {
                    tally.pages += 1.0;
                    tally.blocked += blocked_from.take().map_or(0.0, |from| seconds(now - from));
                } else {
                    tally.blocks += 1.0;
                    blocked_from.get_or_insert(now);
                }
                let took = LATENCY.0 + draw.f64() * (LATENCY.1 - LATENCY.0);
                #[allow(clippy::cast_possible_truncation, reason = "a second at most")]
                let at = now + (took * 1e6) as i64;
                (at, slot, Step::Hear(pass, good, retry_after, sure))
            }
            Step::Hear(pass, good, retry_after, sure) => {
                let answer = if good { Answer::Page } else { Answer::Block { retry_after, sure } };
                crawl.policy.hear(slot, now, pass, answer);
                (now, slot, Step::Ask)
            }
        };
        events.push(Reverse(next));
    }
    [tallies[0], tallies[1]]
}
