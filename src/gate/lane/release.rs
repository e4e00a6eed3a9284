//! Handing tickets out: due ones to who is next in line, void and surplus ones back.

use std::{sync::Arc, time::Duration};

use super::{Entry, Grant, Lane, Outcome, State, Ticket, Waiter};
use crate::{
    gate::tell,
    limiter::{
        bucket,
        cooldown::{Answer, Report},
        policy::Limits,
    },
    runtime::clock::Instant,
};

impl Lane {
    /// A trip voids the tickets in hand, and so does the time beyond the slack.
    pub(super) fn void_tickets(&self, state: &mut State, limits: &Limits, now: Instant) {
        let is_good =
            |ticket: &Ticket| self.view.allows(ticket.epoch, ticket.probe) && !ticket.is_late(now);
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

    /// A ticket that is not used: what counts it gets it back with the next ask.
    pub(super) fn void(&self, state: &mut State, limits: &Limits, ticket: Ticket) {
        let counted = self.shares_bucket() || !limits.quotas.is_empty();
        if counted && state.voided.len() < bucket::RETURNED {
            state.voided.push(ticket);
        }
    }

    /// Whether the bucket is shared with scopes that go on while this one is closed.
    fn shares_bucket(&self) -> bool {
        self.scope.name.bucket != self.scope.name.cooldown
    }

    /// The tickets to return now. A bucket of its own starts empty after a cooldown: a ticket for a moment to come would
    /// come on top, so only the quotas get it back, once it is due.
    pub(super) fn returned(&self, state: &mut State, now: Instant) -> Vec<i64> {
        let mut returned = std::mem::take(&mut state.returned);
        let may_go = |ticket: &mut Ticket| self.shares_bucket() || ticket.at < now;
        returned.extend(state.voided.extract_if(.., may_go).map(|ticket| ticket.id));
        returned
    }

    /// Hands due tickets to those next in line.
    pub(super) fn release(self: &Arc<Self>, state: &mut State, entry: &Arc<Entry>, now: Instant) {
        if !self.is_in_touch() {
            return;
        }
        if entry.rule.limits.is_unlimited() {
            self.release_unlimited(state, entry, now);
        }
        while let Some(ticket) = state.tickets.front().copied().filter(|ticket| ticket.at <= now) {
            let Some(waiter) = state.queue.pop() else { break };
            state.turns += 1;
            // Where the client has just left, the ticket is for the next in line.
            if self.send_off(waiter, entry, ticket) {
                state.tickets.pop_front();
                state.spare.note(now);
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
    pub(super) fn lose_probe(self: &Arc<Self>, ticket: Ticket) {
        let report = Report {
            epoch: ticket.epoch,
            probe: ticket.id,
            answer: Answer::Nothing,
            oks: 0,
            draw: 0.0,
            named: None,
        };
        tokio::spawn(tell::deliver(Arc::clone(self), report, None));
    }

    /// Without a rate there are no tickets while the scope is open: all go, spread over the climb after a cooldown.
    pub(super) fn release_unlimited(
        self: &Arc<Self>,
        state: &mut State,
        entry: &Arc<Entry>,
        now: Instant,
    ) {
        let Some(epoch) = self.free_epoch() else { return };
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
    pub(super) fn send_off(
        self: &Arc<Self>,
        waiter: Waiter,
        entry: &Arc<Entry>,
        ticket: Ticket,
    ) -> bool {
        let grant = Grant::new(self, entry, ticket);
        match waiter.tell.send(Outcome::Go(grant)) {
            Ok(()) => true,
            Err(Outcome::Go(grant)) => {
                grant.forget();
                false
            }
            Err(Outcome::Refused(..)) => false,
        }
    }
}

/// Tickets for which nobody waits any more go back, if their time has not come or a quota counts them; else they are for
/// those who come next.
pub(super) fn hand_back_surplus(state: &mut State, limits: &Limits, now: Instant) {
    while state.tickets.len() > state.queue.len() {
        let Some(ticket) = state.tickets.pop_back() else { return };
        if (ticket.at > now || !limits.quotas.is_empty()) && !ticket.probe {
            state.returned.push(ticket.id);
        } else {
            state.spare.keep(ticket);
        }
    }
}
