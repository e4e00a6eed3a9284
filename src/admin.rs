//! The admin port: metrics, health, the live status page and a small API.
//!
//! It reads snapshots, and changes state only through named methods of the gate. The port has its
//! own listener, connection limit and time limits, so that it cannot slow down the proxy, nor the
//! proxy the port.

mod access;
mod api;
mod blocked;
mod figures;
mod fleet;
pub mod fleet_view;
mod history;
mod judge;
mod locate;
mod page;
mod probes;
mod reply;
mod scopes;
mod serve;
mod stream;
mod when;

use std::{
    cmp::Reverse,
    collections::BTreeMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use axum::{
    Router, middleware,
    routing::{get, post},
};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

pub use serve::serve;

use crate::{
    gate::Gate,
    observability::{
        event::Events,
        metrics::Metrics,
        status::{ConfigStatus, Responder, ScopeStatus, Status},
    },
    proxy,
    rules::{secret::Secret, settings::OnFailure},
    runtime::clock,
};

/// Most scopes in one response or on the page. `scopes_total` has the number of all.
const MAX_SCOPES: usize = 200;
/// Most event streams at once. Each costs a connection and a task.
const STREAMS: usize = 32;

/// The data that the handlers of the admin port use.
pub struct Context {
    /// The gate: its snapshots, and its methods for changes.
    pub gate: Arc<Gate>,
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// Recent and future events.
    pub events: Arc<Events>,
    /// The proxy, for its current settings.
    pub proxy: Arc<proxy::Context>,
    /// Every key of the rule file with its current value; secrets are `***`.
    pub values: ArcSwap<BTreeMap<String, String>>,
    /// The current rule file.
    pub config: Mutex<ConfigStatus>,
    /// The certificate (PEM) that clients must trust if a rule intercepts; `None` if no rule does.
    pub ca_pem: ArcSwap<Option<String>>,
    /// Required for everything except health, the page's own files and the CA certificate.
    pub token: Option<Secret>,
    /// Name of this member.
    pub member: String,
    /// Whether the proxy accepts clients.
    accepting: AtomicBool,
    started: clock::Instant,
    /// Limits the number of event streams.
    streams: Arc<Semaphore>,
    history: Mutex<history::History>,
    figures: figures::Figures,
    fleet: fleet::Cache,
    /// Cancelled when the process drains; ends all streams.
    stop: CancellationToken,
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("member", &self.member).finish_non_exhaustive()
    }
}

impl Context {
    /// The context of the admin port. `stop` ends its streams.
    #[must_use]
    pub fn new(
        proxy: Arc<proxy::Context>,
        config: ConfigStatus,
        values: BTreeMap<String, String>,
        stop: CancellationToken,
    ) -> Arc<Self> {
        let token = proxy.live().settings.admin.as_ref().and_then(|admin| admin.token.clone());
        Arc::new(Self {
            gate: Arc::clone(&proxy.gate),
            metrics: Arc::clone(&proxy.metrics),
            events: Arc::clone(&proxy.events),
            values: ArcSwap::from_pointee(values),
            config: Mutex::new(config),
            ca_pem: ArcSwap::from_pointee(None),
            token,
            member: proxy.gate.member().to_owned(),
            accepting: AtomicBool::new(false),
            started: clock::now(),
            streams: Arc::new(Semaphore::new(STREAMS)),
            history: Mutex::default(),
            figures: figures::Figures::default(),
            fleet: fleet::Cache::new(),
            stop,
            proxy,
        })
    }

    /// Sets whether the proxy accepts clients, which `/readyz` reports.
    pub fn set_accepting(&self, accepting: bool) {
        self.accepting.store(accepting, Ordering::Relaxed);
    }

    /// Whether requests would be served: the listener is open, the store has been reached since the
    /// start, and it works or is not required. A store that was never reached is probably
    /// misconfigured.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        let store = self.gate.store();
        let needs_store = store.on_failure.as_deref() == Some(OnFailure::Closed.as_str());
        self.accepting.load(Ordering::Relaxed)
            && store.reached
            && (self.store_is_up() || !needs_store)
    }

    /// Publishes this member's figures to the fleet, for as long as it is polled.
    pub async fn publish(self: Arc<Self>) {
        figures::run(self).await;
    }

    fn uptime(&self) -> Duration {
        clock::now().duration_since(self.started)
    }

    fn store_is_up(&self) -> bool {
        self.metrics.member.store_up.get() == 1
    }

    /// This member's own state.
    fn responder(&self) -> Responder {
        Responder {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            member: self.member.clone(),
            at_ms: clock::unix_ms(),
            listen: self.proxy.live().settings.listen.to_string(),
            ready: self.is_ready(),
            store: self.gate.store(),
            config: self.config.lock().clone(),
        }
    }

    /// The current status of this member.
    #[must_use]
    pub fn status(&self) -> Status {
        let mut scopes = self.gate.snapshot();
        let scopes_total = scopes.len();
        most_urgent_first(&mut scopes, MAX_SCOPES);
        Status {
            responder: self.responder(),
            uptime_s: self.uptime().as_secs(),
            members: self.metrics.member.members.get(),
            client_connections: self.metrics.member.client_connections.get(),
            upstream_connections: self.metrics.member.upstream_connections.get(),
            scopes,
            scopes_total,
        }
    }
}

/// Keeps the most urgent scopes of a snapshot, in this order: cooling, held, streak, traffic, name.
fn most_urgent_first(scopes: &mut Vec<ScopeStatus>, most: usize) {
    scopes.sort_by_key(|ScopeStatus { facts, sent, .. }| {
        Reverse((facts.state.is_closed(), facts.held, facts.streak > 0.0, *sent))
    });
    scopes.truncate(most);
}

/// Every path of the port. Changes use POST or DELETE, and pass [`access::writes`] first.
fn router(cx: &Arc<Context>) -> Router {
    let open = Router::new()
        .route("/", get(page::index))
        .route("/style.css", get(page::style))
        .route("/script.js", get(page::script))
        .route("/words.js", get(page::words))
        .route("/ca.pem", get(page::ca))
        .route("/healthz", get(probes::healthz))
        .route("/readyz", get(probes::readyz));
    let bounded = |most: usize| middleware::from_fn_with_state(most, access::body);
    let writes = Router::new()
        .route("/api/v1/report", post(api::report))
        .route("/api/v1/acquire", post(api::acquire))
        .route(
            "/api/v1/scopes/{*scope}",
            get(fleet::detail).post(scopes::post).delete(scopes::delete),
        )
        .route_layer(bounded(api::BODY))
        .route("/api/v1/judge", post(judge::judge).route_layer(bounded(judge::BODY)))
        .route("/api/v1/when", post(when::when).route_layer(bounded(when::BODY)));
    let private = Router::new()
        .route("/metrics", get(probes::metrics))
        .route("/api/v1/status", get(api::status))
        .route("/api/v1/fleet", get(fleet::fleet))
        .route("/api/v1/events", get(stream::events))
        .route("/api/v1/config", get(api::config))
        .merge(writes)
        .route_layer(middleware::from_fn(access::writes))
        .route_layer(middleware::from_fn_with_state(Arc::clone(cx), access::token));
    open.merge(private)
        .fallback(reply::not_found)
        .method_not_allowed_fallback(reply::wrong_method)
        .layer(middleware::from_fn_with_state(Arc::clone(cx), access::host))
        .layer(middleware::map_response(reply::harden))
        .with_state(Arc::clone(cx))
}
