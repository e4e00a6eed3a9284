//! What a member knows of a cooldown, and tells a store that may have forgotten it.

/// What a member knows about a scope; it repairs a store that lost its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Known {
    /// The latest epoch that it heard of; 0 = none.
    pub epoch: u64,
    /// The state of that epoch.
    pub phase: KnownPhase,
    /// Whether the member holds the probe: granted to it, and not yet reported.
    pub holds_probe: bool,
}

/// The state of an epoch, as a member knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KnownPhase {
    /// Requests go.
    #[default]
    Open,
    /// Nothing goes for so many microseconds.
    Cooling(i64),
    /// The cooldown is over, and a probe is out for so many microseconds; 0 = none is.
    Probing(i64),
}

impl Known {
    /// An open scope of `epoch`.
    #[must_use]
    pub fn open(epoch: u64) -> Self {
        Self { epoch, ..Self::default() }
    }
}
