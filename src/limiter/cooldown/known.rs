//! A member's copy of a cooldown, which it sends to a store that may have lost it.

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
    /// Requests are sent.
    #[default]
    Open,
    /// No request is sent for so many microseconds.
    Cooling(i64),
    /// The cooldown is over, and a probe is in flight for so many more microseconds; 0 = none is.
    Probing(i64),
}

impl KnownCooldown {
    /// An open scope in `epoch`.
    #[must_use]
    pub fn open(epoch: u64) -> Self {
        Self { epoch, ..Self::default() }
    }
}
