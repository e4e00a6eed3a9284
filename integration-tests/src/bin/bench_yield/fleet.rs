//! A fleet that crawls one wall, event by event.

use std::{cmp::Reverse, collections::BinaryHeap};

use integration_tests::walls::Answer;
use tidegate::classify::site_limits::SiteLimit;

use super::{
    policy::{Policy, WORKERS},
    seconds,
};

/// Concurrent requests: three members with four each.
pub(crate) const SLOTS: usize = 12;
/// Latency of the site in seconds: least and most.
pub(crate) const LATENCY: (f64, f64) = (0.15, 0.45);

/// The response of a site to a member at some time, and the limit that it announces.
pub(crate) type Answers = Box<dyn FnMut(i64, usize) -> (Answer, Option<SiteLimit>)>;

/// A policy and the site that it crawls.
pub(crate) struct Crawl {
    /// The site.
    pub(crate) site: Answers,
    /// Decides when to send.
    pub(crate) policy: Box<dyn Policy>,
}

/// The results of a crawl up to some time.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Tally {
    /// Good pages.
    pub(crate) pages: f64,
    /// Blocks.
    pub(crate) blocks: f64,
    /// Seconds between a block and the next good page.
    pub(crate) blocked: f64,
    /// Cooldowns that began.
    pub(crate) trips: f64,
}

/// A grant, which the report of the response needs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Grant {
    /// Epoch of the grant.
    pub(crate) epoch: u64,
    /// The probe's moment; 0 = none.
    pub(crate) probe: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Ask,
    Send(Grant),
    Hear(Grant, Answer),
}

/// The results of a crawl at each of some times.
#[derive(Debug)]
pub(crate) struct Tallies<const N: usize> {
    moments: [i64; N],
    done: Vec<Tally>,
    tally: Tally,
    blocked_from: Option<i64>,
}

impl<const N: usize> Tallies<N> {
    pub(crate) const fn new(moments: [i64; N]) -> Self {
        let tally = Tally { pages: 0.0, blocks: 0.0, blocked: 0.0, trips: 0.0 };
        Self { moments, done: Vec::new(), tally, blocked_from: None }
    }

    /// Advances to `now`. Returns whether the last of the times has passed.
    pub(crate) fn until(&mut self, now: i64) -> bool {
        while let Some(moment) = self.moments.get(self.done.len()).filter(|moment| now >= **moment)
        {
            let open = self.blocked_from.map_or(0.0, |from| seconds(moment - from));
            self.done.push(Tally { blocked: self.tally.blocked + open, ..self.tally });
        }
        self.done.len() == self.moments.len()
    }

    /// Counts a response that the site sent at `now`.
    pub(crate) fn count(&mut self, now: i64, good: bool) {
        if good {
            self.tally.pages += 1.0;
            let from = self.blocked_from.take();
            self.tally.blocked += from.map_or(0.0, |from| seconds(now - from));
        } else {
            self.tally.blocks += 1.0;
            self.blocked_from.get_or_insert(now);
        }
    }

    /// Records the number of cooldowns so far.
    pub(crate) fn tripped(&mut self, trips: u32) {
        self.tally.trips = f64::from(trips);
    }

    /// All results, after the last of the times.
    pub(crate) fn all(&self) -> [Tally; N] {
        std::array::from_fn(|at| self.done[at])
    }
}

/// Crawls until the last of `moments`, and returns the results at each.
pub(crate) fn crawl<const N: usize>(mut crawl: Crawl, moments: [i64; N], seed: u64) -> [Tally; N] {
    let mut draw = fastrand::Rng::with_seed(seed ^ 0xA5A5);
    let mut events = BinaryHeap::new();
    for slot in 0..SLOTS {
        events.push(Reverse((1, slot, Step::Ask)));
    }
    let mut tallies = Tallies::new(moments);
    let mut said = [None; SLOTS];
    while let Some(Reverse((now, slot, step))) = events.pop() {
        if tallies.until(now) {
            break;
        }
        let next = match step {
            Step::Ask => match crawl.policy.ask(slot, now) {
                Ok((at, grant)) => (at.max(now), slot, Step::Send(grant)),
                Err(again) => (again.max(now + 1_000), slot, Step::Ask),
            },
            Step::Send(grant) if !crawl.policy.may_send(grant) => (now, slot, Step::Ask),
            Step::Send(grant) => {
                let answer;
                (answer, said[slot]) = (crawl.site)(now, slot % WORKERS);
                tallies.count(now, answer == Answer::Page);
                let took = LATENCY.0 + draw.f64() * (LATENCY.1 - LATENCY.0);
                #[allow(clippy::cast_possible_truncation, reason = "a second at most")]
                let at = now + (took * 1e6) as i64;
                (at, slot, Step::Hear(grant, answer))
            }
            Step::Hear(grant, answer) => {
                if let Some(said) = said[slot] {
                    crawl.policy.report_limit(said);
                }
                crawl.policy.report(slot, now, grant, answer);
                tallies.tripped(crawl.policy.trips());
                (now, slot, Step::Ask)
            }
        };
        events.push(Reverse(next));
    }
    tallies.all()
}
