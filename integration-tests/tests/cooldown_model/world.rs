//! The store and the model side by side, and the witness.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use proptest::{prelude::*, test_runner::TestCaseError};
use tidegate::{
    classify::verdict::Verdict,
    limiter::{
        cooldown::{Answer, Change, KnownCooldown, Report},
        policy::CooldownPolicy,
    },
    rules::{Rule, TunnelCount},
    store::{Ask, Memory, Override, Peeked, Phase, Scope, ScopeName, Store as _},
};

use crate::{
    Op, Reply,
    plain::{Leave, Plain},
};

const START: i64 = 1_790_000_000_000_000;
const LEASE: i64 = 3_000_000;

/// Leave that a member holds: the epoch, and the probe's name (0 = no probe).
type Grant = (u64, i64);

/// What happened, so that a run in which nothing did is noticed.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Tally {
    pub(crate) trips: u64,
    pub(crate) probes: u64,
    pub(crate) late: u64,
}

/// Looks at the store's answers only.
#[derive(Debug, Default)]
struct Witness {
    epoch: u64,
    /// End of the cooldown of this epoch, as the trip told it.
    until: i64,
    /// The end of the lease of the probe that is out.
    lease: Option<i64>,
}

/// Everything.
pub(crate) struct World {
    runtime: tokio::runtime::Runtime,
    time: Arc<AtomicI64>,
    store: Memory,
    scope: Scope,
    rule: Rule,
    model: Plain,
    witness: Witness,
    out: Vec<Grant>,
    pub(crate) tally: Tally,
}

impl World {
    pub(crate) fn new(policy: CooldownPolicy) -> Self {
        let time = Arc::new(AtomicI64::new(START));
        let store = Memory::at(Arc::clone(&time));
        let rule = rule(policy.clone());
        let name = ScopeName::plain(&rule.name, &Arc::from(""));
        Self {
            runtime: tokio::runtime::Builder::new_current_thread().build().unwrap(),
            scope: store.scope(name),
            time,
            store,
            rule,
            model: Plain::new(policy),
            witness: Witness::default(),
            out: Vec::new(),
            tally: Tally::default(),
        }
    }

    pub(crate) fn step(&mut self, op: &Op) -> Result<(), TestCaseError> {
        match op {
            Op::Ask => self.ask()?,
            Op::Answer { which, answer, oks, draw } => {
                if !self.out.is_empty() {
                    let grant = self.out.swap_remove(which % self.out.len());
                    self.answer(grant, *answer, *oks, *draw)?;
                }
            }
            Op::Die(which) => {
                if !self.out.is_empty() {
                    let which = which % self.out.len();
                    self.out.swap_remove(which);
                }
            }
            Op::Wait(ms) => {
                self.time.fetch_add(ms * 1_000, Ordering::Relaxed);
            }
            Op::Trip(ms) => {
                self.by_hand(Override::Trip(ms * 1_000))?;
                self.model.trip(self.store.now(), ms * 1_000);
                self.witness.until = self.store.now() + ms * 1_000;
            }
            Op::Clear => {
                self.by_hand(Override::Clear)?;
                self.model.clear(self.store.now());
                self.witness.until = 0;
            }
        }
        let peeked = self.peek();
        prop_assert_eq!(peeked.epoch, self.model.epoch);
        prop_assert_eq!(peeked.until, self.model.until());
        let streak = self.model.streak();
        // The store forgets an old streak when it counts the next block.
        prop_assert!((peeked.streak - streak).abs() < 1e-9, "{} for {streak}", peeked.streak);
        prop_assert!(peeked.epoch >= self.witness.epoch, "the epoch went back");
        self.witness.epoch = peeked.epoch;
        Ok(())
    }

    fn ask(&mut self) -> Result<(), TestCaseError> {
        let known = KnownCooldown { holds_probe: true, ..KnownCooldown::default() };
        let ask = Ask { wanted: 1, lease: LEASE, known, ..Ask::default() };
        let granted = self.store.take_now(&self.scope, &self.rule, &ask);
        let now = granted.now;
        let expected = self.model.ask(now, LEASE);
        let got = match granted.phase {
            Phase::Open => Leave::Open,
            Phase::Cooling => Leave::CoolingUntil(granted.come_back),
            Phase::Probing => Leave::ProbeOutUntil(granted.come_back),
            Phase::Probe => Leave::Probe,
            Phase::Due => return Err(TestCaseError::fail("no ticket for a probe without limits")),
        };
        prop_assert_eq!(got, expected);
        let goes = matches!(got, Leave::Open | Leave::Probe);
        prop_assert_eq!(granted.tickets.len(), usize::from(goes));
        if goes {
            prop_assert!(now >= self.witness.until, "a grant while the scope cools down");
        }
        let mut probe = 0;
        if got == Leave::Probe {
            let free = self.witness.lease.is_none_or(|end| now >= end);
            prop_assert!(free, "a second probe inside the lease of the first");
            self.witness.lease = Some(now + LEASE);
            probe = granted.tickets[0];
            self.tally.probes += 1;
        }
        if goes {
            self.out.push((granted.epoch, probe));
        }
        Ok(())
    }

    fn answer(
        &mut self,
        grant: Grant,
        reply: Reply,
        oks: u32,
        draw: f64,
    ) -> Result<(), TestCaseError> {
        let (epoch, probe) = grant;
        let answer = match reply {
            Reply::Ok => Answer::Ok,
            Reply::Nothing => Answer::Nothing,
            Reply::Block(quarters, wait) => Answer::Block {
                weight: f64::from(quarters) / 4.0,
                retry_after: wait * 1_000,
                sure: true,
                verdict: Verdict::Forbidden,
            },
        };
        let before = self.peek();
        let report = Report { probe, oks, draw, ..Report::new(epoch, answer) };
        let reported = self.store.report_now(&self.scope, &self.rule, &report);
        let expected = self.model.answer(reported.now, grant, reply, oks, draw);
        prop_assert_eq!(reported.change, expected);
        prop_assert_eq!(reported.until, self.model.until());
        if epoch < before.epoch {
            self.tally.late += 1;
            prop_assert_eq!(self.peek(), before, "a late answer changed something");
        }
        match reported.change {
            Change::Tripped => {
                let (cause, blocks) = self.model.blame.unwrap();
                prop_assert_eq!(reported.cause, Some(cause));
                let told: usize = reported.blocks.iter().map(|(_, n)| usize::from(n)).sum();
                prop_assert_eq!(told, blocks, "{:?}", reported.blocks);
                self.tally.trips += 1;
                self.witness.until = reported.until;
                self.witness.lease = None;
                self.has_a_fair_length(reported.until - reported.now, reply)?;
            }
            Change::Opened => (self.witness.until, self.witness.lease) = (0, None),
            Change::ProbeLost => self.witness.lease = None,
            Change::None | Change::Stale | Change::Streak => {}
        }
        Ok(())
    }

    fn has_a_fair_length(&self, length: i64, reply: Reply) -> Result<(), TestCaseError> {
        let policy = self.rule.cooldown.as_ref().unwrap();
        let us = |length: Duration| i64::try_from(length.as_micros()).unwrap();
        let (low, max) = (us(policy.length.0), us(policy.max));
        prop_assert!(length <= max, "{length} is over the maximum");
        match reply {
            Reply::Block(_, wait) if wait > 0 && policy.respect_retry_after => {
                prop_assert_eq!(length, (wait * 1_000).min(max), "not what the site asked for");
            }
            _ => {
                prop_assert!(length >= low, "{length} is under the minimum");
            }
        }
        Ok(())
    }

    fn by_hand(&mut self, what: Override) -> Result<(), TestCaseError> {
        let set = self.store.set(&self.scope, &self.rule, what);
        let reported = self.runtime.block_on(set).unwrap();
        prop_assert!(reported.epoch > self.witness.epoch, "each starts a new epoch");
        self.witness.lease = None;
        Ok(())
    }

    fn peek(&self) -> Peeked {
        self.runtime.block_on(self.store.peek(&self.scope)).unwrap()
    }
}

fn rule(policy: CooldownPolicy) -> Rule {
    Rule {
        max_wait: Duration::from_secs(60),
        queue: 100,
        tunnel: TunnelCount::Connect,
        cooldown: Some(policy),
        ..Rule::unlimited("model")
    }
}
