//! Starts and stops the parts of the proxy, in order.
//!
//! At the start, both listeners are bound first, so that a used port is reported before anything
//! else happens. The store, the gate and the parts that need them follow, then the admin port; the
//! proxy accepts last. At the stop, `/readyz` fails for `timeouts.notice`. Then the proxy stops
//! accepting and drains, the member leaves the store, and the admin port closes last.

mod own;
mod preflight;
mod reload;

use std::{net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use anyhow::{Context as _, bail};
use tokio::{
    net::{TcpListener, TcpSocket},
    sync::mpsc,
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

use crate::{
    admin,
    config::{Loaded, Overrides},
    gate::Gate,
    observability::{
        event::{Event, Events},
        metrics::Metrics,
        traces::{OtlpSettings, Traces},
    },
    proxy,
    rules::settings::{Settings, StoreSettings},
    runtime::{clock, shutdown::Signal, systemd::Notify},
    store::{Backend, Memory, SharedStore},
    tls::ca::CaError,
};

pub use preflight::preflight;
use reload::Reload;
pub use reload::SetLogLevel;

/// The time for the verdict of a probe to reach the store.
const LEASE_SLACK: Duration = Duration::from_secs(5);

/// Connections that the kernel accepts ahead of the process: as many as the crawlers of a fleet
/// open at once. A client beyond them retries after a second or more.
const BACKLOG: u32 = 1_024;

/// A proxy that is bound but does not serve yet.
#[derive(Debug)]
pub struct App {
    listener: TcpListener,
    admin_listener: Option<TcpListener>,
    proxy: Arc<proxy::Context>,
    admin: Arc<admin::Context>,
    events: Arc<Events>,
    reload: Reload,
    drain: CancellationToken,
    rules: usize,
    traces: Option<Arc<Traces>>,
}

/// How serving ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// After a drain.
    Drained,
    /// At once, by a second signal.
    AtOnce,
}

impl App {
    /// Binds the ports, connects the store and loads the CA. A reload changes the log level through
    /// `set_log_level`.
    ///
    /// # Errors
    /// A used port, an invalid store URL, or an unreadable CA; each with its fix.
    pub async fn build(
        loaded: Loaded,
        overrides: Overrides,
        metrics: Arc<Metrics>,
        events: Arc<Events>,
        set_log_level: SetLogLevel,
    ) -> anyhow::Result<Self> {
        let listener = bind(loaded.settings.listen, "listen")?;
        let admin_listener = match &loaded.settings.admin {
            Some(admin) => Some(bind(admin.listen, "admin")?),
            None => None,
        };
        let settings = with_bound(&loaded.settings, &listener, admin_listener.as_ref())?;
        for warning in &loaded.warnings {
            events.emit(Event::Warned { what: warning.one_line() });
        }
        let rules = loaded.rules.as_slice().len();
        let store = backend(&settings, &metrics)?;
        let shared = match &store {
            Backend::Shared(shared) => Some(Arc::clone(shared)),
            Backend::Memory(_) => None,
        };
        let lease = lease(&settings);
        let gate = Gate::new(
            loaded.rules.clone(),
            store,
            Arc::clone(&metrics),
            Arc::clone(&events),
            lease,
        );
        let places = shared.as_ref().map(|shared| shared.places());
        if let Some(shared) = shared {
            shared.first_word().await;
        }
        let own = own::addresses(&settings, &events).await;
        let traces = traces(&metrics, &events);
        let proxy =
            proxy::Context::new(settings, gate, metrics, Arc::clone(&events), traces.clone(), own);
        if let Some(places) = places {
            tokio::spawn(own::follow(places, Arc::clone(&proxy), Arc::clone(&events)));
        }
        let drain = CancellationToken::new();
        let admin = admin::Context::new(
            Arc::clone(&proxy),
            reload::config_status(&loaded),
            reload::values(&loaded),
            drain.clone(),
        );
        let ca_pem = ca_pem(&loaded, &proxy).context("ca_dir: the CA cannot be used")?;
        admin.ca_pem.store(Arc::new(ca_pem));
        let reload = Reload::new(
            overrides,
            loaded,
            Arc::clone(&proxy),
            Arc::clone(&admin),
            Arc::clone(&events),
            set_log_level,
        );
        Ok(Self { listener, admin_listener, proxy, admin, events, reload, drain, rules, traces })
    }

    /// The address for clients, with the real port if the rule file says 0.
    ///
    /// # Errors
    /// The system does not report the address.
    pub fn listen(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// The admin port, if it is on.
    ///
    /// # Errors
    /// The system does not report the address.
    pub fn admin(&self) -> std::io::Result<Option<SocketAddr>> {
        self.admin_listener.as_ref().map(TcpListener::local_addr).transpose()
    }

    /// Serves until the first stop signal and the drain, or until the second signal.
    ///
    /// # Errors
    /// The proxy's listener ended without a signal.
    pub async fn serve(self, mut signals: mpsc::Receiver<Signal>) -> anyhow::Result<Ended> {
        let (started, notify) = (self.started()?, Notify::of_process());
        let Self {
            listener, admin_listener, proxy, admin, events, mut reload, drain, traces, ..
        } = self;
        // Both ports are bound. This comes first, so that "ready" is the first event, and no health
        // check sees an open port that is not ready.
        admin.set_accepting(true);
        events.emit(started);
        let admin_stop = CancellationToken::new();
        let admin_task = admin_listener.map(|listener| {
            tokio::spawn(admin::serve(listener, Arc::clone(&admin), admin_stop.clone()))
        });
        let publishing = tokio::spawn(Arc::clone(&admin).publish());
        // The workers outlive the connections, because they send the last reports.
        let workers = Arc::new(proxy::Workers::start());
        let (entrance, listener) =
            workers.entrance(listener).context("the proxy's port cannot be watched")?;
        let serving =
            proxy::serve(listener, Arc::clone(&proxy), Arc::clone(&workers), drain.clone());
        let mut serving = entrance.spawn(serving);
        notify.ready();
        let mut watchdog = pin!(notify.watch());
        let mut has_watchdog = true;
        // Clients are still served during this time, so that load balancers notice `/readyz`.
        let mut notice = None;
        let cut_off = loop {
            tokio::select! {
                signal = signals.recv() => match signal {
                    Some(Signal::Reload) => reload.ask(),
                    Some(Signal::Stop(why)) if notice.is_none() => {
                        admin.set_accepting(false);
                        notify.stopping();
                        let timeouts = proxy.live().settings.timeouts;
                        events.emit(Event::Stopping { why, drain: timeouts.drain });
                        notice = Some(clock::now() + timeouts.notice);
                    }
                    Some(Signal::Stop(_)) => return Ok(Ended::AtOnce),
                    None => bail!("the signal handler ended"),
                },
                () = until(notice), if !drain.is_cancelled() => {
                    drain.cancel();
                    proxy.gate.stop();
                }
                () = watchdog.as_mut(), if has_watchdog => has_watchdog = false,
                read = reload.next() => reload.take(read),
                ended = &mut serving => {
                    break ended.context("the proxy's listener failed")?;
                }
            }
        };
        if !drain.is_cancelled() {
            bail!("the proxy's listener ended by itself");
        }
        publishing.abort();
        proxy.gate.close().await;
        drop(workers);
        if let Some(traces) = traces {
            traces.flush().await;
        }
        events.emit(Event::Stopped { cut_off });
        close_admin(admin_task, &admin_stop).await;
        Ok(Ended::Drained)
    }

    fn started(&self) -> std::io::Result<Event> {
        let store = match &self.proxy.live().settings.store {
            StoreSettings::Memory => "memory",
            StoreSettings::Redis(_) => "redis",
        };
        let (listen, admin) = (self.listen()?, self.admin()?);
        Ok(Event::Started { listen, admin, store, rules: self.rules })
    }
}

async fn until(moment: Option<clock::Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

fn backend(settings: &Settings, metrics: &Arc<Metrics>) -> anyhow::Result<Backend> {
    Ok(match &settings.store {
        StoreSettings::Memory => Backend::Memory(Memory::default()),
        StoreSettings::Redis(redis) => {
            Backend::Shared(SharedStore::start(redis.clone(), Arc::clone(metrics))?)
        }
    })
}

/// The exporter of traces, if the environment names a collector. An invalid variable must not stop
/// a crawl.
fn traces(metrics: &Metrics, events: &Events) -> Option<Arc<Traces>> {
    let started = OtlpSettings::from_env(&|name| std::env::var(name).ok())
        .and_then(|settings| settings.map(|settings| Traces::start(settings, metrics)).transpose());
    started.unwrap_or_else(|bad| {
        events.emit(Event::Warned { what: format!("{bad}; no spans are exported") });
        None
    })
}

/// The certificate that clients must trust if a rule intercepts. The CA is created if necessary.
fn ca_pem(loaded: &Loaded, proxy: &proxy::Context) -> Result<Option<String>, CaError> {
    if !loaded.rules.as_slice().iter().any(|rule| rule.intercept) {
        return Ok(None);
    }
    Ok(Some(proxy.ca()?.pem().to_owned()))
}

/// The lease of a probe: longer than any request that may still get a response.
fn lease(settings: &Settings) -> Duration {
    settings.timeouts.connect + settings.timeouts.response + LEASE_SLACK
}

async fn close_admin(task: Option<JoinHandle<()>>, stop: &CancellationToken) {
    stop.cancel();
    if let Some(task) = task {
        // The task has its own time limit, and a panic in it was already reported.
        drop(task.await);
    }
}

fn bind(addr: SocketAddr, key: &str) -> anyhow::Result<TcpListener> {
    let socket = if addr.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
    let listen = |socket: TcpSocket| {
        // A restart can bind the port although connections of the previous process still linger.
        socket.set_reuseaddr(true)?;
        socket.bind(addr)?;
        socket.listen(BACKLOG)
    };
    socket.and_then(listen).with_context(|| {
        format!(
            "cannot listen on {addr} (`{key}`): free that port, or choose another with \
             `--{key} {}:PORT`",
            addr.ip()
        )
    })
}

/// The settings with the actual ports if the file says 0.
fn with_bound(
    settings: &Settings,
    listener: &TcpListener,
    admin: Option<&TcpListener>,
) -> std::io::Result<Settings> {
    let mut settings = settings.clone();
    settings.listen = listener.local_addr()?;
    if let (Some(settings), Some(listener)) = (&mut settings.admin, admin) {
        settings.listen = listener.local_addr()?;
    }
    Ok(settings)
}
