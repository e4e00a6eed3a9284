//! Hands out tickets: due ones to the next request, void and surplus ones back to the store.

use std::{sync::Arc, time::Duration};

use super::{ActiveScope, BucketQueue, Entry, Grant, Outcome, State, Ticket, Waiter};
use crate::{
    gate::{bucket::users, reports},
    limiter::{
        bucket,
        cooldown::{Answer, Report},
        policy::Limits,
    },
    runtime::clock::Instant,
};

impl BucketQueue {
    /// Parks or resumes scopes according to their cooldowns. After a `change` this checks all scopes, otherwise only
    /// the parked ones.
    pub(super) fn settle_all(&self, state: &mut State, change: bool, now: Instant) {
        if change {
            let scopes: Vec<_> = state.queue.scopes().cloned().collect();
            scopes.iter().for_each(|scope| self.settle(state, scope, now));
            return;
        }
        let open = |scope: &&Arc<ActiveScope>| scope.usable_epoch().is_some();
        let open: Vec<_> = state.queue.parked().filter(open).cloned().collect();
        open.iter().for_each(|scope| state.queue.resume(scope));
    }

    /// Parks or resumes one scope. Requests that cannot wait for the end of a cooldown, or for the ticket of its probe,
    /// are refused.
    pub(super) fn settle(&self, state: &mut State, scope: &Arc<ActiveScope>, now: Instant) {
        if scope.usable_epoch().is_some() {
            state.queue.resume(scope);
            return;
        }
        state.queue.park(scope);
        if let Some((until, why)) = self.closed_until(scope) {
            for waiter in state.queue.take_hopeless(scope, until) {
                let wait = until.saturating_duration_since(now);
                waiter.sender.send(Outcome::Refused(why, Some(wait))).ok();
            }
        }
    }

    /// Voids tickets in hand that are late by more than the slack, and all of them if a trip closes every request of
    /// the bucket.
    pub(super) fn void_tickets(&self, state: &mut State, limits: &Limits, now: Instant) {
        let only = self.only.as_ref();
        let is_good = |ticket: &Ticket| {
            !ticket.is_late(now) && only.is_none_or(|cooldown| cooldown.allows(ticket.epoch, false))
        };
        if state.tickets.iter().all(is_good) {
            return;
        }
        for ticket in std::mem::take(&mut state.tickets) {
            if is_good(&ticket) {
                state.tickets.push_back(ticket);
            } else {
                self.void(state, limits, ticket);
            }
        }
    }

    /// An unused ticket. Quotas get their tokens back with the next call.
    pub(super) fn void(&self, state: &mut State, limits: &Limits, ticket: Ticket) {
        let counted = self.outlives_cooldown() || !limits.quotas.is_empty();
        if counted && state.voided.len() < bucket::BATCH as usize {
            state.voided.push(ticket);
        }
    }

    /// The limits have changed. Requests that wait for a time under the old limits, perhaps an hour away, get a new
    /// time. The store voids the tickets that it has handed out ahead, also those of requests that are gone.
    pub(super) fn forget_old_limits(
        &self,
        state: &mut State,
        (old, new): (&Limits, &Limits),
        now: Instant,
    ) {
        let mut tickets = std::mem::take(&mut state.tickets);
        let later = tickets.split_off(tickets.partition_point(|ticket| ticket.at <= now));
        state.tickets = tickets;
        state.come_back = None;
        state.start_over = true;
        // The store would refund the new cost.
        for ticket in later.into_iter().filter(|_| old.cost == new.cost) {
            self.void(state, new, ticket);
        }
    }

    /// Whether the bucket is not emptied by a cooldown of its own.
    fn outlives_cooldown(&self) -> bool {
        self.only.as_ref().is_none_or(|cooldown| cooldown.key != self.key)
    }

    /// The tickets to return now. If a bucket has a cooldown of its own, it starts empty after the cooldown. A returned
    /// future ticket would be extra, so only the quotas get it back, once it is due.
    pub(super) fn returned(&self, state: &mut State, now: Instant) -> Vec<i64> {
        let mut returned = std::mem::take(&mut state.returned);
        let may_go = |ticket: &mut Ticket| self.outlives_cooldown() || ticket.at < now;
        returned.extend(state.voided.extract_if(.., may_go).map(|ticket| ticket.id));
        returned
    }

    /// Hands due tickets to the next requests.
    pub(super) fn release(&self, state: &mut State, entry: &Arc<Entry>, now: Instant) {
        self.send_probes(state, entry, now);
        if entry.rule.limits.is_unlimited() {
            self.release_unlimited(state, entry, now);
        }
        while let Some(ticket) = state.tickets.front().copied().filter(|ticket| ticket.at <= now)
            && state.free_slots(now) > 0
        {
            let Some(scope) = state.queue.next_scope().cloned() else { break };
            let Some(epoch) = scope.usable_epoch() else {
                self.settle(state, &scope, now);
                continue;
            };
            let by_user = users::are_limited(&entry.rule);
            let waiter = if by_user {
                state.queue.pop_of_user(state.user.as_ref())
            } else {
                state.queue.pop()
            };
            let Some(waiter) = waiter else {
                // The user that the ticket was for has disconnected.
                state.tickets.pop_front();
                self.void(state, &entry.rule.limits, ticket);
                continue;
            };
            state.turns += 1;
            // If the client has just disconnected, the ticket is for the next request.
            if send_off(state, waiter, entry, Ticket { epoch, ..ticket }) {
                state.tickets.pop_front();
                state.spare.note(now);
                entry.metrics.tokens_granted.inc_by(u64::from(entry.rule.limits.cost));
            }
        }
    }

    /// Sends the probes that are due. A probe without a waiting request is lost.
    fn send_probes(&self, state: &mut State, entry: &Arc<Entry>, now: Instant) {
        for (scope, ticket) in std::mem::take(&mut state.probes) {
            if !scope.cooldown.allows(ticket.epoch, true) {
                self.void(state, &entry.rule.limits, ticket);
            } else if state.queue.of_scope(&scope) == 0 {
                lose_probe(scope, ticket);
            } else if ticket.at > now || !scope.is_in_touch() || state.free_slots(now) == 0 {
                state.probes.push((scope, ticket));
            } else if let Some(waiter) = state.queue.pop_of(&scope) {
                state.turns += 1;
                if send_off(state, waiter, entry, ticket) {
                    entry.metrics.tokens_granted.inc_by(u64::from(entry.rule.limits.cost));
                } else {
                    state.probes.push((scope, ticket));
                }
            }
        }
    }

    /// Without a rate there are no tickets while the scope is open: all requests are sent, spread over the ramp after a
    /// cooldown.
    fn release_unlimited(&self, state: &mut State, entry: &Arc<Entry>, now: Instant) {
        let ramp = entry.rule.cooldown.as_ref().map_or(Duration::ZERO, |policy| policy.ramp);
        while let Some(scope) = state.queue.next_scope().cloned() {
            let Some(epoch) = scope.usable_epoch() else {
                self.settle(state, &scope, now);
                continue;
            };
            if state.free_slots(now) == 0 {
                return;
            }
            let end = scope.cooldown.opened().map(|opened| opened + ramp).filter(|end| *end > now);
            if let (Some(end), Some(next)) = (end, state.spread)
                && next > now
                && next < end
            {
                return;
            }
            #[allow(clippy::cast_precision_loss)]
            let gap = end.map(|end| (end - now).div_f64(state.queue.len() as f64));
            let Some(waiter) = state.queue.pop() else { return };
            let ticket = Ticket { at: now, id: 0, epoch, probe: false };
            if send_off(state, waiter, entry, ticket) {
                state.spread = gap.map(|gap| now + gap);
            }
        }
        state.spread = None;
    }
}

/// Releases a request with a free slot. False if its client has just disconnected.
fn send_off(
    state: &mut State,
    waiter: Waiter<Arc<ActiveScope>>,
    entry: &Arc<Entry>,
    ticket: Ticket,
) -> bool {
    let slot = waiter.scope.queue.take_slot(state);
    let grant = Grant::new(&waiter.scope, entry, ticket, slot);
    match waiter.sender.send(Outcome::Go(grant)) {
        Ok(()) => true,
        Err(Outcome::Go(grant)) => {
            if let Some(slot) = grant.forget() {
                slot.cancel(state);
            }
            false
        }
        Err(Outcome::Refused(..)) => false,
    }
}

/// The probe was granted to a request that is cancelled. The store gets a report, so that another member can probe.
pub(super) fn lose_probe(scope: Arc<ActiveScope>, ticket: Ticket) {
    let report = Report { probe: ticket.id, ..Report::new(ticket.epoch, Answer::Nothing) };
    tokio::spawn(reports::deliver(scope, report, None));
}

/// Returns tickets without a waiting request if they are not due yet or count against a quota. Other tickets are kept
/// for the next requests.
pub(super) fn return_surplus(state: &mut State, limits: &Limits, now: Instant) {
    while state.tickets.len() > state.ready(now) {
        let Some(ticket) = state.tickets.pop_back() else { return };
        if ticket.at > now || !limits.quotas.is_empty() {
            state.returned.push(ticket.id);
        } else {
            state.spare.keep(ticket);
        }
    }
}
