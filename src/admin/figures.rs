//! The figures that this member publishes every second: rates, held requests, and the trips that it
//! caused.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;

use super::{Context, blocked::Recent, history::STEP_S};
use crate::observability::{
    event::Event,
    status::{MemberFigures, RateChange, ScopeFigures, ScopeStatus, TripStatus, scope_name},
};

/// Seconds per minute of figures.
const MINUTE: usize = 60;
/// Most scopes that a member publishes: some kilobytes per second.
const MOST_SCOPES: usize = 100;
/// Most trips and most rate changes that a member publishes.
const MOST_TRIPS: usize = 50;

/// The data behind the figures.
#[derive(Debug, Default)]
pub(super) struct Figures(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Requests, good pages and blocks since the start, one entry per second.
    seconds: VecDeque<[u64; 3]>,
    scopes: HashMap<String, Traffic>,
    latest: MemberFigures,
    /// How often they were updated.
    updates: u64,
}

/// What a scope had counted a second ago.
#[derive(Debug, Default)]
struct Traffic {
    sent: u64,
    recent: Recent,
}

impl Figures {
    /// The figures of the latest second.
    pub(super) fn latest(&self) -> MemberFigures {
        self.0.lock().latest.clone()
    }
}

/// Updates the figures every second and publishes them, for as long as it is polled.
pub(super) async fn run(cx: Arc<Context>) {
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        take(&cx);
        let Some(store) = cx.gate.shared_store() else { continue };
        if let Ok(figures) = serde_json::to_string(&cx.figures.latest()) {
            store.announce(figures).await;
        }
    }
}

/// Updates the figures.
pub(super) fn take(cx: &Context) {
    let scopes = cx.gate.snapshot();
    let settings = &cx.proxy.live().settings;
    let admin = settings.admin.as_ref().map(|admin| reachable(&admin.listen.to_string()));
    let mut state = cx.figures.0.lock();
    state.updates += 1;
    if state.seconds.len() > MINUTE {
        state.seconds.pop_front();
    }
    state.seconds.push_back(cx.metrics.totals());
    let (latest, first) = (cx.metrics.totals(), state.seconds[0]);
    let before = state.seconds.iter().rev().nth(1).copied().unwrap_or(latest);
    #[allow(clippy::cast_precision_loss, reason = "a figure for people")]
    let requests_per_s = latest[0].saturating_sub(before[0]) as f64;
    state.latest = MemberFigures {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        address: reachable(&settings.listen.to_string()),
        admin: admin.unwrap_or_default(),
        uptime_s: cx.uptime().as_secs(),
        ready: cx.is_ready(),
        store_up: cx.store_is_up(),
        bad_file: !cx.config.lock().problems.is_empty(),
        requests_per_s,
        pages_per_min: latest[1].saturating_sub(first[1]),
        blocks_per_min: latest[2].saturating_sub(first[2]),
        held: scopes.iter().map(|scope| scope.facts.held).sum(),
        scopes: busiest(&mut state.scopes, &scopes),
        trips: trips(cx),
        rates: rates(cx),
    };
    if state.updates % STEP_S == 1 {
        cx.history.lock().record(scopes);
    }
}

/// The scopes with the most held and sent requests, and then those with recent responses.
fn busiest(
    known: &mut HashMap<String, Traffic>,
    scopes: &[ScopeStatus],
) -> BTreeMap<String, ScopeFigures> {
    let mut busy = Vec::new();
    let mut now = HashMap::with_capacity(scopes.len());
    for scope in scopes {
        let name = scope.facts.name();
        let mut traffic = known
            .remove(&name)
            .unwrap_or_else(|| Traffic { sent: scope.sent, recent: Recent::default() });
        #[allow(clippy::cast_precision_loss, reason = "a figure for people")]
        let per_s = scope.sent.saturating_sub(traffic.sent) as f64;
        traffic.sent = scope.sent;
        traffic.recent.update(scope);
        let (responses, blocks) = (traffic.recent.responses(), traffic.recent.blocks());
        let (held, under_way) = (scope.facts.held, scope.facts.under_way);
        if held > 0 || under_way > 0 || responses >= 1.0 || per_s > 0.0 {
            busy.push((name.clone(), ScopeFigures { held, per_s, under_way, responses, blocks }));
        }
        now.insert(name, traffic);
    }
    *known = now;
    busy.sort_by(|(_, a), (_, b)| b.held.cmp(&a.held).then(b.per_s.total_cmp(&a.per_s)));
    busy.truncate(MOST_SCOPES);
    busy.into_iter().collect()
}

/// The latest trips that this member caused.
fn trips(cx: &Context) -> BTreeMap<String, TripStatus> {
    let mut trips = BTreeMap::new();
    for record in cx.events.recent().iter().rev() {
        let Event::Tripped { rule, key, trip } = &record.event else { continue };
        let name = scope_name(rule, key);
        if !trip.made_by_us || trips.contains_key(&name) {
            continue;
        }
        let blocks = trip.blocks.iter();
        let shown = TripStatus {
            at_ms: record.at_ms,
            by: trip.by().to_owned(),
            cause: trip.cause().to_owned(),
            blocks: blocks.map(|(verdict, n)| (verdict.as_str().to_owned(), n.into())).collect(),
            streak: trip.streak,
            url: trip
                .answer
                .as_ref()
                .map(|answer| crate::observability::event::shown(&answer.target)),
            status: trip.answer.as_ref().and_then(|answer| answer.status),
            evidence: trip.evidence(),
            member: cx.member.clone(),
            who: trip.who.as_deref().map(crate::observability::event::clean),
        };
        trips.insert(name, shown);
        if trips.len() == MOST_TRIPS {
            break;
        }
    }
    trips
}

/// The latest manual rate changes on this member.
fn rates(cx: &Context) -> BTreeMap<String, RateChange> {
    let mut rates = BTreeMap::new();
    for record in cx.events.recent().iter().rev() {
        let Event::RateLearned { rule, key, ours: true, who, .. } = &record.event else { continue };
        let who = who.as_deref().map(crate::observability::event::clean);
        rates.entry(scope_name(rule, key)).or_insert(RateChange { at_ms: record.at_ms, who });
        if rates.len() == MOST_TRIPS {
            break;
        }
    }
    rates
}

/// An address under which others reach the member. The host's name replaces "any address".
fn reachable(address: &str) -> String {
    let any = address.strip_prefix("0.0.0.0:").or_else(|| address.strip_prefix("[::]:"));
    let name = || std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    match (any, any.and_then(|_| name())) {
        (Some(port), Some(name)) => format!("{}:{port}", name.trim()),
        _ => address.to_owned(),
    }
}
