//! The queue of one bucket: the requests that wait for its tokens, the tickets in hand, and the task that releases the
//! requests.
//!
//! A bucket has one queue per member, however its cooldowns are split. Each request carries its scope
//! ([`ActiveScope`]). While that scope is closed, requests of other scopes pass it. So a member holds no more tickets
//! ahead than its share, however many hosts it crawls.
//!
//! While requests wait, one task (`scheduler`) drives the queue. It takes tickets from the store,
//! sleeps until the first is due or until the store's retry time, and gives each ticket to the next
//! request. It never polls, and it ends when no request waits. A ticket of a cancelled request goes
//! to the next one, or back to the store.

mod estimate;
mod next;
mod release;
mod scheduler;
mod slots;
mod spare;
mod turns;
mod users;

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::oneshot;

pub(super) use self::next::LOOK_AGAIN;
pub use self::slots::Slot;
use self::{slots::Slots, spare::Spare};
use super::{
    Entry, GateContext, Outcome, RefusalReason,
    active_scope::ActiveScope,
    cache::CachedPhase,
    grant::Grant,
    local_cooldown::LocalCooldown,
    local_cooldown::Wake,
    preferences::{Rank, Request},
    queue::{Queue, Unjudged, Waiter},
    reports,
};
use crate::{
    limiter::{cooldown::KnownCooldown, learn},
    observability::event::Event,
    rules::Rule,
    runtime::clock::{self, Instant, LogThrottle},
    store::{Ask, Phase},
};

/// How late a ticket may be used: as late as a busy machine runs. A later ticket is void, because its request would add
/// to those that are due now. A process that was stopped is later than this.
pub(super) const SLACK: Duration = Duration::from_millis(100);

/// How long the ticket of a cancelled request remains valid for the next request.
const FRESH: Duration = Duration::from_millis(10);

/// How long a request waits for the store's first reply, whatever its deadline: longer than any call.
const FIRST_ANSWER: Duration = Duration::from_secs(2);

/// Minimum time between two events about the same fact in a scope.
const REPORT_EVERY: Duration = Duration::from_secs(60);

/// The right to send one request at a moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ticket {
    /// On this process's clock.
    pub(super) at: Instant,
    /// The same moment on the store's clock, which identifies the ticket; 0 if none is needed.
    pub(super) id: i64,
    /// The epoch of its request; 0 if scopes share the bucket. Then the ticket is valid for any of them.
    pub(super) epoch: u64,
    pub(super) probe: bool,
}

impl Ticket {
    /// Whether it is late by more than the slack. A probe has its own lease.
    pub(super) fn is_late(&self, now: Instant) -> bool {
        !self.probe && now.saturating_duration_since(self.at) > SLACK
    }
}

/// A call in progress.
#[derive(Debug)]
struct PendingCall {
    scope: Arc<ActiveScope>,
    wanted: usize,
    /// Whether it is for all ready requests, on behalf of the first of them.
    for_ready: bool,
}

#[derive(Debug, Default)]
struct State {
    /// Requests in flight; `None` if the rule has no `parallel`.
    slots: Option<Slots>,
    queue: Queue<Arc<ActiveScope>>,
    tickets: VecDeque<Ticket>,
    /// The user of the tickets in hand, under a rule with `each_user`.
    user: Option<Arc<str>>,
    /// The users whose limits were reported within the last minute.
    reported_users: HashMap<Arc<str>, Instant>,
    /// Probes in hand, each for its scope.
    probes: Vec<(Arc<ActiveScope>, Ticket)>,
    /// The calls in progress: at most one per scope.
    asking: Vec<PendingCall>,
    /// The scope of the latest request.
    latest: Option<Arc<ActiveScope>>,
    returned: Vec<i64>,
    /// Tickets that may no longer be used. They are returned once they are due.
    voided: Vec<Ticket>,
    /// Due tickets for the next requests.
    spare: Spare,
    has_scheduler: bool,
    /// No ticket is available before this moment.
    come_back: Option<Instant>,
    /// While the lease has expired and the store is away: no call before this time.
    look_again: Option<Instant>,
    /// When no more than this many tickets are left, more are requested.
    refill: usize,
    /// Most tickets per call; 0 = no limit of its own.
    most: usize,
    /// While filling up: the time of the next call, unless the last ticket is due earlier.
    fill_at: Option<Instant>,
    /// Whether the latest reply came from local mode, because the store was away.
    local: bool,
    /// Members that wait for the bucket, as last known.
    members: u32,
    /// The limits have changed, so tickets handed out ahead under the old limits are void.
    start_over: bool,
    /// How long before a ticket is due a call must be sent: a smoothed round trip, because the latency of the reply
    /// delays tickets here.
    lead: Duration,
    /// How many requests have been released.
    turns: u64,
    /// The release time of the next held request, if the rule has no rate and ramps up after a
    /// cooldown.
    spread: Option<Instant>,
}

/// The queue of one bucket.
#[derive(Debug)]
pub(super) struct BucketQueue {
    pub(super) shared: Arc<GateContext>,
    pub(super) entry: ArcSwap<Entry>,
    /// The key of the bucket.
    key: Arc<str>,
    /// Its name among the fleet's queues that share its slots.
    name: Arc<str>,
    /// The cooldown of all its requests; `None` if scopes with cooldowns of their own share the bucket.
    only: Option<Arc<LocalCooldown>>,
    state: Mutex<State>,
    pub(super) wake: Arc<Wake>,
    /// The learned rate, as last known.
    learned: Mutex<learn::KnownRate>,
    /// Limits the events about requests that wait for slots.
    full_reported: LogThrottle,
    /// When the bucket is full again if no other member takes from it, for the rule and for each user with limits of
    /// its own.
    full_at: Mutex<HashMap<Option<Arc<str>>, Instant>>,
}

impl BucketQueue {
    /// A queue for the bucket `key`. `only`: the cooldown of all its requests, if they share one.
    pub(super) fn new(
        shared: Arc<GateContext>,
        entry: Arc<Entry>,
        key: Arc<str>,
        only: Option<Arc<LocalCooldown>>,
    ) -> Arc<Self> {
        let number = shared.queues.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}.{number}", shared.member).into();
        let slots = entry.rule.parallel.map(Slots::new);
        Arc::new(Self {
            shared,
            entry: ArcSwap::new(entry),
            key,
            name,
            only,
            state: Mutex::new(State { slots, ..State::default() }),
            wake: Arc::default(),
            learned: Mutex::default(),
            full_reported: LogThrottle::every(REPORT_EVERY),
            full_at: Mutex::default(),
        })
    }

    /// Whether it is the queue of this bucket.
    pub(super) fn serves(&self, key: &str) -> bool {
        *self.key == *key
    }

    /// Its name among the queues that share its slots.
    pub(super) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Whether requests may be sent without a reply of the store for their own scope.
    pub(super) fn relies_on_news(&self) -> bool {
        self.only.is_none() || self.entry.load().rule.limits.is_unlimited()
    }

    /// A permit without waiting, if one is available without a call.
    pub(super) fn try_now(
        self: &Arc<Self>,
        scope: &Arc<ActiveScope>,
        entry: &Arc<Entry>,
    ) -> Option<Grant> {
        let rule = &entry.rule;
        if rule.opens_in().is_some() {
            return None;
        }
        let is_free = rule.limits.is_unlimited();
        let epoch = scope.usable_epoch()?;
        let goes_free = is_free && !self.is_spreading(scope, rule);
        let free_ticket = || Ticket { at: clock::now(), id: 0, epoch, probe: false };
        if goes_free && rule.parallel.is_none() {
            return Some(Grant::new(scope, entry, free_ticket(), None));
        }
        if users::are_limited(rule) {
            return None;
        }
        let mut state = self.state.lock();
        let now = clock::now();
        let waits = state.queue.ready() > 0 || state.queue.of_scope(scope) > 0;
        if waits || !state.tickets.is_empty() || state.free_slots(now) == 0 {
            return None;
        }
        if goes_free {
            return Some(Grant::new(scope, entry, free_ticket(), self.take_slot(&mut state)));
        }
        if let Some(ticket) = state.spare.take(self.epoch_in_hand(epoch), now) {
            let slot = self.take_slot(&mut state);
            drop(state);
            entry.metrics.tokens_granted.inc_by(u64::from(rule.limits.cost));
            return Some(Grant::new(scope, entry, Ticket { epoch, ..ticket }, slot));
        }
        let returned = std::mem::take(&mut state.returned);
        let known = KnownCooldown::open(epoch);
        let ask = Ask { wanted: 1, known, returned, ..Ask::default() };
        let asked = clock::now();
        let Some(granted) = self.shared.store.take_now(&scope.stored, rule, &ask) else {
            state.returned = ask.returned;
            return None;
        };
        let slot = self.take_slot(&mut state);
        drop(state);
        let ticket = granted.tickets.first().copied();
        self.note_learned(granted.learned);
        if granted.phase != Phase::Open || granted.epoch != epoch {
            reports::granted(scope, &granted, asked);
        }
        let ticket = ticket.filter(|_| granted.phase == Phase::Open)?;
        entry.metrics.tokens_granted.inc_by(u64::from(rule.limits.cost));
        let ticket = Ticket { at: asked, id: ticket, epoch: granted.epoch, probe: false };
        Some(Grant::new(scope, entry, ticket, slot))
    }

    /// The epoch of a ticket in hand. A trip of the only cooldown voids the ticket. If scopes share the bucket, it
    /// serves another.
    fn epoch_in_hand(&self, epoch: u64) -> u64 {
        if self.only.is_some() { epoch } else { 0 }
    }

    /// The learned rate, as last known.
    pub(super) fn learned(&self) -> learn::KnownRate {
        *self.learned.lock()
    }

    /// Applies a learned rate, and reports a change.
    fn note_learned(&self, learned: learn::KnownRate) {
        if learned.turn == 0 {
            return;
        }
        let old = std::mem::replace(&mut *self.learned.lock(), learned);
        let same = old.rate.to_bits() == learned.rate.to_bits() && old.frozen == learned.frozen;
        if old.turn > 0 && !same {
            self.report_learned(old.rate, learned, false, None);
        }
        self.report_wall(old, learned);
    }

    /// Reports a limit by count that is named, changed or dropped.
    fn report_wall(&self, old: learn::KnownRate, learned: learn::KnownRate) {
        if old.wall != learned.wall {
            let (rule, key) = (Arc::clone(&self.entry.load().rule.name), Arc::clone(&self.key));
            self.shared.events.emit(Event::Wall { rule, key, wall: learned.wall });
        }
    }

    fn report_learned(
        &self,
        from: f64,
        learned: learn::KnownRate,
        ours: bool,
        who: Option<Arc<str>>,
    ) {
        self.shared.events.emit(Event::RateLearned {
            rule: Arc::clone(&self.entry.load().rule.name),
            key: Arc::clone(&self.key),
            from,
            learned,
            ours,
            who,
        });
    }

    /// The next ticket may be due at another time than the store said, so asks again.
    pub(super) fn ask_again(&self) {
        self.state.lock().come_back = None;
        self.wake.now();
    }

    /// The store is back: asks again for the requests that wait for this member's own share.
    pub(super) fn store_is_back(&self) {
        let mut state = self.state.lock();
        if state.local {
            state.come_back = None;
            drop(state);
            self.wake.now();
        }
    }

    /// Applies a manual change that was made at this member.
    pub(super) fn rate_overridden(&self, learned: learn::KnownRate, who: Option<Arc<str>>) {
        let old = std::mem::replace(&mut *self.learned.lock(), learned);
        self.report_learned(old.rate, learned, true, who);
        self.report_wall(old, learned);
        self.ask_again();
    }

    /// Whether held requests of a rule without a rate are still being spread over the ramp after a cooldown.
    fn is_spreading(&self, scope: &ActiveScope, rule: &Rule) -> bool {
        rule.cooldown.as_ref().is_some_and(|policy| {
            !policy.ramp.is_zero()
                && scope.cooldown.opened().is_some_and(|opened| opened.elapsed() < policy.ramp)
                && !self.state.lock().queue.is_empty()
        })
    }

    /// How many requests of a scope are held.
    pub(super) fn held_of(&self, scope: &Arc<ActiveScope>) -> usize {
        self.state.lock().queue.of_scope(scope)
    }

    /// How many held requests have no ticket yet.
    pub(super) fn unserved(&self) -> usize {
        let state = self.state.lock();
        state.queue.len().saturating_sub(state.tickets.len())
    }

    /// Adds a request. One that `returns` had its permit, and keeps its place.
    ///
    /// Refuses requests that could not be sent in time.
    pub(super) fn enqueue(
        self: &Arc<Self>,
        scope: &Arc<ActiveScope>,
        request: &Request,
        returns: bool,
    ) -> Result<oneshot::Receiver<Outcome>, (RefusalReason, Option<Duration>)> {
        let Request { client, seq, deadline, urgency, .. } = request;
        let (seq, deadline) = (*seq, *deadline);
        let entry = self.entry.load();
        let rule = &entry.rule;
        let (sender, outcome) = oneshot::channel();
        let now = clock::now();
        let rank = if returns { Rank::FIRST } else { Rank::new(now, *urgency, rule.max_wait) };
        let is_closed = scope.usable_epoch().is_none();
        if let Some(wait) = rule.opens_in()
            && entry.outside_hours.allows()
        {
            let rule = Arc::clone(&rule.name);
            self.shared.events.emit(Event::OutsideHours { rule, wait });
        }
        let mut state = self.state.lock();
        // A reload reorders the requests that are already in the queue.
        let order = users::order(&self.entry.load().rule);
        let held = state.queue.of_scope(scope);
        let goes_first = returns || is_closed && held == 0;
        let ahead = if goes_first { 0 } else { state.queue.ahead_of(client, order, rank, scope) };
        if !returns && held >= rule.queue {
            let estimate = self.estimate(&state, rule, scope, ahead, now);
            return Err((RefusalReason::Queue, estimate.map(|estimate| estimate.at - now)));
        }
        if let Some(until) = client.user().and_then(|user| state.queue.blocked_until(user))
            && until > deadline
        {
            return Err((RefusalReason::User, Some(until - now)));
        }
        let judged =
            self.refuse_hopeless(&state, rule, scope, ahead, deadline)? || state.is_full(now);
        let deadline = if judged { deadline.max(now + FRESH) } else { deadline };
        if is_closed {
            state.queue.park(scope);
        }
        let waiter = Waiter { seq, deadline, since: now, rank, scope: Arc::clone(scope), sender };
        state.queue.push(client, order, waiter, returns);
        if !judged {
            let turns = state.turns;
            let latest = deadline.max(now + FIRST_ANSWER);
            state.queue.judge_later(seq, Unjudged { deadline, ahead, turns }, latest);
        }
        state.latest = Some(Arc::clone(scope));
        let start = !std::mem::replace(&mut state.has_scheduler, true);
        drop(state);
        if start {
            tokio::spawn(scheduler::run(Arc::clone(self)));
        } else {
            self.wake.now();
        }
        Ok(outcome)
    }

    /// The client of a held request has disconnected.
    pub(super) fn leave(&self, seq: u64) {
        self.entry.load().metrics.held_gone.inc();
        if self.state.lock().queue.remove(seq).is_some() {
            self.wake.now();
        }
    }

    /// Passes the ticket of a cancelled request to the next request, immediately or never. A late ticket would add to
    /// those that are due then.
    pub(super) fn take_back(&self, scope: &ActiveScope, ticket: Ticket) {
        let entry = self.entry.load();
        let limits = &entry.rule.limits;
        if limits.is_unlimited() {
            return;
        }
        let is_fresh = ticket.at.elapsed() <= FRESH;
        let is_anybodys = !users::are_limited(&entry.rule);
        let is_good = is_fresh
            && is_anybodys
            && scope.cooldown.allows(ticket.epoch, false)
            && scope.is_in_touch();
        let mut state = self.state.lock();
        let ticket = Ticket { epoch: self.epoch_in_hand(ticket.epoch), ..ticket };
        if !is_good || state.ready(clock::now()) == 0 {
            self.void(&mut state, limits, ticket);
            return;
        }
        state.tickets.push_front(ticket);
        drop(state);
        self.wake.now();
    }

    /// Continues under a reloaded rule. The reply to a call under the old rule may arrive later; its times are ignored.
    pub(super) fn set_entry(&self, scope: &Arc<ActiveScope>, entry: Arc<Entry>) {
        let now = clock::now();
        let old = self.entry.swap(Arc::clone(&entry));
        let (old, new) = (&old.rule, &entry.rule);
        let mut state = self.state.lock();
        if let (Some(most), None) = (old.parallel, new.parallel) {
            self.leave_slots(scope, most);
        }
        state.limit_slots(new.parallel);
        if old.each_user != new.each_user {
            state.queue.unblock_all();
        }
        if users::order(old) != users::order(new) {
            state.queue.reorder(users::order(new));
        }
        if old.limits != new.limits {
            if old.limits.cost != new.limits.cost {
                // The store would refund the new cost.
                state.returned.clear();
                state.voided.clear();
            }
            self.forget_old_limits(&mut state, (&old.limits, &new.limits), now);
            state.spare = Spare::default();
        }
        state.come_back = None;
        drop(state);
        self.wake.now();
    }

    /// Refuses all held requests, because the proxy stops.
    pub(super) fn stop(&self) {
        refuse_all(&mut self.state.lock(), RefusalReason::Stopping, None);
        self.wake.now();
    }
}

/// Refuses all held requests.
fn refuse_all(state: &mut State, why: RefusalReason, retry_after: Option<Duration>) {
    while let Some(waiter) = state.queue.pop_any() {
        waiter.sender.send(Outcome::Refused(why, retry_after)).ok();
    }
}
