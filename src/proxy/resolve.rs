//! Names to addresses, by the system's resolver (`getaddrinfo`: hosts file, resolv.conf and all).
//!
//! Bounded in every direction: a look-up takes 5 s at most, only so many run at a time (each
//! occupies a thread), one name is looked up once however many ask, and the cache has a cap.
//! `getaddrinfo` tells no TTL, so answers are kept for seconds only: long enough for a burst of
//! connections to one site, too short to go stale.

use std::{
    collections::HashMap,
    fmt,
    net::{IpAddr, ToSocketAddrs as _},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::shortage;
use crate::clock::{self, Instant};

/// Longest look-up.
const TIME_LIMIT: Duration = Duration::from_secs(5);
/// How long an answer is used.
const FRESH: Duration = Duration::from_secs(5);
/// How long a failure is used.
const FRESH_FAILURE: Duration = Duration::from_secs(1);
/// Names in the cache.
const MAX_NAMES: usize = 10_000;
/// Addresses of one name that are kept; a client dials a handful at most.
const MAX_ADDRESSES: usize = 32;
/// Look-ups at a time; each blocks a thread for as long as the system's resolver takes.
const MAX_LOOKUPS: usize = 128;

/// Why a name has no address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unresolved {
    /// The resolver says so.
    Failed(String),
    /// The resolver says nothing.
    TimedOut,
    /// It could not be asked: the process has no descriptor left, or the system no memory.
    Short(String),
}

type Answer = Result<Arc<[IpAddr]>, Unresolved>;
/// One name: the lock is held while it is looked up, so that others who ask wait for that answer.
type Slot = Arc<tokio::sync::Mutex<Option<(Answer, Instant)>>>;
type Look = fn(&str) -> std::io::Result<Vec<IpAddr>>;

/// Looks names up.
pub struct Resolver {
    slots: Mutex<HashMap<Arc<str>, Slot>>,
    lookups: Arc<Semaphore>,
    look: Look,
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
    pub(super) fn with(look: Look) -> Self {
        Self { slots: Mutex::default(), lookups: Arc::new(Semaphore::new(MAX_LOOKUPS)), look }
    }

    /// The addresses of `name`, in the order that the system prefers.
    ///
    /// # Errors
    /// [`Unresolved`].
    pub async fn lookup(&self, name: &Arc<str>) -> Answer {
        let slot = self.slot(name);
        let ask = async {
            let mut slot = slot.lock().await;
            if let Some((answer, until)) = &*slot
                && clock::now() < *until
            {
                return answer.clone();
            }
            let answer = self.ask(name).await;
            let fresh = if answer.is_ok() { FRESH } else { FRESH_FAILURE };
            *slot = Some((answer.clone(), clock::now() + fresh));
            answer
        };
        tokio::time::timeout(TIME_LIMIT, ask).await.unwrap_or(Err(Unresolved::TimedOut))
    }

    /// The permit goes with the thread, not with the future: whoever stops waiting does not free
    /// the thread.
    async fn ask(&self, name: &Arc<str>) -> Answer {
        let permit = Arc::clone(&self.lookups).acquire_owned().await;
        let (name, look) = (Arc::clone(name), self.look);
        let asked = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            look(&name)
        });
        match asked.await {
            Ok(Ok(addresses)) if addresses.is_empty() => {
                Err(Unresolved::Failed("the name has no address".to_owned()))
            }
            Ok(Ok(addresses)) => Ok(addresses.into()),
            Ok(Err(error)) => Err(match shortage::of_sockets() {
                Some(short) => Unresolved::Short(short.to_string()),
                None => Unresolved::Failed(error.to_string()),
            }),
            Err(lost) => Err(Unresolved::Failed(lost.to_string())),
        }
    }

    fn slot(&self, name: &Arc<str>) -> Slot {
        let mut slots = self.slots.lock();
        if let Some(slot) = slots.get(name) {
            return Arc::clone(slot);
        }
        if slots.len() >= MAX_NAMES {
            shrink(&mut slots);
        }
        let slot = Slot::default();
        slots.insert(Arc::clone(name), Arc::clone(&slot));
        slot
    }
}

/// Makes room: what is stale goes, and where nothing is, an arbitrary half (they come back with one
/// look-up).
fn shrink(slots: &mut HashMap<Arc<str>, Slot>) {
    let now = clock::now();
    let fresh = |slot: &Slot| {
        slot.try_lock().is_ok_and(|slot| slot.as_ref().is_some_and(|(_, until)| now < *until))
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
