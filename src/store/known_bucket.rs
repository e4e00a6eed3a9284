//! This member's last copy of one bucket in Redis, which repairs a store that lost its data, and its decisions without
//! the store. Scopes that share a bucket share the copy.

use std::{
    collections::HashMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64},
    },
};

use parking_lot::Mutex;

use super::{
    Granted,
    fallback::{LocalScope, Windows},
};
use crate::{
    limiter::bucket::Window,
    runtime::clock::{self, Instant},
};

/// Above this number of buckets, dropped ones are removed each time the number has doubled.
const SWEEP_FROM: usize = 1_024;

/// The buckets of one shard that this member uses.
#[derive(Debug, Default)]
pub(in crate::store) struct KnownBuckets(Mutex<HashMap<Arc<str>, Weak<KnownBucket>>>);

impl KnownBuckets {
    pub(super) fn find_or_make(&self, key: &Arc<str>) -> Arc<KnownBucket> {
        let mut buckets = self.0.lock();
        if let Some(known) = buckets.get(key).and_then(Weak::upgrade) {
            return known;
        }
        if buckets.len() >= SWEEP_FROM && buckets.len().is_power_of_two() {
            buckets.retain(|_, bucket| bucket.strong_count() > 0);
        }
        let new = Arc::new(KnownBucket::default());
        buckets.insert(Arc::clone(key), Arc::downgrade(&new));
        new
    }
}

/// One bucket as this member knows it.
#[derive(Debug, Default)]
pub(crate) struct KnownBucket {
    /// The latest ticket from the store. If the store loses its data, the bucket continues from this ticket.
    latest: Mutex<Latest>,
    /// The windows of its quotas as last known. A trip does not clear them.
    windows: Mutex<Option<Windows>>,
    /// The decisions without the store since its last reply.
    pub(super) local: Mutex<Option<LocalScope>>,
    /// The latest time without the store that was reported for this bucket.
    pub(super) reported: AtomicU64,
    /// Whether requests under `parallel` have started without the store since its last reply.
    pub(super) slots_local: AtomicBool,
}

#[derive(Debug, Clone, Copy, Default)]
struct Latest {
    /// The epoch of the cooldown that empties the bucket; 0 if none does.
    epoch: u64,
    ticket: Option<Ticket>,
}

#[derive(Debug, Clone, Copy)]
struct Ticket {
    at: i64,
    /// The store's time at the reply.
    as_of: i64,
    /// Members that waited then.
    members: u32,
    /// The rate in force, in tokens per second; 0 = none.
    rate: f64,
    heard: Instant,
}

impl KnownBucket {
    /// Records a reply of the store. `epoch`: of the cooldown that empties the bucket.
    pub(super) fn granted(&self, granted: &Granted, epoch: u64) {
        let (as_of, heard) = (granted.now, clock::now());
        if !granted.windows.is_empty() {
            *self.windows.lock() = Some(Windows { as_of, heard, each: granted.windows.clone() });
        }
        let mut latest = self.latest.lock();
        if epoch > latest.epoch {
            *latest = Latest { epoch, ticket: None };
        }
        if let Some(at) = granted.tickets.last().copied() {
            let Granted { members, rate, .. } = *granted;
            latest.ticket = Some(Ticket { at, as_of, members, rate, heard });
        }
    }

    /// The latest ticket and its epoch, for a store that may have lost its data. A trip voids the ticket.
    pub(super) fn latest_ticket(&self) -> (String, u64) {
        let Latest { epoch, ticket } = *self.latest.lock();
        let text =
            ticket.map(|Ticket { at, as_of, members, .. }| format!("{at}:{as_of}:{members}"));
        (text.unwrap_or_default(), epoch)
    }

    /// When the latest ticket of the store is due, in microseconds from now (negative: past); `None` if there was none
    /// since the latest trip that is known.
    pub(super) fn latest_due(&self) -> Option<i64> {
        let ticket = self.latest.lock().ticket?;
        Some(ticket.at - ticket.as_of - clock::micros(ticket.heard.elapsed()))
    }

    /// The epoch of the latest reply.
    pub(super) fn epoch(&self) -> u64 {
        self.latest.lock().epoch
    }

    /// The rate in force with the latest ticket, in tokens per second; 0 = none.
    pub(super) fn rate(&self) -> f64 {
        self.latest.lock().ticket.map_or(0.0, |ticket| ticket.rate)
    }

    /// The windows of its quotas, as last known.
    pub(super) fn heard(&self) -> Option<Windows> {
        self.windows.lock().clone()
    }

    /// The tokens taken in the windows of its quotas, as last known.
    pub(super) fn windows(&self) -> String {
        let windows = self.windows.lock();
        let Some(Windows { as_of, each, .. }) = &*windows else { return String::new() };
        let each =
            each.iter().map(|Window { length, start, taken }| format!("{length}:{start}:{taken}"));
        format!("{as_of};{}", each.collect::<Vec<_>>().join(","))
    }
}
