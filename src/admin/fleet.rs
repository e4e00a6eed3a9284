//! `GET /api/v1/fleet`: every member and every scope, as the store knows them. `GET /api/v1/scopes/{scope}`: one scope in
//! detail.
//!
//! The store is read at most once a second, however many look, and less often the longer that takes. Whoever comes
//! while it is being read waits a moment, and then gets what was read before, or what this member knows.

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

/// Least time between two looks at the store.
const EVERY: Duration = Duration::from_secs(1);
/// The store is read for at most this share of the time: one part in so many.
const SHARE: u32 = 5;
/// How long an answer waits for the store: a page that loads shall not be kept waiting.
const MOMENT: Duration = Duration::from_millis(150);
/// How long it waits if asked to (`fresh`).
const FRESH: Duration = Duration::from_secs(5);
/// Scopes in an answer that does not say how many.
const LIMIT: usize = 200;
/// Most scopes in an answer.
const MOST: usize = 10_000;
/// Events in the detail of a scope.
const EVENTS: usize = 50;

/// What was read of the store last.
#[derive(Debug)]
pub(super) struct Cache {
    seen: watch::Sender<Option<Seen>>,
    reading: AtomicBool,
    /// Why the latest look failed.
    unread: Mutex<Option<String>>,
}

#[derive(Debug, Clone)]
struct Seen {
    at: Instant,
    took: Duration,
    fleet: Arc<FleetStatus>,
}

impl Seen {
    fn is_fresh(&self) -> bool {
        self.at.elapsed() < EVERY.max(self.took * SHARE)
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

    /// Something was changed by hand: the next look is a new one.
    pub(super) fn forget(&self) {
        self.seen.send_replace(None);
    }
}

/// What of the fleet is asked for.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Asked {
    /// Part of a scope's name.
    q: Option<String>,
    /// A state, or `closed` for cooling and probing.
    state: Option<String>,
    rule: Option<String>,
    /// Only scopes that this member reports.
    member: Option<String>,
    /// `held`, `streak`, `rate`, `remaining`, `name`; else the most worrying first.
    sort: Option<String>,
    offset: Option<usize>,
    limit: Option<usize>,
    /// Waits for the store.
    fresh: Option<u8>,
}

/// `GET /api/v1/fleet`
pub(super) async fn fleet(
    State(cx): State<Arc<Context>>,
    Query(asked): Query<Asked>,
) -> Result<Json<FleetStatus>, Problem> {
    let order = order(asked.sort.as_deref())?;
    let fleet = look(&cx, asked.fresh == Some(1)).await;
    let mut scopes: Vec<&FleetScope> =
        fleet.scopes.iter().filter(|scope| asked.wants(scope, &fleet)).collect();
    if let Some(order) = order {
        scopes.sort_by(|a, b| order(a, b));
    }
    let total = scopes.len();
    let limit = asked.limit.unwrap_or(LIMIT).min(MOST);
    let shown = scopes.into_iter().skip(asked.offset.unwrap_or(0)).take(limit).cloned().collect();
    Ok(Json(now(&cx, &fleet, shown, total)))
}

impl Asked {
    fn wants(&self, scope: &FleetScope, fleet: &FleetStatus) -> bool {
        let name = scope.name();
        let is = |asked: &Option<String>, value: &str| {
            asked.as_deref().is_none_or(|asked| asked.is_empty() || asked == value)
        };
        let reports = |member: &str| {
            let found = fleet.members.iter().find(|known| known.name == member);
            found.is_some_and(|known| known.figures.scopes.contains_key(&name))
        };
        self.q.as_deref().is_none_or(|part| name.contains(&part.to_lowercase()))
            && is(&self.rule, &scope.rule)
            && (is(&self.state, scope.state.as_str())
                || self.state.as_deref() == Some("closed") && scope.state.is_closed())
            && self.member.as_deref().is_none_or(|member| member.is_empty() || reports(member))
    }
}

type Compare = fn(&FleetScope, &FleetScope) -> Order;

fn order(sort: Option<&str>) -> Result<Option<Compare>, Problem> {
    Ok(Some(match sort {
        None | Some("" | "state") => return Ok(None),
        Some("held") => |a, b| b.held.cmp(&a.held),
        Some("streak") => |a, b| b.streak.total_cmp(&a.streak),
        Some("sent") => |a, b| b.sent_per_s.total_cmp(&a.sent_per_s),
        Some("rate") => |a, b| {
            let rate = |scope: &FleetScope| scope.rate_current.unwrap_or(f64::INFINITY);
            rate(b).total_cmp(&rate(a))
        },
        Some("remaining") => |a, b| b.remaining_ms.cmp(&a.remaining_ms),
        Some("name") => |a, b| a.name().cmp(&b.name()),
        Some(_) => {
            return Err(bad("sort: state, name, held, streak, sent, rate or remaining"));
        }
    }))
}

/// The figures of `fleet` with some of its scopes, and what this member knows of itself now.
fn now(cx: &Context, fleet: &FleetStatus, scopes: Vec<FleetScope>, total: usize) -> FleetStatus {
    FleetStatus {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        member: cx.member.clone(),
        listen: cx.proxy.live().settings.listen.to_string(),
        at_ms: clock::unix_ms(),
        ready: cx.is_ready(),
        store: cx.gate.store(),
        config: cx.config.lock().clone(),
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

/// The fleet, as fresh as can be had in time.
async fn look(cx: &Arc<Context>, fresh: bool) -> Arc<FleetStatus> {
    if cx.gate.shared_store().is_none_or(|store| !store.is_up()) {
        return Arc::new(own(cx));
    }
    let mut seen = cx.fleet.seen.subscribe();
    let is_fresh = |seen: &Option<Seen>| seen.as_ref().is_some_and(Seen::is_fresh);
    let known = seen.borrow_and_update().clone();
    if let Some(known) = known.as_ref().filter(|known| known.is_fresh()) {
        return Arc::clone(&known.fleet);
    }
    if !cx.fleet.reading.swap(true, Ordering::AcqRel) {
        tokio::spawn(read(Arc::clone(cx)));
    }
    let patience = if fresh { FRESH } else { MOMENT };
    let read = tokio::time::timeout(patience, seen.wait_for(is_fresh)).await;
    let read = read.ok().and_then(|read| read.ok()?.as_ref().map(|seen| Arc::clone(&seen.fleet)));
    read.or(known.map(|known| known.fleet)).unwrap_or_else(|| Arc::new(own(cx)))
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
            cx.fleet.seen.send_replace(Some(Seen { at, took, fleet }));
        }
    }
    cx.fleet.reading.store(false, Ordering::Release);
}

/// What this member knows by itself.
fn own(cx: &Context) -> FleetStatus {
    let figures = cx.figures.latest();
    let alone = cx.gate.shared_store().is_none();
    let name = cx.member.clone();
    let member = MemberStatus { name, up: true, heard_ms: 0, figures };
    fleet_view::of_member(&cx.gate.snapshot(), member, alone, &cx.gate.rules())
}

/// `GET /api/v1/scopes/{scope}`
pub(super) async fn detail(
    State(cx): State<Arc<Context>>,
    Path(name): Path<String>,
) -> Result<Json<Value>, Problem> {
    let fleet = look(&cx, false).await;
    let Some(scope) = fleet.scopes.iter().find(|scope| scope.name() == name) else {
        if name.ends_with("/cooldown") || name.ends_with("/rate") {
            return Err(reply::wrong_method().await);
        }
        let why = format!("nothing is known of a scope `{name}`");
        return Err(Problem::new(StatusCode::NOT_FOUND, why));
    };
    let own = cx.gate.snapshot().into_iter().find(|own| own.name() == name);
    let recent = cx.events.recent();
    let of_scope = |event: &Event| event.scope().is_some_and(|scope| scope == name);
    let events: Vec<_> =
        recent.iter().rev().filter(|told| of_scope(&told.event)).take(EVENTS).collect();
    Ok(Json(json!({
        "scope": scope, "verdicts": own.map(|own| own.verdicts), "events": events,
        "plot": cx.live.plot(&name), "step_s": history::STEP_S, "points": history::POINTS,
        "member": cx.member,
    })))
}
