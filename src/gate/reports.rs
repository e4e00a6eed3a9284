//! Sends reports to the store, and emits the events of a scope, both of this member and of others.

use std::{sync::Arc, time::Duration};

use super::{Entry, active_scope::ActiveScope, local_cooldown::LocalCooldown};
use crate::{
    classify::verdict::Judgement,
    limiter::cooldown::{Answer, Blocks, Cause, Change, Report},
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
pub(super) fn probe_sent(scope: &ActiveScope, target: &Target) {
    scope.shared.events.emit(Event::ProbeSent {
        rule: Arc::clone(&scope.stored.name.rule),
        key: Arc::clone(&scope.cooldown.key),
        target: target.clone(),
    });
}

/// Applies the reply to a take. A cooldown without a probe ends here. Returns whether a probe in the reply may be sent.
pub(super) fn granted(scope: &ActiveScope, granted: &Granted, asked: Instant) -> bool {
    let effect = scope.cooldown.granted(granted, asked);
    if !effect.reopened {
        return effect.probe;
    }
    let entry = scope.entry();
    let paused = scope.cooldown.was_paused();
    if paused || entry.rule.cooldown.as_ref().is_some_and(|policy| !policy.probe) {
        scope.shared.events.emit(Event::Cleared {
            rule: Arc::clone(&entry.rule.name),
            key: Arc::clone(&scope.cooldown.key),
            by: ClearedBy::Time,
            who: None,
        });
    }
    effect.probe
}

/// Sends a report to the store, applies the change, and emits the events.
pub(super) async fn deliver(scope: Arc<ActiveScope>, report: Report, seen: Option<Seen>) {
    let entry = Arc::clone(&scope.entry());
    let asked = clock::now();
    let reported = scope.shared.store.report(&scope.stored, &entry.rule, &report).await;
    if report.probe != 0 {
        scope.cooldown.probe_ended();
    }
    let Ok(reported) = reported else { return };
    scope.cooldown.reported(&reported, asked);
    let (rule, key) = (Arc::clone(&entry.rule.name), Arc::clone(&scope.cooldown.key));
    let events = &scope.shared.events;
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
        Change::Tripped => tripped(&scope, &entry, &reported, seen),
        Change::Opened => {
            events.emit(Event::Cleared { rule, key, by: ClearedBy::Probe, who: None })
        }
        Change::None | Change::Stale | Change::Streak | Change::ProbeLost => {}
    }
}

/// This member's report tripped the scope.
fn tripped(scope: &ActiveScope, entry: &Entry, reported: &Reported, seen: Option<Seen>) {
    let trip = Trip {
        cause: reported.cause,
        by: seen
            .as_ref()
            .filter(|_| !reported.cause.is_some_and(Cause::is_pause))
            .map(|seen| seen.judgement.verdict),
        blocks: reported.blocks,
        streak: reported.streak,
        length: clock::from_micros(reported.length),
        answer: seen.map(|Seen { target, judgement }| Tripping {
            target,
            status: judgement.status,
            evidence: judgement.evidence,
        }),
        made_by_us: true,
        ..trip_of(entry, Arc::clone(&scope.shared.member))
    };
    scope.cooldown.reports_first(scope.cooldown.epoch());
    scope.cooldown.pauses(reported.cause);
    began(&scope.shared.events, entry, Arc::clone(&scope.cooldown.key), trip);
}

/// The scope was paused manually at this member.
pub(super) fn tripped_by_hand(
    scope: &ActiveScope,
    entry: &Entry,
    length: Duration,
    who: Option<Arc<str>>,
) {
    let trip = Trip {
        cause: Some(Cause::Manual),
        length,
        who,
        made_by_us: true,
        ..trip_of(entry, Arc::clone(&scope.shared.member))
    };
    scope.cooldown.reports_first(scope.cooldown.epoch());
    began(&scope.shared.events, entry, Arc::clone(&scope.cooldown.key), trip);
}

/// Applies news of another member. Each member emits the events of the whole fleet.
pub(super) fn heard(
    events: &Events,
    entry: &Entry,
    cooldown: Option<&LocalCooldown>,
    news: ScopeNews,
) {
    let key = news.key;
    let cleared = |by| Event::Cleared {
        rule: Arc::clone(&entry.rule.name),
        key: Arc::clone(&key),
        by,
        who: None,
    };
    match news.what {
        What::Tripped if cooldown.is_some_and(|cooldown| !cooldown.reports_first(news.epoch)) => {}
        What::Tripped => {
            if let Some(cooldown) = cooldown {
                cooldown.pauses(news.cause);
            }
            let trip = Trip {
                cause: news.cause,
                by: news.by,
                blocks: news.blocks,
                streak: news.peak,
                length: clock::from_micros(news.remaining),
                ..trip_of(entry, news.member)
            };
            began(events, entry, key, trip);
        }
        What::Opened => events.emit(cleared(ClearedBy::Probe)),
        What::Cleared => events.emit(cleared(ClearedBy::Manual)),
        What::Due | What::Streak => {}
    }
}

/// Reads a scope from the store. If the store has lost a cooldown that this member knows, the member reports the
/// cooldown at once, before the store grants anything to others.
pub(super) async fn look(scope: &ActiveScope) {
    let entry = Arc::clone(&scope.entry());
    let asked = clock::now();
    let Ok(peeked) = scope.shared.store.peek(&scope.stored).await else { return };
    let known = scope.cooldown.known(entry.rule.cooldown.as_ref());
    // The store must confirm news, so an unconfirmed trip is not reported to it.
    if !scope.cooldown.is_hinted() && known.is_urgent_for(peeked.epoch, peeked.until > 0) {
        let ask = Ask { known, ..Ask::default() };
        if let Ok(reply) = scope.shared.store.take(&scope.stored, &entry.rule, &ask).await {
            granted(scope, &reply, asked);
        }
    }
    found(&scope.shared.events, &entry, &scope.cooldown, &peeked, asked);
}

/// A scope that was read again is in a cooldown, but the news of the trip were lost.
fn found(
    events: &Events,
    entry: &Entry,
    cooldown: &LocalCooldown,
    peeked: &Peeked,
    asked: Instant,
) {
    cooldown.peeked(peeked, asked);
    if peeked.until > peeked.now && cooldown.reports_first(peeked.epoch) {
        cooldown.pauses(peeked.cause);
        let trip = Trip {
            cause: peeked.cause,
            by: peeked.by,
            blocks: peeked.blocks,
            streak: peeked.peak,
            length: clock::from_micros(peeked.until - peeked.now),
            ..trip_of(entry, Arc::from(""))
        };
        began(events, entry, Arc::clone(&cooldown.key), trip);
    }
}

/// A trip by this member, with nothing else known yet.
fn trip_of(entry: &Entry, member: Arc<str>) -> Trip {
    Trip {
        cause: None,
        by: None,
        blocks: Blocks::default(),
        streak: 0.0,
        length: Duration::ZERO,
        member,
        answer: None,
        observe: entry.rule.mode == Mode::Observe,
        who: None,
        made_by_us: false,
    }
}

fn began(events: &Events, entry: &Entry, key: Arc<str>, trip: Trip) {
    events.emit(Event::Tripped { rule: Arc::clone(&entry.rule.name), key, trip: Box::new(trip) });
}
