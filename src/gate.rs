//! The gate: holds requests of one scope, unsent, and lets them go in order.
//!
//! What it promises (`docs/scaling.md` has the figures):
//! - **Bound.** A request goes only with a ticket of the store, and each ticket lets one request go.
//! - **Order.** Urgent requests go first. Among requests of the same urgency, clients take turns (or first in, first out).
//!   A request that loses its permit to a trip keeps its place.
//! - **No leak.** [`Permit::may_send`] stands directly before the first byte; from the moment a trip is known here,
//!   nothing that is unsent goes.
//! - **Low cost.** A client that disconnects costs no token. A busy bucket has one task, which never polls. An
//!   uncontended request costs one call to the store, and a success none.
//!
//! ```text
//! hold -> queue (one per bucket) -> ticket -> Permit -> may_send -> report
//!             |  scheduler: asks the store                             |
//!             +----- scope: the cooldown as known to this member -------+
//! ```

mod active_scope;
mod bucket;
pub mod cache;
mod grant;
mod local_cooldown;
mod news;
mod observe;
mod outside;
mod overload;
mod permit;
mod preferences;
mod queue;
mod registry;
mod reports;
mod responding_sites;
mod status;
mod waiting;
mod when;

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use http::HeaderValue;
use tokio::sync::Notify;

use self::{
    active_scope::ActiveScope, grant::Grant, preferences::Request, registry::ScopeRegistry,
    responding_sites::RespondingSites,
};
pub use self::{
    bucket::Slot,
    permit::Permit,
    preferences::{Preferences, Urgency},
    status::{NoSuchScope, ScopeError},
    waiting::Waiting,
    when::When,
};
use crate::{
    observability::{
        event::Events,
        metrics::{Metrics, RuleMetrics},
    },
    rules::{Mode, Rule, RuleSet},
    runtime::clock::{self, LogThrottle},
    store::{self, Backend, Store},
    target::Target,
};

/// The client of a request. Clients take turns.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Client {
    /// A proxy user.
    User(Arc<str>),
    /// A caller of the admin API, by a name of its own choice.
    Caller(Arc<str>),
    /// An address, if clients do not log in.
    Address(IpAddr),
}

impl Client {
    /// The proxy user.
    #[must_use]
    pub fn user(&self) -> Option<&Arc<str>> {
        match self {
            Self::User(name) => Some(name),
            Self::Caller(_) | Self::Address(_) => None,
        }
    }
}

/// Between two events about requests outside of the hours of a rule.
const REPORT_HOURS_EVERY: Duration = Duration::from_secs(3_600);

/// One rule with its metrics and its scopes, resolved once.
#[derive(Debug)]
pub struct Entry {
    /// The rule.
    pub rule: Arc<Rule>,
    /// Its metrics.
    pub metrics: Arc<RuleMetrics>,
    /// The rule's name as a header value, if it is a valid one. Every response has it.
    pub name: Option<HeaderValue>,
    scopes: Arc<ScopeRegistry>,
    /// Limits the events about requests outside of the rule's hours.
    outside_hours: LogThrottle,
}

/// Why a request is not let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalReason {
    /// The wait for a token would exceed `max_wait`.
    Limit,
    /// The wait for a request that is under way to end (`parallel`) would exceed `max_wait`.
    Parallel,
    /// The wait for a token of the user (`each_user`) would exceed `max_wait`.
    User,
    /// The cooldown lasts longer than `max_wait`.
    Cooldown,
    /// Outside of the rule's hours, for longer than `max_wait`.
    Hours,
    /// The queue is full.
    Queue,
    /// The store is away and the rule file says `closed`.
    Store,
    /// The proxy stops.
    Stopping,
}

/// A refusal: a value with a time.
#[derive(Debug, Clone)]
pub struct Refused {
    /// Why.
    pub why: RefusalReason,
    /// When to come back, if that can be predicted.
    pub retry_after: Option<Duration>,
    /// How long the request was held before.
    pub held: Duration,
    /// The rule.
    pub entry: Arc<Entry>,
}

/// The outcome of a wait.
#[derive(Debug)]
enum Outcome {
    Go(Grant),
    Refused(RefusalReason, Option<Duration>),
}

/// What all scopes share.
#[derive(Debug)]
struct GateContext {
    store: Backend,
    metrics: Arc<Metrics>,
    events: Arc<Events>,
    /// This member's name.
    member: Arc<str>,
    /// How long a probe may be out, in microseconds.
    lease: AtomicI64,
    stopping: AtomicBool,
    arrivals: AtomicU64,
    /// Queues made so far.
    queues: AtomicU64,
    /// Which sites answer.
    responding_sites: RespondingSites,
    /// News may have been lost: every scope is to be read again.
    resync: Notify,
}

impl GateContext {
    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    fn lease(&self) -> i64 {
        self.lease.load(Ordering::Relaxed)
    }
}

/// The rules in force, each with what belongs to it.
#[derive(Debug)]
struct Table {
    rules: RuleSet,
    entries: Vec<Arc<Entry>>,
    /// Rules of an earlier rule file that still have requests.
    ending: Vec<Arc<Entry>>,
}

/// All gates of this process.
#[derive(Debug)]
pub struct Gate {
    shared: Arc<GateContext>,
    metrics: Arc<Metrics>,
    table: ArcSwap<Table>,
}

impl Gate {
    /// Gates for `rules` over `store`. `lease`: how long a probe may be out before another goes; longer than any
    /// request that is still alive.
    #[must_use]
    pub fn new(
        rules: RuleSet,
        store: Backend,
        metrics: Arc<Metrics>,
        events: Arc<Events>,
        lease: Duration,
    ) -> Arc<Self> {
        let member = match &store {
            Backend::Memory(_) => format!("{:016x}", fastrand::u64(..)).into(),
            Backend::Shared(shared) => Arc::clone(shared.member()),
        };
        let news = store.news();
        let shared = Arc::new(GateContext {
            store,
            metrics: Arc::clone(&metrics),
            events,
            member,
            lease: clock::micros(lease).into(),
            stopping: false.into(),
            arrivals: 0.into(),
            queues: 0.into(),
            responding_sites: RespondingSites::default(),
            resync: Notify::new(),
        });
        let table = Table::new(rules, &metrics, &shared, None);
        let gate = Arc::new(Self { shared, metrics, table: Arc::new(table).into() });
        if let Some(news) = news {
            gate.shared.store.spawn(Arc::clone(&gate).follow(news));
            gate.shared.store.spawn(Arc::clone(&gate).keep_in_step());
        } else {
            gate.metrics.member.store_up.set(1);
            gate.metrics.member.store_subscribed.set(1);
            gate.metrics.member.members.set(1);
        }
        gate
    }

    /// Whether any rule in force intercepts.
    #[must_use]
    pub fn intercepts(&self) -> bool {
        self.table.load().entries.iter().any(|entry| entry.rule.intercept)
    }

    /// The first rule that matches `target`.
    #[must_use]
    pub fn find(&self, target: &Target) -> Option<Arc<Entry>> {
        let table = self.table.load();
        let at = table.rules.find(target)?;
        table.entries.get(at).cloned()
    }

    /// Holds a request until it may go. Dropping the future leaves the queue at once and costs no token.
    ///
    /// # Errors
    /// A [`Refused`] says why not, and when to come back.
    pub async fn hold(
        &self,
        entry: &Arc<Entry>,
        target: &Target,
        client: &Client,
        preferences: Preferences,
    ) -> Result<Permit, Refused> {
        let scope = entry.scopes.find(entry, target);
        let since = clock::now();
        let max_wait = entry.rule.max_wait;
        let request = Request {
            target: target.clone(),
            client: client.clone(),
            since,
            deadline: since + preferences.max_wait.map_or(max_wait, |own| own.min(max_wait)),
            urgency: preferences.urgency,
            seq: self.shared.arrivals.fetch_add(1, Ordering::Relaxed),
        };
        if entry.rule.mode == Mode::Observe {
            // Boxed: otherwise every held request would have room for the state of a call to the store.
            let grant = Box::pin(observe::watch(&self.shared, entry, &scope, client)).await;
            return Ok(Permit::new(grant, request, Duration::ZERO, true));
        }
        let grant = match scope.queue.try_now(&scope, entry) {
            Some(grant) => return Ok(Permit::new(grant, request, Duration::ZERO, false)),
            None => permit::wait(&scope, &request, false).await?,
        };
        Ok(Permit::new(grant, request, since.elapsed(), false))
    }

    /// Puts other rules in force. Rules that keep their name keep their held requests, tokens and cooldowns.
    pub fn reload(&self, rules: RuleSet) {
        let old = self.table.load_full();
        let mut table = Table::new(rules, &self.metrics, &self.shared, Some(&old));
        for entry in &table.entries {
            let before = old.all().find(|before| before.rule.name == entry.rule.name);
            entry.scopes.set_entry(entry, before.map(|before| &*before.rule));
        }
        let kept = |old: &&Arc<Entry>| table.entries.iter().any(|e| e.rule.name == old.rule.name);
        let gone: Vec<_> = old.all().filter(|entry| !kept(entry)).cloned().collect();
        for entry in &gone {
            entry.scopes.dissolve();
            entry.metrics.rule_is_gone();
        }
        table.ending = gone;
        table.ending.retain(|entry| entry.scopes.is_ending());
        self.table.store(Arc::new(table));
    }

    /// How long a probe may be out from now on.
    pub fn set_lease(&self, lease: Duration) {
        self.shared.lease.store(clock::micros(lease), Ordering::Relaxed);
    }

    /// Refuses all held requests, and holds nothing more.
    pub fn stop(&self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
        for scope in self.scopes() {
            scope.queue.stop();
        }
    }

    /// Leaves the fleet.
    pub async fn close(&self) {
        self.shared.store.close().await;
    }

    /// The store of the fleet, if there is one.
    #[must_use]
    pub fn shared_store(&self) -> Option<&store::SharedStore> {
        self.shared.store.shared().map(AsRef::as_ref)
    }

    /// The rules in force.
    #[must_use]
    pub fn rules(&self) -> RuleSet {
        self.table.load().rules.clone()
    }

    /// This member's name: in the store, in events and on the status page.
    #[must_use]
    pub fn member(&self) -> &str {
        &self.shared.member
    }

    /// Running members, as last known.
    #[must_use]
    pub fn members(&self) -> u32 {
        match &self.shared.store {
            Backend::Memory(_) => 1,
            Backend::Shared(store) => store.members(),
        }
    }

    fn scopes(&self) -> Vec<Arc<ActiveScope>> {
        self.table.load().all().flat_map(|entry| entry.scopes.all()).collect()
    }
}

impl Table {
    /// The rules in force, and those of an earlier rule file that still have requests.
    fn all(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.entries.iter().chain(&self.ending)
    }

    fn new(
        rules: RuleSet,
        metrics: &Arc<Metrics>,
        shared: &Arc<GateContext>,
        old: Option<&Self>,
    ) -> Self {
        let entry = |rule: &Arc<Rule>| {
            let known = old.and_then(|old| old.all().find(|e| e.rule.name == rule.name));
            let scopes = known.map_or_else(
                || Arc::new(ScopeRegistry::new(Arc::clone(shared))),
                |e| Arc::clone(&e.scopes),
            );
            let metrics = metrics.rule(&rule.name);
            metrics.rate_limit.set(rule.limits.rate.unwrap_or(0.0));
            shared.store.attend(rule);
            let name = HeaderValue::from_str(&rule.name).ok();
            let outside_hours = LogThrottle::every(REPORT_HOURS_EVERY);
            Arc::new(Entry { rule: Arc::clone(rule), metrics, name, scopes, outside_hours })
        };
        let entries = rules.as_slice().iter().map(entry).collect();
        Self { rules, entries, ending: Vec::new() }
    }
}

#[cfg(test)]
mod tests;
