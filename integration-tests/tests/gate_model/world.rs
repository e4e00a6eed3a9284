//! A store and the model side by side.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use integration_tests::{
    redis::Redis,
    sim::{self, Plan},
    wait::wait_until,
};
use proptest::{prelude::*, test_runner::TestCaseError};
use tidegate::{
    classify::verdict::Verdict,
    limiter::{
        cooldown::{Answer, KnownCooldown, Report},
        policy::Limits,
    },
    observability::metrics::Metrics,
    rules::{Rule, settings::RedisSettings},
    runtime::clock,
    store::{
        Ask, Granted, Memory, Override, Phase, Reported, Scope, ScopeName, SharedStore, Store as _,
    },
};
use tokio::runtime::Runtime;

use crate::{Op, plain::Plain};

const SOON: Duration = Duration::from_secs(20);
const START: i64 = 1_790_000_000_000_000;

/// A Redis and the runtime on which its client lives.
#[derive(Debug, Clone)]
pub(crate) struct Connected {
    runtime: Arc<Runtime>,
    store: Arc<SharedStore>,
}

pub(crate) fn connect(redis: &Redis) -> Connected {
    let runtime = Arc::new(Runtime::new().unwrap());
    let store = runtime.block_on(async {
        // A stalled machine is not an outage of the store.
        let patient = RedisSettings { timeout: SOON, ..sim::settings(&redis.url()) };
        let store = SharedStore::start(patient, Metrics::new()).unwrap();
        wait_until("the store answers", SOON, async || store.is_up()).await;
        store
    });
    Connected { runtime, store }
}

/// A store under test.
#[derive(Debug)]
pub(crate) enum Subject {
    Memory { store: Memory, time: Arc<AtomicI64>, scope: Scope, runtime: Box<Runtime> },
    Redis { redis: Connected, scope: Scope },
}

fn name(key: &str) -> ScopeName {
    ScopeName::plain(&Arc::from("model"), &Arc::from(key))
}

impl Subject {
    pub(crate) fn memory() -> Self {
        let time = Arc::new(AtomicI64::new(START));
        let store = Memory::at(Arc::clone(&time));
        let scope = store.scope(name(""));
        let runtime = Box::new(tokio::runtime::Builder::new_current_thread().build().unwrap());
        Self::Memory { store, time, scope, runtime }
    }

    pub(crate) fn redis(redis: &Connected, run: u64) -> Self {
        let scope = redis.store.scope(name(&run.to_string()));
        Self::Redis { redis: redis.clone(), scope }
    }

    /// The embedded store's time.
    pub(crate) fn now(&self) -> i64 {
        match self {
            Self::Memory { store, .. } => store.now(),
            Self::Redis { .. } => 0,
        }
    }

    /// No two things happen in the same microsecond: Redis takes longer than that for each.
    fn tick(&mut self) {
        if let Self::Memory { time, .. } = self {
            time.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn wait(&mut self, millis: i64) {
        match self {
            Self::Memory { time, .. } => {
                time.fetch_add(millis * 1_000, Ordering::Relaxed);
            }
            Self::Redis { .. } => {
                std::thread::sleep(Duration::from_millis(millis.unsigned_abs()));
            }
        }
    }

    pub(crate) fn take(
        &mut self,
        rule: &Rule,
        wanted: u32,
        bound: i64,
        drain: bool,
        void: bool,
        returned: Vec<i64>,
    ) -> Granted {
        let known = KnownCooldown { holds_probe: true, ..KnownCooldown::default() };
        let lease = 1_000_000;
        let ask = Ask { wanted, bound, lease, drain, void, returned, known, ..Ask::default() };
        match self {
            Self::Memory { store, scope, .. } => store.take_now(scope, rule, &ask),
            Self::Redis { redis, scope } => {
                redis.runtime.block_on(redis.store.take(scope, rule, &ask)).unwrap()
            }
        }
    }

    fn report(&mut self, rule: &Rule, report: &Report) -> Reported {
        match self {
            Self::Memory { store, scope, .. } => store.report_now(scope, rule, report),
            Self::Redis { redis, scope } => {
                redis.runtime.block_on(redis.store.report(scope, rule, report)).unwrap()
            }
        }
    }

    fn set(&mut self, rule: &Rule, what: Override) -> Reported {
        match self {
            Self::Memory { store, scope, runtime, .. } => {
                runtime.block_on(store.set(scope, rule, what)).unwrap()
            }
            Self::Redis { redis, scope } => {
                redis.runtime.block_on(redis.store.set(scope, rule, what)).unwrap()
            }
        }
    }
}

/// A rule with these limits, a cooldown without probe, and a climb of this length.
pub(crate) fn rule(limits: Limits, ramp: Duration) -> Rule {
    let mut rule = Plan::new(1, 1.0, 0).rule();
    rule.limits = limits;
    if let Some(policy) = &mut rule.cooldown {
        policy.after = 2.0;
        policy.length = (Duration::from_millis(1), Duration::from_millis(3));
        policy.probe = false;
        policy.ramp = ramp;
    }
    rule
}

/// Everything.
pub(crate) struct World {
    subject: Subject,
    rule: Rule,
    ramp: Duration,
    model: Option<Plain>,
    /// End of the cooldown; 0 = open.
    until: i64,
    epoch: u64,
    /// It opened at that time, and no ticket was requested since.
    opened: Option<i64>,
    /// Tickets of this epoch.
    tickets: Vec<i64>,
    returned: Vec<i64>,
    /// The next take does this first.
    outage: bool,
    void: bool,
    reloaded: bool,
    /// Tickets, reloads, trips.
    pub(crate) tally: [u64; 3],
}

impl World {
    pub(crate) fn new(subject: Subject, limits: Limits, ramp: Duration) -> Self {
        Self {
            subject,
            rule: rule(limits, ramp),
            ramp,
            model: None,
            until: 0,
            epoch: 0,
            opened: None,
            tickets: vec![],
            returned: vec![],
            outage: false,
            void: false,
            reloaded: false,
            tally: [0; 3],
        }
    }

    pub(crate) fn step(&mut self, op: &Op) -> Result<(), TestCaseError> {
        self.subject.tick();
        match op {
            Op::Take { wanted, bound } => return self.take(*wanted, *bound),
            Op::HandBack(most) => {
                let from = self.tickets.len().saturating_sub(*most);
                self.returned.extend(self.tickets.drain(from..));
            }
            Op::Block => {
                let verdict = Verdict::Forbidden;
                self.report(Answer::Block { weight: 1.0, retry_after: 0, sure: true, verdict });
            }
            Op::Ok => self.report(Answer::Ok),
            Op::Trip(millis) => {
                let reported = self.subject.set(&self.rule, Override::Trip(millis * 1_000));
                self.changed(&reported);
            }
            Op::Clear => {
                let reported = self.subject.set(&self.rule, Override::Clear);
                self.changed(&reported);
                self.opened = Some(reported.now);
            }
            Op::Outage => self.outage = true,
            Op::Reload(limits, void) => {
                self.rule = rule(limits.clone(), self.ramp);
                (self.void, self.reloaded) = (self.void || *void, true);
                if *void {
                    self.tickets.clear();
                    self.returned.clear();
                }
                self.tally[1] += 1;
            }
            Op::Wait(millis) => self.subject.wait(*millis),
        }
        Ok(())
    }

    fn report(&mut self, answer: Answer) {
        let report = Report { draw: 0.5, ..Report::new(self.epoch, answer) };
        let reported = self.subject.report(&self.rule, &report);
        // A cooldown without a probe opened at its end, even without a request.
        self.come_to_an_end(reported.now);
        self.changed(&reported);
    }

    fn changed(&mut self, reported: &Reported) {
        if reported.epoch != self.epoch {
            self.epoch = reported.epoch;
            self.until = reported.until;
            self.tickets.clear();
            self.returned.clear();
            self.tally[2] += 1;
        }
    }

    fn come_to_an_end(&mut self, now: i64) {
        if self.until > 0 && now >= self.until {
            self.opened = Some(std::mem::take(&mut self.until));
        }
    }

    fn take(&mut self, wanted: u32, bound: i64) -> Result<(), TestCaseError> {
        let (outage, void) = (std::mem::take(&mut self.outage), std::mem::take(&mut self.void));
        let returned = std::mem::take(&mut self.returned);
        let granted = self.subject.take(&self.rule, wanted, bound, outage, void, returned.clone());
        let now = granted.now;
        if now < self.until {
            prop_assert_eq!(granted.phase, Phase::Cooling);
            prop_assert!(granted.tickets.is_empty(), "tickets while the scope cools down");
            // The pending step was not done, so the bucket is not compared.
            (self.outage, self.void) = (outage, void);
            return Ok(());
        }
        self.come_to_an_end(now);
        let limits = self.rule.limits.clone();
        let model = self.model.get_or_insert_with(|| Plain::new(now, limits.clone()));
        if std::mem::take(&mut self.reloaded) {
            model.reload(now, limits);
        }
        model.expire(now);
        if let Some(opened) = self.opened.take() {
            model.opened(opened, clock::exact(clock::micros(self.ramp)));
        }
        if outage {
            model.drain(now);
        }
        if void {
            model.void(now);
        }
        model.hand_back(&returned, now);
        for ticket in &granted.tickets {
            prop_assert_eq!(model.is_wrong(*ticket, now), None);
            prop_assert!(*ticket <= now.saturating_add(bound), "later than anybody waits");
            model.take(*ticket);
        }
        if granted.tickets.len() < wanted as usize {
            prop_assert!(granted.come_back > now, "a ticket was there and was not given");
            prop_assert_eq!(model.is_wrong(granted.come_back, now), None);
        }
        self.tally[0] += granted.tickets.len() as u64;
        self.tickets.extend(granted.tickets);
        Ok(())
    }
}
