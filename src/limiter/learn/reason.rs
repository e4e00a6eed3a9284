//! A member's copy of a learned rate, and its manual changes.

use super::NamedWall;

words! {
    /// Why this rate is in force. The store has the number of the reason, from 0 in this order.
    #[derive(Default)]
    pub enum RateReason {
        /// The initial rate of the rule file: nothing has been learned.
        #[default]
        Start = "start",
        /// A cooldown after a sure sign (a vendor's challenge, a captcha, a 429).
        SureTrip = "sure_trip",
        /// A cooldown after plain refusals only.
        DoubtfulTrip = "doubtful_trip",
        /// A try above the mark ended in a cooldown or with a sure block.
        TryFailed = "try_failed",
        /// A sure block that tripped nothing.
        Eased = "eased",
        /// Nothing was blocked: the rate climbs towards the blocked rate or the ceiling.
        Climb = "climb",
        /// A try above the mark.
        Try = "try",
        /// An operator set the rate.
        Manual = "hand",
        /// An operator reset it: nothing is known.
        Forgotten = "forgotten",
        /// The store lost its memory, and a member restored the rate.
        Recalled = "recalled",
        /// The rule file's ceiling or floor now excludes the old rate.
        Bounds = "bounds",
        /// Scattered blocks: half the rate shows whether their share falls with it.
        Test = "test",
        /// Their share is the same at half the rate, so no wall causes them.
        NoWall = "no_wall",
        /// The site is overloaded: responses are late or fail.
        Overload = "overload",
        /// The overload is over.
        Relieved = "relieved",
        /// Responses are just as late at half the rate, so the load is not the cause.
        NoRelief = "no_relief",
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
