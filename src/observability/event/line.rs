//! The log line of an event. `error`: a request was lost or a part is broken. `warn`: a trip, or a
//! problem that is worked around. `info`: start, stop, a single block and other expected changes.

use tracing::{error, info, warn};

use super::{
    Event, ProbeResult, Trip,
    text::{clean, evidence, shown},
};
use crate::{limiter::learn::NamedWall, observability::status::WallStatus};

/// Writes the line.
pub(super) fn write(event: &Event) {
    match event {
        Event::OutsideHours { rule, wait } => info!(
            rule = &**rule,
            wait_s = wait.as_secs_f64(),
            "requests came outside of the rule's hours"
        ),
        Event::StoreDown { kind, cause, server, reason, advice, mode, holds } => error!(
            kind,
            cause,
            server = clean(server),
            reason = clean(reason),
            on_failure = mode.as_str(),
            advice,
            "{}",
            if *holds {
                "the store has not been reached since the start: limited requests are held"
            } else {
                "the store is away"
            }
        ),
        Event::StoreUp => info!("the store works again"),
        Event::StoreNews { hears: true, .. } => info!("this proxy receives the fleet's news"),
        Event::StoreNews { hears: false, reason } => warn!(
            reason = reason.as_deref().map(clean),
            "this proxy does not receive the fleet's news; it asks the store before each request"
        ),
        Event::Reloaded { changes, needs_restart } => reloaded(changes, needs_restart),
        Event::ReloadFailed { problems } => {
            error!(
                problems = problems.len(),
                "the rule file cannot be used; the previous one stays in force"
            );
            for line in problems.iter().flat_map(|problem| problem.lines()) {
                error!("  {}", clean(line));
            }
        }
        Event::Warned { what } => what.lines().for_each(|line| warn!("{}", clean(line))),
        Event::Panicked { what } => {
            error!(panic = clean(what), "a task panicked; its connection is lost");
        }
        Event::Started { listen, admin, store, rules } => info!(
            %listen,
            admin = admin.map(tracing::field::display),
            store,
            rules,
            "ready"
        ),
        Event::Stopping { why, drain } => {
            info!(why, drain_s = drain.as_secs_f64(), "stopping: finishing requests in flight");
        }
        Event::Stopped { cut_off } => info!(cut_off, "stopped"),
        _ => of_a_scope(event, &event.scope().unwrap_or_default()),
    }
}

/// Reports how many lines were omitted in the last second.
pub(super) fn left_out(lines: u32) {
    warn!(lines, "too many blocks to log each; the metrics count them all");
}

fn of_a_scope(event: &Event, scope: &str) {
    match event {
        Event::Blocked { target, judgement, .. } => info!(
            scope,
            url = shown(target),
            verdict = judgement.verdict.as_str(),
            status = judgement.status,
            confidence = judgement.confidence.as_str(),
            evidence = judgement.evidence.as_deref().map(evidence),
            "blocked"
        ),
        Event::Tripped { trip, .. } => tripped(scope, trip),
        Event::Cleared { by, who, .. } => {
            info!(scope, by = by.as_str(), who = who.as_deref().map(clean), "open again")
        }
        Event::Probe { result: ProbeResult::Ok, .. } => {
            info!(scope, result = ProbeResult::Ok.as_str(), "probe")
        }
        Event::Probe { result, .. } => warn!(scope, result = result.as_str(), "probe"),
        Event::ProbeSent { target, .. } => {
            info!(scope, url = shown(target), "probe sent");
        }
        Event::Observed { action, requests, wait, .. } => info!(
            scope,
            action = action.as_str(),
            requests,
            wait_s = wait.as_secs_f64(),
            "observe: would have been applied"
        ),
        Event::RateLearned { from, learned, who, .. } => info!(
            scope,
            from,
            to = learned.rate,
            mark = (learned.mark > 0.0).then_some(learned.mark),
            why = learned.why.as_str(),
            frozen = learned.frozen,
            who = who.as_deref().map(clean),
            "rate changed"
        ),
        Event::Wall { wall, .. } => named_wall(scope, *wall),
        _ => of_a_limit(event, scope),
    }
}

fn of_a_limit(event: &Event, scope: &str) {
    match event {
        Event::PlacesTaken { parallel, under_way, held, .. } => info!(
            scope,
            parallel, under_way, held, "as many requests are under way as the rule allows"
        ),
        Event::UserOver { user, wait, held, .. } => info!(
            scope,
            user = clean(user),
            wait_s = wait.as_secs_f64(),
            held,
            "a user has reached its own limit"
        ),
        Event::SiteLimit { target, rate, .. } => {
            info!(scope, url = shown(target), rate, "the site announces its limit")
        }
        _ => {}
    }
}

fn named_wall(scope: &str, wall: Option<NamedWall>) {
    match wall.map(|wall| WallStatus::from(wall).to_string()) {
        Some(wall) => info!(scope, wall, "the site's limit is named"),
        None => info!(scope, "the named limit of the site is dropped"),
    }
}

fn tripped(scope: &str, trip: &Trip) {
    let answer = trip.answer.as_ref();
    warn!(
        scope,
        by = trip.by(),
        cause = trip.cause(),
        streak = trip.streak,
        blocks = %trip.blocks,
        length_s = trip.length.as_secs_f64(),
        member = clean(&trip.member),
        ours = trip.made_by_us,
        who = trip.who.as_deref().map(clean),
        url = answer.map(|answer| shown(&answer.target)),
        status = answer.and_then(|answer| answer.status),
        evidence = answer.and_then(|answer| answer.evidence.as_deref()).map(evidence),
        "{}",
        if trip.observe {
            "cooldown, observed only: this scope is not paused"
        } else {
            "cooldown: this scope is paused"
        }
    );
}

fn reloaded(changes: &[String], needs_restart: &[String]) {
    info!(changes = changes.len(), "the changed rule file is in force");
    for change in changes {
        info!("  {}", clean(change));
    }
    for key in needs_restart {
        warn!("  {}: takes effect after a restart", clean(key));
    }
}
