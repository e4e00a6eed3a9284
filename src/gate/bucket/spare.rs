//! Spare tickets: if a bucket has plenty and requests come fast, one call takes the next tickets too.
//!
//! Without spare tickets each request would wait for a call, shared with concurrent requests, and under load the store
//! would run a script for every dozen requests. A call takes as many spare tickets as requests were released in the
//! last [`FRESH`]. They are valid for the same time, and unused ones are lost. So a scope with few requests takes none.
//! No limit is exceeded, because the store grants spare tickets like all others.

use std::collections::VecDeque;

use super::{FRESH, Ticket};
use crate::{limiter::policy::Limits, runtime::clock::Instant};

/// Spare tickets are at most this part of a full bucket, because unused ones are lost.
const PART: u32 = 100;

/// Tickets that are due, and the pace at which they are used.
#[derive(Debug, Default)]
pub(super) struct Spare {
    tickets: VecDeque<Ticket>,
    /// Whether the latest reply came from a bucket with enough tokens for the whole call.
    pub(super) plenty: bool,
    /// The start of the current counting period.
    since: Option<Instant>,
    /// Requests released in the current period, and in the previous one.
    went: usize,
    went_before: usize,
}

impl Spare {
    /// A request was released.
    pub(super) fn note(&mut self, now: Instant) {
        self.turn(now);
        self.went += 1;
    }

    /// Starts a new counting period if it is time.
    fn turn(&mut self, now: Instant) {
        let passed = self.since.map(|since| now.saturating_duration_since(since));
        if passed.is_some_and(|passed| passed < FRESH) {
            return;
        }
        let is_next = passed.is_some_and(|passed| passed < 2 * FRESH);
        self.went_before = if is_next { self.went } else { 0 };
        self.went = 0;
        self.since = Some(now);
    }

    /// How many tickets to request beyond those that are needed.
    pub(super) fn wanted(&mut self, limits: &Limits, now: Instant) -> usize {
        self.turn(now);
        // An unused spare ticket would be lost to the quota.
        if !self.plenty || !limits.quotas.is_empty() {
            return 0;
        }
        let most = usize::try_from(limits.burst / limits.cost.max(1) / PART).unwrap_or(usize::MAX);
        self.went_before.min(most)
    }

    /// Keeps a ticket without a waiting request.
    pub(super) fn keep(&mut self, ticket: Ticket) {
        if self.plenty {
            self.tickets.push_back(ticket);
        }
    }

    /// A valid ticket for a new request.
    pub(super) fn take(&mut self, epoch: u64, now: Instant) -> Option<Ticket> {
        let good = |ticket: &Ticket| {
            ticket.epoch == epoch && now.saturating_duration_since(ticket.at) <= FRESH
        };
        while let Some(ticket) = self.tickets.pop_front() {
            if good(&ticket) {
                self.note(now);
                return Some(ticket);
            }
        }
        None
    }
}
