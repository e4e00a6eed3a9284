//! A request at the gate, and its client's preferences for its hold.

use std::time::Duration;

use super::Client;
use crate::{runtime::clock::Instant, target::Target};

/// How urgent a request is (RFC 9218 section 4.1): 0 is the most urgent, 7 the least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Urgency(u8);

impl Urgency {
    const MOST: Self = Self(0);
    const LEAST: u8 = 7;

    /// `None` above 7.
    #[must_use]
    pub fn new(urgency: u8) -> Option<Self> {
        (urgency <= Self::LEAST).then_some(Self(urgency))
    }

    /// 0 to 7.
    #[must_use]
    pub const fn level(self) -> u8 {
        self.0
    }
}

impl Default for Urgency {
    /// 3, for a request without `Priority` (RFC 9218 section 4.1).
    fn default() -> Self {
        Self(3)
    }
}

/// A client's preferences for its hold.
#[derive(Debug, Clone, Copy, Default)]
pub struct Preferences {
    /// Longest hold, if that is shorter than the rule's `max_wait` (`Prefer: wait`, RFC 7240 section 4.3).
    pub max_wait: Option<Duration>,
    /// Its place in the queue (`Priority`).
    pub urgency: Urgency,
}

/// The rank of a request in the queue.
///
/// A waiting request rises one step of urgency every tenth of `max_wait`, so none starves. All rise alike, so the order
/// of two requests never changes. It is the order of their arrivals, each delayed by the number of steps between its
/// urgency and the highest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    /// `None` comes first.
    delayed: Option<Instant>,
    pub(super) urgency: Urgency,
}

impl Rank {
    /// The rank of a request that lost its permit: it is released first.
    pub(super) const FIRST: Self = Self { delayed: None, urgency: Urgency::MOST };

    pub(super) fn new(arrival: Instant, urgency: Urgency, max_wait: Duration) -> Self {
        let delayed = arrival + max_wait / 10 * u32::from(urgency.0);
        Self { delayed: Some(delayed), urgency }
    }
}

/// A request at the gate.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) target: Target,
    pub(super) client: Client,
    pub(super) since: Instant,
    pub(super) deadline: Instant,
    pub(super) seq: u64,
    pub(super) urgency: Urgency,
}
