//! Kept-alive connections to sites.
//!
//! The crate has its own pool for two reasons. The last check of the gate comes between getting a connection and
//! sending on it. And idle connections must be bounded by site, in total and in age. The most recently used connection
//! is taken first, so that surplus ones expire. A connection on the caller's own thread (see [`workers`]) is preferred,
//! because otherwise two threads would keep waking each other.

mod interim_limit;
mod pin;
mod shared;
mod site;

use std::{collections::HashMap, sync::Arc, time::Duration};

use foldhash::fast::RandomState;
use http::{Request, Response};
use hyper::{
    body::Incoming,
    client::conn::{TrySendError, http1::SendRequest},
};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;
use tokio::time::Instant;
use tokio_util::either::Either;

pub(crate) use self::pin::PinnedConn;
use self::{
    interim_limit::InterimLimit,
    shared::{SharedConns, StreamSlot},
    site::{IdleConn, SiteConns},
};
use super::{interim::Unwanted, upload::Upload, via::route::Route};
use crate::{
    gate::Client,
    observability::metrics::Metrics,
    proxy::{client::workers, stream::Stream},
    rules::settings::Bounds,
    runtime::clock,
    target::Host,
};

/// Idle connections are closed after this time, and servers have their own (nginx 75 s, Apache 5 s). A connection that
/// both ends close at the same time costs a request.
const MAX_IDLE: Duration = Duration::from_secs(60);
/// How often idle connections are swept, while there are any.
const SWEEP: Duration = Duration::from_secs(10);

/// Up to this number of sites, a site without an idle connection keeps its entry until the next sweep.
const MAX_EMPTY: usize = 1_000;

/// The destination of a connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ConnKey {
    /// Over TLS.
    pub(crate) tls: bool,
    /// Whether the site's certificate is verified; false only if its rule says so.
    pub(crate) verify: bool,
    /// Through an upstream proxy.
    pub(crate) via: Option<Route>,
    /// The host.
    pub(crate) host: Host,
    /// Its server, if that names the scope. A host may move to another server.
    pub(crate) server: Option<Arc<str>>,
    /// The port.
    pub(crate) port: u16,
}

/// A connection from the pool, or a new one. Dropping it closes it.
#[derive(Debug)]
pub(crate) struct Conn {
    sender: Sender,
    /// It has carried a request before, so the site may be closing it.
    pub(crate) reused: bool,
    /// The site responded without the request's body, so the connection cannot carry another
    /// request.
    pub(crate) unwanted: Option<Unwanted>,
    key: ConnKey,
    /// The settings generation that allowed it.
    generation: u64,
    /// Its client, if the site has authenticated one on it. Boxed, because few connections have one.
    owner: Option<Box<(Arc<PinnedConn>, Client)>>,
    pool: Arc<Pool>,
}

/// How requests are sent on it.
#[derive(Debug)]
enum Sender {
    /// One request at a time.
    Http1 { sender: SendRequest<Upload>, worker: usize },
    /// Many requests at a time; this is one slot.
    Http2(StreamSlot),
}

impl Conn {
    /// Reserves it for one client, on that client's own connection.
    pub(crate) fn pin_to(&mut self, pinned: &Arc<PinnedConn>, client: &Client) {
        self.owner = Some(Box::new((Arc::clone(pinned), client.clone())));
    }

    /// Returns it to the pool, or to its client.
    pub(crate) fn release(mut self) {
        if let Some(owner) = self.owner.take() {
            let (pinned, client) = *owner;
            return pinned.keep(self, client);
        }
        let Self { sender, key, pool, unwanted, generation, .. } = self;
        match sender {
            Sender::Http1 { sender, worker } if unwanted.is_none() => {
                pool.put(key, generation, sender, worker);
            }
            Sender::Http1 { sender, .. } => drop(sender),
            Sender::Http2(stream) => drop(stream),
        }
    }

    /// The upstream proxy, if requests must name the site because the connection leads only to that proxy.
    pub(crate) fn names_the_site(&self) -> Option<&Route> {
        self.key.via.as_ref().filter(|route| !route.tunnels)
    }

    /// Whether the site uses HTTP/2 on it.
    pub(crate) fn is_h2(&self) -> bool {
        matches!(self.sender, Sender::Http2(_))
    }

    /// Sends a request and waits for the head of the response.
    ///
    /// # Errors
    /// hyper's error. It contains the request if nothing of it was sent.
    pub(crate) fn send(
        &mut self,
        request: Request<Upload>,
    ) -> impl Future<Output = Result<Response<Incoming>, TrySendError<Request<Upload>>>> + use<>
    {
        // Not an async function, whose future would have room for the request twice.
        match &mut self.sender {
            Sender::Http1 { sender, .. } => Either::Left(sender.try_send_request(request)),
            Sender::Http2(stream) => Either::Right(stream.sender.try_send_request(request)),
        }
    }
}

/// The connections of each site. Each request needs two lookups, and the standard library's hash takes eight times as
/// long.
type Sites<T> = HashMap<ConnKey, T, RandomState>;

#[derive(Debug)]
struct PoolState {
    bounds: Bounds,
    /// Increases with each reload. Older connections are not used again.
    generation: u64,
    sites: Sites<SiteConns>,
    shared: SharedConns,
    total: usize,
    sweeping: bool,
}

/// The kept-alive connections of the process.
#[derive(Debug)]
pub(crate) struct Pool {
    state: Mutex<PoolState>,
    metrics: Arc<Metrics>,
}

impl Pool {
    /// An empty pool.
    pub(crate) fn new(bounds: Bounds, metrics: &Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(PoolState {
                bounds,
                generation: 0,
                sites: Sites::default(),
                shared: SharedConns::default(),
                total: 0,
                sweeping: false,
            }),
            metrics: Arc::clone(metrics),
        })
    }

    /// Applies other limits after a reload. Idle connections are closed, and connections in use are not kept when they
    /// return, because another egress guard and other roots allowed them. Returns the new generation.
    pub(crate) fn reload(&self, bounds: Bounds) -> u64 {
        let mut state = self.state.lock();
        state.bounds = bounds;
        state.generation += 1;
        state.keep(|_| false);
        state.shared = SharedConns::default();
        state.generation
    }

    /// A kept-alive connection of this generation that is ready for a request.
    pub(crate) fn take(self: &Arc<Self>, key: &ConnKey, generation: u64) -> Option<Conn> {
        let mut state = self.state.lock();
        if state.generation != generation {
            return None;
        }
        if key.tls
            && let Some(stream) = state.shared.take(key)
        {
            drop(state);
            return Some(self.conn(Sender::Http2(stream), key.clone(), generation, true));
        }
        let site = state.sites.get_mut(key)?;
        let before = site.len();
        let found = site.take(workers::current());
        let gone = before - site.len();
        // The empty entry stays, because the connection usually returns soon. The sweep removes it.
        if site.is_empty() && state.sites.len() > MAX_EMPTY {
            state.sites.remove(key);
        }
        state.total -= gone;
        drop(state);
        found.map(|IdleConn { sender, worker, .. }| {
            self.conn(Sender::Http1 { sender, worker }, key.clone(), generation, true)
        })
    }

    fn conn(self: &Arc<Self>, sender: Sender, key: ConnKey, generation: u64, reused: bool) -> Conn {
        let pool = Arc::clone(self);
        Conn { sender, reused, unwanted: None, key, generation, owner: None, pool }
    }

    fn put(
        self: &Arc<Self>,
        key: ConnKey,
        generation: u64,
        sender: SendRequest<Upload>,
        worker: usize,
    ) {
        let mut state = self.state.lock();
        let bounds = state.bounds;
        let is_old = state.generation != generation;
        if is_old || sender.is_closed() || bounds.idle_per_host == 0 {
            return;
        }
        if state.total >= bounds.idle_total {
            state.drop_oldest_quarter();
        }
        let site = state.sites.entry(key).or_default();
        let surplus = if site.len() < bounds.idle_per_host { None } else { site.take_oldest() };
        site.put(IdleConn { sender, worker, since: clock::now() });
        state.total += usize::from(surplus.is_none());
        self.sweep_later(&mut state);
    }

    fn sweep_later(self: &Arc<Self>, state: &mut PoolState) {
        if !state.sweeping {
            state.sweeping = true;
            tokio::spawn(Self::sweep(Arc::clone(self)));
        }
    }

    /// Runs while there are idle connections.
    async fn sweep(self: Arc<Self>) {
        loop {
            tokio::time::sleep(SWEEP).await;
            let now = clock::now();
            let mut state = self.state.lock();
            state.keep(|one| now.duration_since(one.since) < MAX_IDLE && !one.sender.is_closed());
            let shares = state.shared.sweep(now, MAX_IDLE);
            if state.total == 0 && !shares {
                state.sweeping = false;
                return;
            }
        }
    }

    /// Starts HTTP/1.1 over `stream`, which leads to `key`. Its task ends with the connection.
    ///
    /// # Errors
    /// None is known today; hyper's handshake writes nothing.
    pub(crate) async fn open<S: Stream + 'static>(
        self: &Arc<Self>,
        key: ConnKey,
        generation: u64,
        stream: S,
        header_bytes: usize,
        headers: usize,
    ) -> Result<Conn, hyper::Error> {
        let mut builder = hyper::client::conn::http1::Builder::new();
        builder.title_case_headers(true).max_header_size(header_bytes);
        if headers != crate::proxy::HYPER_HEADERS {
            builder.max_headers(headers);
        }
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
        self.drive(connection.with_upgrades());
        let sender = Sender::Http1 { sender, worker: workers::current() };
        Ok(self.conn(sender, key, generation, false))
    }

    /// Starts HTTP/2 over `stream`, which leads to `key`, and shares the connection.
    ///
    /// # Errors
    /// The connection broke in hyper's handshake.
    pub(crate) async fn open_h2<S: Stream + 'static>(
        self: &Arc<Self>,
        key: ConnKey,
        generation: u64,
        stream: S,
    ) -> Result<Conn, hyper::Error> {
        let stream = InterimLimit::new(stream, Arc::clone(&self.metrics));
        let (sender, connection) = shared::handshake(stream).await?;
        self.drive(connection);
        let mut state = self.state.lock();
        let most = state.bounds.idle_total;
        state.shared.shrink(most);
        let shares = state.generation == generation;
        let stream = state.shared.put(key.clone(), sender, shares);
        self.sweep_later(&mut state);
        drop(state);
        Ok(self.conn(Sender::Http2(stream), key, generation, false))
    }

    fn drive(&self, connection: impl Future<Output = Result<(), hyper::Error>> + Send + 'static) {
        let counted = GaugeGuard::new(&self.metrics.member.upstream_connections);
        tokio::spawn(async move {
            let _counted = counted;
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to a site ended");
            }
        });
    }
}

impl PoolState {
    fn keep(&mut self, wanted: impl Fn(&IdleConn) -> bool) {
        let mut total = 0;
        self.sites.retain(|_, site| {
            site.keep(&wanted);
            total += site.len();
            !site.is_empty()
        });
        self.total = total;
    }

    /// Drops a quarter at a time, so that many requests share the cost of the scan.
    fn drop_oldest_quarter(&mut self) {
        let mut ages: Vec<Instant> = self.sites.values().flat_map(SiteConns::ages).collect();
        if ages.is_empty() {
            return;
        }
        let at = ages.len() / 4;
        let (_, &mut oldest, _) = ages.select_nth_unstable(at);
        self.keep(|one| one.since > oldest);
    }
}

/// Increments a gauge until it is dropped.
#[derive(Debug)]
pub(crate) struct GaugeGuard(Gauge);

impl GaugeGuard {
    /// One more.
    pub(crate) fn new(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}
