//! What every request needs: the settings in force, the gate, the metrics, the connections to sites.

use std::{collections::HashSet, fmt, net::SocketAddr, sync::Arc};

use arc_swap::ArcSwap;
use http::HeaderValue;
use parking_lot::Mutex;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{auth::Authenticator, egress::Guard, pool::Pool};
use crate::{
    event::{Event, Events},
    gate::Gate,
    metrics::Metrics,
    rules::Rule,
    settings::Settings,
};

/// What a reload replaces as one.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) settings: Settings,
    pub(crate) egress: Guard,
    pub(crate) authenticator: Authenticator,
}

/// Shared by all connections of the process.
pub struct Context {
    live: ArcSwap<Live>,
    own: Vec<SocketAddr>,
    /// The gate.
    pub gate: Arc<Gate>,
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// Where events go.
    pub events: Arc<Events>,
    /// Rules whose first tunnel has been spoken of.
    blind: Mutex<HashSet<Arc<str>>>,
    /// Tunnels and upgraded connections: they outlive the HTTP connection they came from.
    pub(crate) tunnels: TaskTracker,
    /// Ends what is still open when the drain deadline has passed.
    pub(crate) end: CancellationToken,
    /// Connections to sites that wait for their next request.
    pub(super) pool: Arc<Pool>,
    /// Our name in `Via` (RFC 9110 section 7.6.3): random for each process, so that a request that comes back to us
    /// is told from one that passed another member.
    pub(crate) pseudonym: String,
    /// Our entry in `Via`.
    pub(super) via: HeaderValue,
}

impl Context {
    /// The context of a process. `own` are the addresses of its listeners and of its store, which nobody may reach
    /// through the proxy.
    #[must_use]
    pub fn new(
        settings: Settings,
        gate: Arc<Gate>,
        metrics: Arc<Metrics>,
        events: Arc<Events>,
        own: Vec<SocketAddr>,
    ) -> Arc<Self> {
        let pseudonym = format!("tidegate-{:08x}", fastrand::u32(..));
        let via = HeaderValue::from_str(&format!("1.1 {pseudonym}"))
            .expect("letters, digits, a dash and a space make a field value");
        let pool = Pool::new(settings.limits, &metrics);
        Arc::new(Self {
            live: ArcSwap::from_pointee(Live::new(settings, own.clone())),
            own,
            gate,
            metrics,
            events,
            blind: Mutex::default(),
            tunnels: TaskTracker::new(),
            end: CancellationToken::new(),
            pool,
            pseudonym,
            via,
        })
    }

    /// Settings, egress guard and authenticator in force, one coherent set.
    pub(crate) fn live(&self) -> Arc<Live> {
        self.live.load_full()
    }

    /// Says once per rule that its cooldown sees nothing inside tunnels.
    pub(super) fn tunnel_begins(&self, rule: &Rule) {
        if rule.cooldown.is_some() && self.blind.lock().insert(Arc::clone(&rule.name)) {
            self.events.emit(Event::Warned {
                what: format!(
                    "rule `{}` has a cooldown, but its tunnels (CONNECT) hide what sites answer: \
                     only failed connections can be judged; `intercept: true` looks inside",
                    rule.name
                ),
            });
        }
    }

    /// Puts reloaded settings in force: for the next request, and for the next connection where they shape one.
    pub fn reload(&self, settings: Settings) {
        let limits = settings.limits;
        self.live.store(Arc::new(Live::new(settings, self.own.clone())));
        self.pool.reload(limits);
    }
}

impl Live {
    fn new(settings: Settings, own: Vec<SocketAddr>) -> Self {
        let egress = Guard::new(&settings.egress, own);
        let authenticator = Authenticator::new(&settings.auth);
        Self { settings, egress, authenticator }
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("pseudonym", &self.pseudonym).finish_non_exhaustive()
    }
}
