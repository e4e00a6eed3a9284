//! What a request gets from the queue: its ticket, its scope and its slot.
//!
//! A grant that is dropped gives back what it holds: its ticket if nothing was sent, or the right to probe. hyper
//! drops the future of a request whose client disconnects, so this is common.

use std::sync::Arc;

use super::{
    Entry,
    bucket::{Slot, Ticket},
    lane::Lane,
    tell::deliver,
};
use crate::{
    limiter::cooldown::{Answer, Report},
    runtime::clock,
};

/// A ticket with its scope, which passes from the queue to a request.
#[derive(Debug)]
pub(super) struct Grant {
    pub(super) lane: Arc<Lane>,
    pub(super) entry: Arc<Entry>,
    pub(super) ticket: Ticket,
    pub(super) stage: Stage,
    /// One of those that `parallel` allows; boxed, as few rules have it.
    pub(super) slot: Option<Box<Slot>>,
}

/// How far a grant is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Unsent,
    Sent,
    Done,
}

impl Grant {
    pub(super) fn new(
        lane: &Arc<Lane>,
        entry: &Arc<Entry>,
        ticket: Ticket,
        slot: Option<Slot>,
    ) -> Self {
        let (lane, entry) = (Arc::clone(lane), Arc::clone(entry));
        Self { lane, entry, ticket, stage: Stage::Unsent, slot: slot.map(Box::new) }
    }

    /// Drops it without giving its ticket back, which is dealt with. Its slot is left.
    pub(super) fn forget(mut self) -> Option<Slot> {
        self.stage = Stage::Done;
        self.slot.take().map(|slot| *slot)
    }

    pub(super) fn report(&self, answer: Answer, oks: u32) -> Report {
        let Ticket { id, epoch, probe, .. } = self.ticket;
        let probe = if probe { id } else { 0 };
        Report { probe, oks, draw: fastrand::f64(), ..Report::new(epoch, answer) }
    }

    /// Whether it may still be used: no cooldown has tripped since, and this member would have heard of one.
    pub(super) fn allows(&self) -> bool {
        let Ticket { epoch, probe, .. } = self.ticket;
        self.lane.view.allows(epoch, probe) && self.lane.is_in_touch()
    }

    /// Whether the moment of its ticket has passed by more than the slack.
    pub(super) fn is_late(&self) -> bool {
        self.ticket.id != 0 && self.ticket.is_late(clock::now())
    }

    /// Gives back what it holds.
    pub(super) fn give_back(&mut self) {
        self.slot = None;
        let unsent = self.stage == Stage::Unsent;
        if std::mem::replace(&mut self.stage, Stage::Done) == Stage::Done {
            return;
        }
        if self.ticket.probe {
            // Without a runtime the process is ending, and the probe's lease with it.
            if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                let report = self.report(Answer::Nothing, 0);
                runtime.spawn(deliver(Arc::clone(&self.lane), report, None));
            }
        } else if unsent && self.ticket.id != 0 {
            self.lane.queue.take_back(&self.lane, self.ticket);
        }
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.give_back();
    }
}
