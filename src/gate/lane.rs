//! A lane: the held requests of one scope, its tickets in hand, and the task that lets them go.
//!
//! While somebody waits, one task (the pump) drives the lane: it asks the store for tickets, sleeps until the first is
//! due or the store said to come back, and hands each ticket to the next in line. It never polls, and it ends when
//! nobody waits. A ticket whose request has left goes to the next in line, or back to the store.

use std::{
    collections::VecDeque,
    fmt,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use super::{
    Client, Entry, Outcome, Shared, Why,
    permit::Grant,
    queue::{Queue, Waiter},
    view::{Gateway, View, moment},
};
use crate::{
    clock::{self, Instant},
    cooldown::{Answer, Known, Report},
    event::Event,
    rules::Rule,
    store::{Ask, Granted, Phase, Scope, Store, StoreError},
    verdict::Verdict,
};

/// How long a ticket that was due is still good for the next in line: no longer than a busy machine is late anyway.
const FRESH: Duration = Duration::from_millis(10);

/// A moment at which one request may go.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ticket {
    /// On this process's clock.
    at: Instant,
    /// On the store's clock: the name of the ticket.
    id: i64,
    epoch: u64,
    probe: bool,
}

#[derive(Debug, Default)]
struct State {
    queue: Queue,
    tickets: VecDeque<Ticket>,
    returned: Vec<i64>,
    pumping: bool,
    /// Not before this moment is there another ticket.
    come_back: Option<Instant>,
    /// Tickets unused when the last ask reached the store.
    asked_with: usize,
    /// Tickets in hand after its answer.
    last_batch: usize,
    /// Members that wait for the bucket, as last heard.
    members: u32,
    /// The limits have changed: what the bucket has handed out ahead under the old ones is void.
    start_over: bool,
    /// How long an ask takes to reach the store: half a round trip, smoothed.
    lead: Duration,
    /// Release of the next held request where the rule has no rate and climbs back after a cooldown.
    spread: Option<Instant>,
}

/// A lane.
pub(super) struct Lane {
    pub(super) shared: Arc<Shared>,
    pub(super) scope: Scope,
    pub(super) view: Arc<View>,
    pub(super) entry: ArcSwap<Entry>,
    pub(super) sent: AtomicU64,
    pub(super) verdicts: [AtomicU64; Verdict::ALL.len()],
    /// Epoch and ticket of a probe that went another way than through the proxy.
    pub(super) outside_probe: Mutex<Option<(u64, i64)>>,
    state: Mutex<State>,
    wake: Notify,
    /// The learned rate in force as last heard (bits of an `f64`); 0 = nothing is learned here.
    rate: AtomicU64,
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A lane and its rule know each other: telling everything would never end.
        f.debug_struct("Lane").field("name", &self.scope.name).finish_non_exhaustive()
    }
}

/// What the pump does next.
enum Step {
    /// Asks the store.
    Ask(Ask),
    /// Sleeps until then, or until something happens.
    Sleep(Option<Instant>),
    /// Ends: nobody waits.
    End,
}

impl Lane {
    pub(super) fn new(
        shared: Arc<Shared>,
        scope: Scope,
        view: Arc<View>,
        entry: Arc<Entry>,
    ) -> Arc<Self> {
        Arc::new(Self {
            shared,
            scope,
            view,
            entry: ArcSwap::new(entry),
            sent: 0.into(),
            verdicts: std::array::from_fn(|_| 0.into()),
            outside_probe: Mutex::default(),
            state: Mutex::default(),
            wake: Notify::new(),
            rate: 0.into(),
        })
    }

    /// Leave without waiting, where that can be had without a call.
    pub(super) fn try_now(self: &Arc<Self>, entry: &Arc<Entry>) -> Option<Grant> {
        let rule = &entry.rule;
        let epoch = self.view.open_epoch()?;
        if rule.limits.is_unlimited() && !self.is_spreading(rule) {
            return Some(Grant::new(self, entry, epoch, 0, false));
        }
        let state = self.state.lock();
        if !state.queue.is_empty() || !state.tickets.is_empty() {
            return None;
        }
        let known = Known { epoch, remaining: 0 };
        let ask = Ask { wanted: 1, known, ..Ask::default() };
        let granted = self.shared.store.take_now(&self.scope, rule, &ask)?;
        drop(state);
        let ticket = granted.tickets.first().copied();
        self.note_rate(&granted);
        if granted.phase != Phase::Open || granted.epoch != epoch {
            self.view.granted(&granted);
        }
        let ticket = ticket.filter(|_| granted.phase == Phase::Open)?;
        entry.metrics.tokens_granted.inc_by(u64::from(rule.limits.cost));
        Some(Grant::new(self, entry, granted.epoch, ticket, false))
    }

    /// The learned rate in force, in tokens per second; 0 where nothing is learned.
    pub(super) fn rate(&self) -> f64 {
        f64::from_bits(self.rate.load(Ordering::Relaxed))
    }

    /// Takes note of the learned rate; a change is told.
    fn note_rate(&self, granted: &Granted) {
        let entry = self.entry.load();
        if entry.rule.limits.learn.is_none() || granted.rate <= 0.0 {
            return;
        }
        let old = f64::from_bits(self.rate.swap(granted.rate.to_bits(), Ordering::Relaxed));
        if old > 0.0 && old.to_bits() != granted.rate.to_bits() {
            self.shared.events.emit(Event::RateLearned {
                rule: Arc::clone(&entry.rule.name),
                key: Arc::clone(&self.scope.name.bucket),
                from: old,
                to: granted.rate,
            });
        }
    }

    /// Whether held requests of a rule without a rate are still being spread over the climb after a cooldown.
    fn is_spreading(&self, rule: &Rule) -> bool {
        rule.cooldown.as_ref().is_some_and(|policy| {
            !policy.ramp.is_zero()
                && self.view.opened().is_some_and(|opened| opened.elapsed() < policy.ramp)
                && !self.state.lock().queue.is_empty()
        })
    }

    /// How many requests are held.
    pub(super) fn held(&self) -> usize {
        self.state.lock().queue.len()
    }

    /// Whether anything would be lost with the lane.
    pub(super) fn is_idle(&self) -> bool {
        let state = self.state.lock();
        !state.pumping && state.queue.is_empty() && self.view.open_epoch().is_some()
    }

    /// Puts a request into the queue; `seq` is its place where it comes back, else a new one.
    ///
    /// Refuses at once what could not go in time.
    pub(super) fn enqueue(
        self: &Arc<Self>,
        client: Client,
        seq: u64,
        deadline: Instant,
        returns: bool,
    ) -> Result<oneshot::Receiver<Outcome>, (Why, Option<Duration>)> {
        let entry = self.entry.load();
        let rule = &entry.rule;
        let (tell, outcome) = oneshot::channel();
        let mut state = self.state.lock();
        if !returns {
            if state.queue.len() >= rule.queue {
                let wait = self.estimate(&state, rule, &client);
                return Err((Why::Queue, wait.map(|at| at - clock::now())));
            }
            self.refuse_hopeless(&state, rule, &client, deadline)?;
        } else if let Gateway::Cooling(until) = self.view.gateway()
            && until > deadline
        {
            return Err((Why::Cooldown, Some(until - clock::now())));
        }
        state.queue.push(client, rule.order, Waiter { seq, deadline, tell });
        let start = !std::mem::replace(&mut state.pumping, true);
        drop(state);
        if start {
            tokio::spawn(pump(Arc::clone(self)));
        } else {
            self.wake.notify_one();
        }
        Ok(outcome)
    }

    fn refuse_hopeless(
        &self,
        state: &State,
        rule: &Rule,
        client: &Client,
        deadline: Instant,
    ) -> Result<(), (Why, Option<Duration>)> {
        let now = clock::now();
        if let Gateway::Cooling(until) = self.view.gateway()
            && until > deadline
        {
            return Err((Why::Cooldown, Some(until - now)));
        }
        match self.estimate(state, rule, client) {
            Some(at) if at > deadline => Err((Why::Limit, Some(at - now))),
            Some(_) | None => Ok(()),
        }
    }

    /// Tokens per second, as written or as learned.
    pub(super) fn rate_in_force(&self, rule: &Rule) -> Option<f64> {
        let learned = self.rate();
        rule.limits.rate.map(|rate| if learned > 0.0 { learned } else { rate })
    }

    /// When a newcomer would go, as far as this member can tell; `None` where nothing speaks for a wait.
    fn estimate(&self, state: &State, rule: &Rule, client: &Client) -> Option<Instant> {
        let now = clock::now();
        let start = match self.view.gateway() {
            Gateway::Cooling(until) => until,
            Gateway::Open | Gateway::Probing(_) | Gateway::Ask => now,
        };
        let last = state.tickets.back().map(|ticket| ticket.at);
        let earliest = [state.come_back, last].into_iter().flatten().fold(start, Instant::max);
        let ahead = state.queue.ahead_of(client, rule.order);
        let in_hand = state.tickets.len();
        let behind = ahead.saturating_sub(in_hand) + usize::from(ahead >= in_hand && ahead > 0);
        let Some(rate) = self.rate_in_force(rule) else {
            return state.come_back.filter(|at| *at > now);
        };
        let members = f64::from(state.members.max(1));
        #[allow(clippy::cast_precision_loss)]
        let seconds = behind as f64 * f64::from(rule.limits.cost) * members / rate;
        // A day is far beyond any `max_wait`; the bound keeps the sum within what a clock can hold.
        Some(earliest + Duration::from_secs_f64(seconds.min(86_400.0)))
    }

    /// The client of a held request has left.
    pub(super) fn leave(&self, deadline: Instant, seq: u64) {
        self.entry.load().metrics.held_gone.inc();
        if self.state.lock().queue.remove(deadline, seq) {
            self.wake.notify_one();
        }
    }

    /// A ticket whose request left before it was sent goes to the next in line, at once or never: one that is used
    /// later than it was due would come on top of those that are due then.
    pub(super) fn take_back(self: &Arc<Self>, id: i64, due: Instant, epoch: u64) {
        let spent = due.elapsed() > FRESH;
        let unlimited = self.entry.load().rule.limits.is_unlimited();
        if spent || unlimited || self.view.open_epoch() != Some(epoch) {
            return;
        }
        let mut state = self.state.lock();
        if state.queue.is_empty() {
            return;
        }
        state.tickets.push_front(Ticket { at: due, id, epoch, probe: false });
        drop(state);
        self.wake.notify_one();
    }

    /// A reload: the lane goes on under the new rule. Who waits for a moment of the old limits (an hour away, perhaps)
    /// gets one of the new ones: such a bucket is empty, so nothing that was saved up is lost.
    pub(super) fn set_entry(&self, entry: Arc<Entry>) {
        let now = clock::now();
        let new_limits = self.entry.load().rule.limits != entry.rule.limits;
        self.entry.store(entry);
        let mut state = self.state.lock();
        let due_later = |ticket: &Ticket| ticket.at > now && !ticket.probe;
        let waits = state.come_back.is_some_and(|at| at > now);
        if new_limits && (waits || state.tickets.iter().any(due_later)) {
            state.tickets.retain(|ticket| !due_later(ticket));
            state.start_over = true;
        }
        state.come_back = None;
        drop(state);
        self.wake.notify_one();
    }

    /// Answers everything that is held with a refusal: the proxy stops.
    pub(super) fn stop(&self) {
        let mut state = self.state.lock();
        while let Some(waiter) = state.queue.pop() {
            waiter.tell.send(Outcome::Refused(Why::Stopping, None)).ok();
        }
        drop(state);
        self.wake.notify_one();
    }

    /// The next thing to do; also lets go what is due.
    fn step(self: &Arc<Self>, asking: bool) -> Step {
        let now = clock::now();
        let entry = self.entry.load_full();
        let mut state = self.state.lock();
        self.give_up_hopeless(&mut state, now);
        self.void_tickets(&mut state);
        self.release(&mut state, &entry, now);
        hand_back_surplus(&mut state, now);
        if state.queue.is_empty() && !asking {
            if !state.returned.is_empty() {
                return Step::Ask(self.ask(&mut state, 0, now));
            }
            state.pumping = false;
            state.tickets.clear();
            state.come_back = None;
            state.members = 1;
            return Step::End;
        }
        let ask_at = if asking { None } else { self.ask_at(&state, now) };
        let nothing_to_ask = entry.rule.limits.is_unlimited() && self.view.open_epoch().is_some();
        if ask_at.is_some_and(|at| at <= now) && !nothing_to_ask {
            let wanted = state.queue.len().saturating_sub(state.tickets.len());
            return Step::Ask(self.ask(&mut state, u32::try_from(wanted).unwrap_or(u32::MAX), now));
        }
        let due = state.tickets.front().map(|ticket| ticket.at);
        let wakes = [due, state.queue.first_deadline(), ask_at, state.spread];
        Step::Sleep(wakes.into_iter().flatten().filter(|at| *at > now).min())
    }

    /// Refuses those who would go too late: past their time, or before the cooldown ends or the next ticket comes.
    fn give_up_hopeless(&self, state: &mut State, now: Instant) {
        while let Some(waiter) = state.queue.pop_hopeless(now) {
            let why = if self.view.open_epoch().is_some() { Why::Limit } else { Why::Cooldown };
            waiter.tell.send(Outcome::Refused(why, state.come_back.map(|at| at - now))).ok();
        }
        if let Gateway::Cooling(until) = self.view.gateway() {
            while let Some(waiter) = state.queue.pop_hopeless(until) {
                waiter.tell.send(Outcome::Refused(Why::Cooldown, Some(until - now))).ok();
            }
        } else if let Some(at) = state.come_back.filter(|_| state.tickets.is_empty()) {
            while let Some(waiter) = state.queue.pop_hopeless(at) {
                waiter.tell.send(Outcome::Refused(Why::Limit, Some(at - now))).ok();
            }
        }
    }

    /// A trip voids the tickets in hand. Where the bucket is shared with scopes that go on, it gets them back.
    fn void_tickets(&self, state: &mut State) {
        let shared_bucket = self.scope.name.bucket != self.scope.name.cooldown;
        let State { tickets, returned, .. } = state;
        tickets.retain(|ticket| {
            let good = self.view.allows(ticket.epoch, ticket.probe);
            if !good && shared_bucket {
                returned.push(ticket.id);
            }
            good
        });
    }

    /// Hands due tickets to those next in line.
    fn release(self: &Arc<Self>, state: &mut State, entry: &Arc<Entry>, now: Instant) {
        if entry.rule.limits.is_unlimited() {
            self.release_unlimited(state, entry, now);
        }
        while let Some(ticket) = state.tickets.front().copied().filter(|ticket| ticket.at <= now) {
            let Some(waiter) = state.queue.pop() else { break };
            // Where the client has just left, the ticket is for the next in line.
            if self.send_off(waiter, entry, ticket) {
                state.tickets.pop_front();
                entry.metrics.tokens_granted.inc_by(u64::from(entry.rule.limits.cost));
            }
        }
        if state.queue.is_empty()
            && let Some(at) = state.tickets.iter().position(|ticket| ticket.probe)
            && let Some(ticket) = state.tickets.remove(at)
        {
            self.lose_probe(ticket);
        }
    }

    /// The probe was granted to somebody who has left: the store is told, so that another member's turn comes.
    fn lose_probe(self: &Arc<Self>, ticket: Ticket) {
        let report = Report {
            epoch: ticket.epoch,
            probe: ticket.id,
            answer: Answer::Nothing,
            oks: 0,
            draw: 0.0,
        };
        tokio::spawn(super::permit::deliver(Arc::clone(self), report, None));
    }

    /// Without a rate there are no tickets while the scope is open: all go, spread over the climb after a cooldown.
    fn release_unlimited(self: &Arc<Self>, state: &mut State, entry: &Arc<Entry>, now: Instant) {
        let Some(epoch) = self.view.open_epoch() else { return };
        let ramp = entry.rule.cooldown.as_ref().map_or(Duration::ZERO, |policy| policy.ramp);
        let end = self.view.opened().map(|opened| opened + ramp).filter(|end| *end > now);
        while !state.queue.is_empty() {
            if let (Some(end), Some(next)) = (end, state.spread)
                && next > now
                && next < end
            {
                return;
            }
            #[allow(clippy::cast_precision_loss)]
            let gap = end.map(|end| (end - now).div_f64(state.queue.len() as f64));
            let Some(waiter) = state.queue.pop() else { return };
            if self.send_off(waiter, entry, Ticket { at: now, id: 0, epoch, probe: false }) {
                state.spread = gap.map(|gap| now + gap);
            }
        }
        state.spread = None;
    }

    /// False where the client has just left.
    fn send_off(
        self: &Arc<Self>,
        waiter: Waiter,
        entry: &Arc<Entry>,
        Ticket { at, id, epoch, probe }: Ticket,
    ) -> bool {
        let grant = Grant::new(self, entry, epoch, id, probe).due(at);
        match waiter.tell.send(Outcome::Go(grant)) {
            Ok(()) => true,
            Err(Outcome::Go(grant)) => {
                grant.forget();
                false
            }
            Err(Outcome::Refused(..)) => false,
        }
    }

    /// When to ask for tickets; `None` where there is no need.
    fn ask_at(&self, state: &State, now: Instant) -> Option<Instant> {
        if state.queue.len() <= state.tickets.len() {
            return None;
        }
        match self.view.gateway() {
            Gateway::Cooling(until) | Gateway::Probing(until) => Some(until),
            Gateway::Ask => Some(now),
            Gateway::Open if state.tickets.is_empty() => Some(state.come_back.unwrap_or(now)),
            // The ask is to reach the store when half of the tickets are used, however long its way: so members with
            // slow lines get as much as those with fast ones.
            Gateway::Open => {
                let last = state.tickets.len().checked_sub(state.last_batch / 2 + 1);
                Some(last.map_or(now, |last| before(state.tickets[last].at, state.lead)))
            }
        }
    }

    fn ask(&self, state: &mut State, wanted: u32, now: Instant) -> Ask {
        let patience = state.queue.last_deadline().map_or(Duration::ZERO, |last| last - now);
        let arrival = now + state.lead;
        state.asked_with = state.tickets.iter().filter(|ticket| ticket.at > arrival).count();
        Ask {
            wanted,
            held: u32::try_from(state.asked_with).unwrap_or(u32::MAX),
            bound: clock::micros(patience),
            lease: clock::micros(self.shared.lease),
            drain: false,
            void: std::mem::take(&mut state.start_over),
            returned: std::mem::take(&mut state.returned),
            known: self.view.known(),
            rate: self.rate(),
        }
    }

    /// Takes over what the store answered.
    fn absorb(&self, granted: &Granted, took: Duration) {
        self.view.granted(granted);
        self.note_rate(granted);
        let count = granted.tickets.len();
        let probe = granted.phase == Phase::Probe;
        let mut state = self.state.lock();
        state.members = granted.members;
        state.lead = if state.lead.is_zero() { took / 2 } else { (state.lead * 7 + took / 2) / 8 };
        if granted.phase == Phase::Probing || granted.phase == Phase::Cooling {
            return;
        }
        let next = (granted.come_back > 0).then(|| moment(granted.come_back, granted.now));
        // Where tickets are in hand, the next are asked for when those are half used.
        let idle = count == 0 && state.tickets.is_empty();
        state.come_back = if idle { next } else { None };
        state.last_batch = state.asked_with + count;
        state.tickets.extend(granted.tickets.iter().map(|id| Ticket {
            at: moment(*id, granted.now),
            id: *id,
            epoch: granted.epoch,
            probe,
        }));
        state.tickets.make_contiguous().sort_by_key(|ticket| ticket.at);
    }

    /// The store is away and the rule file says `closed`.
    fn refuse_all(&self) {
        let mut state = self.state.lock();
        while let Some(waiter) = state.queue.pop() {
            waiter.tell.send(Outcome::Refused(Why::Store, Some(Duration::from_secs(1)))).ok();
        }
    }
}

/// Tickets for which nobody waits any more go back, if their time has not come.
fn hand_back_surplus(state: &mut State, now: Instant) {
    while state.tickets.len() > state.queue.len() {
        let Some(ticket) = state.tickets.pop_back() else { return };
        if ticket.at > now && !ticket.probe {
            state.returned.push(ticket.id);
        }
    }
}

fn before(moment: Instant, lead: Duration) -> Instant {
    moment.checked_sub(lead).unwrap_or(moment)
}

type Asking = Pin<Box<dyn Future<Output = Result<Granted, StoreError>> + Send>>;

/// Drives a lane while somebody waits.
async fn pump(lane: Arc<Lane>) {
    let mut news = lane.view.watch();
    let mut asking: Option<Asking> = None;
    let mut asked = clock::now();
    loop {
        let until = match lane.step(asking.is_some()) {
            Step::End => return,
            Step::Ask(ask) => {
                asking = Some(Box::pin(take(Arc::clone(&lane), ask)));
                asked = clock::now();
                continue;
            }
            Step::Sleep(until) => until,
        };
        tokio::select! {
            answer = answer(&mut asking) => {
                asking = None;
                match answer {
                    Ok(granted) => lane.absorb(&granted, asked.elapsed()),
                    Err(_) => lane.refuse_all(),
                }
            }
            () = sleep_until(until) => {}
            () = lane.wake.notified() => {}
            _ = news.changed() => {}
        }
    }
}

async fn take(lane: Arc<Lane>, ask: Ask) -> Result<Granted, StoreError> {
    let entry = lane.entry.load_full();
    lane.shared.store.take(&lane.scope, &entry.rule, &ask).await
}

async fn answer(asking: &mut Option<Asking>) -> Result<Granted, StoreError> {
    match asking {
        Some(asking) => asking.await,
        None => std::future::pending().await,
    }
}

async fn sleep_until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
