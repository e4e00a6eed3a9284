//! The state that all requests share: current settings, gate, metrics, and connections to sites.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    budget::Budget,
    client::auth::Authenticator,
    headers::Via,
    suspects::Suspects,
    upstream::{
        egress::{Guard, OwnAddresses},
        pool::Pool,
        tls::Connector,
    },
};
use crate::{
    gate::Gate,
    observability::{
        event::{Event, Events},
        metrics::{Metrics, UserMetrics},
        traces::Traces,
    },
    rules::{Rule, settings::Settings},
    tls::ca::{Ca, CaError},
};

/// Number of remembered clients that reject our certificates.
const MAX_DISTRUSTING: usize = 1000;

/// The part that a reload replaces as a whole.
#[derive(Debug)]
pub(crate) struct LiveConfig {
    pub(crate) settings: Settings,
    pub(crate) egress: Guard,
    pub(crate) authenticator: Authenticator,
    pub(crate) users: HashMap<Arc<str>, Arc<UserMetrics>>,
    pub(crate) tls: Connector,
    /// Increases with each reload. A request uses only connections to sites of its own generation.
    pub(crate) generation: u64,
}

/// Shared by all connections of the process.
pub struct Context {
    live: ArcSwap<LiveConfig>,
    /// Addresses that must not be reachable through the proxy.
    pub(crate) own: Arc<OwnAddresses>,
    /// The gate.
    pub gate: Arc<Gate>,
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// The events.
    pub events: Arc<Events>,
    /// The spans, if the environment names a collector.
    pub(crate) traces: Option<Arc<Traces>>,
    /// Pages that look like walls but match no signature.
    pub(crate) suspects: Arc<Suspects>,
    /// Rules with a warning about tunnels that hide responses.
    warned_tunnels: Mutex<HashSet<Arc<str>>>,
    /// Rules with a warning about an unknown protocol.
    warned_protocols: Mutex<HashSet<Arc<str>>>,
    /// Clients with a warning that they reject our certificates.
    warned_clients: Mutex<HashSet<IpAddr>>,
    /// Rules whose upstream proxy failed most recently.
    failed_upstreams: Mutex<HashSet<Arc<str>>>,
    /// The memory of held HTTP/2 requests.
    pub(crate) held_memory: Budget,
    /// Tunnels and upgraded connections, which outlive the HTTP connection that they came from.
    pub(crate) tunnels: TaskTracker,
    /// The slots of tunnels; a request for a tunnel takes one before it is held.
    pub(crate) tunnel_slots: Budget,
    /// Cancelled when the proxy stops: intercepted connections finish their requests in flight.
    pub(crate) stopping: CancellationToken,
    /// The local CA, after its first use.
    ca: Mutex<Option<Arc<Ca>>>,
    /// Cancelled when the drain deadline has passed: closes all open connections.
    pub(crate) end: CancellationToken,
    /// Connections to sites that wait for their next request.
    pub(crate) pool: Arc<Pool>,
    /// Our name in `Via` (RFC 9110 section 7.6.3). It is random for each process, to detect a request that returns to
    /// this process.
    pub(crate) pseudonym: String,
    /// Our entry in `Via`.
    pub(crate) via: Via,
}

impl Context {
    /// The context of a process. `own` are the addresses of its listeners and its store, which
    /// nobody may reach through the proxy.
    #[must_use]
    pub fn new(
        settings: Settings,
        gate: Arc<Gate>,
        metrics: Arc<Metrics>,
        events: Arc<Events>,
        traces: Option<Arc<Traces>>,
        own: Vec<SocketAddr>,
    ) -> Arc<Self> {
        let pseudonym = format!("tidegate-{:08x}", fastrand::u32(..));
        let via = Via::new(&pseudonym);
        let pool = Pool::new(settings.limits, &metrics);
        let own = Arc::new(OwnAddresses::from(own));
        Arc::new(Self {
            live: ArcSwap::from_pointee(LiveConfig::new(
                settings,
                Arc::clone(&own),
                &metrics,
                &events,
            )),
            own,
            gate,
            suspects: Suspects::new(Arc::clone(&events)),
            metrics,
            events,
            traces,
            warned_tunnels: Mutex::default(),
            warned_protocols: Mutex::default(),
            warned_clients: Mutex::default(),
            failed_upstreams: Mutex::default(),
            tunnels: TaskTracker::new(),
            held_memory: Budget::default(),
            tunnel_slots: Budget::default(),
            end: CancellationToken::new(),
            stopping: CancellationToken::new(),
            ca: Mutex::default(),
            pool,
            pseudonym,
            via,
        })
    }

    /// The settings, egress guard and authenticator in force, as one consistent set.
    pub(crate) fn live(&self) -> Arc<LiveConfig> {
        self.live.load_full()
    }

    /// Whether this client rejects our certificates for the first time. The number of remembered clients is bounded.
    pub(crate) fn is_first_distrust(&self, client: IpAddr) -> bool {
        let mut warned_clients = self.warned_clients.lock();
        if warned_clients.len() >= MAX_DISTRUSTING {
            warned_clients.clear();
        }
        warned_clients.insert(client)
    }

    /// Warns once per rule that its cooldown does not see responses inside tunnels.
    pub(crate) fn warn_of_tunnel(&self, rule: &Rule) {
        if rule.cooldown.is_some() && self.warned_tunnels.lock().insert(Arc::clone(&rule.name)) {
            self.events.emit(Event::Warned {
                what: format!(
                    "rule `{}` has a cooldown, but its tunnels (CONNECT) hide what sites answer: \
                     only failed connections can be judged; `intercept: true` looks inside",
                    rule.name
                ),
            });
        }
    }

    /// Warns once per rule that it refuses traffic that it cannot inspect.
    pub(crate) fn warn_of_protocol(&self, rule: &Rule) {
        if self.warned_protocols.lock().insert(Arc::clone(&rule.name)) {
            self.events.emit(Event::Warned {
                what: format!(
                    "rule `{}` intercepts and refused a CONNECT whose client speaks neither TLS nor \
                     HTTP; `tunnel: flights` on the rule lets such traffic pass unseen",
                    rule.name
                ),
            });
        }
    }

    /// Warns once per outage that the upstream proxy of a rule fails.
    pub(crate) fn upstream_failed(&self, rule: &Rule, why: &dyn fmt::Display) {
        if let Some(proxy) = &rule.via
            && self.failed_upstreams.lock().insert(Arc::clone(&rule.name))
        {
            let name = &rule.name;
            let what = format!("rule `{name}`: the upstream proxy {proxy} failed: {why}");
            self.events.emit(Event::Warned { what });
        }
    }

    /// The upstream proxy of a rule has connected to a site.
    pub(crate) fn upstream_works(&self, rule: &Rule) {
        self.failed_upstreams.lock().remove(&rule.name);
    }

    /// Applies reloaded settings to the next request, and to the next connection if they concern connections. Existing
    /// connections to sites that depend on changed settings serve no more requests.
    pub fn reload(&self, settings: Settings) {
        let limits = settings.limits;
        let mut live =
            LiveConfig::new(settings, Arc::clone(&self.own), &self.metrics, &self.events);
        live.generation = self.pool.reload(limits);
        self.live.store(Arc::new(live));
    }

    /// The CA for interception, opened (and created) on first use. It is not reopened, because clients trust this one.
    /// A different CA needs a restart.
    ///
    /// # Errors
    /// [`CaError`]. The next call tries again.
    pub fn ca(&self) -> Result<Arc<Ca>, CaError> {
        let mut opened = self.ca.lock();
        if let Some(ca) = &*opened {
            return Ok(Arc::clone(ca));
        }
        let live = self.live();
        let ca = Ca::open(&live.settings.ca_dir, live.settings.ca.as_ref())?;
        *opened = Some(Arc::clone(&ca));
        Ok(ca)
    }
}

impl LiveConfig {
    fn new(settings: Settings, own: Arc<OwnAddresses>, metrics: &Metrics, events: &Events) -> Self {
        let tls = Connector::new(&settings.upstream_ca).unwrap_or_else(|error| {
            events.emit(Event::Warned {
                what: format!("`upstream_ca`: {error}; sites are verified without it"),
            });
            Connector::with_system_roots()
        });
        let egress = Guard::new(&settings.egress, own);
        let authenticator = Authenticator::new(&settings.auth);
        let users = settings.auth.users.iter().map(|(name, _)| (name.clone(), metrics.user(name)));
        let users = users.collect();
        Self { settings, egress, authenticator, users, tls, generation: 0 }
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("pseudonym", &self.pseudonym).finish_non_exhaustive()
    }
}
