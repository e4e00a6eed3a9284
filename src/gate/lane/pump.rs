//! The task that drives a lane while somebody waits: it asks, sleeps until something is due, and never polls.

use std::{pin::Pin, sync::Arc, time::Duration};

use super::{Gateway, Lane, Outcome, Queue, SLACK, State, Ticket, Why, release::hand_back_surplus};
use crate::{
    gate::{tell, view::moment},
    limiter::{bucket, policy::Limits},
    runtime::clock::{self, Instant},
    store::{Ask, Granted, Phase, Store, StoreError},
};

/// Tickets that all members together take in one turn of each: a fortieth of the thousand over which they are to be
/// equal.
const SHORT: usize = 25;
/// Calls per second that short turns may cost a scope; at higher rates, turns are longer.
const CALLS: f64 = 800.0;
/// Most to ask for at once while a hand is filled, in what flows in for its member during a round trip: one part is used
/// meanwhile, the other fills the hand within the horizon, whatever the line.
const FILL: f64 = 2.0;

/// How often the wall clock is read outside of a rule's hours.
const WALL_CLOCK: Duration = Duration::from_secs(60);

/// When to ask again where the latest answer was this member's own and its lease has run out.
const AGAIN: Duration = Duration::from_millis(50);

/// Longest wait that is planned, in seconds: as long as the longest `max_wait`.
const A_DAY: f64 = 86_400.0;

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
    /// The next thing to do; also lets go what is due.
    fn step(self: &Arc<Self>, asking: bool) -> Step {
        let now = clock::now();
        let entry = self.entry.load_full();
        let mut state = self.state.lock();
        if let Some(wait) = entry.rule.opens_in() {
            // Nobody is let go meanwhile; the answer that is on its way comes first.
            return if asking {
                Step::Sleep(None)
            } else {
                self.rest(&mut state, &entry.rule.limits, now, wait)
            };
        }
        self.give_up_hopeless(&mut state, now);
        self.void_tickets(&mut state, &entry.rule.limits, now);
        self.release(&mut state, &entry, now);
        hand_back_surplus(&mut state, &entry.rule.limits, now);
        if state.queue.is_empty() && !asking {
            if !state.returned.is_empty() {
                return Step::Ask(self.ask(&mut state, 0, now));
            }
            state.pumping = false;
            state.tickets.clear();
            state.come_back = None;
            state.look_again = None;
            state.members = 1;
            state.most = 0;
            state.fill_at = None;
            return Step::End;
        }
        let ask_at = if asking { None } else { self.ask_at(&state, now) };
        let nothing_to_ask = entry.rule.limits.is_unlimited() && self.free_epoch().is_some();
        if ask_at.is_some_and(|at| at <= now) && !nothing_to_ask {
            let waiting = state.queue.len().saturating_sub(state.tickets.len());
            let wanted = if state.most > 0 { waiting.min(state.most) } else { waiting };
            state.asked_for_all = wanted == waiting;
            let wanted = wanted + state.spare.wanted(&entry.rule.limits, now);
            return Step::Ask(self.ask(&mut state, u32::try_from(wanted).unwrap_or(u32::MAX), now));
        }
        let due = state.tickets.front().map(|ticket| ticket.at);
        // Who may wait until this very moment is not late yet.
        let late = state.queue.first_deadline().map(|at| at + Duration::from_nanos(1));
        let wakes = [due, late, ask_at, state.spread];
        Step::Sleep(wakes.into_iter().flatten().filter(|at| *at > now).min())
    }

    /// The next thing to do outside of the rule's hours: nothing goes, and whoever cannot wait for the opening is
    /// refused.
    fn rest(
        self: &Arc<Self>,
        state: &mut State,
        limits: &Limits,
        now: Instant,
        wait: Duration,
    ) -> Step {
        let opens = now + wait;
        while let Some(waiter) = state.queue.pop_hopeless(opens) {
            waiter.tell.send(Outcome::Refused(Why::Hours, Some(wait))).ok();
        }
        // Tickets are past by then. Quotas get theirs back with the next ask.
        while let Some(ticket) = state.tickets.pop_front() {
            if ticket.probe {
                self.lose_probe(ticket);
            } else {
                self.void(state, limits, ticket);
            }
        }
        state.come_back = None;
        if state.queue.is_empty() {
            state.pumping = false;
            return Step::End;
        }
        // The wall clock may be set meanwhile.
        Step::Sleep(Some(opens.min(now + WALL_CLOCK)))
    }

    /// When to ask for tickets; `None` where there is no need.
    fn ask_at(&self, state: &State, now: Instant) -> Option<Instant> {
        if state.queue.is_empty() {
            return None;
        }
        if !self.is_in_touch() {
            return Some(state.look_again.unwrap_or(now));
        }
        if state.queue.len() <= state.tickets.len() {
            return None;
        }
        match self.view.gateway() {
            Gateway::Cooling(until) | Gateway::Probing(until) => Some(until),
            Gateway::Ask => Some(now),
            Gateway::Open if state.tickets.is_empty() => Some(state.come_back.unwrap_or(now)),
            // The ask is to reach the store when so many of the tickets are used, however long its way: so members
            // with slow lines get as much as those with fast ones.
            Gateway::Open => {
                let due = |ticket: usize| before(state.tickets[ticket].at, state.lead);
                let count = state.tickets.len();
                Some(match count.checked_sub(state.refill + 1) {
                    Some(ticket) => due(ticket),
                    None => state.fill_at.map_or(now, |at| at.min(due(count - 1))),
                })
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
            lease: self.shared.lease(),
            drain: false,
            void: std::mem::take(&mut state.start_over),
            returned: self.returned(state, now),
            known: self.view.known(self.entry.load().rule.cooldown.as_ref()),
            learned: self.learned(),
        }
    }

    /// Takes over what the store answered.
    fn absorb(&self, granted: &Granted, asked: Instant) {
        let took = asked.elapsed();
        tell::granted(self, granted, asked);
        self.note_learned(granted.learned);
        let count = granted.tickets.len();
        let probe = granted.phase == Phase::Probe;
        let mut state = self.state.lock();
        state.members = granted.members;
        state.alone = granted.alone;
        state.look_again = (!self.is_in_touch()).then(|| clock::now() + AGAIN);
        // A call that failed says nothing of the line, and the member's own answer has none.
        state.lead = match state.lead {
            _ if granted.alone => Duration::ZERO,
            Duration::ZERO => took,
            lead => (lead * 7 + took) / 8,
        };
        let rule = Arc::clone(&self.entry.load().rule);
        let served = granted.come_back == 0;
        if granted.phase == Phase::Probing || granted.phase == Phase::Cooling {
            self.judge(&mut state, &rule, served);
            return;
        }
        let next = (granted.come_back > 0).then(|| moment(granted.come_back, granted.now));
        // Where tickets are in hand, the next are asked for when those are half used.
        let idle = count == 0 && state.tickets.is_empty();
        state.come_back = if idle { next } else { None };
        self.take_turns(&mut state, granted, asked);
        // Without a rate nobody needs a ticket while the scope is open.
        if granted.phase == Phase::Open && self.entry.load().rule.limits.is_unlimited() {
            return;
        }
        state.spare.plenty = !granted.is_ahead() && !granted.alone && granted.phase == Phase::Open;
        // An answer that this process read too late says when its tickets were due at the earliest.
        let in_time = granted.alone || took <= self.shared.store.timeout() + SLACK;
        let due = if in_time { clock::now() } else { asked };
        state.tickets.extend(granted.tickets.iter().map(|id| Ticket {
            at: due + clock::from_micros(id - granted.now),
            id: *id,
            epoch: granted.epoch,
            probe,
        }));
        state.tickets.make_contiguous().sort_by_key(|ticket| ticket.at);
        self.judge(&mut state, &rule, served);
    }

    /// How many tickets to hold and to ask for at a time. Alone, a member asks when half of its tickets are used; with
    /// others it asks more often and for fewer, so that the turns of all are short against a window of fairness. Who
    /// holds less than its share fills its hand at a pace that does not depend on its line.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a few tickets"
    )]
    fn take_turns(&self, state: &mut State, granted: &Granted, asked: Instant) {
        let count = granted.tickets.len();
        let in_hand = state.asked_with + count;
        let (members, cost) = (granted.members.max(1), self.entry.load().rule.limits.cost);
        let share = bucket::share(granted.rate, cost, members) as usize;
        let got_all = state.asked_for_all && granted.come_back == 0;
        let full = if got_all || count == 0 { in_hand } else { share };
        let rate = granted.rate / f64::from(cost);
        let at_least = ((rate / CALLS) as usize).max(1);
        let turn = if members > 1 { at_least.max(SHORT / members as usize) } else { share };
        let turn = turn.min(full.div_ceil(2));
        state.refill = full - turn;
        let own = rate / f64::from(members) * FILL;
        let worth = (own * state.lead.as_secs_f64()).ceil() as usize;
        // Who has just come may be one of many who do not know of each other yet: with the next answer it knows of them.
        let most = if state.fill_at.is_none() { (worth / 4).max(in_hand) } else { usize::MAX };
        let fill = worth.max(at_least).min(most).max(1);
        // Only what is handed out ahead is shared in turns: what is saved up, or has no rate, is taken at once.
        let paced = own > 0.0 && granted.is_ahead();
        state.most = match in_hand < state.refill {
            _ if !paced => 0,
            true => fill,
            false => worth.max(turn),
        };
        let filled = (fill as f64 / own).min(A_DAY);
        state.fill_at = paced.then(|| asked + Duration::from_secs_f64(filled));
    }

    /// The store is away and the rule file says `closed`.
    fn refuse_all(&self) {
        refuse(&mut self.state.lock().queue);
    }
}

/// No decision can be taken for those who wait.
fn refuse(queue: &mut Queue) {
    while let Some(waiter) = queue.pop() {
        waiter.tell.send(Outcome::Refused(Why::Store, Some(Duration::from_secs(1)))).ok();
    }
}

fn before(moment: Instant, lead: Duration) -> Instant {
    moment.checked_sub(lead).unwrap_or(moment)
}

type Asking = Pin<Box<dyn Future<Output = Result<Granted, StoreError>> + Send>>;

/// A pump at work. Where it ends before its time (it panicked, or the runtime is going), nobody would drive its lane any
/// more: who waits is refused, what it had begun is forgotten, and the next request starts another pump.
struct AtWork {
    lane: Arc<Lane>,
    ended: bool,
}

impl Drop for AtWork {
    fn drop(&mut self) {
        // Where it ended as it should, the next pump may be at work already.
        if self.ended {
            return;
        }
        let mut state = self.lane.state.lock();
        let start_over = state.start_over;
        let mut left = std::mem::replace(&mut *state, State { start_over, ..State::default() });
        drop(state);
        refuse(&mut left.queue);
    }
}

/// Drives a lane while somebody waits.
pub(super) async fn pump(lane: Arc<Lane>) {
    let mut at_work = AtWork { lane: Arc::clone(&lane), ended: false };
    let mut news = lane.view.watch();
    let mut asking: Option<Asking> = None;
    let mut asked = clock::now();
    loop {
        let until = match lane.step(asking.is_some()) {
            Step::End => {
                at_work.ended = true;
                return;
            }
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
                    Ok(granted) => lane.absorb(&granted, asked),
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
