//! Sends reports to the store, and emits the events of a scope, from this member and others.

use std::sync::Arc;

use super::{Entry, lane::Lane, view::View};
use crate::{
    classify::verdict::Judgement,
    limiter::cooldown::{Answer, Blocks, Cause, Change, KnownPhase, Report},
    observability::event::{ClearedBy, Event, Events, ProbeResult, Trip, Tripping},
    rules::Mode,
    runtime::clock::{self, Instant},
    store::{Ask, Granted, Peeked, Reported, ScopeNews, Store as _, What},
    target::Target,
};

/// The response, for the events.
pub(super) struct Seen {
    pub(super) target: Target,
    pub(super) judgement: Judgement,
}

/// A probe is sent.
pub(super) fn probe_sent(lane: &Lane, target: &Target) {
    lane.shared.events.emit(Event::ProbeSent {
        rule: Arc::clone(&lane.scope.name.rule),
        key: Arc::clone(&lane.view.key),
        target: target.clone(),
    });
}

/// Applies the reply to a take. A cooldown without a probe ends here.
pub(super) fn granted(lane: &Lane, granted: &Granted, asked: Instant) {
    if !lane.view.granted(granted, asked) {
        return;
    }
    let entry = lane.entry();
    let paused = lane.view.was_paused();
    if paused || entry.rule.cooldown.as_ref().is_some_and(|policy| !policy.probe) {
        lane.shared.events.emit(Event::Cleared {
            rule: Arc::clone(&entry.rule.name),
            key: Arc::clone(&lane.view.key),
            by: ClearedBy::Time,
            who: None,
        });
    }
}

/// Sends a report to the store, applies the change, and emits the events.
pub(super) async fn deliver(lane: Arc<Lane>, report: Report, seen: Option<Seen>) {
    let entry = Arc::clone(&lane.entry());
    let asked = clock::now();
    let reported = lane.shared.store.report(&lane.scope, &entry.rule, &report).await;
    if report.probe != 0 {
        lane.view.probe_ended();
    }
    let Ok(reported) = reported else { return };
    lane.view.reported(&reported, asked);
    let (rule, key) = (Arc::clone(&entry.rule.name), Arc::clone(&lane.view.key));
    let events = &lane.shared.events;
    let probe = |result| Event::Probe { rule: Arc::clone(&rule), key: Arc::clone(&key), result };
    if report.probe != 0 {
        match (reported.change, report.answer) {
            (Change::Opened, _) => events.emit(probe(ProbeResult::Ok)),
            (Change::Tripped, _) => events.emit(probe(ProbeResult::Block)),
            (Change::ProbeLost, _) | (_, Answer::Nothing) => {
                events.emit(probe(ProbeResult::Lost));
            }
            _ => {}
        }
    }
    match reported.change {
        Change::Tripped => tripped(&lane, &entry, &reported, seen),
        Change::Opened => {
            events.emit(Event::Cleared { rule, key, by: ClearedBy::Probe, who: None })
        }
        Change::None | Change::Stale | Change::Streak | Change::ProbeLost => {}
    }
}

/// This member's report tripped the scope.
fn tripped(lane: &Lane, entry: &Entry, reported: &Reported, seen: Option<Seen>) {
    let trip = Trip {
        cause: reported.cause,
        by: seen
            .as_ref()
            .filter(|_| !reported.cause.is_some_and(Cause::is_pause))
            .map(|seen| seen.judgement.verdict),
        blocks: reported.blocks,
        streak: reported.streak,
        length: clock::from_micros(reported.length),
        member: Arc::clone(&lane.shared.member),
        answer: seen.map(|Seen { target, judgement }| Tripping {
            target,
            status: judgement.status,
            evidence: judgement.evidence,
        }),
        observe: entry.rule.mode == Mode::Observe,
        who: None,
        made_by_us: true,
    };
    lane.view.tells_first(lane.view.epoch());
    lane.view.pauses(reported.cause);
    began(&lane.shared.events, entry, Arc::clone(&lane.view.key), trip);
}

/// The scope was paused manually, at this member.
pub(super) fn tripped_by_hand(
    lane: &Lane,
    entry: &Entry,
    length: std::time::Duration,
    who: Option<Arc<str>>,
) {
    let trip = Trip {
        cause: Some(Cause::Manual),
        by: None,
        blocks: Blocks::default(),
        streak: 0.0,
        length,
        member: Arc::clone(&lane.shared.member),
        answer: None,
        observe: entry.rule.mode == Mode::Observe,
        who,
        made_by_us: true,
    };
    lane.view.tells_first(lane.view.epoch());
    began(&lane.shared.events, entry, Arc::clone(&lane.view.key), trip);
}

/// News of another member. Each member emits the events of the whole fleet.
pub(super) fn heard(events: &Events, entry: &Entry, view: Option<&View>, news: ScopeNews) {
    let key = news.key;
    let cleared = |by| Event::Cleared {
        rule: Arc::clone(&entry.rule.name),
        key: Arc::clone(&key),
        by,
        who: None,
    };
    match news.what {
        What::Tripped if view.is_some_and(|view| !view.tells_first(news.epoch)) => {}
        What::Tripped => {
            if let Some(view) = view {
                view.pauses(news.cause);
            }
            let trip = Trip {
                cause: news.cause,
                by: news.by,
                blocks: news.blocks,
                streak: news.peak,
                length: clock::from_micros(news.remaining),
                member: news.member,
                answer: None,
                observe: entry.rule.mode == Mode::Observe,
                who: None,
                made_by_us: false,
            };
            began(events, entry, key, trip);
        }
        What::Opened => events.emit(cleared(ClearedBy::Probe)),
        What::Cleared => events.emit(cleared(ClearedBy::Manual)),
        What::Due | What::Streak => {}
    }
}

/// Reads a scope from the store. If the store has lost a cooldown that this member knows, the
/// member reports it at once, before the store grants anything to others.
pub(super) async fn look(lane: &Lane) {
    let entry = Arc::clone(&lane.entry());
    let asked = clock::now();
    let Ok(peeked) = lane.shared.store.peek(&lane.scope).await else { return };
    let known = lane.view.known(entry.rule.cooldown.as_ref());
    // News are to be confirmed by the store, not brought to it.
    if !lane.view.is_hinted() && known.epoch > peeked.epoch && known.phase != KnownPhase::Open {
        let ask = Ask { known, ..Ask::default() };
        if let Ok(told) = lane.shared.store.take(&lane.scope, &entry.rule, &ask).await {
            granted(lane, &told, asked);
        }
    }
    found(&lane.shared.events, &entry, &lane.view, &peeked, asked);
}

/// A scope that was read again is cooling down, but the news of that trip were lost.
fn found(events: &Events, entry: &Entry, view: &View, peeked: &Peeked, asked: Instant) {
    view.peeked(peeked, asked);
    if peeked.until > peeked.now && view.tells_first(peeked.epoch) {
        view.pauses(peeked.cause);
        let trip = Trip {
            cause: peeked.cause,
            by: peeked.by,
            blocks: peeked.blocks,
            streak: peeked.peak,
            length: clock::from_micros(peeked.until - peeked.now),
            member: Arc::from(""),
            answer: None,
            observe: entry.rule.mode == Mode::Observe,
            who: None,
            made_by_us: false,
        };
        began(events, entry, Arc::clone(&view.key), trip);
    }
}

fn began(events: &Events, entry: &Entry, key: Arc<str>, trip: Trip) {
    events.emit(Event::Tripped { rule: Arc::clone(&entry.rule.name), key, trip: Box::new(trip) });
}
