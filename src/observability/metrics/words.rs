//! Label values from closed sets.

/// Why the proxy answered a request itself; the words of `Tidegate-Refused`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "docs/metrics.md documents the words")]
pub enum Reason {
    Limit,
    Cooldown,
    Hours,
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
    Via,
}

impl Reason {
    /// Every reason.
    pub const ALL: [Self; 15] = [
        Self::Limit,
        Self::Cooldown,
        Self::Hours,
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
        Self::Via,
    ];

    /// The word in headers and labels.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Limit => "limit",
            Self::Cooldown => "cooldown",
            Self::Hours => "hours",
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
            Self::Via => "via",
        }
    }
}

/// A bound on a client or a site that was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Bound {
    /// `limits.connections`.
    Connections,
    /// `limits.per_client`.
    PerClient,
    /// `limits.tunnels`.
    Tunnels,
    /// `limits.header_bytes`, and the fixed bounds on request lines, trailers and chunk extensions.
    HeaderBytes,
    /// `limits.headers`.
    Headers,
    /// `timeouts.header`: no complete head in time, from the first byte or from the connection on.
    HeaderTime,
    /// `timeouts.idle` between two requests of a connection.
    IdleConnection,
    /// `timeouts.idle` within the body of a request.
    IdleRequest,
    /// `timeouts.idle` of a client that does not read its response.
    IdleAnswer,
    /// `timeouts.idle` in a tunnel, in both directions.
    IdleTunnel,
    /// Interim responses of a site before the final one.
    Interim,
    /// `limits.resets`, and other floods of frames on an HTTP/2 connection.
    Http2,
}

impl Bound {
    /// Every bound.
    pub const ALL: [Self; 12] = [
        Self::Connections,
        Self::PerClient,
        Self::Tunnels,
        Self::HeaderBytes,
        Self::Headers,
        Self::HeaderTime,
        Self::IdleConnection,
        Self::IdleRequest,
        Self::IdleAnswer,
        Self::IdleTunnel,
        Self::Interim,
        Self::Http2,
    ];

    /// The label value.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::PerClient => "per_client",
            Self::Tunnels => "tunnels",
            Self::HeaderBytes => "header_bytes",
            Self::Headers => "headers",
            Self::HeaderTime => "header_time",
            Self::IdleConnection => "idle_connection",
            Self::IdleRequest => "idle_request",
            Self::IdleAnswer => "idle_answer",
            Self::IdleTunnel => "idle_tunnel",
            Self::Interim => "interim",
            Self::Http2 => "http2",
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
