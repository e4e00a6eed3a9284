//! A lane: the held requests of one scope, its tickets in hand, and the task that lets them go.
//!
//! While somebody waits, one task (the pump) drives the lane: it asks the store for tickets, sleeps until the first is
//! due or the store said to come back, and hands each ticket to the next in line. It never polls, and it ends when
//! nobody waits. A ticket whose request has left goes to the next in line, or back to the store.

mod estimate;
mod next;
mod pump;
mod release;
mod spare;
mod waits;

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use self::spare::Spare;
use super::{
    Client, Entry, Outcome, Shared, Why,
    cache::Gateway,
    observe::Untold,
    permit::Grant,
    queue::{Queue, Unjudged, Waiter},
    tell,
    view::View,
};
use crate::{
    classify::verdict::Verdict,
    limiter::{cooldown::Known, learn},
    observability::event::Event,
    rules::Rule,
    runtime::clock::{self, Instant},
    store::{Ask, Phase, Scope},
};

/// How late a ticket may be used. Beyond that it is void, since its request would come on top of those that are due now:
/// this is how long a busy machine is late, and a process that was stopped is later.
pub(super) const SLACK: Duration = Duration::from_millis(100);

/// How long a ticket whose request has left is still good for the next in line.
const FRESH: Duration = Duration::from_millis(10);

/// How long a request waits for the first answer of the store that judges it, whatever its deadline: longer than any
/// call.
const FIRST_ANSWER: Duration = Duration::from_secs(2);

/// A moment at which one request may go.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ticket {
    /// On this process's clock.
    pub(super) at: Instant,
    /// On the store's clock: the name of the ticket; 0 where none is needed.
    pub(super) id: i64,
    pub(super) epoch: u64,
    pub(super) probe: bool,
}

impl Ticket {
    /// Whether its moment has passed by more than the slack. A probe has its own lease.
    pub(super) fn is_late(&self, now: Instant) -> bool {
        !self.probe && now.saturating_duration_since(self.at) > SLACK
    }
}

#[derive(Debug, Default)]
struct State {
    queue: Queue,
    tickets: VecDeque<Ticket>,
    returned: Vec<i64>,
    /// Tickets that may not be used any more and are to be returned once they are due.
    voided: Vec<Ticket>,
    /// Due ones for those who come next.
    spare: Spare,
    pumping: bool,
    /// Not before this moment is there another ticket.
    come_back: Option<Instant>,
    /// While the lease has run out and the store is away: not before this moment is it asked again.
    look_again: Option<Instant>,
    /// Tickets unused when the last ask reached the store.
    asked_with: usize,
    /// Whether that ask was for all that wait.
    asked_for_all: bool,
    /// With so many tickets left in hand it is time to ask for more.
    refill: usize,
    /// Most tickets to ask for at once; 0 = no bound of its own.
    most: usize,
    /// While the hand is filled: when to ask for more, but before its last ticket is due.
    fill_at: Option<Instant>,
    /// Whether the latest answer was this member's own: the store was away.
    alone: bool,
    /// Members that wait for the bucket, as last heard.
    members: u32,
    /// The limits have changed: what the bucket has handed out ahead under the old ones is void.
    start_over: bool,
    /// How long before a ticket is due here an ask must go so as to reach the store when the ticket is due there: a
    /// round trip, smoothed, since a ticket is due here later by the way of the answer.
    lead: Duration,
    /// How many requests had their turn.
    turns: u64,
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
    /// What `mode: observe` has not told yet.
    pub(super) untold: Mutex<Untold>,
    /// Epoch and ticket of a probe that went another way than through the proxy.
    pub(super) outside_probe: Mutex<Option<(u64, i64)>>,
    state: Mutex<State>,
    wake: Notify,
    /// What has been learned of the rate, as last heard.
    learned: Mutex<learn::Known>,
    /// When the bucket is full again if nobody else takes from it.
    full_at: Mutex<Option<Instant>>,
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A lane and its rule know each other: telling everything would never end.
        f.debug_struct("Lane").field("name", &self.scope.name).finish_non_exhaustive()
    }
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
            untold: Mutex::default(),
            outside_probe: Mutex::default(),
            state: Mutex::default(),
            wake: Notify::new(),
            learned: Mutex::default(),
            full_at: Mutex::default(),
        })
    }

    /// Leave without waiting, where that can be had without a call.
    pub(super) fn try_now(self: &Arc<Self>, entry: &Arc<Entry>) -> Option<Grant> {
        let rule = &entry.rule;
        if rule.opens_in().is_some() {
            return None;
        }
        let is_free = rule.limits.is_unlimited();
        let epoch = if is_free { self.free_epoch()? } else { self.view.open_epoch()? };
        if is_free && !self.is_spreading(rule) {
            let ticket = Ticket { at: clock::now(), id: 0, epoch, probe: false };
            return Some(Grant::new(self, entry, ticket));
        }
        let mut state = self.state.lock();
        if !state.queue.is_empty() || !state.tickets.is_empty() {
            return None;
        }
        if self.is_in_touch()
            && let Some(ticket) = state.spare.take(epoch, clock::now())
        {
            drop(state);
            entry.metrics.tokens_granted.inc_by(u64::from(rule.limits.cost));
            return Some(Grant::new(self, entry, ticket));
        }
        let returned = std::mem::take(&mut state.returned);
        let known = Known::open(epoch);
        let ask = Ask { wanted: 1, known, returned, ..Ask::default() };
        let asked = clock::now();
        let Some(granted) = self.shared.store.take_now(&self.scope, rule, &ask) else {
            state.returned = ask.returned;
            return None;
        };
        drop(state);
        let ticket = granted.tickets.first().copied();
        self.note_learned(granted.learned);
        if granted.phase != Phase::Open || granted.epoch != epoch {
            tell::granted(self, &granted, asked);
        }
        let ticket = ticket.filter(|_| granted.phase == Phase::Open)?;
        entry.metrics.tokens_granted.inc_by(u64::from(rule.limits.cost));
        let ticket = Ticket { at: asked, id: ticket, epoch: granted.epoch, probe: false };
        Some(Grant::new(self, entry, ticket))
    }

    /// What has been learned of the rate, as last heard.
    pub(super) fn learned(&self) -> learn::Known {
        *self.learned.lock()
    }

    /// Takes note of what has been learned; a change is told.
    fn note_learned(&self, told: learn::Known) {
        if told.turn == 0 {
            return;
        }
        let old = std::mem::replace(&mut *self.learned.lock(), told);
        let same = old.rate.to_bits() == told.rate.to_bits() && old.frozen == told.frozen;
        if old.turn > 0 && !same {
            self.tell_learned(old.rate, told, false, None);
        }
    }

    fn tell_learned(&self, from: f64, told: learn::Known, ours: bool, who: Option<Arc<str>>) {
        self.shared.events.emit(Event::RateLearned {
            rule: Arc::clone(&self.scope.name.rule),
            key: Arc::clone(&self.scope.name.bucket),
            from,
            told,
            ours,
            who,
        });
    }

    /// When the next ticket is due has changed: who waits for the moment that was told asks again.
    pub(super) fn ask_again(&self) {
        self.state.lock().come_back = None;
        self.wake.notify_one();
    }

    /// The store is back: who waits for a moment of this member's own share asks again.
    pub(super) fn store_is_back(&self) {
        let mut state = self.state.lock();
        if state.alone {
            state.come_back = None;
            drop(state);
            self.wake.notify_one();
        }
    }

    /// Takes over what a person has just done here.
    pub(super) fn steered(&self, told: learn::Known, who: Option<Arc<str>>) {
        let old = std::mem::replace(&mut *self.learned.lock(), told);
        self.tell_learned(old.rate, told, true, who);
        self.ask_again();
    }

    /// The epoch, if requests of a rule without a rate may go without a word of the store: a member that hears no news
    /// asks again and again.
    fn free_epoch(&self) -> Option<u64> {
        let hears = !self.shared.store.is_deaf() || self.view.is_recent();
        self.view.open_epoch().filter(|_| hears && self.is_in_touch())
    }

    /// Whether what this member knows of the cooldown is as recent as its contact with the store.
    pub(super) fn is_in_touch(&self) -> bool {
        // An embedded store is always in touch: most requests need no look at the rule.
        let Some(store) = self.shared.store.shared() else { return true };
        self.entry.load().rule.cooldown.is_none() || store.trusts(self.view.heard())
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

    /// How many requests are held that have no ticket yet.
    pub(super) fn unserved(&self) -> usize {
        let state = self.state.lock();
        state.queue.len().saturating_sub(state.tickets.len())
    }

    /// Whether anything would be lost with the lane: somebody waits, or a cooldown is in force or probed. One that is
    /// over is the store's to remember; a site that nobody asks for again would else be kept for ever.
    pub(super) fn is_idle(&self) -> bool {
        let state = self.state.lock();
        !state.pumping && state.queue.is_empty() && !self.view.is_closed()
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
        let now = clock::now();
        let mut state = self.state.lock();
        let ahead = if returns { 0 } else { state.queue.ahead_of(&client, rule.order) };
        if !returns && state.queue.len() >= rule.queue {
            let wait = self.estimate(&state, rule, ahead, now).map(|estimate| estimate.at - now);
            return Err((Why::Queue, wait));
        }
        let judged = self.refuse_hopeless(&state, rule, ahead, deadline)?;
        let deadline = if judged { deadline.max(now + FRESH) } else { deadline };
        state.queue.push(client, rule.order, Waiter { seq, deadline, since: now, tell }, returns);
        if !judged {
            let turns = state.turns;
            let latest = deadline.max(now + FIRST_ANSWER);
            state.queue.judge_later(seq, Unjudged { deadline, ahead, turns }, latest);
        }
        let start = !std::mem::replace(&mut state.pumping, true);
        drop(state);
        if start {
            tokio::spawn(pump::pump(Arc::clone(self)));
        } else {
            self.wake.notify_one();
        }
        Ok(outcome)
    }

    /// The client of a held request has left.
    pub(super) fn leave(&self, seq: u64) {
        self.entry.load().metrics.held_gone.inc();
        if self.state.lock().queue.remove(seq).is_some() {
            self.wake.notify_one();
        }
    }

    /// A ticket whose request left before it was sent goes to the next in line, at once or never: one that is used
    /// later than it was due would come on top of those that are due then.
    pub(super) fn take_back(self: &Arc<Self>, ticket: Ticket) {
        let entry = self.entry.load();
        let limits = &entry.rule.limits;
        if limits.is_unlimited() {
            return;
        }
        let is_fresh = ticket.at.elapsed() <= FRESH;
        let is_good = is_fresh && self.view.allows(ticket.epoch, false) && self.is_in_touch();
        let mut state = self.state.lock();
        if !is_good || state.queue.is_empty() {
            self.void(&mut state, limits, ticket);
            return;
        }
        state.tickets.push_front(ticket);
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
        if new_limits {
            // What a ticket of the old limits cost is not known to the new ones.
            state.returned.clear();
            state.voided.clear();
            state.spare = Spare::default();
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
}
