//! When a request would go, and which ones would go too late: those are refused at once.

use std::time::Duration;

use super::{Client, Gateway, Lane, Outcome, State, Why};
use crate::{
    clock::{self, Instant},
    rules::Rule,
};

impl Lane {
    pub(super) fn refuse_hopeless(
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
    pub(in crate::gate) fn rate_in_force(&self, rule: &Rule) -> Option<f64> {
        let learned = self.rate();
        let learns = rule.limits.learn.is_some() && learned > 0.0;
        rule.limits.rate.map(|rate| if learns { learned } else { rate })
    }

    /// When a newcomer would go, as far as this member can tell; `None` where nothing speaks for a wait.
    pub(super) fn estimate(&self, state: &State, rule: &Rule, client: &Client) -> Option<Instant> {
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

    /// Refuses those who would go too late: past their time, or before the cooldown ends or the next ticket comes.
    pub(super) fn give_up_hopeless(&self, state: &mut State, now: Instant) {
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
}
