//! Users with limits of their own (`each_user`).
//!
//! The queue asks for one ticket at a time, for the user whose turn it is. The store takes a token of the user and one
//! of the rule together, or none. A user without a token is blocked until its next one, and requests of others pass its
//! own.

use std::sync::Arc;

use super::{BucketQueue, Outcome, REPORT_EVERY, RefusalReason, State};
use crate::{
    gate::local_cooldown::moment,
    observability::event::Event,
    rules::{Order, Rule},
    runtime::clock::{self, Instant},
    store::Granted,
};

/// Whether the queue asks for one user at a time.
pub(super) fn are_limited(rule: &Rule) -> bool {
    rule.each_user.is_some()
}

/// The order of requests. Under a rule with `each_user`, users always take turns.
pub(super) fn order(rule: &Rule) -> Order {
    if are_limited(rule) { Order::Fair } else { rule.order }
}

impl BucketQueue {
    /// Applies the store's reply for a user. `asked` is the rule under which the call was sent.
    pub(super) fn apply_user_reply(
        &self,
        state: &mut State,
        asked: &Rule,
        user: Option<&Arc<str>>,
        granted: &Granted,
    ) {
        if !granted.tickets.is_empty() {
            state.user = user.map(Arc::clone);
        }
        let has_same_limits = asked.each_user == self.entry.load().rule.each_user;
        if let (true, true, Some(user)) = (granted.user_is_over, has_same_limits, user) {
            let until = moment(granted.come_back, granted.now);
            let held = block(state, user, until);
            self.report_user(state, user, until, held);
        }
    }

    /// Reports now and then that a user has reached its own limit.
    fn report_user(&self, state: &mut State, user: &Arc<str>, until: Instant, held: usize) {
        let now = clock::now();
        state.reported_users.retain(|_, at| now < *at + REPORT_EVERY);
        if state.reported_users.contains_key(user) {
            return;
        }
        state.reported_users.insert(Arc::clone(user), now);
        self.shared.events.emit(Event::UserOver {
            rule: Arc::clone(&self.entry.load().rule.name),
            key: Arc::clone(&self.key),
            user: Arc::clone(user),
            wait: until.saturating_duration_since(now),
            held,
        });
    }
}

/// Blocks a user that has no token before `until`. Requests of others pass its requests, and those that cannot wait are
/// refused. Returns how many wait.
fn block(state: &mut State, user: &Arc<str>, until: Instant) -> usize {
    let now = clock::now();
    let mut held = 0;
    for seq in state.queue.block(user, until) {
        let Some(deadline) = state.queue.deadline_of(seq) else { continue };
        if deadline >= until {
            state.queue.set_judged(seq, deadline);
            held += 1;
        } else if let Some(waiter) = state.queue.remove(seq) {
            let wait = Some(until.saturating_duration_since(now));
            waiter.sender.send(Outcome::Refused(RefusalReason::User, wait)).ok();
        }
    }
    held
}
