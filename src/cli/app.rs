//! The running proxy: what is started in which order, and stopped in the reverse one.
//!
//! Start: both listeners are bound first, so that a port in use is said before anything else happens; then the store,
//! the gate and what hangs on it; then the admin port answers; the proxy accepts last. Stop: `/readyz` says no
//! (for `timeouts.notice`, if that is set), the proxy accepts nothing more and drains, the store is told good-bye, the admin port closes last.

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
    runtime::{clock, shutdown::Told, systemd::Notify},
    store::{Backend, Memory, Shared},
    tls::ca::CaError,
};

pub use preflight::preflight;
use reload::Reload;
pub use reload::SetLogLevel;

/// Time for a probe's verdict to reach the store.
const LEASE_SLACK: Duration = Duration::from_secs(5);

/// Connections that the system takes before the process does: as many as the crawlers of a fleet open in one moment. A
/// client beyond them is not heard, and tries again after a second or more.
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
    /// Binds, connects, loads. A reload gives the log its level through `set_log_level`.
    ///
    /// # Errors
    /// A port that cannot be had, a store URL that makes no sense, a CA that cannot be read; each says the way out.
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
        admin.ca_pem.store(Arc::new(ca_pem(&loaded, &proxy)?));
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

    /// Where clients connect: the real port where the rule file says 0.
    ///
    /// # Errors
    /// Only where the system cannot tell.
    pub fn listen(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// The admin port, if it is on.
    ///
    /// # Errors
    /// Only where the system cannot tell.
    pub fn admin(&self) -> std::io::Result<Option<SocketAddr>> {
        self.admin_listener.as_ref().map(TcpListener::local_addr).transpose()
    }

    /// Serves until it is told to stop and has drained, or is told a second time.
    ///
    /// # Errors
    /// Where the proxy's listener ends by itself.
    pub async fn serve(self, mut told: mpsc::Receiver<Told>) -> anyhow::Result<Ended> {
        let (started, notify) = (self.started()?, Notify::of_process());
        let Self {
            listener, admin_listener, proxy, admin, events, mut reload, drain, traces, ..
        } = self;
        // Both ports are bound: whoever connects from now on is served. Said first, so that no event stands before it
        // and no probe finds a port that answers and is not ready.
        admin.set_accepting(true);
        events.emit(started);
        let admin_stop = CancellationToken::new();
        let admin_task = admin_listener.map(|listener| {
            tokio::spawn(admin::serve(listener, Arc::clone(&admin), admin_stop.clone()))
        });
        let publishing = tokio::spawn(Arc::clone(&admin).publish());
        // They outlive the connections: reports of the last answers are told from there.
        let workers = Arc::new(proxy::Workers::start());
        let (entrance, listener) =
            workers.entrance(listener).context("the proxy's port cannot be watched")?;
        let serving =
            proxy::serve(listener, Arc::clone(&proxy), Arc::clone(&workers), drain.clone());
        let mut serving = entrance.spawn(serving);
        notify.ready();
        let mut living = pin!(notify.watch());
        let mut lives = true;
        // Clients are served until then, so that load balancers have seen `/readyz` fail.
        let mut notice = None;
        let cut_off = loop {
            tokio::select! {
                what = told.recv() => match what {
                    Some(Told::Reload) => reload.ask(),
                    Some(Told::Stop(why)) if notice.is_none() => {
                        admin.set_accepting(false);
                        notify.stopping();
                        let timeouts = proxy.live().settings.timeouts;
                        events.emit(Event::Stopping { why, drain: timeouts.drain });
                        notice = Some(clock::now() + timeouts.notice);
                    }
                    Some(Told::Stop(_)) => return Ok(Ended::AtOnce),
                    None => bail!("nobody is left to stop the proxy"),
                },
                () = until(notice), if !drain.is_cancelled() => {
                    drain.cancel();
                    proxy.gate.stop();
                }
                () = living.as_mut(), if lives => lives = false,
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
            Backend::Shared(Shared::start(redis.clone(), Arc::clone(metrics))?)
        }
    })
}

/// Where spans go, if the environment names a collector. A bad variable must not stop a crawl.
fn traces(metrics: &Metrics, events: &Events) -> Option<Arc<Traces>> {
    let started = OtlpSettings::from_env(&|name| std::env::var(name).ok())
        .and_then(|settings| settings.map(|settings| Traces::start(settings, metrics)).transpose());
    started.unwrap_or_else(|bad| {
        events.emit(Event::Warned { what: format!("{bad}; no spans are exported") });
        None
    })
}

/// The certificate that clients must trust, where a rule intercepts; the CA is made on first need.
fn ca_pem(loaded: &Loaded, proxy: &proxy::Context) -> Result<Option<String>, CaError> {
    if !loaded.rules.as_slice().iter().any(|rule| rule.intercept) {
        return Ok(None);
    }
    Ok(Some(proxy.ca()?.pem().to_owned()))
}

/// How long a probe may be out: longer than any request that may still get its answer.
fn lease(settings: &Settings) -> Duration {
    settings.timeouts.connect + settings.timeouts.response + LEASE_SLACK
}

async fn close_admin(task: Option<JoinHandle<()>>, stop: &CancellationToken) {
    stop.cancel();
    if let Some(task) = task {
        // It bounds its own end; a panic in it has been told already.
        drop(task.await);
    }
}

fn bind(addr: SocketAddr, key: &str) -> anyhow::Result<TcpListener> {
    let socket = if addr.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
    let listen = |socket: TcpSocket| {
        // So that a restart finds its port free while connections of the last run still linger.
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

/// The settings with the ports that the system chose where the file says 0.
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
