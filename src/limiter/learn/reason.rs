//! What is told of a learned rate, and what a person may do to it.

use super::NamedWall;

/// Why the rate is what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RateReason {
    /// As the rule file says: nothing has been learned.
    #[default]
    Start,
    /// A cooldown, by a sure sign (a vendor's challenge, a captcha, a 429).
    SureTrip,
    /// A cooldown, by plain refusals only.
    DoubtfulTrip,
    /// A try above the mark ended in a cooldown, or with a sure block.
    TryFailed,
    /// A sure block that tripped nothing.
    Eased,
    /// Nothing has been blocked: upwards to what is known to be too much, or to the ceiling.
    Climb,
    /// A try above the mark.
    Try,
    /// A person's hand.
    Manual,
    /// A person's hand: nothing is known any more.
    Forgotten,
    /// The store lost its memory, and a member knew.
    Recalled,
    /// The rule file's ceiling or floor has moved past it.
    Bounds,
    /// Scattered blocks: half the rate, to see whether their share falls with it.
    Test,
    /// Their share is the same at half the rate: a wall does not cause them.
    NoWall,
    /// The site strains under the load: answers come late or fail.
    Overload,
    /// It does not any more.
    Relieved,
    /// Answers are as late at half the rate: the load does not cause that.
    NoRelief,
}

impl RateReason {
    /// All, in the order of their numbers in the store.
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

/// What a member knows of a learned rate: each answer tells it, and it repairs a store that lost its memory.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct KnownRate {
    /// Counts the changes of the rate, the mark and what a person did; 0 = nothing is known.
    pub turn: u64,
    /// The rate in force, in tokens per second.
    pub rate: f64,
    /// What the site bears, in tokens per second; 0 = no limit has been met.
    pub mark: f64,
    /// Whether a person has frozen it.
    pub frozen: bool,
    /// Why it is what it is.
    pub why: RateReason,
    /// The limit by count that it follows.
    pub wall: Option<NamedWall>,
}

/// What a person does to a learned rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RateOverride {
    /// Sets it, freezes it or thaws it; what is `None` stays as it is.
    Set {
        /// Tokens per second.
        rate: Option<f64>,
        /// Whether it stays as it is from now on, whatever happens.
        frozen: Option<bool>,
    },
    /// Forgets all that was learned: back to the start.
    Forget,
}
