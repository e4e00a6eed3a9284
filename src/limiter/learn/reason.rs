//! A member's copy of a learned rate, and its manual changes.

use super::NamedWall;

/// Why this rate is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RateReason {
    /// The initial rate of the rule file: nothing has been learned.
    #[default]
    Start,
    /// A cooldown after a sure sign (a vendor's challenge, a captcha, a 429).
    SureTrip,
    /// A cooldown after plain refusals only.
    DoubtfulTrip,
    /// A try above the mark ended in a cooldown or with a sure block.
    TryFailed,
    /// A sure block that tripped nothing.
    Eased,
    /// Nothing was blocked: the rate climbs towards the blocked rate or the ceiling.
    Climb,
    /// A try above the mark.
    Try,
    /// An operator set the rate.
    Manual,
    /// An operator reset it: nothing is known.
    Forgotten,
    /// The store lost its memory, and a member restored the rate.
    Recalled,
    /// The rule file's ceiling or floor now excludes the old rate.
    Bounds,
    /// Scattered blocks: half the rate shows whether their share falls with it.
    Test,
    /// Their share is the same at half the rate, so no wall causes them.
    NoWall,
    /// The site is overloaded: responses are late or fail.
    Overload,
    /// The overload is over.
    Relieved,
    /// Responses are just as late at half the rate, so the load is not the cause.
    NoRelief,
}

impl RateReason {
    /// All reasons, in the order of their numbers in the store.
    pub const ALL: [Self; 16] = [
        Self::Start,
        Self::SureTrip,
        Self::DoubtfulTrip,
        Self::TryFailed,
        Self::Eased,
        Self::Climb,
        Self::Try,
        Self::Manual,
        Self::Forgotten,
        Self::Recalled,
        Self::Bounds,
        Self::Test,
        Self::NoWall,
        Self::Overload,
        Self::Relieved,
        Self::NoRelief,
    ];

    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::SureTrip => "sure_trip",
            Self::DoubtfulTrip => "doubtful_trip",
            Self::TryFailed => "try_failed",
            Self::Eased => "eased",
            Self::Climb => "climb",
            Self::Try => "try",
            Self::Manual => "hand",
            Self::Forgotten => "forgotten",
            Self::Recalled => "recalled",
            Self::Bounds => "bounds",
            Self::Test => "test",
            Self::NoWall => "no_wall",
            Self::Overload => "overload",
            Self::Relieved => "relieved",
            Self::NoRelief => "no_relief",
        }
    }
}

/// A member's copy of a learned rate. Every reply of the store contains it, and it repairs a store that lost its
/// memory.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct KnownRate {
    /// Version of the rate and the mark, manual changes included; 0 = nothing is known.
    pub turn: u64,
    /// The rate in force, in tokens per second.
    pub rate: f64,
    /// The highest rate that the site is known to tolerate, in tokens per second; 0 = no limit has been met.
    pub mark: f64,
    /// Whether an operator has frozen it.
    pub frozen: bool,
    /// Why it is in force.
    pub why: RateReason,
    /// The site's limit per window that the rate follows.
    pub wall: Option<NamedWall>,
}

/// A manual change of a learned rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RateOverride {
    /// Sets, freezes or unfreezes it. `None` leaves a value unchanged.
    Set {
        /// Tokens per second.
        rate: Option<f64>,
        /// Whether the rate is frozen from now on.
        frozen: Option<bool>,
    },
    /// Forgets everything learned and returns to the initial rate.
    Forget,
}
