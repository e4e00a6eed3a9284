//! The slots of a bucket (`parallel`): how many requests this member may have in flight, and how many it has.
//!
//! The store allots them ([`crate::limiter::slots`]). A request takes a slot when it is released and keeps it until its
//! response is complete or has failed. The allotment is a lease. The scheduler runs as long as there is one: it renews
//! the lease, and returns slots that are not used. During a call no request takes a slot, because the store may give
//! the free slots to other members if the reply is lost.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use super::{ActiveScope, BucketQueue, FRESH, State};
use crate::{
    limiter::slots::LEASE,
    observability::event::Event,
    runtime::clock::{self, Instant},
    store::{SlotAsk, SlotsGranted, Store as _, StoreError},
};

/// How long unused slots are kept.
const IDLE: Duration = Duration::from_secs(1);
/// When to ask again while the store is away or its news do not reach this member.
const AGAIN: Duration = Duration::from_secs(1);
/// The shortest time to the next call after a reply that left this member short.
const SOON: Duration = Duration::from_millis(5);

/// This member's copy of the slots of a bucket.
#[derive(Debug, Default)]
pub(super) struct Slots {
    /// `parallel`.
    most: u32,
    /// The most requests that may be in flight at this member.
    allotted: u32,
    /// Requests in flight. Their slots hold this count, because a reload may remove the limit and set another one
    /// meanwhile.
    under_way: Arc<AtomicU32>,
    /// When the lease ends.
    until: Option<Instant>,
    /// How many leases have expired. A slot of an earlier lease is void unless its request was sent.
    lapsed: u64,
    /// Other members are short of slots, so each slot that becomes free is returned.
    contended: bool,
    /// The store may reserve slots for this member.
    listed: bool,
    asking: bool,
    /// A call is due now.
    due: bool,
    /// When to ask again if the latest reply left this member short.
    come_back: Option<Instant>,
    renew_at: Option<Instant>,
    last_used: Option<Instant>,
}

impl Slots {
    pub(super) fn new(most: u32) -> Self {
        Self { most, ..Self::default() }
    }

    /// The scheduler has ended together with its calls, so the next one calls again.
    pub(super) fn resumed(self) -> Self {
        Self { asking: false, due: true, ..self }
    }

    fn under_way(&self) -> u32 {
        self.under_way.load(Ordering::Relaxed)
    }

    fn is_on(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| until > now)
    }

    fn free(&self, now: Instant) -> usize {
        if self.is_on(now) { self.allotted.saturating_sub(self.under_way()) as usize } else { 0 }
    }

    /// Whether there is nothing to renew or to return.
    pub(super) fn is_idle(&self) -> bool {
        self.allotted == 0 && self.under_way() == 0 && !self.listed && !self.asking
    }
}

/// The slot of one request, from its release to the end of its response.
#[derive(Debug)]
pub struct Slot {
    queue: Arc<BucketQueue>,
    under_way: Arc<AtomicU32>,
    lapsed: u64,
    is_open: bool,
}

impl Slot {
    /// Whether the member's lease has not expired since.
    pub(in crate::gate) fn is_good(&self) -> bool {
        let state = self.queue.state.lock();
        state
            .slots
            .as_ref()
            .is_none_or(|slots| slots.lapsed == self.lapsed && slots.is_on(clock::now()))
    }

    /// The request was not released. The caller holds the lock of the queue.
    pub(super) fn cancel(mut self, state: &mut State) {
        self.end(state);
    }

    fn end(&mut self, state: &mut State) {
        if std::mem::take(&mut self.is_open) {
            self.under_way.fetch_sub(1, Ordering::Relaxed);
            state.slot_is_free();
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if self.is_open {
            let queue = Arc::clone(&self.queue);
            self.end(&mut queue.state.lock());
            // The scheduler runs while slots are in use. If it has failed, the next request starts another one.
            queue.wake.now();
        }
    }
}

impl State {
    /// Slots that a request may take now.
    pub(super) fn free_slots(&self, now: Instant) -> usize {
        self.slots.as_ref().map_or(usize::MAX, |slots| slots.free(now))
    }

    /// Requests that wait for nothing but a ticket.
    pub(super) fn ready(&self, now: Instant) -> usize {
        self.queue.ready().min(self.free_slots(now))
    }

    /// Requests that are ready and have no ticket in hand.
    pub(super) fn waiting(&self, now: Instant) -> usize {
        self.ready(now).saturating_sub(self.tickets.len())
    }

    /// Whether requests wait for slots alone.
    pub(super) fn is_full(&self, now: Instant) -> bool {
        let known = self.slots.as_ref().is_some_and(|slots| slots.is_on(now) && !slots.asking);
        known && self.free_slots(now) == 0
    }

    /// Whether the scope stays full if one of the requests under way here ends.
    pub(super) fn is_full_after_one(&self, now: Instant) -> bool {
        let Some(slots) = self.slots.as_ref().filter(|slots| slots.is_on(now)) else {
            return false;
        };
        let free = slots.allotted.saturating_sub(slots.under_way().saturating_sub(1)) as usize;
        let gets_more = slots.come_back.is_none() && slots.allotted < slots.most;
        !gets_more && free <= self.queue.ready()
    }

    /// Applies a reload. A new limit revokes nothing. Requests in flight without a slot are not counted.
    pub(super) fn limit_slots(&mut self, parallel: Option<u32>) {
        match (&mut self.slots, parallel) {
            (Some(slots), Some(most)) => {
                slots.due |= slots.most != most;
                slots.most = most;
                slots.come_back = None;
            }
            (slots, parallel) => *slots = parallel.map(Slots::new),
        }
    }

    fn slot_is_free(&mut self) {
        let Some(slots) = &mut self.slots else { return };
        slots.last_used = Some(clock::now());
        if slots.contended {
            slots.due = true;
            slots.allotted = slots.allotted.min(slots.under_way());
        }
    }

    /// Slots that are in use or promised to a ticket in hand, and slots that could be used.
    fn slots_wanted(&self) -> (u32, u32) {
        let Some(slots) = &self.slots else { return (0, 0) };
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        // A closed scope wants no slot before it has the probe. Another member may have it.
        let ready = self.queue.ready().saturating_add(self.probes.len());
        let promised = (self.tickets.len() + self.probes.len()).min(ready);
        let promised = count(promised).min(slots.allotted.saturating_sub(slots.under_way()));
        let wanted = count(ready).saturating_add(slots.under_way()).min(slots.most);
        let under_way = slots.under_way().saturating_add(promised);
        (under_way, wanted.max(under_way))
    }

    /// When to ask for slots or to return them; `None` if there is no need.
    pub(super) fn ask_for_slots_at(&self, now: Instant, is_stopping: bool) -> Option<Instant> {
        let slots = self.slots.as_ref().filter(|slots| !slots.asking)?;
        let (under_way, wanted) = self.slots_wanted();
        if slots.due && (slots.allotted > 0 || wanted > 0) {
            return Some(now);
        }
        let more = (wanted > slots.allotted || wanted > 0 && !slots.is_on(now))
            .then(|| slots.come_back.unwrap_or(now));
        // A member without slots leaves at once, so that the store reserves none for it.
        let keeps = slots.last_used.filter(|_| slots.allotted > 0 && !is_stopping);
        let unused = (wanted == 0 && under_way == 0 && (slots.allotted > 0 || slots.listed))
            .then(|| keeps.map_or(now, |used| used + IDLE));
        let renewed = slots.renew_at.filter(|_| slots.allotted > 0 || wanted > 0);
        [more, unused, renewed].into_iter().flatten().min()
    }
}

/// A call for slots in progress.
#[derive(Debug)]
pub(super) struct SlotCall {
    scope: Arc<ActiveScope>,
    ask: SlotAsk,
    sent: Instant,
}

impl BucketQueue {
    /// Takes a free slot for a request that is released; `None` if the rule has no `parallel`.
    pub(super) fn take_slot(self: &Arc<Self>, state: &mut State) -> Option<Slot> {
        let slots = state.slots.as_mut()?;
        slots.under_way.fetch_add(1, Ordering::Relaxed);
        slots.last_used = Some(clock::now());
        let under_way = Arc::clone(&slots.under_way);
        Some(Slot { queue: Arc::clone(self), under_way, lapsed: slots.lapsed, is_open: true })
    }

    /// Counts a request that is sent in any case (`mode: observe`). False if this member has as many requests in flight
    /// as the fleet may have. Those of other members are unknown.
    pub(in crate::gate) fn count_slot(self: &Arc<Self>) -> (Option<Slot>, bool) {
        let mut state = self.state.lock();
        let is_free = state.slots.as_ref().is_none_or(|slots| slots.under_way() < slots.most);
        (self.take_slot(&mut state), is_free)
    }

    /// Reports now and then that requests wait for slots.
    fn report_full(&self, state: &State, now: Instant) {
        let held = state.queue.ready();
        let Some(slots) = &state.slots else { return };
        if held == 0 || !state.is_full(now) || !self.full_reported.allows() {
            return;
        }
        self.shared.events.emit(Event::PlacesTaken {
            rule: Arc::clone(&self.entry.load().rule.name),
            key: Arc::clone(&self.key),
            parallel: slots.most,
            under_way: slots.under_way(),
            held,
        });
    }

    /// A call for slots, recorded as in progress.
    fn slot_call(&self, state: &mut State, now: Instant) -> Option<SlotCall> {
        let (under_way, wanted) = state.slots_wanted();
        let scope = state.latest.clone()?;
        let slots = state.slots.as_mut()?;
        if slots.until.is_some_and(|until| until <= now) {
            slots.lapsed += 1;
        }
        slots.asking = true;
        slots.due = false;
        slots.allotted = slots.allotted.min(under_way);
        let ask = SlotAsk { queue: Arc::clone(&self.name), most: slots.most, under_way, wanted };
        Some(SlotCall { scope, ask, sent: now })
    }

    /// The call for slots, or when it is due.
    pub(super) fn next_slots(
        &self,
        state: &mut State,
        now: Instant,
    ) -> Result<SlotCall, Option<Instant>> {
        self.report_full(state, now);
        let at = state.ask_for_slots_at(now, self.shared.is_stopping());
        let is_due = at.is_some_and(|at| at <= now);
        is_due.then(|| self.slot_call(state, now)).flatten().ok_or(at)
    }

    /// The limit is removed, so nothing is reserved for this queue any more.
    pub(super) fn leave_slots(&self, scope: &Arc<ActiveScope>, most: u32) {
        let (scope, queue) = (Arc::clone(scope), Arc::clone(&self.name));
        self.shared.store.spawn(async move {
            let ask = SlotAsk { queue, most, under_way: 0, wanted: 0 };
            // If the store is away, the lease ends there.
            scope.shared.store.slots(&scope.stored, &ask).await.ok();
        });
    }

    /// Applies the reply of the store.
    pub(super) fn allotted(&self, call: &SlotCall, answer: Result<SlotsGranted, StoreError>) {
        let now = clock::now();
        let is_deaf = self.shared.store.is_deaf();
        let mut state = self.state.lock();
        let Some(slots) = &mut state.slots else {
            return self.leave_slots(&call.scope, call.ask.most);
        };
        slots.asking = false;
        slots.listed = answer.as_ref().is_ok_and(|granted| !granted.local && call.ask.wanted > 0);
        let Ok(granted) = answer else {
            slots.renew_at = Some(now + AGAIN);
            drop(state);
            self.refuse_held();
            return;
        };
        slots.allotted = granted.slots;
        slots.contended = granted.contended || is_deaf;
        slots.until = Some(call.sent + clock::from_micros(LEASE));
        let hears = !granted.local && !is_deaf;
        slots.renew_at =
            Some(if hears { call.sent + clock::from_micros(LEASE / 3) } else { now + AGAIN });
        slots.come_back = (call.ask.wanted > granted.slots).then(|| {
            let wait = clock::from_micros((granted.come_back - granted.now).max(0));
            now + if hears { wait.max(SOON) } else { AGAIN }
        });
        if state.is_full(now) {
            // It is unknown when a slot becomes free, so requests that may not wait are late now.
            for (seq, one) in state.queue.unjudged() {
                state.queue.set_judged(seq, one.deadline.max(now + FRESH));
            }
        }
    }

    /// Applies news of the slots. `queue` can have one; if it is empty, another queue is short of slots.
    pub(in crate::gate) fn hear_of_slots(&self, queue: &str) {
        if !queue.is_empty() && *queue != *self.name {
            return;
        }
        let mut state = self.state.lock();
        let (under_way, _) = state.slots_wanted();
        let Some(slots) = &mut state.slots else { return };
        if queue.is_empty() {
            slots.contended = true;
            slots.due |= slots.allotted > under_way;
        } else {
            slots.due = true;
        }
        drop(state);
        self.wake.now();
    }

    /// The store may have forgotten the slots in use, so they are reported again.
    pub(in crate::gate) fn report_slots(&self) {
        let mut state = self.state.lock();
        let Some(slots) = &mut state.slots else { return };
        slots.due |= slots.allotted > 0;
        drop(state);
        self.wake.now();
    }

    /// Slots that are used here, or wanted.
    pub(in crate::gate) fn slots_used(&self) -> u32 {
        self.state.lock().slots_wanted().1
    }

    /// Requests in flight at this member; 0 if the rule has no `parallel`.
    pub(in crate::gate) fn under_way(&self) -> u32 {
        self.state.lock().slots.as_ref().map_or(0, Slots::under_way)
    }

    /// Whether requests wait for those in flight.
    pub(in crate::gate) fn is_full(&self) -> bool {
        self.state.lock().is_full(clock::now())
    }
}

/// Asks the store.
pub(super) async fn ask(call: &SlotCall) -> Result<SlotsGranted, StoreError> {
    let scope = &call.scope;
    scope.shared.store.slots(&scope.stored, &call.ask).await
}
