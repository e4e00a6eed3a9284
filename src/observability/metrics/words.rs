//! Label values from closed sets.

words! {
    /// Why the proxy answered a request itself; the words of `Tidegate-Refused`.
    #[allow(missing_docs, reason = "docs/metrics.md documents the words")]
    pub enum Reason {
        Limit = "limit",
        Cooldown = "cooldown",
        Hours = "hours",
        Queue = "queue",
        Store = "store",
        Denied = "denied",
        Egress = "egress",
        Auth = "auth",
        Malformed = "malformed",
        Dns = "dns",
        Connect = "connect",
        Tls = "tls",
        Timeout = "timeout",
        Loop = "loop",
        Via = "via",
    }
}

words! {
    /// A bound on a client or a site that was reached.
    pub enum Bound {
        /// `limits.connections`.
        Connections = "connections",
        /// `limits.per_client`.
        PerClient = "per_client",
        /// `limits.tunnels`.
        Tunnels = "tunnels",
        /// `limits.header_bytes`, and the fixed bounds on request lines, trailers and chunk extensions.
        HeaderBytes = "header_bytes",
        /// `limits.headers`.
        Headers = "headers",
        /// `timeouts.header`: no complete head in time, from the first byte or from the connection on.
        HeaderTime = "header_time",
        /// `timeouts.idle` between two requests of a connection.
        IdleConnection = "idle_connection",
        /// `timeouts.idle` within the body of a request.
        IdleRequest = "idle_request",
        /// `timeouts.idle` of a client that does not read its response.
        IdleAnswer = "idle_answer",
        /// `timeouts.idle` in a tunnel, in both directions.
        IdleTunnel = "idle_tunnel",
        /// Interim responses of a site before the final one.
        Interim = "interim",
        /// `limits.resets`, and other floods of frames on an HTTP/2 connection.
        Http2 = "http2",
    }
}

words! {
    /// What `mode: observe` would have done.
    pub enum Observed {
        /// Held for a token.
        Hold = "hold",
        /// Held by a cooldown.
        Cooldown = "cooldown",
        /// Refused.
        Refuse = "refuse",
    }
}
