//! The embedded store: every scope in this process.
//!
//! It makes the same decisions as the scripts in `lua/`, with the same arithmetic ([`crate::limiter::bucket`],
//! [`crate::limiter::cooldown`]); one test suite covers both. A call takes two short locks and allocates one list.

mod forecast;
mod rate_override;
mod slots;
mod tickets;
mod users;

use std::{
    borrow::Cow,
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

use parking_lot::Mutex;

use self::{tickets::Tickets, users::UserBucket};
use super::{
    Ask, Granted, Override, Peeked, Phase, Reported, Scope, ScopeName, SlotAsk, SlotsGranted,
    Store, StoreError,
};
use crate::{
    limiter::{
        bucket::{self, BATCH, Bucket, FIRST, Pace, Window},
        cooldown::{self, Blocks, Cause, Change, Cooldown, Report},
        learn::{KnownRate, News},
        policy::{CooldownPolicy, Limits},
        shares::Shares,
        slots::Slots,
    },
    rules::Rule,
    runtime::clock::{self, Instant},
};

/// The store's time starts here, so far from 0 that past moments stay positive.
const EPOCH: i64 = 1_000_000_000_000_000;

/// Above this number of scopes, idle ones are dropped when a new one comes.
const SWEEP_FROM: usize = 1_024;

/// The only member, which gets every probe.
const MEMBER: &str = "here";

/// A member counts as waiting for this long after its next ticket, in microseconds.
const REMEMBERED: i64 = 1_000_000;

/// A bucket or a cooldown, and the moment from which it need not be kept.
#[derive(Debug, Default)]
pub(crate) struct Kept<T> {
    pub(crate) state: Option<T>,
    forget_at: i64,
    /// A member waits for it until this moment.
    waited_until: i64,
}

/// The state of one scope in memory.
#[derive(Debug, Clone)]
pub(crate) struct LocalState {
    bucket: Arc<Mutex<Kept<Bucket>>>,
    cooldown: Arc<Mutex<Kept<Cooldown>>>,
    own: bool,
}

impl LocalState {
    /// Whether its cooldown has an epoch. A report that assumes it never tripped would count as late.
    pub(crate) fn has_tripped(&self) -> bool {
        self.cooldown.lock().state.as_ref().is_some_and(|state| state.epoch > 0)
    }
}

/// The states of one kind, by rule and key.
type StateTable<T> = HashMap<(Arc<str>, Arc<str>), Arc<Mutex<Kept<T>>>>;

/// The embedded store.
#[derive(Debug)]
pub struct Memory {
    time: Time,
    buckets: Mutex<StateTable<Bucket>>,
    cooldowns: Mutex<StateTable<Cooldown>>,
    slots: Mutex<StateTable<Slots>>,
    /// Buckets of users (`each_user`), by rule, and user and bucket.
    users: Box<Mutex<StateTable<Bucket>>>,
}

/// The source of the store's time.
#[derive(Debug)]
enum Time {
    /// This process's clock, counted from the store's start.
    Since(Instant),
    /// A time set from outside, recorded or simulated.
    Given(Arc<AtomicI64>),
}

impl Default for Memory {
    fn default() -> Self {
        Self::with(Time::Since(clock::now()))
    }
}

impl Memory {
    /// A store whose time (microseconds) is set from outside, to replay the decisions of another store.
    #[must_use]
    pub fn at(time: Arc<AtomicI64>) -> Self {
        Self::with(Time::Given(time))
    }

    fn with(time: Time) -> Self {
        Self {
            time,
            buckets: Mutex::default(),
            cooldowns: Mutex::default(),
            slots: Mutex::default(),
            users: Box::default(),
        }
    }

    /// The store's time, in microseconds.
    #[must_use]
    pub fn now(&self) -> i64 {
        match &self.time {
            Time::Since(start) => EPOCH + clock::micros(clock::now() - *start),
            Time::Given(time) => time.load(Ordering::Relaxed),
        }
    }

    /// Takes tickets, at once.
    #[must_use]
    pub fn take_now(&self, scope: &Scope, rule: &Rule, ask: &Ask) -> Granted {
        let now = self.now();
        let user = self.user(scope, rule, ask, now);
        take(&scope.here, user.as_ref(), rule, ask, now)
    }

    /// Takes a report, at once.
    #[must_use]
    pub fn report_now(&self, scope: &Scope, rule: &Rule, report: &Report) -> Reported {
        let Some(policy) = &rule.cooldown else { return Reported::unchanged(self.now(), 0) };
        report_to(&scope.here, policy, report, self.now())
    }

    /// Buckets and cooldowns that are kept.
    #[cfg(test)]
    pub(crate) fn kept(&self) -> (usize, usize) {
        (self.buckets.lock().len(), self.cooldowns.lock().len())
    }

    /// Starts the member's own part of a scope: nothing is sent before `from`, and of each quota only what `windows`
    /// leave.
    pub(in crate::store) fn begin(
        &self,
        place: &LocalState,
        limits: &Limits,
        from: i64,
        windows: Vec<Window>,
        steady: bool,
    ) {
        let mut kept = place.bucket.lock();
        let bucket = kept.state.get_or_insert_with(|| Bucket::full(self.now(), limits));
        bucket.drain(from, limits);
        bucket.windows = windows;
        bucket.steady = steady;
        bucket.filling = None;
    }

    /// The current windows of the quotas.
    pub(in crate::store) fn windows(&self, place: &LocalState) -> Vec<Window> {
        place.bucket.lock().state.as_ref().map_or_else(Vec::new, |bucket| bucket.windows.clone())
    }

    pub(crate) fn place(&self, name: &ScopeName) -> LocalState {
        let now = self.now();
        let bucket = (Arc::clone(&name.rule), Arc::clone(&name.bucket));
        let cooldown = (Arc::clone(&name.rule), Arc::clone(&name.cooldown));
        LocalState {
            bucket: find_or_make(&mut self.buckets.lock(), bucket, now),
            cooldown: find_or_make(&mut self.cooldowns.lock(), cooldown, now),
            own: name.bucket == name.cooldown,
        }
    }
}

/// Finds or creates a state. If the table has grown, drops states that are unused and have expired.
fn find_or_make<T>(
    table: &mut StateTable<T>,
    key: (Arc<str>, Arc<str>),
    now: i64,
) -> Arc<Mutex<Kept<T>>> {
    if table.len() >= SWEEP_FROM && table.len().is_power_of_two() {
        table.retain(|_, kept| Arc::strong_count(kept) > 1 || kept.lock().forget_at > now);
    }
    let new = || Arc::new(Mutex::new(Kept { state: None, forget_at: now, waited_until: 0 }));
    Arc::clone(table.entry(key).or_insert_with(new))
}

impl Store for Memory {
    fn scope(&self, name: ScopeName) -> Scope {
        Scope { here: self.place(&name), keys: None, name }
    }

    async fn take(&self, scope: &Scope, rule: &Rule, ask: &Ask) -> Result<Granted, StoreError> {
        Ok(self.take_now(scope, rule, ask))
    }

    async fn report(
        &self,
        scope: &Scope,
        rule: &Rule,
        report: &Report,
    ) -> Result<Reported, StoreError> {
        Ok(self.report_now(scope, rule, report))
    }

    async fn slots(&self, scope: &Scope, ask: &SlotAsk) -> Result<SlotsGranted, StoreError> {
        Ok(self.slots_now(scope, ask))
    }

    async fn set(
        &self,
        scope: &Scope,
        rule: &Rule,
        what: Override,
    ) -> Result<Reported, StoreError> {
        let Some(policy) = &rule.cooldown else { return Ok(Reported::unchanged(self.now(), 0)) };
        let now = self.now();
        let mut kept = scope.here.cooldown.lock();
        let state = kept.state.get_or_insert_default();
        state.observe(now);
        match what {
            Override::Trip(length) => state.trip(now, length, Cause::Manual),
            Override::Clear => state.clear(now),
        }
        let reported = describe(state, now, Change::None);
        kept.forget_at = now + forgettable(&kept, now, policy);
        Ok(reported)
    }

    async fn peek(&self, scope: &Scope) -> Result<Peeked, StoreError> {
        let now = self.now();
        let kept = scope.here.cooldown.lock();
        Ok(kept.state.as_ref().map_or(Peeked { now, ..Peeked::default() }, |state| Peeked {
            now,
            epoch: state.epoch,
            until: state.until,
            probe_until: if state.probe > 0 { state.probe_until } else { 0 },
            streak: state.streak,
            peak: state.peak,
            cause: state.cause,
            by: cooldown::culprit(&state.blamed),
            blocks: Blocks::of_letters(&state.blamed),
            named: state.named_at(now),
        }))
    }

    async fn close(&self) {}
}

/// The same as `lua/take.lua`.
fn take(
    place: &LocalState,
    user: Option<&UserBucket<'_>>,
    rule: &Rule,
    ask: &Ask,
    now: i64,
) -> Granted {
    let Some(policy) = &rule.cooldown else {
        let news = (None, &mut Shares::default());
        let tickets = tickets((place, user), rule, (ask, ask.wanted), now, 0, news, false);
        return tickets.reply(now, 0, 0.0);
    };
    let mut kept = place.cooldown.lock();
    let state = kept.state.get_or_insert_default();
    state.observe(now);
    state.restore(ask.known, now);
    let phase = state.phase(now, policy);
    let (epoch, streak) = (state.epoch, state.streak);
    // The reply with the probe was lost, so the member gets it again, without another token.
    let again = matches!(phase, cooldown::Phase::Probing(_))
        && ask.wanted > 0
        && !ask.known.holds_probe
        && state.is_prober(MEMBER);
    let wait = |phase, come_back| {
        let none = Tickets { come_back, ..Tickets::default() };
        Granted { phase, ..none.reply(now, epoch, streak) }
    };
    let granted = match phase {
        cooldown::Phase::Cooling(until) => wait(Phase::Cooling, until),
        cooldown::Phase::Probing(until) if !again => wait(Phase::Probing, until),
        cooldown::Phase::Open | cooldown::Phase::Due | cooldown::Phase::Probing(_) => {
            let is_probe = phase != cooldown::Phase::Open;
            let wanted = if is_probe { ask.wanted.min(u32::from(!again)) } else { ask.wanted };
            let ramp = if place.own { clock::micros(policy.ramp) } else { 0 };
            let news = (place.own.then(|| news(state, now)), &mut state.shares);
            let mut tickets =
                tickets((place, user), rule, (ask, wanted), now, ramp, news, is_probe);
            match tickets.moments.first() {
                _ if again => tickets.moments.push(state.lend_again(now, ask.lease)),
                Some(moment) if is_probe => state.lend_probe(MEMBER, *moment, ask.lease),
                _ => {}
            }
            let phase = match tickets.moments.first() {
                _ if !is_probe => Phase::Open,
                None => Phase::Due,
                Some(_) => {
                    tickets.come_back = state.probe_until;
                    Phase::Probe
                }
            };
            Granted { phase, ..tickets.reply(now, epoch, streak) }
        }
    };
    kept.forget_at = now + forgettable(&kept, now, policy);
    granted
}

/// The state of the cooldown that the learned rate depends on.
fn news(state: &Cooldown, now: i64) -> News {
    News {
        opened: state.opened,
        blocked: state.last_block,
        sure: state.sure,
        blocks: state.blocks,
        closed: state.until > 0,
        named: state.named_at(now),
        load: state.load.strain,
    }
}

/// Applies a member's copy of the bucket before it takes anything.
fn prepare(bucket: &mut Bucket, ask: &Ask, now: i64, (limits, written): (&Limits, &Limits)) {
    if ask.drain {
        // Tickets already handed out stay valid.
        bucket.drain(bucket.at.max(now), limits);
    }
    if ask.void {
        bucket.void(now, written);
        return bucket.refund_all(&ask.returned, limits);
    }
    bucket.return_tickets(&ask.returned, now, limits);
}

/// Advances a bucket to `now`: its clock, its rate, and the latest opening of its scope. Returns the limits and the
/// pace in force.
fn advance<'r>(
    bucket: &mut Bucket,
    rule: &'r Rule,
    (now, ramp): (i64, i64),
    (news, shares): (Option<News>, &mut Shares),
    known: KnownRate,
    probe: bool,
) -> (Cow<'r, Limits>, Pace) {
    let limits = &rule.limits;
    bucket.observe(now, limits);
    // A probe changes nothing before its response.
    let pace = if probe && limits.learn.is_some() && bucket.learned.rate > 0.0 {
        Pace { rate: Some(bucket.learned.rate), ramp }
    } else {
        bucket.pace(now, limits, ramp, news.unwrap_or_default(), known, shares)
    };
    let (limits, pace) = bucket::under(limits, pace, news.and_then(|news| news.named));
    bucket.fill_by(now, &limits, pace);
    if let Some(news) = news {
        bucket.restart(news.opened, &limits);
    }
    (limits, pace)
}

/// The tickets, and when to come back for more (0: all granted).
fn tickets(
    (place, user): (&LocalState, Option<&UserBucket<'_>>),
    rule: &Rule,
    (ask, wanted): (&Ask, u32),
    now: i64,
    ramp: i64,
    news: (Option<News>, &mut Shares),
    probe: bool,
) -> Tickets {
    let limits = &rule.limits;
    let wanted = wanted.min(BATCH) as usize;
    if limits.is_unlimited() {
        return Tickets { moments: vec![now; wanted], ..Tickets::default() };
    }
    let mut kept = place.bucket.lock();
    let Kept { state, waited_until, forget_at } = &mut *kept;
    let bucket = state.get_or_insert_with(|| Bucket::full(now, limits));
    let (under, pace) = advance(bucket, rule, (now, ramp), news, ask.learned, probe);
    let limits = &*under;
    let (learns, learned) = (limits.learn.is_some(), bucket.learned);
    prepare(bucket, ask, now, (limits, &rule.limits));
    let (mut granted, mut ahead, mut come_back, mut most) = (Vec::new(), 0, 0, None);
    let mut user_is_over = false;
    while granted.len() < wanted {
        let moment = bucket.next(now, limits, pace);
        // A user over its own limits takes no tokens of the rule. A probe is sent in any case.
        let own = user.map_or(moment, |user| user.next(now));
        if own > moment && !probe {
            (come_back, user_is_over) = (own, true);
            break;
        }
        if moment > now {
            come_back = moment;
            if moment - now > ask.bound {
                break;
            }
            let most = *most.get_or_insert_with(|| {
                let share = pace.rate.map_or(1, |rate| bucket::share(rate, limits.cost, 1));
                let new = *waited_until <= now;
                *waited_until = moment.min(now + ask.bound).saturating_add(REMEMBERED);
                if new { FIRST } else { share }
            });
            if ask.held + ahead >= most {
                break;
            }
            ahead += 1;
        }
        bucket.take(moment, limits, pace);
        if let Some(user) = user {
            user.take(moment, now);
        }
        granted.push(moment);
    }
    if granted.len() >= wanted {
        come_back = 0;
    }
    if probe {
        bucket.learned = learned;
    }
    let rate = pace.rate.unwrap_or(0.0);
    let learned = if learns { bucket.learned.known() } else { KnownRate::default() };
    let forget = bucket.forgettable_in(now, limits, pace, closed_at_most(rule));
    *forget_at = now.saturating_add(forget);
    let windows = bucket.windows.clone();
    Tickets { moments: granted, come_back, user_is_over, rate, learned, windows }
}

/// The same as `lua/report.lua`.
fn report_to(place: &LocalState, policy: &CooldownPolicy, report: &Report, now: i64) -> Reported {
    let mut kept = place.cooldown.lock();
    let state = kept.state.get_or_insert_default();
    state.observe(now);
    let change = state.report(now, report, policy);
    let reported = describe(state, now, change);
    kept.forget_at = now + forgettable(&kept, now, policy);
    reported
}

fn describe(state: &Cooldown, now: i64, change: Change) -> Reported {
    Reported {
        now,
        change,
        epoch: state.epoch,
        until: state.until,
        streak: if change == Change::Tripped { state.peak } else { state.streak },
        length: state.length,
        cause: state.cause,
        blocks: Blocks::of_letters(&state.blamed),
    }
}

/// The longest possible cooldown.
fn closed_at_most(rule: &Rule) -> i64 {
    rule.cooldown.as_ref().map_or(0, |policy| clock::micros(policy.max))
}

fn forgettable(kept: &Kept<Cooldown>, now: i64, policy: &CooldownPolicy) -> i64 {
    let said = kept.state.as_ref().filter(|state| !state.is_blank());
    said.map_or(0, |state| state.forgettable_in(now, policy))
}
