//! The policies: Tidegate's store, and common alternatives.

use std::{
    cell::RefCell,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

use integration_tests::walls::{Answer, SECOND};
use tidegate::{
    classify::{site_limits::SiteLimit, verdict::Verdict},
    config,
    limiter::{
        bucket::HORIZON,
        cooldown::{self, Cause, Change, Named, NamedRate, REFUSAL_WEIGHT, Report},
        learn::KnownRate,
        refusals::{PlainRefusal, Refusals},
    },
    rules::Rule,
    runtime::clock,
    store::{Ask, Memory, Phase, Scope, ScopeName, Store},
};

use super::{fleet::Grant, plot::Story};

/// Workers of the fleet; slots are distributed among them.
pub(crate) const WORKERS: usize = 3;
/// The store's time at the start.
const EPOCH: i64 = 1_000_000 * SECOND;
/// The lease of a probe.
const LEASE: i64 = 90 * SECOND;

/// A policy.
pub(crate) trait Policy {
    /// A grant for `slot`: its time and data for the report; or when to ask again.
    fn ask(&mut self, slot: usize, now: i64) -> Result<(i64, Grant), i64>;

    /// Whether a grant is still valid.
    fn may_send(&self, grant: Grant) -> bool {
        let _ = grant;
        true
    }

    /// Reports a response.
    fn report(&mut self, slot: usize, now: i64, grant: Grant, answer: Answer);

    /// Reports the limit that the site announces with the next response.
    fn report_limit(&mut self, _said: SiteLimit) {}

    /// The number of cooldowns so far.
    fn trips(&self) -> u32 {
        0
    }
}

/// Tidegate: a rule in the store that all members share.
#[derive(Debug)]
pub(crate) struct Proxy {
    time: Arc<AtomicI64>,
    store: Memory,
    scope: Scope,
    rule: Arc<Rule>,
    epoch: u64,
    holds_probe: bool,
    come_back: i64,
    draw: fastrand::Rng,
    story: Rc<RefCell<Story>>,
    trips: u32,
    said: Option<SiteLimit>,
    refusals: [Refusals; WORKERS],
    page: u64,
}

impl Proxy {
    /// With a rule of these keys.
    pub(crate) fn boxed(keys: &str, seed: u64) -> Box<dyn Policy> {
        Self::recording(keys, seed, Rc::default())
    }

    /// The same, and records events in `story`.
    pub(crate) fn recording(keys: &str, seed: u64, story: Rc<RefCell<Story>>) -> Box<dyn Policy> {
        Box::new(Self::new(keys, seed, story))
    }

    fn new(keys: &str, seed: u64, story: Rc<RefCell<Story>>) -> Self {
        let rule = rule(keys);
        let time = Arc::new(AtomicI64::new(EPOCH));
        let store = Memory::at(Arc::clone(&time));
        let all: Arc<str> = Arc::from("");
        let name = ScopeName::plain(&rule.name, &all);
        let scope = store.scope(name);
        let draw = fastrand::Rng::with_seed(seed);
        let (epoch, trips) = (0, 0);
        let (holds_probe, come_back) = (false, 0);
        Self {
            time,
            store,
            scope,
            rule,
            epoch,
            holds_probe,
            come_back,
            draw,
            story,
            trips,
            said: None,
            refusals: Default::default(),
            page: 0,
        }
    }
}

/// A rule with these keys.
pub(crate) fn rule(keys: &str) -> Arc<Rule> {
    let text = format!("rules: [{{name: a, match: '*', {keys}}}]");
    let loaded = config::parse(&text, "bench", &|_| None).expect("a good rule");
    Arc::clone(&loaded.rules.as_slice()[0])
}

impl Policy for Proxy {
    fn ask(&mut self, _slot: usize, now: i64) -> Result<(i64, Grant), i64> {
        if now < self.come_back {
            return Err(self.come_back);
        }
        self.time.store(EPOCH + now, Ordering::Relaxed);
        let holds_probe = self.holds_probe;
        let known =
            cooldown::KnownCooldown { holds_probe, ..cooldown::KnownCooldown::open(self.epoch) };
        let ask = Ask { wanted: 1, bound: HORIZON, lease: LEASE, known, ..Ask::default() };
        let granted = self.store.take_now(&self.scope, &self.rule, &ask);
        self.epoch = granted.epoch;
        self.holds_probe |= granted.phase == Phase::Probe;
        let KnownRate { turn, rate, mark, wall, .. } = granted.learned;
        if let Some(wall) = wall {
            self.story.borrow_mut().guess(now, wall.window);
        }
        match granted.phase {
            Phase::Open if turn > 0 => self.story.borrow_mut().rate(now, rate, mark),
            Phase::Cooling => self.story.borrow_mut().rate(now, 0.0, 0.0),
            Phase::Open | Phase::Probe | Phase::Probing | Phase::Due => {}
        }
        match (granted.phase, granted.tickets.first()) {
            (phase @ (Phase::Open | Phase::Probe), Some(ticket)) => {
                let probe = if phase == Phase::Probe { *ticket } else { 0 };
                Ok((ticket - EPOCH, Grant { epoch: granted.epoch, probe }))
            }
            _ => {
                // The result of a probe may arrive at any time.
                let longest = if granted.phase == Phase::Probing { SECOND / 10 } else { i64::MAX };
                self.come_back = (granted.come_back - EPOCH).min(now.saturating_add(longest));
                Err(self.come_back)
            }
        }
    }

    fn may_send(&self, grant: Grant) -> bool {
        grant.epoch == self.epoch
    }

    fn report(&mut self, slot: usize, now: i64, grant: Grant, answer: Answer) {
        self.time.store(EPOCH + now, Ordering::Relaxed);
        self.page += 1;
        let mut story = self.story.borrow_mut();
        if answer == Answer::Page {
            story.pages.push(now)
        } else {
            story.blocks.push(now)
        }
        drop(story);
        let said = self.said.take().unwrap_or_default();
        let hold = said.hold.map(clock::micros);
        let answer = match answer {
            Answer::Page => {
                self.refusals[slot % WORKERS].answered();
                cooldown::Answer::Ok
            }
            Answer::Refusal => {
                let refused = self.refusals[slot % WORKERS].refused(PlainRefusal::Busy, self.page);
                match &self.rule.cooldown {
                    Some(policy) if grant.probe != 0 => cooldown::Answer::Block {
                        weight: policy.after,
                        retry_after: 0,
                        sure: false,
                        verdict: Verdict::Forbidden,
                    },
                    Some(policy) if refused => cooldown::Answer::Refusal { weight: policy.after },
                    _ => cooldown::Answer::Refusal { weight: REFUSAL_WEIGHT },
                }
            }
            Answer::Silence => {
                let policy = self.rule.cooldown.as_ref();
                let of = policy.and_then(|policy| Some((policy.after, policy.silence?)));
                of.map_or(cooldown::Answer::Nothing, |(after, silence)| {
                    let weight = cooldown::silence_weight(after, silence);
                    cooldown::Answer::Silence { weight, verdict: Verdict::ConnectionError }
                })
            }
            Answer::Block { retry_after, sure } => {
                let retry_after = if retry_after > 0 { retry_after } else { hold.unwrap_or(0) };
                let verdict = if sure { Verdict::RateLimited } else { Verdict::Forbidden };
                cooldown::Answer::Block { weight: 1.0, retry_after, sure, verdict }
            }
        };
        let Grant { epoch, probe } = grant;
        let ceiling = said.ceiling.map(|ceiling| {
            let lasts = clock::micros(ceiling.lasts);
            NamedRate { rate: ceiling.rate, lasts }
        });
        let named = Some(Named { ceiling, hold });
        let report = Report { probe, draw: self.draw.f64(), named, ..Report::new(epoch, answer) };
        let reported = self.store.report_now(&self.scope, &self.rule, &report);
        let paused = reported.cause == Some(Cause::SiteLimit);
        let failed = matches!(reported.cause, Some(Cause::Probe | Cause::Hopeless));
        self.trips += u32::from(reported.change == Change::Tripped && !paused && !failed);
        self.holds_probe &= probe == 0;
        if self.rule.cooldown.is_some() {
            self.epoch = self.epoch.max(reported.epoch);
        }
    }

    fn report_limit(&mut self, said: SiteLimit) {
        self.said = Some(said);
    }

    fn trips(&self) -> u32 {
        self.trips
    }
}

/// How often a rule file is rewritten.
const RELOAD: i64 = 10 * SECOND;

/// Tidegate with a rule file that an operator who knows the wall changes during the day.
pub(crate) struct Reloaded {
    proxy: Proxy,
    keys: Box<dyn Fn(i64) -> String>,
    next: i64,
}

impl Reloaded {
    /// `keys`: the rule's keys at each time.
    pub(crate) fn new(keys: Box<dyn Fn(i64) -> String>, seed: u64) -> Self {
        Self { proxy: Proxy::new(&keys(0), seed, Rc::default()), keys, next: RELOAD }
    }
}

impl Policy for Reloaded {
    fn ask(&mut self, slot: usize, now: i64) -> Result<(i64, Grant), i64> {
        if now >= self.next {
            self.proxy.rule = rule(&(self.keys)(now));
            self.next = now + RELOAD;
        }
        self.proxy.ask(slot, now)
    }

    fn may_send(&self, grant: Grant) -> bool {
        self.proxy.may_send(grant)
    }

    fn report(&mut self, slot: usize, now: i64, grant: Grant, answer: Answer) {
        self.proxy.report(slot, now, grant, answer);
    }

    fn trips(&self) -> u32 {
        self.proxy.trips
    }
}

/// A limiter in each worker, which pauses for half a minute after three blocks in a row that this
/// worker has seen.
#[derive(Debug)]
pub(crate) struct Workers {
    gap: i64,
    next: [i64; WORKERS],
    streak: [u32; WORKERS],
}

impl Workers {
    /// Each sends at most this many requests per second.
    pub(crate) fn new(rate: f64) -> Self {
        Self { gap: micros(1.0 / rate), next: [0; WORKERS], streak: [0; WORKERS] }
    }
}

impl Policy for Workers {
    fn ask(&mut self, slot: usize, now: i64) -> Result<(i64, Grant), i64> {
        let next = &mut self.next[slot % WORKERS];
        if now < *next {
            return Err(*next);
        }
        *next = now + self.gap;
        Ok((now, Grant::default()))
    }

    fn report(&mut self, slot: usize, now: i64, _grant: Grant, answer: Answer) {
        let worker = slot % WORKERS;
        self.streak[worker] = if answer == Answer::Page { 0 } else { self.streak[worker] + 1 };
        if self.streak[worker] >= 3 {
            self.streak[worker] = 0;
            self.next[worker] = now + 30 * SECOND;
        }
    }
}

/// Scrapy's AutoThrottle as documented: each worker's delay moves halfway towards the latency of
/// each response, but not below the configured delay. A block does not shorten it. Delays are drawn
/// from half to one and a half times the value. It ignores blocks otherwise.
#[derive(Debug)]
pub(crate) struct Autothrottle {
    least: f64,
    delay: [f64; WORKERS],
    next: [i64; WORKERS],
    sent: [i64; 16],
    draw: fastrand::Rng,
}

impl Autothrottle {
    /// The fleet's configured rate, a third for each worker.
    pub(crate) fn new(rate: f64, seed: u64) -> Self {
        #[allow(clippy::cast_precision_loss, reason = "three")]
        let least = WORKERS as f64 / rate;
        // Its default first delay is five seconds.
        let (delay, draw) = ([5.0; WORKERS], fastrand::Rng::with_seed(seed));
        Self { least, delay, next: [0; WORKERS], sent: [0; 16], draw }
    }
}

impl Policy for Autothrottle {
    fn ask(&mut self, slot: usize, now: i64) -> Result<(i64, Grant), i64> {
        let worker = slot % WORKERS;
        if now < self.next[worker] {
            return Err(self.next[worker]);
        }
        self.sent[slot] = now;
        self.next[worker] = now + micros(self.delay[worker] * (0.5 + self.draw.f64()));
        Ok((now, Grant::default()))
    }

    fn report(&mut self, slot: usize, now: i64, _grant: Grant, answer: Answer) {
        let delay = &mut self.delay[slot % WORKERS];
        #[allow(clippy::cast_precision_loss, reason = "a second at most")]
        let latency = (now - self.sent[slot]) as f64 / 1e6;
        let new = latency.max(f64::midpoint(*delay, latency)).max(self.least);
        if answer == Answer::Page || new > *delay {
            *delay = new;
        }
    }
}

/// Microseconds, as the walls count.
#[allow(clippy::cast_possible_truncation, reason = "minutes at most")]
pub(crate) fn micros(seconds: f64) -> i64 {
    (seconds * 1e6) as i64
}

/// Additive increase, multiplicative decrease for the whole fleet: a tenth more after each minute
/// without a block, half after a block. Blocks within five seconds count as one.
#[derive(Debug)]
pub(crate) struct Aimd {
    most: f64,
    rate: f64,
    next: i64,
    changed: i64,
}

impl Aimd {
    /// Never faster than `most` requests per second.
    pub(crate) const fn new(most: f64) -> Self {
        Self { most, rate: most, next: 0, changed: 0 }
    }
}

impl Policy for Aimd {
    fn ask(&mut self, _slot: usize, now: i64) -> Result<(i64, Grant), i64> {
        if now - self.changed >= 60 * SECOND {
            self.changed = now;
            self.rate = (self.rate + self.most / 10.0).min(self.most);
        }
        if now < self.next {
            return Err(self.next);
        }
        self.next = now + micros(1.0 / self.rate);
        Ok((now, Grant::default()))
    }

    fn report(&mut self, _slot: usize, now: i64, _grant: Grant, answer: Answer) {
        if answer != Answer::Page && now - self.changed >= 5 * SECOND {
            self.rate = (self.rate / 2.0).max(self.most / 100.0);
            self.changed = now;
        }
    }
}
