//! `mode: observe`: counts and reports the action on a request without taking it.

use std::{sync::Arc, time::Duration};

use super::{
    Client, Entry, GateContext, active_scope::ActiveScope, bucket::Ticket, grant::Grant, reports,
};
use crate::{
    observability::{event::Event, metrics::Observed},
    runtime::clock::{self, Instant},
    store::{Ask, Phase, Store as _},
};

/// Minimum time between two events about the same fact in a scope. The metrics count every request.
const REPORT_EVERY: Duration = Duration::from_secs(10);

/// Observed actions without a report so far.
pub(super) type Unreported = [Tally; Observed::ALL.len()];

/// Requests with the same observed action.
#[derive(Debug, Default)]
pub(super) struct Tally {
    reported: Option<Instant>,
    requests: u64,
    wait: Duration,
}

/// A permit for a request of a rule that only observes, with a ticket if there is one.
pub(super) async fn watch(
    shared: &GateContext,
    entry: &Arc<Entry>,
    scope: &Arc<ActiveScope>,
    client: &Client,
) -> Grant {
    if let Some(grant) = scope.queue.try_now(scope, entry) {
        return grant;
    }
    let (slot, is_slot_free) = scope.queue.count_slot();
    let no_ticket =
        || Ticket { at: clock::now(), id: 0, epoch: scope.cooldown.epoch(), probe: false };
    if let Some(wait) = entry.rule.opens_in() {
        let refused = wait > entry.rule.max_wait;
        let would = if refused { Observed::Refuse } else { Observed::Hold };
        note(scope, entry, would, wait);
        return Grant::new(scope, entry, no_ticket(), slot);
    }
    let known = scope.cooldown.known(entry.rule.cooldown.as_ref());
    let lease = shared.lease();
    let user = client.user().filter(|_| entry.rule.each_user.is_some()).cloned();
    let learned = scope.queue.learned();
    let ask = Ask { wanted: 1, known, lease, learned, user, ..Ask::default() };
    let asked = clock::now();
    let Ok(granted) = shared.store.take(&scope.stored, &entry.rule, &ask).await else {
        note(scope, entry, Observed::Refuse, Duration::ZERO);
        return Grant::new(scope, entry, no_ticket(), slot);
    };
    let probe = reports::granted(scope, &granted, asked);
    let wait = clock::from_micros(granted.come_back.saturating_sub(granted.now).max(0));
    let would = match granted.phase {
        Phase::Cooling | Phase::Probing | Phase::Due => Some(Observed::Cooldown),
        Phase::Probe if !probe => Some(Observed::Cooldown),
        Phase::Open if granted.tickets.is_empty() || !is_slot_free => Some(Observed::Hold),
        Phase::Open | Phase::Probe => None,
    };
    if let Some(would) = would {
        let refused = wait > entry.rule.max_wait;
        note(scope, entry, if refused { Observed::Refuse } else { would }, wait);
    }
    let is_ours = probe || granted.phase == Phase::Open;
    let id = granted.tickets.first().copied().filter(|_| is_ours).unwrap_or(0);
    let ticket = Ticket { at: clock::now(), id, epoch: scope.cooldown.epoch(), probe };
    Grant::new(scope, entry, ticket, slot)
}

fn note(scope: &ActiveScope, entry: &Entry, action: Observed, wait: Duration) {
    entry.metrics.observed(action).inc();
    entry.metrics.observed_seconds(action).inc_by(wait.as_secs_f64());
    let (requests, wait) = {
        let mut unreported = scope.unreported.lock();
        let tally = &mut unreported[action as usize];
        tally.requests += 1;
        tally.wait += wait;
        if tally.reported.is_some_and(|at| at.elapsed() < REPORT_EVERY) {
            return;
        }
        tally.reported = Some(clock::now());
        (std::mem::take(&mut tally.requests), std::mem::take(&mut tally.wait))
    };
    scope.shared.events.emit(Event::Observed {
        rule: Arc::clone(&entry.rule.name),
        key: Arc::clone(&scope.cooldown.key),
        action,
        requests,
        wait,
    });
}
