//! The log line of an event. `error`: a request was lost or something is broken; `warn`: recovered or degraded;
//! `info`: start, stop, trip and what else a person waits for.

use tracing::{error, info, warn};

use super::{
    Event, ProbeResult,
    text::{clean, shown},
};
use crate::{
    status::scope_name,
    verdict::{Evidence, Verdict},
};

/// Writes the line.
pub(super) fn write(event: &Event) {
    match event {
        Event::Blocked { .. }
        | Event::Tripped { .. }
        | Event::Cleared { .. }
        | Event::Probe { .. }
        | Event::RateLearned { .. } => of_a_scope(event),
        Event::StoreDown { reason, mode } => {
            warn!(reason = clean(reason), on_failure = mode.as_str(), "the store is away");
        }
        Event::StoreUp => info!("the store answers"),
        Event::Reloaded { changes, needs_restart } => reloaded(changes, needs_restart),
        Event::ReloadFailed { problems } => {
            error!(problems = problems.len(), "the changed rule file is bad; the old one stays");
            for problem in problems {
                error!("{}", indented(problem));
            }
        }
        Event::Warned { what } => warn!("{}", clean(what)),
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
            info!(why, drain_s = drain.as_secs_f64(), "stopping: finishing what is in flight");
        }
        Event::Stopped { cut_off } => info!(cut_off, "stopped"),
    }
}

/// Says how many lines were left out in the seconds before.
pub(super) fn left_out(lines: u32) {
    warn!(lines, "more blocks than log lines; the metrics count them all");
}

fn of_a_scope(event: &Event) {
    match event {
        Event::Blocked { rule, key, target, judgement } => warn!(
            scope = scope_name(rule, key),
            url = shown(target),
            verdict = judgement.verdict.as_str(),
            status = judgement.status,
            confidence = judgement.confidence.as_str(),
            evidence = judgement.evidence.as_deref().map(evidence),
            "blocked"
        ),
        Event::Tripped { rule, key, by, streak, length, member, evidence: seen, made_by_us } => {
            info!(
                scope = scope_name(rule, key),
                by = by.map_or("hand", Verdict::as_str),
                streak,
                length_s = length.as_secs_f64(),
                member = clean(member),
                ours = made_by_us,
                evidence = seen.as_deref().map(evidence),
                "cooldown: nothing of this scope is sent"
            );
        }
        Event::Cleared { rule, key, by } => {
            info!(scope = scope_name(rule, key), by = by.as_str(), "open again");
        }
        Event::Probe { rule, key, result } => {
            let scope = scope_name(rule, key);
            match result {
                ProbeResult::Ok => info!(scope, result = result.as_str(), "probe"),
                ProbeResult::Block | ProbeResult::Lost => {
                    warn!(scope, result = result.as_str(), "probe");
                }
            }
        }
        Event::RateLearned { rule, key, from, to } => {
            info!(scope = scope_name(rule, key), from, to, "learned a rate");
        }
        Event::StoreDown { .. }
        | Event::StoreUp
        | Event::Reloaded { .. }
        | Event::ReloadFailed { .. }
        | Event::Warned { .. }
        | Event::Panicked { .. }
        | Event::Started { .. }
        | Event::Stopping { .. }
        | Event::Stopped { .. } => {}
    }
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

/// The lines of one problem stay lines: a person compares the caret with the text above it.
fn indented(problem: &str) -> String {
    problem.lines().map(|line| format!("  {}", clean(line))).collect::<Vec<_>>().join("\n")
}

/// What a verdict rests on, in one phrase.
pub(super) fn evidence(evidence: &Evidence) -> String {
    let vendor = evidence.vendor.as_deref().map(|v| format!(" ({v})")).unwrap_or_default();
    clean(&format!("{}{vendor} in {}: {}", evidence.signature, evidence.place, evidence.excerpt))
}
