//! What a member sends to a cooldown: the response to a request, and its own copy of the state.

use crate::{
    classify::verdict::Verdict,
    limiter::{load::Tally, policy::Quota},
};

/// The response, as far as it matters to the cooldown.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Answer {
    /// A sign of health.
    Ok,
    /// A block.
    Block {
        /// Its weight.
        weight: f64,
        /// The wait that the site asked for, in microseconds; 0 = none.
        retry_after: i64,
        /// Whether it is a sure sign (a vendor's wall, a 429) rather than a plain refusal.
        sure: bool,
        /// Its type.
        verdict: Verdict,
    },
    /// No response from a site that answered before, without any sign of a network outage.
    Silence {
        /// Its weight; see [`super::silence_weight`].
        weight: f64,
        /// How the connection failed.
        verdict: Verdict,
    },
    /// A plain 503 ([`crate::limiter::refusals`]). A single one trips nothing, but it counts in the share of blocks.
    Refusal {
        /// Its weight: almost none, or that of a whole streak if it ends a run.
        weight: f64,
    },
    /// No information (a connection error, a client that disconnected). It matters only for a probe.
    Nothing,
}

impl Answer {
    /// The kind of block as which it counts.
    pub(super) const fn verdict(&self) -> Verdict {
        match self {
            Self::Block { verdict, .. } | Self::Silence { verdict, .. } => *verdict,
            Self::Ok | Self::Refusal { .. } | Self::Nothing => Verdict::Ok,
        }
    }
}

/// What a response says about the site's limit.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Named {
    /// The highest allowed rate.
    pub ceiling: Option<NamedRate>,
    /// No request may be sent for this long, in microseconds.
    pub hold: Option<i64>,
}

/// A rate that the site announces.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NamedRate {
    /// Tokens per second.
    pub rate: f64,
    /// How long it applies, in microseconds.
    pub lasts: i64,
}

/// A report to the scope.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Report {
    /// The epoch of the grant.
    pub epoch: u64,
    /// The moment of the probe's grant if the request was a probe, else 0.
    pub probe: i64,
    /// The response.
    pub answer: Answer,
    /// Successes since the member's last report, which cost no call.
    pub oks: u32,
    /// A uniform draw from [0, 1) for the length of the cooldown, if this report trips one.
    pub draw: f64,
    /// What the response says about the site's limit.
    pub named: Option<Named>,
    /// The limit against which the answer counts as an error; `None` if it is not an error.
    pub error: Option<Quota>,
    /// The member's counts of the load.
    pub load: Option<Tally>,
}

impl Report {
    /// A report of a single response that was not a probe. Its `draw` is 0.
    #[must_use]
    pub const fn new(epoch: u64, answer: Answer) -> Self {
        Self { epoch, probe: 0, answer, oks: 0, draw: 0.0, named: None, error: None, load: None }
    }
}

/// What a report changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Nothing that other members need to know.
    None,
    /// The report is from an older epoch.
    Stale,
    /// The streak grew, or was reset.
    Streak,
    /// The scope cools down.
    Tripped,
    /// The probe succeeded.
    Opened,
    /// The probe brought no information; the next request is the probe.
    ProbeLost,
}

/// A member's copy of a scope's cooldown. It repairs a store that lost its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KnownCooldown {
    /// The latest epoch that the member knows; 0 = none.
    pub epoch: u64,
    /// The state of that epoch.
    pub phase: KnownPhase,
    /// Whether the member holds the probe: granted to it, and not yet reported.
    pub holds_probe: bool,
}

/// The state of an epoch, as a member knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KnownPhase {
    /// It is not closed, as far as the member knows.
    #[default]
    Open,
    /// Its cooldown is over: the store has said so, or a probe has succeeded.
    Opened,
    /// No request is sent for this many microseconds.
    Cooling(i64),
    /// The cooldown is over, and a probe is in flight for this many more microseconds; 0 = no probe is in flight.
    Probing(i64),
}

impl KnownPhase {
    /// Whether the epoch is not closed.
    #[must_use]
    pub fn is_open(self) -> bool {
        matches!(self, Self::Open | Self::Opened)
    }
}

impl KnownCooldown {
    /// Whether a store lacks this: a later epoch, or the opening of the epoch that the store has (`closed`).
    #[must_use]
    pub fn is_news_to(&self, epoch: u64, closed: bool) -> bool {
        self.epoch > epoch || self.epoch == epoch && closed && self.phase == KnownPhase::Opened
    }

    /// Whether a member reports this as soon as it reads the store: a later epoch that is closed, or the opening of the
    /// epoch that the store has. An open later epoch can wait for the next call.
    #[must_use]
    pub fn is_urgent_for(&self, epoch: u64, closed: bool) -> bool {
        self.is_news_to(epoch, closed) && (self.epoch == epoch || !self.phase.is_open())
    }

    /// An open scope in `epoch`.
    #[must_use]
    pub fn open(epoch: u64) -> Self {
        Self { epoch, ..Self::default() }
    }
}
