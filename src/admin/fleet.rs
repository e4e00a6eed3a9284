//! `GET /api/v1/fleet`: every member and every scope, from the store. `GET /api/v1/scopes/{scope}`:
//! one scope in detail.
//!
//! One read of the store, at most once a second, serves all clients; slow reads are less frequent.
//! A client that asks during a read waits briefly. If the read takes longer, the client gets the
//! previous result, or this member's own view.

use std::{
    cmp::Ordering as Order,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::{
    Json,
    extract::{Path, Query, State},
};
use http::StatusCode;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{
    Context,
    api::bad,
    history,
    reply::{self, Problem},
};
use crate::{
    admin::fleet_view,
    observability::{
        event::{Event, clean},
        status::{FleetScope, FleetStatus, MemberStatus},
    },
    runtime::clock::{self, Instant},
};

/// Least time between two reads of the store.
const MIN_INTERVAL: Duration = Duration::from_secs(1);
/// The time between two reads is at least so many times the time that a read takes.
const SHARE: u32 = 5;
/// How long a response waits for the store, so that a page loads quickly.
const BRIEF: Duration = Duration::from_millis(150);
/// How long it waits with `fresh`.
const FRESH: Duration = Duration::from_secs(5);
/// Scopes in a response without `limit`.
const LIMIT: usize = 200;
/// Most scopes in a response.
const MOST: usize = 10_000;
/// Events in the details of a scope.
const EVENTS: usize = 50;

/// The last result from the store.
#[derive(Debug)]
pub(super) struct Cache {
    seen: watch::Sender<Option<ReadResult>>,
    reading: AtomicBool,
    /// Why the last read failed.
    unread: Mutex<Option<String>>,
}

#[derive(Debug, Clone)]
struct ReadResult {
    at: Instant,
    took: Duration,
    fleet: Arc<FleetStatus>,
}

impl ReadResult {
    fn is_fresh(&self) -> bool {
        self.at.elapsed() < MIN_INTERVAL.max(self.took * SHARE)
    }
}

impl Cache {
    pub(super) fn new() -> Self {
        Self {
            seen: watch::Sender::new(None),
            reading: AtomicBool::new(false),
            unread: Mutex::default(),
        }
    }

    /// Discards the result after a manual change.
    pub(super) fn forget(&self) {
        self.seen.send_replace(None);
    }
}

/// The query parameters.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FleetQuery {
    /// Part of a scope's name.
    q: Option<String>,
    /// A state, or `closed` for cooling and probing.
    state: Option<String>,
    rule: Option<String>,
    /// Only scopes that this member reports.
    member: Option<String>,
    /// `held`, `streak`, `rate`, `remaining`, `name`; otherwise the most urgent scopes come first.
    sort: Option<String>,
    offset: Option<usize>,
    limit: Option<usize>,
    /// 1 waits longer for the store.
    fresh: Option<u8>,
}

/// `GET /api/v1/fleet`
pub(super) async fn fleet(
    State(cx): State<Arc<Context>>,
    Query(query): Query<FleetQuery>,
) -> Result<Json<FleetStatus>, Problem> {
    let order = order(query.sort.as_deref())?;
    let fleet = current_fleet(&cx, query.fresh == Some(1)).await;
    let mut scopes: Vec<&FleetScope> =
        fleet.scopes.iter().filter(|scope| query.wants(scope, &fleet)).collect();
    if let Some(order) = order {
        scopes.sort_by(|a, b| order(a, b));
    }
    let total = scopes.len();
    let limit = query.limit.unwrap_or(LIMIT).min(MOST);
    let shown = scopes.into_iter().skip(query.offset.unwrap_or(0)).take(limit).cloned().collect();
    Ok(Json(now(&cx, &fleet, shown, total)))
}

impl FleetQuery {
    fn wants(&self, scope: &FleetScope, fleet: &FleetStatus) -> bool {
        let facts = &scope.facts;
        let name = facts.name();
        let is = |wanted: &Option<String>, value: &str| {
            wanted.as_deref().is_none_or(|wanted| wanted.is_empty() || wanted == value)
        };
        let reports = |member: &str| {
            let found = fleet.members.iter().find(|known| known.name == member);
            found.is_some_and(|known| known.figures.scopes.contains_key(&name))
        };
        self.q.as_deref().is_none_or(|part| name.contains(&part.to_lowercase()))
            && is(&self.rule, &facts.rule)
            && (is(&self.state, facts.state.as_str())
                || self.state.as_deref() == Some("closed") && facts.state.is_closed())
            && self.member.as_deref().is_none_or(|member| member.is_empty() || reports(member))
    }
}

type Compare = fn(&FleetScope, &FleetScope) -> Order;

fn order(sort: Option<&str>) -> Result<Option<Compare>, Problem> {
    Ok(Some(match sort {
        None | Some("" | "state") => return Ok(None),
        Some("held") => |a, b| b.facts.held.cmp(&a.facts.held),
        Some("streak") => |a, b| b.facts.streak.total_cmp(&a.facts.streak),
        Some("sent") => |a, b| b.sent_per_s.total_cmp(&a.sent_per_s),
        Some("rate") => |a, b| {
            let rate = |scope: &FleetScope| scope.facts.rate_current.unwrap_or(f64::INFINITY);
            rate(b).total_cmp(&rate(a))
        },
        Some("remaining") => |a, b| b.facts.remaining_ms.cmp(&a.facts.remaining_ms),
        Some("name") => |a, b| a.facts.name().cmp(&b.facts.name()),
        Some(_) => {
            return Err(bad("sort: state, name, held, streak, sent, rate or remaining"));
        }
    }))
}

/// A response with the figures of `fleet`, some of its scopes, and this member's current state.
fn now(cx: &Context, fleet: &FleetStatus, scopes: Vec<FleetScope>, total: usize) -> FleetStatus {
    FleetStatus {
        responder: cx.responder(),
        whole: fleet.whole,
        unread: cx.fleet.unread.lock().clone(),
        summary: fleet.summary.clone(),
        members: fleet.members.clone(),
        rules: fleet.rules.clone(),
        scopes,
        scopes_total: total,
        more: fleet.more,
    }
}

/// The fleet, as recent as possible within the time limit.
async fn current_fleet(cx: &Arc<Context>, fresh: bool) -> Arc<FleetStatus> {
    if cx.gate.shared_store().is_none_or(|store| !store.is_up()) {
        return Arc::new(member_view(cx));
    }
    let mut seen = cx.fleet.seen.subscribe();
    let is_fresh = |seen: &Option<ReadResult>| seen.as_ref().is_some_and(ReadResult::is_fresh);
    let known = seen.borrow_and_update().clone();
    if let Some(known) = known.as_ref().filter(|known| known.is_fresh()) {
        return Arc::clone(&known.fleet);
    }
    if !cx.fleet.reading.swap(true, Ordering::AcqRel) {
        tokio::spawn(read(Arc::clone(cx)));
    }
    let wait = if fresh { FRESH } else { BRIEF };
    let read = tokio::time::timeout(wait, seen.wait_for(is_fresh)).await;
    let read = read.ok().and_then(|read| read.ok()?.as_ref().map(|seen| Arc::clone(&seen.fleet)));
    read.or(known.map(|known| known.fleet)).unwrap_or_else(|| Arc::new(member_view(cx)))
}

/// Reads the store.
async fn read(cx: Arc<Context>) {
    let start = clock::now();
    if let Some(store) = cx.gate.shared_store() {
        let survey = store.survey().await;
        *cx.fleet.unread.lock() = survey.as_ref().err().map(|error| clean(&error.to_string()));
        if let Ok(survey) = survey {
            let fleet = Arc::new(fleet_view::of_store(&survey, &cx.gate.rules()));
            let (at, took) = (clock::now(), start.elapsed());
            cx.fleet.seen.send_replace(Some(ReadResult { at, took, fleet }));
        }
    }
    cx.fleet.reading.store(false, Ordering::Release);
}

/// This member's own view.
fn member_view(cx: &Context) -> FleetStatus {
    let figures = cx.figures.latest();
    let is_only_member = cx.gate.shared_store().is_none();
    let name = cx.member.clone();
    let member = MemberStatus { name, up: true, heard_ms: 0, figures };
    fleet_view::of_member(&cx.gate.snapshot(), member, is_only_member, &cx.gate.rules())
}

/// `GET /api/v1/scopes/{scope}`
pub(super) async fn detail(
    State(cx): State<Arc<Context>>,
    Path(name): Path<String>,
) -> Result<Json<Value>, Problem> {
    let fleet = current_fleet(&cx, false).await;
    let Some(scope) = fleet.scopes.iter().find(|scope| scope.facts.name() == name) else {
        if name.ends_with("/cooldown") || name.ends_with("/rate") {
            return Err(reply::wrong_method().await);
        }
        let why = format!("the scope `{name}` is unknown");
        return Err(Problem::new(StatusCode::NOT_FOUND, why));
    };
    let own = cx.gate.snapshot().into_iter().find(|own| own.facts.name() == name);
    let recent = cx.events.recent();
    let of_scope = |event: &Event| event.scope().is_some_and(|scope| scope == name);
    let events: Vec<_> =
        recent.iter().rev().filter(|record| of_scope(&record.event)).take(EVENTS).collect();
    Ok(Json(json!({
        "scope": scope, "verdicts": own.map(|own| own.verdicts), "events": events,
        "plot": cx.history.lock().plot(&name), "step_s": history::STEP_S, "points": history::POINTS,
        "member": cx.member,
    })))
}
