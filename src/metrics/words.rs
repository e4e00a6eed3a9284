//! Label values from closed sets.

/// Why a request got an answer of our own; the words of `Tidegate-Refused`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(
    missing_docs,
    reason = "the words are documented in docs/metrics.md and mean what they say"
)]
pub enum Reason {
    Limit,
    Cooldown,
    Queue,
    Store,
    Denied,
    Egress,
    Auth,
    Malformed,
    Dns,
    Connect,
    Tls,
    Timeout,
    Loop,
}

impl Reason {
    /// Every reason.
    pub const ALL: [Self; 13] = [
        Self::Limit,
        Self::Cooldown,
        Self::Queue,
        Self::Store,
        Self::Denied,
        Self::Egress,
        Self::Auth,
        Self::Malformed,
        Self::Dns,
        Self::Connect,
        Self::Tls,
        Self::Timeout,
        Self::Loop,
    ];

    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Limit => "limit",
            Self::Cooldown => "cooldown",
            Self::Queue => "queue",
            Self::Store => "store",
            Self::Denied => "denied",
            Self::Egress => "egress",
            Self::Auth => "auth",
            Self::Malformed => "malformed",
            Self::Dns => "dns",
            Self::Connect => "connect",
            Self::Tls => "tls",
            Self::Timeout => "timeout",
            Self::Loop => "loop",
        }
    }
}

/// What `mode: observe` would have done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Observed {
    /// Held for a token.
    Hold,
    /// Held by a cooldown.
    Cooldown,
    /// Refused.
    Refuse,
}

impl Observed {
    /// Every action.
    pub const ALL: [Self; 3] = [Self::Hold, Self::Cooldown, Self::Refuse];

    /// The label value.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hold => "hold",
            Self::Cooldown => "cooldown",
            Self::Refuse => "refuse",
        }
    }
}
