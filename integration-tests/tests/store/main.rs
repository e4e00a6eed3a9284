//! One suite for both stores: whatever is asked of them, they answer the same.
//!
//! Random sequences of takes, reports and overrides go to a real Redis; each is replayed on the embedded store at the
//! very microsecond that Redis read from its clock, and every answer must be equal, ticket by ticket. Rates are high
//! and cooldowns last milliseconds, so that much happens in little real time.

#![allow(clippy::unwrap_used)]

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use integration_tests::{redis::Redis, wait::wait_until};
use proptest::{prelude::*, test_runner::TestRunner};
use tidegate::{
    classify::verdict::Verdict,
    limiter::{
        cooldown::{Answer, KnownCooldown, KnownPhase, Named, NamedRate, Report},
        learn::{self, Learn, RateOverride},
        load::Tally,
        policy::{CooldownPolicy, Limits, Quota, Ratio, Split, Weights},
    },
    observability::metrics::Metrics,
    rules::{
        Rule, TunnelCount,
        secret::Secret,
        settings::{OnFailure, RedisSettings},
    },
    store::{
        Ask, Forecast, Granted, Memory, Override, Query, Reported, Scope, ScopeName, SharedStore,
        Store, WaitsFor,
    },
};

mod ban;
mod expired;
mod idle;
mod load;
mod memory;
mod probe;
mod slots;
mod users;

/// One step of a sequence.
#[derive(Debug, Clone)]
enum Op {
    Take {
        wanted: u32,
        held: u32,
        bound: i64,
        drain: bool,
        void: bool,
        hand_back: bool,
        /// How much later an epoch the member knows than the store, and its state.
        knows: (u64, KnownPhase),
        holds_probe: bool,
    },
    Report {
        answer: Answer,
        oks: u32,
        old: bool,
        probe: bool,
        draw: f64,
        named: Option<Named>,
        error: Option<Quota>,
        load: Option<Tally>,
    },
    Trip(i64),
    Clear,
    OverrideRate(RateOverride),
    Look,
    Forecast,
    Pause(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let take = (
        1..40u32,
        0..5u32,
        0..20_000i64,
        prop::bool::weighted(0.05),
        prop::bool::weighted(0.05),
        any::<bool>(),
        (prop_oneof![9 => Just(0u64), 1 => 1..3u64], known_phase()),
        any::<bool>(),
    );
    let answer = prop_oneof![
        3 => Just(Answer::Ok),
        4 => (1..4u8, prop_oneof![9 => Just(0i64), 1 => 1..9_000i64]).prop_map(
            |(weight, retry_after)| Answer::Block {
                weight: f64::from(weight) / 2.0,
                retry_after,
                sure: weight > 1,
                verdict: Verdict::ALL[usize::from(weight)],
            }
        ),
        2 => prop_oneof![Just(Verdict::Timeout), Just(Verdict::ConnectionError)]
            .prop_map(|verdict| Answer::Silence { weight: 0.6, verdict }),
        1 => Just(Answer::Nothing),
        2 => prop_oneof![4 => Just(1e-6), 1 => Just(3.0)]
            .prop_map(|weight| Answer::Refusal { weight }),
    ];
    let ceiling = prop::option::of((0.01..2e4f64, 1..20_000i64))
        .prop_map(|named| named.map(|(rate, lasts)| NamedRate { rate, lasts }));
    let named = (ceiling, prop::option::weighted(0.2, 1..20_000i64))
        .prop_map(|(ceiling, hold)| Named { ceiling, hold });
    let named = prop::option::weighted(0.3, named);
    let error = prop::option::weighted(0.3, (1..5u64, 100..20_000u64)).prop_map(|error| {
        error.map(|(tokens, micros)| Quota { tokens, window: Duration::from_micros(micros) })
    });
    let report = (
        answer,
        0..5u32,
        prop::bool::weighted(0.1),
        any::<bool>(),
        0.0..1.0f64,
        named,
        error,
        prop::option::weighted(0.5, tally()),
    );
    prop_oneof![
        6 => take.prop_map(|(wanted, held, bound, drain, void, hand_back, knows, holds_probe)| {
            Op::Take { wanted, held, bound, drain, void, hand_back, knows, holds_probe }
        }),
        5 => report.prop_map(|(answer, oks, old, probe, draw, named, error, load)| Op::Report {
            answer, oks, old, probe, draw, named, error, load
        }),
        1 => (0..5_000i64).prop_map(Op::Trip),
        1 => Just(Op::Clear),
        1 => hand().prop_map(Op::OverrideRate),
        1 => Just(Op::Look),
        2 => Just(Op::Forecast),
        2 => (0..4u64).prop_map(Op::Pause),
    ]
}

/// Windows of the store last two seconds, but a first report may bring its own.
fn tally() -> impl Strategy<Value = Tally> {
    let over = prop_oneof![Just(0i64), Just(2_000_000), 0..90_000_000i64];
    let times = (0..3_000_000i64, 0..9_000_000i64);
    (over, 0..20u32, 0..20u32, 0..4u32, 0..12u32, times).prop_map(
        |(over, sent, answered, failed, late, (own, quickest))| Tally {
            over,
            sent,
            answered,
            failed,
            late,
            own,
            quickest,
        },
    )
}

fn known_phase() -> impl Strategy<Value = KnownPhase> {
    prop_oneof![
        Just(KnownPhase::Open),
        Just(KnownPhase::Opened),
        (0..3_000i64).prop_map(KnownPhase::Cooling),
        (0..3_000i64).prop_map(KnownPhase::Probing),
    ]
}

fn hand() -> impl Strategy<Value = RateOverride> {
    let set = (prop::option::of(10.0..6_000.0f64), prop::option::of(any::<bool>()));
    prop_oneof![
        4 => set.prop_map(|(rate, frozen)| RateOverride::Set { rate, frozen }),
        1 => Just(RateOverride::Forget),
    ]
}

fn rule() -> impl Strategy<Value = Rule> {
    let quota = (1..200u64, 1..20u64)
        .prop_map(|(tokens, ms)| Quota { tokens: tokens + 3, window: Duration::from_millis(ms) });
    let limits = (
        prop_oneof![
            1 => Just(None),
            4 => prop_oneof![Just(0.7), Just(333.3), Just(5_000.0), Just(1e6)].prop_map(Some),
        ],
        3..50u32,
        prop::collection::vec(quota, 0..3),
        1..3u32,
        any::<bool>(),
    );
    (limits, 0..3u8, any::<bool>(), prop_oneof![Just(1.0), Just(2.0)], 0..20u64).prop_map(
        |((rate, burst, quotas, cost, learns), ratio, probe, grow, ramp)| {
            let learn = learns.then_some(Learn {
                start: 5_000.0,
                floor: 10.0,
                back_off: 0.87,
                patience: 2_000,
            });
            let limits = Limits { rate, burst, quotas, cost, learn };
            let ratio = (ratio > 0).then_some(Ratio { share: 0.5, of: 4 });
            limited(limits, policy(ratio, probe, grow, Duration::from_millis(ramp)))
        },
    )
}

fn policy(ratio: Option<Ratio>, probe: bool, grow: f64, ramp: Duration) -> CooldownPolicy {
    CooldownPolicy {
        per: Split::All,
        after: 3.0,
        ratio,
        silence: None,
        on: Weights::default(),
        length: (Duration::from_millis(2), Duration::from_millis(5)),
        forget_after: Duration::from_millis(30),
        probe,
        grow,
        max: Duration::from_millis(12),
        respect_retry_after: true,
        ramp,
    }
}

fn limited(limits: Limits, cooldown: CooldownPolicy) -> Rule {
    Rule {
        limits,
        max_wait: Duration::from_secs(60),
        queue: 100,
        tunnel: TunnelCount::Connect,
        cooldown: Some(cooldown),
        ..Rule::unlimited("same")
    }
}

async fn shared(redis: &Redis) -> Arc<SharedStore> {
    start(redis, Duration::from_secs(5)).await
}

/// A member that waits so long for a reply.
async fn start(redis: &Redis, timeout: Duration) -> Arc<SharedStore> {
    let settings = RedisSettings {
        url: Secret::new(redis.url()),
        prefix: "tidegate".to_owned(),
        timeout,
        on_failure: OnFailure::Closed,
        local_share: None,
        ca: Vec::new(),
    };
    let store = SharedStore::start(settings, Metrics::new()).unwrap();
    is_up(&store).await;
    store
}

async fn is_up(store: &SharedStore) {
    wait_until("the store is up", Duration::from_secs(15), async || store.is_up()).await;
}

/// Both stores, and what a member would remember between calls.
struct Pair {
    redis: Arc<SharedStore>,
    time: Arc<AtomicI64>,
    memory: Memory,
    there: Scope,
    here: Scope,
    rule: Rule,
    epoch: u64,
    probe: i64,
    tickets: Vec<i64>,
    learned: learn::KnownRate,
    /// Whether the site has named a rate.
    named: bool,
}

impl Pair {
    fn new(redis: Arc<SharedStore>, rule: Rule, key: &str) -> Self {
        let time = Arc::new(AtomicI64::new(0));
        let memory = Memory::at(Arc::clone(&time));
        let name = ScopeName::plain(&rule.name, &Arc::from(key));
        let (there, here) = (redis.scope(name.clone()), memory.scope(name));
        let learned = learn::KnownRate::default();
        Self {
            redis,
            time,
            memory,
            there,
            here,
            rule,
            epoch: 0,
            probe: 0,
            tickets: vec![],
            learned,
            named: false,
        }
    }

    async fn step(&mut self, op: &Op) -> Result<(), TestCaseError> {
        match op {
            Op::Take { wanted, held, bound, drain, void, hand_back, knows, holds_probe } => {
                let (later, phase) = *knows;
                let known =
                    KnownCooldown { epoch: self.epoch + later, phase, holds_probe: *holds_probe };
                let returned = if *hand_back { std::mem::take(&mut self.tickets) } else { vec![] };
                let ask = Ask {
                    wanted: *wanted,
                    held: *held,
                    bound: *bound,
                    lease: 3_000,
                    drain: *drain,
                    void: *void,
                    returned: returned.into_iter().rev().take(3).collect(),
                    known,
                    learned: learn::KnownRate::default(),
                    user: None,
                };
                self.take(&ask).await.map(drop)
            }
            Op::Report { answer, oks, old, probe, draw, named, error, load } => {
                self.named |= named.is_some_and(|named| named.ceiling.is_some());
                let report = Report {
                    epoch: if *old { self.epoch.saturating_sub(1) } else { self.epoch },
                    probe: if *probe { self.probe } else { 0 },
                    answer: *answer,
                    oks: *oks,
                    draw: *draw,
                    named: *named,
                    error: *error,
                    load: *load,
                };
                let there = self.redis.report(&self.there, &self.rule, &report).await.unwrap();
                self.time.store(there.now, Ordering::Relaxed);
                let here = self.memory.report_now(&self.here, &self.rule, &report);
                self.same(there, here)
            }
            Op::Trip(length) => self.set(Override::Trip(*length)).await,
            Op::Clear => self.set(Override::Clear).await,
            Op::OverrideRate(change) => self.override_rate(*change).await,
            Op::Look => {
                let there = self.redis.peek(&self.there).await.unwrap();
                self.time.store(there.now, Ordering::Relaxed);
                prop_assert_eq!(there, self.memory.peek(&self.here).await.unwrap());
                Ok(())
            }
            Op::Forecast => self.forecast().await,
            Op::Pause(ms) => {
                tokio::time::sleep(Duration::from_millis(*ms)).await;
                Ok(())
            }
        }
    }

    /// Whether it was a user's own limit that was in the way.
    async fn take(&mut self, ask: &Ask) -> Result<bool, TestCaseError> {
        let there = self.redis.take(&self.there, &self.rule, ask).await.unwrap();
        self.time.store(there.now, Ordering::Relaxed);
        let here = self.memory.take_now(&self.here, &self.rule, ask);
        prop_assert_eq!(&there, &here);
        let Granted { epoch, tickets, phase, learned, user_is_over, .. } = there;
        self.learned = learned;
        self.epoch = epoch;
        if phase == tidegate::store::Phase::Probe {
            self.probe = tickets[0];
        }
        self.tickets.extend(tickets);
        Ok(user_is_over)
    }

    /// What both stores foretell for a request of `user`.
    async fn foretell(&mut self, user: Option<Arc<str>>) -> Result<Forecast, TestCaseError> {
        let query = query(&self.there, &self.rule, user);
        let there = self.redis.forecast(std::slice::from_ref(&query)).await.remove(0);
        self.time.store(there.now, Ordering::Relaxed);
        let here = self.memory.forecast(&Query { scope: self.here.clone(), ..query });
        prop_assert_eq!(there, here);
        Ok(there)
    }

    /// What is foretold is the same, and what comes true: the next ticket is not earlier, and nothing was taken by
    /// the look.
    async fn forecast(&mut self) -> Result<(), TestCaseError> {
        let there = self.foretell(None).await?;
        let known = KnownCooldown { epoch: self.epoch, phase: KnownPhase::Open, holds_probe: true };
        let bound = i64::from(u32::MAX);
        let ask = Ask { wanted: 1, bound, lease: 3_000, known, ..Ask::default() };
        let before = self.tickets.len();
        self.take(&ask).await?;
        // A learned rate may rise in between, and one that the site named may end.
        if let (Some(ticket), None, false) =
            (self.tickets.get(before), &self.rule.limits.learn, self.named)
        {
            let wait = there.wait.map_or(-1, |wait| i64::try_from(wait.as_micros()).unwrap());
            let (foretold, taken) = (there.now + wait, self.time.load(Ordering::Relaxed));
            // One that was handed back may have passed meanwhile.
            prop_assert!(*ticket >= foretold, "{} before {}", ticket, foretold);
            // A scope opens, and its ramp begins, when the request comes: later than the forecast by the time between
            // the two calls.
            let later = if self.rule.cooldown.is_some() { taken - there.now } else { 0 };
            prop_assert!(
                foretold <= taken || *ticket <= foretold + later,
                "{ticket} after {foretold}, {later} later"
            );
        }
        Ok(())
    }

    async fn set(&mut self, what: Override) -> Result<(), TestCaseError> {
        let there = self.redis.set(&self.there, &self.rule, what).await.unwrap();
        self.time.store(there.now, Ordering::Relaxed);
        let here = self.memory.set(&self.here, &self.rule, what).await.unwrap();
        prop_assert_eq!(there.epoch, here.epoch);
        prop_assert_eq!(there.until, here.until);
        self.epoch = there.epoch;
        Ok(())
    }

    async fn override_rate(&mut self, change: RateOverride) -> Result<(), TestCaseError> {
        if self.rule.limits.rate.is_none() || self.rule.limits.learn.is_none() {
            return Ok(());
        }
        let known = learn::KnownRate::default();
        let (now, there) =
            self.redis.override_rate(&self.there, &self.rule, known, change).await.unwrap();
        self.time.store(now, Ordering::Relaxed);
        let here = self.memory.override_rate_now(&self.here, &self.rule, known, change);
        prop_assert_eq!(there, here);
        Ok(())
    }

    fn same(&mut self, there: Reported, here: Reported) -> Result<(), TestCaseError> {
        prop_assert_eq!(there, here);
        self.epoch = there.epoch;
        Ok(())
    }
}

#[test]
fn memory_and_redis_give_the_same_answers() {
    let redis = Redis::start();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let store = runtime.block_on(shared(&redis));
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(120);
    let mut runner = TestRunner::new(ProptestConfig {
        cases,
        failure_persistence: None,
        max_shrink_iters: 200,
        ..ProptestConfig::default()
    });
    let run = std::cell::Cell::new(0);
    let sequences = (rule(), prop::collection::vec(op(), 1..80));
    let result = runner.run(&sequences, |(rule, ops)| {
        run.set(run.get() + 1);
        let mut pair = Pair::new(Arc::clone(&store), rule, &run.get().to_string());
        runtime.block_on(async {
            for op in &ops {
                pair.step(op).await?;
            }
            Ok(())
        })
    });
    if let Err(error) = result {
        panic!("{error}");
    }
    let keys = redis.command(&["KEYS", "*"]);
    assert!(keys.contains("tidegate:{same}:b:"), "{keys}");
    for key in keys.lines().filter(|line| line.starts_with("tidegate")) {
        let ttl = redis.command(&["PTTL", key]);
        let ttl: i64 = ttl.trim_start_matches(':').trim().parse().unwrap();
        assert!(ttl != -1, "{key} lives for ever");
    }
}

#[test]
fn one_page_in_five_that_is_always_refused_is_not_a_wall_in_either_store() {
    let redis = Redis::start();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let store = runtime.block_on(shared(&redis));
    let learn = Learn { start: 500.0, floor: 10.0, back_off: 0.87, patience: 60_000_000 };
    let limits =
        Limits { rate: Some(500.0), burst: 5, quotas: vec![], cost: 1, learn: Some(learn) };
    let ratio = Some(Ratio { share: 0.5, of: 20 });
    let rule = limited(limits, policy(ratio, true, 2.0, Duration::ZERO));
    let mut pair = Pair::new(store, rule, "");
    let mut reasons = Vec::new();
    runtime.block_on(async {
        for page in 0..400 {
            let ask = Ask { wanted: 1, bound: 1_000_000, ..Ask::default() };
            pair.take(&ask).await.unwrap();
            if reasons.last() != Some(&pair.learned.why) {
                reasons.push(pair.learned.why);
            }
            let verdict = Verdict::Forbidden;
            let block = Answer::Block { weight: 1.0, retry_after: 0, sure: false, verdict };
            // Now and then three come in a row.
            let blocked = page % 5 == 4 || page % 125 > 122;
            let answer = if blocked { block } else { Answer::Ok };
            let report = Op::Report {
                answer,
                oks: 0,
                old: false,
                probe: false,
                draw: 0.5,
                named: None,
                error: None,
                load: None,
            };
            pair.step(&report).await.unwrap();
        }
    });
    assert_eq!(
        reasons,
        [learn::RateReason::Start, learn::RateReason::Test, learn::RateReason::NoWall]
    );
    assert!((pair.learned.rate - 500.0).abs() < 1e-9, "{:?}", pair.learned);
    assert_eq!(pair.epoch, 0, "it never tripped");
}

#[test]
fn a_forgotten_script_is_loaded_again_within_the_call() {
    let redis = Redis::start();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let store = runtime.block_on(shared(&redis));
    let limits = Limits { rate: Some(1e6), burst: 10, quotas: vec![], cost: 1, learn: None };
    let rule = limited(limits, policy(None, true, 1.0, Duration::ZERO));
    let mut pair = Pair::new(store, rule, "");
    for _ in 0..3 {
        assert!(redis.command(&["SCRIPT", "FLUSH"]).starts_with("+OK"));
        let ask = Ask { wanted: 1, ..Ask::default() };
        runtime.block_on(pair.take(&ask)).unwrap();
    }
}

/// Asks for a forecast of a member without requests of its own.
fn query(scope: &Scope, rule: &Rule, user: Option<Arc<str>>) -> Query {
    let learned = learn::KnownRate::default();
    let queue = Arc::default();
    Query { scope: scope.clone(), rule: Arc::new(rule.clone()), learned, queue, user }
}
