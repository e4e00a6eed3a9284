//! A grant: the ticket, scope and slot that a request gets from the queue.
//!
//! A grant returns its unused parts on drop: its slot, its ticket if nothing was sent, or the right to probe. This is
//! common, because hyper drops the future of a request whose client disconnects.

use std::sync::Arc;

use super::{
    Entry,
    active_scope::ActiveScope,
    bucket::{Slot, Ticket},
    reports::deliver,
};
use crate::{
    limiter::cooldown::{Answer, Report},
    runtime::clock,
};

/// A ticket with its scope, passed from the queue to a request.
#[derive(Debug)]
pub(super) struct Grant {
    pub(super) scope: Arc<ActiveScope>,
    pub(super) entry: Arc<Entry>,
    pub(super) ticket: Ticket,
    pub(super) state: GrantState,
    /// Its slot under a rule with `parallel`. Boxed, because few rules have it.
    pub(super) slot: Option<Box<Slot>>,
}

/// How much of a grant is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GrantState {
    Unsent,
    Sent,
    Done,
}

impl Grant {
    pub(super) fn new(
        scope: &Arc<ActiveScope>,
        entry: &Arc<Entry>,
        ticket: Ticket,
        slot: Option<Slot>,
    ) -> Self {
        let (scope, entry) = (Arc::clone(scope), Arc::clone(entry));
        Self { scope, entry, ticket, state: GrantState::Unsent, slot: slot.map(Box::new) }
    }

    /// Drops the grant without returning its ticket, and returns its slot.
    pub(super) fn forget(mut self) -> Option<Slot> {
        self.state = GrantState::Done;
        self.slot.take().map(|slot| *slot)
    }

    pub(super) fn report(&self, answer: Answer, oks: u32) -> Report {
        let Ticket { id, epoch, probe, .. } = self.ticket;
        let probe = if probe { id } else { 0 };
        Report { probe, oks, draw: fastrand::f64(), ..Report::new(epoch, answer) }
    }

    /// Whether it may still be used: no cooldown has tripped since, and this member would know about it.
    pub(super) fn allows(&self) -> bool {
        let Ticket { epoch, probe, .. } = self.ticket;
        self.scope.cooldown.allows(epoch, probe) && self.scope.is_in_touch()
    }

    /// Whether its ticket is late by more than the slack.
    pub(super) fn is_late(&self) -> bool {
        self.ticket.id != 0 && self.ticket.is_late(clock::now())
    }

    /// Returns what was not used.
    pub(super) fn return_unused(&mut self) {
        self.slot = None;
        let unsent = self.state == GrantState::Unsent;
        if std::mem::replace(&mut self.state, GrantState::Done) == GrantState::Done {
            return;
        }
        if self.ticket.probe {
            // Without a runtime the process is ending, and the probe's lease expires.
            if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                let report = self.report(Answer::Nothing, 0);
                runtime.spawn(deliver(Arc::clone(&self.scope), report, None));
            }
        } else if unsent && self.ticket.id != 0 {
            self.scope.queue.take_back(&self.scope, self.ticket);
        }
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.return_unused();
    }
}
