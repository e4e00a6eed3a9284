//! `mode: observe`: counts and reports what would have been done with a request, without doing it.

use std::{sync::Arc, time::Duration};

use super::{Client, Entry, Shared, bucket::Ticket, grant::Grant, lane::Lane, tell};
use crate::{
    observability::{event::Event, metrics::Observed},
    runtime::clock::{self, Instant},
    store::{Ask, Phase, Store as _},
};

/// Between two events about the same thing in a scope: the metrics count every request.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// Actions without a report so far.
pub(super) type Untold = [Tally; Observed::ALL.len()];

/// Requests that would have met one action.
#[derive(Debug, Default)]
pub(super) struct Tally {
    told: Option<Instant>,
    requests: u64,
    wait: Duration,
}

/// A permit for a request of a rule that only observes, with a ticket if there is one.
pub(super) async fn watch(
    shared: &Shared,
    entry: &Arc<Entry>,
    lane: &Arc<Lane>,
    client: &Client,
) -> Grant {
    if let Some(grant) = lane.queue.try_now(lane, entry) {
        return grant;
    }
    let (slot, is_slot_free) = lane.queue.count_slot();
    let no_ticket = || Ticket { at: clock::now(), id: 0, epoch: lane.view.epoch(), probe: false };
    if let Some(wait) = entry.rule.opens_in() {
        let refused = wait > entry.rule.max_wait;
        let would = if refused { Observed::Refuse } else { Observed::Hold };
        note(lane, entry, would, wait);
        return Grant::new(lane, entry, no_ticket(), slot);
    }
    let known = lane.view.known(entry.rule.cooldown.as_ref());
    let lease = shared.lease();
    let user = client.user().filter(|_| entry.rule.each_user.is_some()).cloned();
    let learned = lane.queue.learned();
    let ask = Ask { wanted: 1, known, lease, learned, user, ..Ask::default() };
    let asked = clock::now();
    let Ok(granted) = shared.store.take(&lane.scope, &entry.rule, &ask).await else {
        note(lane, entry, Observed::Refuse, Duration::ZERO);
        return Grant::new(lane, entry, no_ticket(), slot);
    };
    tell::granted(lane, &granted, asked);
    let wait = clock::from_micros(granted.come_back.saturating_sub(granted.now).max(0));
    let would = match granted.phase {
        Phase::Cooling | Phase::Probing => Some(Observed::Cooldown),
        Phase::Open if granted.tickets.is_empty() || !is_slot_free => Some(Observed::Hold),
        Phase::Open | Phase::Probe => None,
    };
    if let Some(would) = would {
        let refused = wait > entry.rule.max_wait;
        note(lane, entry, if refused { Observed::Refuse } else { would }, wait);
    }
    let id = granted.tickets.first().copied().unwrap_or(0);
    let probe = granted.phase == Phase::Probe;
    let ticket = Ticket { at: clock::now(), id, epoch: lane.view.epoch(), probe };
    Grant::new(lane, entry, ticket, slot)
}

fn note(lane: &Lane, entry: &Entry, action: Observed, wait: Duration) {
    entry.metrics.observed(action).inc();
    entry.metrics.observed_seconds(action).inc_by(wait.as_secs_f64());
    let (requests, wait) = {
        let mut untold = lane.untold.lock();
        let tally = &mut untold[action as usize];
        tally.requests += 1;
        tally.wait += wait;
        if tally.told.is_some_and(|told| told.elapsed() < TELL_EVERY) {
            return;
        }
        tally.told = Some(clock::now());
        (std::mem::take(&mut tally.requests), std::mem::take(&mut tally.wait))
    };
    lane.shared.events.emit(Event::Observed {
        rule: Arc::clone(&entry.rule.name),
        key: Arc::clone(&lane.view.key),
        action,
        requests,
        wait,
    });
}
