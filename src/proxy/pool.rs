//! Kept-alive connections to sites.
//!
//! Our own pool, since the gate's last look stands between *having* a connection and *sending* on it, and since what
//! is kept must be bounded: per site, in total, and in age. The last one used is the first one taken, so that a calm
//! site's surplus ages out.

use std::{collections::HashMap, sync::Arc, time::Duration};

use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::Instant,
};

use super::body::Upload;
use crate::{clock, metrics::Metrics, settings::Bounds, target::Host};

/// A site's kept-alive connection is closed after this long without a request: most servers close theirs sooner or
/// about then (nginx 75 s, Apache 5 s), and a connection that both ends give up at once costs a request.
const MAX_IDLE: Duration = Duration::from_secs(60);
/// How often idle connections are looked through while there are any.
const SWEEP: Duration = Duration::from_secs(10);

/// What a connection leads to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    /// Over TLS.
    pub(super) tls: bool,
    /// With the site's certificate verified; false only where its rule says so.
    pub(super) verify: bool,
    /// The host.
    pub(super) host: Host,
    /// The port.
    pub(super) port: u16,
}

/// A connection taken out of the pool or just made; dropping it closes it.
#[derive(Debug)]
pub(super) struct Conn {
    pub(super) sender: SendRequest<Upload>,
    /// It has carried a request before: the site may be closing it at this moment.
    pub(super) reused: bool,
    key: Key,
    pool: Arc<Pool>,
}

impl Conn {
    /// Back into the pool, for the next request to the same site.
    pub(super) fn release(self) {
        let Self { sender, key, pool, .. } = self;
        pool.put(key, sender);
    }
}

#[derive(Debug)]
struct Kept {
    sender: SendRequest<Upload>,
    since: Instant,
}

#[derive(Debug, Default)]
struct Shelf {
    sites: HashMap<Key, Vec<Kept>>,
    total: usize,
    sweeping: bool,
}

/// The kept-alive connections of the process.
#[derive(Debug)]
pub(super) struct Pool {
    shelf: Mutex<Shelf>,
    bounds: Mutex<Bounds>,
    open: Gauge,
}

impl Pool {
    /// An empty pool.
    pub(super) fn new(bounds: Bounds, metrics: &Metrics) -> Arc<Self> {
        Arc::new(Self {
            shelf: Mutex::default(),
            bounds: Mutex::new(bounds),
            open: metrics.upstream_connections.clone(),
        })
    }

    /// Takes other bounds, after a reload; what is kept is closed, since another egress guard let it be made.
    pub(super) fn reload(&self, bounds: Bounds) {
        *self.bounds.lock() = bounds;
        self.shelf.lock().keep(|_| false);
    }

    /// A kept-alive connection that is ready for a request.
    pub(super) fn take(self: &Arc<Self>, key: &Key) -> Option<Conn> {
        let mut shelf = self.shelf.lock();
        let kept = shelf.sites.get_mut(key)?;
        let before = kept.len();
        kept.retain(|one| !one.sender.is_closed());
        let at = kept.iter().rposition(|one| one.sender.is_ready());
        let found = at.map(|at| kept.remove(at).sender);
        let gone = before - kept.len();
        if kept.is_empty() {
            shelf.sites.remove(key);
        }
        shelf.total -= gone;
        drop(shelf);
        let pool = Arc::clone(self);
        found.map(|sender| Conn { sender, reused: true, key: key.clone(), pool })
    }

    fn put(self: &Arc<Self>, key: Key, sender: SendRequest<Upload>) {
        let bounds = *self.bounds.lock();
        if sender.is_closed() || bounds.idle_per_host == 0 {
            return;
        }
        let mut shelf = self.shelf.lock();
        if shelf.total >= bounds.idle_total {
            shelf.drop_oldest_quarter();
        }
        let kept = shelf.sites.entry(key).or_default();
        let mut surplus = None;
        if kept.len() >= bounds.idle_per_host {
            surplus = Some(kept.remove(0));
        }
        kept.push(Kept { sender, since: clock::now() });
        shelf.total += usize::from(surplus.is_none());
        if !shelf.sweeping {
            shelf.sweeping = true;
            tokio::spawn(Self::sweep(Arc::clone(self)));
        }
    }

    /// Runs while anything is kept; an empty pool wakes nobody.
    async fn sweep(self: Arc<Self>) {
        loop {
            tokio::time::sleep(SWEEP).await;
            let now = clock::now();
            let mut shelf = self.shelf.lock();
            shelf.keep(|one| now.duration_since(one.since) < MAX_IDLE && !one.sender.is_closed());
            if shelf.total == 0 {
                shelf.sweeping = false;
                return;
            }
        }
    }

    /// Speaks HTTP/1.1 over `stream`, which leads to `key`; its task ends with the connection.
    ///
    /// # Errors
    /// None is known today; hyper's handshake writes nothing.
    pub(super) async fn open<S>(
        self: &Arc<Self>,
        key: Key,
        stream: S,
        header_bytes: usize,
        headers: usize,
    ) -> Result<Conn, hyper::Error>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut builder = hyper::client::conn::http1::Builder::new();
        builder.title_case_headers(true).max_header_size(header_bytes);
        if headers != super::HYPER_HEADERS {
            builder.max_headers(headers);
        }
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
        let counted = Counted::new(&self.open);
        tokio::spawn(async move {
            let _counted = counted;
            if let Err(error) = connection.with_upgrades().await {
                tracing::debug!(%error, "a connection to a site ended");
            }
        });
        Ok(Conn { sender, reused: false, key, pool: Arc::clone(self) })
    }
}

impl Shelf {
    fn keep(&mut self, wanted: impl Fn(&Kept) -> bool) {
        let mut total = 0;
        self.sites.retain(|_, kept| {
            kept.retain(&wanted);
            total += kept.len();
            !kept.is_empty()
        });
        self.total = total;
    }

    /// A quarter at a time: looking through all of them is paid once per so many.
    fn drop_oldest_quarter(&mut self) {
        let mut ages: Vec<Instant> = self.sites.values().flatten().map(|one| one.since).collect();
        if ages.is_empty() {
            return;
        }
        let at = ages.len() / 4;
        let (_, &mut oldest, _) = ages.select_nth_unstable(at);
        self.keep(|one| one.since > oldest);
    }
}

/// Counts one thing in a gauge for as long as it lives.
#[derive(Debug)]
pub(super) struct Counted(Gauge);

impl Counted {
    /// One more.
    pub(super) fn new(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}
