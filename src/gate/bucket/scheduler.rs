//! The task that drives a queue while requests wait. It sleeps until something is due.
//!
//! At most one call at a time requests tickets for the waiting requests, on behalf of the scope of the first one. A
//! scope that may be closed needs its own call in parallel: the reply says whether its requests may be sent, or
//! contains its probe. Slots need their own calls too ([`super::slots`]).

use std::{future::poll_fn, pin::Pin, sync::Arc, task::Poll, time::Duration};

use super::{
    ActiveScope, BucketQueue, CachedPhase, PendingCall, RefusalReason, SLACK, State, Ticket,
    refuse_all,
    release::{lose_probe, return_surplus},
    slots::{self, SlotCall, Slots},
    users,
};
use crate::{
    gate::{Outcome, local_cooldown::moment, reports},
    limiter::policy::Limits,
    rules::Rule,
    runtime::clock::{self, Instant},
    store::{Ask, Granted, Phase, SlotsGranted, Store, StoreError},
};

/// Most concurrent calls to the store. Further scopes take turns.
const CALLS_AT_ONCE: usize = 16;

/// How often the wall clock is read outside of a rule's hours.
const WALL_CLOCK: Duration = Duration::from_secs(60);

/// When to call again if the latest reply came from local mode and the lease has expired.
const AGAIN: Duration = Duration::from_millis(50);

/// The next action of the scheduler.
enum Step {
    /// Requests tickets from the store.
    Ask(Call),
    /// Requests slots from the store.
    AskForSlots(SlotCall),
    /// Sleeps until then, or until something happens.
    Sleep(Option<Instant>),
    /// Ends, because no request waits.
    End,
}

/// A call to the store.
pub(super) struct Call {
    scope: Arc<ActiveScope>,
    /// The rule when the call was sent. A reload may come before the reply.
    rule: Arc<Rule>,
    ask: Ask,
    /// When it was sent.
    pub(super) sent: Instant,
    /// Whether it covers all waiting requests.
    pub(super) for_all: bool,
    /// Tickets that are still unused when the call reaches the store.
    pub(super) unused: usize,
}

impl BucketQueue {
    /// The next action; also releases due requests.
    fn step(&self) -> Step {
        let now = clock::now();
        let entry = self.entry.load_full();
        let limits = &entry.rule.limits;
        let mut state = self.state.lock();
        if let Some(wait) = entry.rule.opens_in() {
            // Nothing is released yet, because replies in progress come first.
            let asking = !state.asking.is_empty();
            return if asking {
                Step::Sleep(None)
            } else {
                self.rest(&mut state, limits, now, wait)
            };
        }
        let change = self.wake.take_change();
        self.settle_all(&mut state, change, now);
        state.queue.unblock(now);
        self.give_up_hopeless(&mut state, now);
        self.void_tickets(&mut state, limits, now);
        self.release(&mut state, &entry, now);
        return_surplus(&mut state, limits, now);
        if state.asking.is_empty()
            && state.ready(now) == 0
            && !state.returned.is_empty()
            && let Some(scope) = self.to_return_for(&mut state)
        {
            return Step::Ask(self.call(&mut state, scope, 0, true, now));
        }
        let slots_at = match self.next_slots(&mut state, now) {
            Ok(call) => return Step::AskForSlots(call),
            Err(at) => at,
        };
        if state.queue.is_empty() && state.asking.is_empty() {
            state.tickets.clear();
            state.come_back = None;
            state.look_again = None;
            state.members = 1;
            state.most = 0;
            state.fill_at = None;
            return state.rest(slots_at);
        }
        let mut wakes = [
            slots_at,
            state.queue.first_unblocked(),
            state.tickets.front().map(|ticket| ticket.at),
            state.probes.iter().map(|(_, ticket)| ticket.at).min(),
            // A request whose deadline is this very moment is not late yet.
            state.queue.first_deadline().map(|at| at + Duration::from_nanos(1)),
            state.spread,
            None,
            None,
        ];
        if state.asking.len() < CALLS_AT_ONCE {
            match self.next_closed(&state, now) {
                Some((at, scope)) if at <= now => {
                    let wanted = self.wanted_for(&mut state, &scope, limits, now);
                    return Step::Ask(self.call(&mut state, scope, wanted, false, now));
                }
                next => wakes[6] = next.map(|(at, _)| at),
            }
            let ask_at = self.ask_at(&state, limits, now);
            if ask_at.is_some_and(|at| at <= now)
                && let Some(scope) = state.queue.next_scope().cloned()
            {
                return Step::Ask(self.call_for_ready(&mut state, scope, &entry.rule, now));
            }
            wakes[7] = ask_at;
        }
        Step::Sleep(wakes.into_iter().flatten().filter(|at| *at > now).min())
    }

    /// The scope on whose behalf tickets are returned while no request is ready. If scopes share the bucket it must be
    /// open, because a closed scope accepts nothing.
    fn to_return_for(&self, state: &mut State) -> Option<Arc<ActiveScope>> {
        if self.only.is_some() {
            return state.latest.clone().filter(|_| state.queue.is_empty());
        }
        let scope = state.latest.clone().filter(|scope| scope.usable_epoch().is_some());
        if scope.is_none() {
            state.returned.clear();
        }
        scope
    }

    /// The next action outside of the rule's hours: nothing is sent, and requests that cannot wait for the opening are
    /// refused.
    fn rest(&self, state: &mut State, limits: &Limits, now: Instant, wait: Duration) -> Step {
        let opens = now + wait;
        while let Some(waiter) = state.queue.pop_hopeless(opens) {
            waiter.sender.send(Outcome::Refused(RefusalReason::Hours, Some(wait))).ok();
        }
        // The tickets will be in the past. Quotas get their tokens back with the next call.
        while let Some(ticket) = state.tickets.pop_front() {
            self.void(state, limits, ticket);
        }
        state.probes.drain(..).for_each(|(scope, ticket)| lose_probe(scope, ticket));
        state.come_back = None;
        let slots_at = match self.next_slots(state, now) {
            Ok(call) => return Step::AskForSlots(call),
            Err(at) => at,
        };
        if state.queue.is_empty() {
            return state.rest(slots_at);
        }
        // The wall clock may be set in the meantime.
        let opens = opens.min(now + WALL_CLOCK);
        Step::Sleep(Some(slots_at.map_or(opens, |at| at.min(opens))))
    }

    /// The parked scope for the next call, and its time.
    fn next_closed(&self, state: &State, now: Instant) -> Option<(Instant, Arc<ActiveScope>)> {
        let free =
            |scope: &&Arc<ActiveScope>| !state.asking.iter().any(|asked| asked.scope == **scope);
        let closed = state.queue.parked().filter(free);
        let at = |scope: &Arc<ActiveScope>| match scope.cooldown.phase() {
            CachedPhase::Cooling(until) | CachedPhase::Probing(until) | CachedPhase::Due(until)
                if scope.is_in_touch() =>
            {
                until
            }
            _ if scope.is_in_touch() => now,
            _ => state.look_again.unwrap_or(now),
        };
        closed
            .map(|scope| (at(scope), scope))
            .min_by_key(|(at, _)| *at)
            .map(|(at, scope)| (at, Arc::clone(scope)))
    }

    /// How many tickets to request on behalf of a closed scope: one if it may be its probe.
    fn wanted_for(
        &self,
        state: &mut State,
        scope: &Arc<ActiveScope>,
        limits: &Limits,
        now: Instant,
    ) -> usize {
        if scope.is_due() {
            return 1;
        }
        // The next user is unknown until the scope is open.
        if users::are_limited(&self.entry.load().rule) {
            return 0;
        }
        let waiting = state.waiting(now) + state.queue.of_scope(scope);
        let wanted = if state.most > 0 { waiting.min(state.most) } else { waiting };
        wanted.max(1) + state.spare.wanted(limits, now)
    }

    /// When to request tickets for the ready requests; `None` if there is no need.
    fn ask_at(&self, state: &State, limits: &Limits, now: Instant) -> Option<Instant> {
        let asks =
            |asked: &PendingCall| asked.for_ready || state.queue.next_scope() == Some(&asked.scope);
        if state.waiting(now) == 0 || limits.is_unlimited() || state.asking.iter().any(asks) {
            return None;
        }
        // Nobody waits for a ticket that the store cannot grant: the failed call refuses the requests.
        if self.shared.store.refuses() {
            return Some(now);
        }
        if state.tickets.is_empty() {
            return Some(state.come_back.unwrap_or(now));
        }
        // One ticket for one user at a time.
        if users::are_limited(&self.entry.load().rule) {
            return None;
        }
        // The call should reach the store when this many tickets are used, whatever its latency. So members with slow
        // connections get as much as members with fast ones.
        let due = |ticket: usize| before(state.tickets[ticket].at, state.lead);
        let count = state.tickets.len();
        Some(match count.checked_sub(state.refill + 1) {
            Some(ticket) => due(ticket),
            None => state.fill_at.map_or(now, |at| at.min(due(count - 1))),
        })
    }

    /// A call for the ready requests, on behalf of the first of them.
    fn call_for_ready(
        &self,
        state: &mut State,
        scope: Arc<ActiveScope>,
        rule: &Rule,
        now: Instant,
    ) -> Call {
        if users::are_limited(rule) {
            return self.call(state, scope, 1, true, now);
        }
        let waiting = state.waiting(now);
        let wanted = if state.most > 0 { waiting.min(state.most) } else { waiting };
        let spare = state.spare.wanted(&rule.limits, now);
        let mut call = self.call(state, scope, wanted + spare, true, now);
        call.for_all = wanted == waiting;
        call
    }

    /// A call on behalf of `scope`, recorded as in progress.
    fn call(
        &self,
        state: &mut State,
        scope: Arc<ActiveScope>,
        wanted: usize,
        for_ready: bool,
        now: Instant,
    ) -> Call {
        let longest_wait = state.queue.last_deadline().map_or(Duration::ZERO, |last| last - now);
        let arrival = now + state.lead;
        let unused = state.tickets.iter().filter(|ticket| ticket.at > arrival).count();
        let asked: usize = state.asking.iter().map(|asked| asked.wanted).sum();
        // A probe does not wait for tickets that other requests use.
        let held = if scope.is_due() { 0 } else { unused + asked };
        let rule = Arc::clone(&self.entry.load().rule);
        // A closed scope takes nothing back and changes no limits.
        let tells_bucket = for_ready || self.only.is_some();
        let ask = Ask {
            wanted: u32::try_from(wanted).unwrap_or(u32::MAX),
            held: u32::try_from(held).unwrap_or(u32::MAX),
            bound: clock::micros(longest_wait),
            lease: self.shared.lease(),
            drain: false,
            void: tells_bucket && std::mem::take(&mut state.start_over),
            returned: if tells_bucket { self.returned(state, now) } else { Vec::new() },
            known: scope.cooldown.known(rule.cooldown.as_ref()),
            learned: self.learned(),
            user: state.queue.next_user().filter(|_| for_ready && users::are_limited(&rule)),
        };
        state.asking.push(PendingCall { scope: Arc::clone(&scope), wanted, for_ready });
        let for_all = wanted >= state.queue.len().saturating_sub(state.tickets.len());
        Call { scope, rule, ask, sent: now, for_all, unused }
    }

    /// Applies the store's reply.
    fn apply_reply(&self, call: &Call, granted: &Granted) {
        let Call { scope, sent: asked, .. } = call;
        let took = asked.elapsed();
        let may_probe = reports::granted(scope, granted, *asked);
        self.note_learned(granted.learned);
        let entry = self.entry.load();
        let rule: &Rule = &entry.rule;
        let now = clock::now();
        let mut state = self.state.lock();
        self.is_answered(&mut state, call);
        state.members = granted.members;
        state.local = granted.local;
        state.start_over |= granted.local && call.ask.void;
        state.look_again = (!scope.is_in_touch()).then(|| now + AGAIN);
        // Neither a failed call nor a local reply says anything about the latency.
        state.lead = match state.lead {
            _ if granted.local => Duration::ZERO,
            Duration::ZERO => took,
            lead => (lead * 7 + took) / 8,
        };
        self.settle(&mut state, scope, now);
        let served = granted.come_back == 0;
        // Even if the process was delayed, the reply gives the earliest times of its tickets.
        let in_time = granted.local || took <= self.shared.store.timeout() + SLACK;
        let due = if in_time { clock::now() } else { *asked };
        let probe = granted.phase == Phase::Probe;
        let epoch = if probe { granted.epoch } else { self.epoch_in_hand(granted.epoch) };
        let tickets = granted.tickets.iter().map(|id| Ticket {
            at: due + clock::from_micros(id - granted.now),
            id: *id,
            epoch,
            probe,
        });
        match granted.phase {
            Phase::Probing | Phase::Cooling | Phase::Due => {}
            Phase::Probe if !may_probe => {}
            Phase::Probe => {
                state.probes.extend(tickets.map(|ticket| (Arc::clone(scope), ticket)));
            }
            // Without a rate no tickets are needed while the scope is open.
            Phase::Open if rule.limits.is_unlimited() => {
                state.come_back = None;
                return;
            }
            Phase::Open => {
                let next = (!served).then(|| moment(granted.come_back, granted.now));
                // If there are tickets, more are requested when half of them are used.
                let idle = granted.tickets.is_empty() && state.tickets.is_empty();
                state.come_back = if idle && !granted.user_is_over { next } else { None };
                if users::are_limited(rule) {
                    let user = call.ask.user.as_ref();
                    self.apply_user_reply(&mut state, &call.rule, user, granted);
                }
                self.take_turns(&mut state, call, granted);
                state.spare.plenty = !granted.is_ahead() && !granted.local;
                state.tickets.extend(tickets);
                state.tickets.make_contiguous().sort_by_key(|ticket| ticket.at);
                if call.rule.limits != rule.limits {
                    self.forget_old_limits(&mut state, (&call.rule.limits, &rule.limits), now);
                    return;
                }
            }
        }
        self.judge(&mut state, rule, scope, served);
    }

    /// A call is over.
    fn is_answered(&self, state: &mut State, call: &Call) {
        state.asking.retain(|asked| asked.scope != call.scope);
    }

    /// A call got no reply, and nothing may be decided without the store.
    fn has_failed(&self, call: &Call) {
        let mut state = self.state.lock();
        self.is_answered(&mut state, call);
        state.start_over |= call.ask.void;
        refuse(&mut state);
    }

    /// The store is away, and the rule file says `closed`.
    pub(super) fn refuse_held(&self) {
        refuse(&mut self.state.lock());
    }
}

impl State {
    /// No request waits: the scheduler ends, or sleeps as long as slots are in use.
    fn rest(&mut self, slots_at: Option<Instant>) -> Step {
        if self.slots.as_ref().is_some_and(|slots| !slots.is_idle()) {
            return Step::Sleep(slots_at);
        }
        self.has_scheduler = false;
        self.latest = None;
        Step::End
    }
}

/// Refuses the held requests, because no decision is possible.
fn refuse(state: &mut State) {
    refuse_all(state, RefusalReason::Store, Some(Duration::from_secs(1)));
}

fn before(moment: Instant, lead: Duration) -> Instant {
    moment.checked_sub(lead).unwrap_or(moment)
}

/// Guards a running scheduler. If it ends early (a panic, or the end of the runtime), nothing would drive its queue.
/// Then held requests are refused, its calls are forgotten, and the next request starts another scheduler.
struct SchedulerGuard {
    queue: Arc<BucketQueue>,
    ended: bool,
}

impl Drop for SchedulerGuard {
    fn drop(&mut self) {
        // After a regular end, the next scheduler may already be running.
        if self.ended {
            return;
        }
        let mut state = self.queue.state.lock();
        let kept = State {
            start_over: state.start_over,
            slots: state.slots.take().map(Slots::resumed),
            ..State::default()
        };
        let mut left = std::mem::replace(&mut *state, kept);
        drop(state);
        refuse(&mut left);
    }
}

#[allow(clippy::large_enum_variant, reason = "one at a time, and never kept")]
enum StoreReply {
    Tickets(Call, Result<Granted, StoreError>),
    Slots(SlotCall, Result<SlotsGranted, StoreError>),
}

type Asking = Pin<Box<dyn Future<Output = StoreReply> + Send>>;

/// Drives a queue while requests wait.
pub(super) async fn run(queue: Arc<BucketQueue>) {
    let mut guard = SchedulerGuard { queue: Arc::clone(&queue), ended: false };
    let mut asking: Vec<Asking> = Vec::new();
    loop {
        let until = match queue.step() {
            Step::End => {
                guard.ended = true;
                return;
            }
            Step::Ask(call) => {
                asking.push(Box::pin(take(Arc::clone(&queue), call)));
                continue;
            }
            Step::AskForSlots(call) => {
                asking.push(Box::pin(async {
                    let answer = slots::ask(&call).await;
                    StoreReply::Slots(call, answer)
                }));
                continue;
            }
            Step::Sleep(until) => until,
        };
        tokio::select! {
            answer = first_reply(&mut asking) => match answer {
                StoreReply::Tickets(call, Ok(granted)) => queue.apply_reply(&call, &granted),
                StoreReply::Tickets(call, Err(_)) => {
                    queue.has_failed(&call);
                }
                StoreReply::Slots(call, answer) => queue.allotted(&call, answer),
            },
            () = sleep_until(until) => {}
            () = queue.wake.wait() => {}
        }
    }
}

async fn take(queue: Arc<BucketQueue>, call: Call) -> StoreReply {
    let answer = queue.shared.store.take(&call.scope.stored, &call.rule, &call.ask).await;
    StoreReply::Tickets(call, answer)
}

/// The first reply to any of the calls in progress: at most [`CALLS_AT_ONCE`], and one for slots.
async fn first_reply(asking: &mut Vec<Asking>) -> StoreReply {
    poll_fn(|context| {
        for at in 0..asking.len() {
            if let Poll::Ready(answer) = asking[at].as_mut().poll(context) {
                drop(asking.swap_remove(at));
                return Poll::Ready(answer);
            }
        }
        Poll::Pending
    })
    .await
}

async fn sleep_until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
