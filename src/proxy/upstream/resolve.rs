//! Resolves names with the system's resolver (`getaddrinfo`: hosts file, resolv.conf and so on).
//!
//! Everything is bounded. A lookup is awaited for at most 5 s. Few run at the same time, because each occupies a thread
//! until the system gives up. Concurrent lookups of one name share a call. The cache has a limit. Each client and each
//! registrable domain has a limited share of the slots, so names that hang do not block others. A wait for a slot says
//! nothing about the site.
//!
//! `getaddrinfo` returns no TTL, so results are cached only for seconds: long enough for a burst of connections to one
//! site, too short to become stale.

use std::{
    collections::HashMap,
    fmt,
    hash::Hash,
    net::{IpAddr, ToSocketAddrs as _},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout_at,
};

use super::exhaustion;
use crate::{
    gate::Client,
    limiter::policy::Split,
    runtime::clock::{self, Instant},
    target::Host,
};

/// Longest look-up.
const TIME_LIMIT: Duration = Duration::from_secs(5);
/// How long a result is used.
const FRESH: Duration = Duration::from_secs(5);
/// How long a failure is used.
const FRESH_FAILURE: Duration = Duration::from_secs(1);
/// Names in the cache.
const MAX_NAMES: usize = 10_000;
/// Most addresses of one name that are kept. A client dials a handful at most.
const MAX_ADDRESSES: usize = 32;
/// Most concurrent lookups. Each blocks a thread for as long as the system's resolver takes (about 30 s for a name
/// whose servers are silent). This is less than tokio's 512 blocking threads.
const MAX_LOOKUPS: usize = 384;
/// Most concurrent lookups for one client.
const PER_CLIENT: usize = 128;
/// Most concurrent lookups of names below one registrable domain.
const PER_DOMAIN: usize = 16;
/// Above this number, clients and domains without a lookup are forgotten.
const MAX_SHARES: usize = 1_000;

/// Why a name has no address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unresolved {
    /// The resolver's error.
    Failed(String),
    /// The resolver did not respond.
    TimedOut,
    /// The lookup could not start: too many are in progress, or the process lacks descriptors or
    /// memory.
    Short(String),
}

type Resolved = Result<Arc<[IpAddr]>, Unresolved>;
type Look = fn(&str) -> std::io::Result<Vec<IpAddr>>;

/// One name.
#[derive(Default)]
struct CachedName {
    /// The lock is held during the lookup, so that concurrent calls wait for the same result.
    answer: tokio::sync::Mutex<Option<(Resolved, Instant)>>,
    /// The lookup has started, so a wait now depends on the site's name servers.
    is_asked: AtomicBool,
}

/// Looks names up.
pub struct Resolver {
    slots: Mutex<HashMap<Arc<str>, Arc<CachedName>>>,
    lookups: Arc<Semaphore>,
    by_client: Shares<Client>,
    by_domain: Shares<Arc<str>>,
    look: Look,
}

/// Permits of one look-up.
type LookupPermits = [OwnedSemaphorePermit; 3];

/// A limit for each client or each domain.
struct Shares<K> {
    each: usize,
    all: Mutex<HashMap<K, Arc<Semaphore>>>,
}

impl<K: Hash + Eq> Shares<K> {
    fn new(each: usize) -> Self {
        Self { each, all: Mutex::default() }
    }

    fn of(&self, key: K) -> Arc<Semaphore> {
        let mut all = self.all.lock();
        if all.len() >= MAX_SHARES {
            all.retain(|_, share| Arc::strong_count(share) > 1);
        }
        Arc::clone(all.entry(key).or_insert_with(|| Arc::new(Semaphore::new(self.each))))
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolver").field("names", &self.slots.lock().len()).finish_non_exhaustive()
    }
}

impl Default for Resolver {
    fn default() -> Self {
        Self::with(system)
    }
}

/// The system's resolver; blocks.
fn system(name: &str) -> std::io::Result<Vec<IpAddr>> {
    let mut addresses = Vec::new();
    for addr in (name, 0).to_socket_addrs()?.take(MAX_ADDRESSES) {
        if !addresses.contains(&addr.ip()) {
            addresses.push(addr.ip());
        }
    }
    Ok(addresses)
}

impl Resolver {
    /// Looks names up by `look`, which may block.
    pub(crate) fn with(look: Look) -> Self {
        Self {
            slots: Mutex::default(),
            lookups: Arc::new(Semaphore::new(MAX_LOOKUPS)),
            by_client: Shares::new(PER_CLIENT),
            by_domain: Shares::new(PER_DOMAIN),
            look,
        }
    }

    /// The addresses of `name` for `client`, in the order that the system prefers.
    ///
    /// # Errors
    /// [`Unresolved`].
    pub async fn lookup(&self, name: &Arc<str>, client: &Client, deadline: Instant) -> Resolved {
        let deadline = deadline.min(clock::now() + TIME_LIMIT);
        let slot = self.slot(name);
        let ask = async {
            let mut known = slot.answer.lock().await;
            if let Some((answer, until)) = &*known
                && clock::now() < *until
            {
                return answer.clone();
            }
            slot.is_asked.store(false, Ordering::Relaxed);
            // Half of the time, so that the rest is enough to judge the site.
            let half = clock::now() + deadline.saturating_duration_since(clock::now()) / 2;
            let Ok(permits) = timeout_at(half, self.permits(name, client)).await else {
                return Err(busy());
            };
            slot.is_asked.store(true, Ordering::Relaxed);
            let answer = self.ask(name, permits).await;
            let fresh = if answer.is_ok() { FRESH } else { FRESH_FAILURE };
            *known = Some((answer.clone(), clock::now() + fresh));
            answer
        };
        timeout_at(deadline, ask).await.unwrap_or_else(|_elapsed| {
            let is_asked = slot.is_asked.load(Ordering::Relaxed);
            Err(if is_asked { Unresolved::TimedOut } else { busy() })
        })
    }

    /// Waits for a slot. The narrowest share comes first, so that a waiting call occupies no slot of others.
    async fn permits(&self, name: &Arc<str>, client: &Client) -> LookupPermits {
        let domain = Split::Domain.key(&Host::Name(Arc::clone(name)));
        let (domain, client) = (self.by_domain.of(domain), self.by_client.of(client.clone()));
        [take(domain).await, take(client).await, take(Arc::clone(&self.lookups)).await]
    }

    /// The slots belong to the thread, not to the future: cancelling a call does not free the thread.
    async fn ask(&self, name: &Arc<str>, permits: LookupPermits) -> Resolved {
        let (name, look) = (Arc::clone(name), self.look);
        let asked = tokio::task::spawn_blocking(move || {
            let _permits = permits;
            look(&name)
        });
        match asked.await {
            Ok(Ok(addresses)) if addresses.is_empty() => {
                Err(Unresolved::Failed("the name has no address".to_owned()))
            }
            Ok(Ok(addresses)) => Ok(addresses.into()),
            Ok(Err(error)) => Err(match exhaustion::of_sockets() {
                Some(short) => Unresolved::Short(short.to_string()),
                None => Unresolved::Failed(error.to_string()),
            }),
            Err(lost) => Err(Unresolved::Failed(lost.to_string())),
        }
    }

    fn slot(&self, name: &Arc<str>) -> Arc<CachedName> {
        let mut slots = self.slots.lock();
        if let Some(slot) = slots.get(name) {
            return Arc::clone(slot);
        }
        if slots.len() >= MAX_NAMES {
            shrink(&mut slots);
        }
        let slot = Arc::<CachedName>::default();
        slots.insert(Arc::clone(name), Arc::clone(&slot));
        slot
    }
}

async fn take(share: Arc<Semaphore>) -> OwnedSemaphorePermit {
    share.acquire_owned().await.expect("no share is ever closed")
}

fn busy() -> Unresolved {
    Unresolved::Short("too many names are being looked up".to_owned())
}

/// Makes space: removes expired results. If there are none, removes an arbitrary half, at the cost of one lookup each.
fn shrink(slots: &mut HashMap<Arc<str>, Arc<CachedName>>) {
    let now = clock::now();
    let fresh = |slot: &CachedName| {
        slot.answer
            .try_lock()
            .is_ok_and(|slot| slot.as_ref().is_some_and(|(_, until)| now < *until))
    };
    slots.retain(|_, slot| fresh(slot));
    if slots.len() > MAX_NAMES / 2 {
        let mut keep = false;
        slots.retain(|_, _| {
            keep = !keep;
            keep
        });
    }
}

#[cfg(test)]
mod tests;
