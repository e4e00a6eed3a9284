//! What the rule file sets apart from its rules: plain values, checked by [`crate::config`], read everywhere.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use ipnet::IpNet;

use crate::{
    classify::ScanLimits,
    rules::{HostPattern, secret::Secret},
};

/// Everything but the rules.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where clients connect.
    pub listen: SocketAddr,
    /// The admin port; `None` if it is off.
    pub admin: Option<AdminSettings>,
    /// Where scopes live.
    pub store: StoreSettings,
    /// Who may use the proxy.
    pub auth: Auth,
    /// Where the proxy may connect to.
    pub egress: Egress,
    /// How much of a response is looked at.
    pub inspect: Inspect,
    /// How long each step may take.
    pub timeouts: Timeouts,
    /// What is bounded.
    pub limits: Bounds,
    /// Where the local CA lives.
    pub ca_dir: PathBuf,
    /// A given CA instead of the local one: certificate and key file (PEM).
    pub ca: Option<(PathBuf, PathBuf)>,
    /// Extra roots for sites (PEM files).
    pub upstream_ca: Vec<PathBuf>,
    /// Whether relayed responses tell verdict, rule and hold time.
    pub annotate: bool,
    /// Statuses of our own refusals.
    pub refuse: RefuseStatuses,
    /// Logging.
    pub log: Log,
}

impl Settings {
    /// Whether a proxy that listens on `listen` would be open to everybody, which nobody has said
    /// on purpose. After a reload `listen` is the address in use, not the file's.
    #[must_use]
    pub fn lacks_auth_on(&self, listen: SocketAddr) -> bool {
        let auth = &self.auth;
        let anybody = auth.users.is_empty() && auth.networks.is_empty() && !auth.none;
        anybody && !listen.ip().is_loopback()
    }
}

/// The admin port.
#[derive(Debug, Clone)]
pub struct AdminSettings {
    /// Its address.
    pub listen: SocketAddr,
    /// Needed on any address but loopback.
    pub token: Option<Secret>,
}

/// Where scopes live.
#[derive(Debug, Clone)]
pub enum StoreSettings {
    /// In this process.
    Memory,
    /// In Redis or Valkey, shared by the fleet.
    Redis(RedisSettings),
}

/// A Redis store.
#[derive(Debug, Clone)]
pub struct RedisSettings {
    /// `redis://`, `rediss://`, `redis-cluster://`, `redis-sentinel://` and their TLS forms; may hold a password.
    pub url: Secret,
    /// First part of every key.
    pub prefix: String,
    /// A slower answer counts as a failure.
    pub timeout: Duration,
    /// What to do while it is away.
    pub on_failure: OnFailure,
    /// Share of each rate that a member keeps while the store is away; `None` = 1 / members.
    pub local_share: Option<f64>,
    /// Extra roots for its certificate (PEM files).
    pub ca: Vec<PathBuf>,
}

/// What happens while the store is away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnFailure {
    /// Each member keeps to its share of the rate.
    Local,
    /// Requests pass.
    Open,
    /// Requests are refused.
    Closed,
}

impl OnFailure {
    /// The word of the rule file; a label value.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Open => "open",
            Self::Closed => "closed",
        }
    }
}

/// Who may use the proxy.
#[derive(Debug, Clone, Default)]
pub struct Auth {
    /// Proxy users and their passwords.
    pub users: Vec<(Arc<str>, Secret)>,
    /// Client networks that need no password.
    pub networks: Vec<IpNet>,
    /// `auth: none`: anybody who can connect (said on purpose).
    pub none: bool,
}

/// One entry of `egress.allow` or `egress.deny`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EgressPattern {
    /// `loopback`: 127.0.0.0/8 and `::1`.
    Loopback,
    /// `private`: RFC 1918, RFC 4193 and shared address space (RFC 6598).
    Private,
    /// `link_local`: 169.254.0.0/16 and `fe80::/10`, the home of cloud metadata services.
    LinkLocal,
    /// A network, optionally one port of it.
    Network(IpNet, Option<u16>),
    /// A host pattern, optionally one port of it.
    Host(HostPattern, Option<u16>),
}

/// Where the proxy may connect to: what is not public is denied unless allowed; deny beats allow.
#[derive(Debug, Clone, Default)]
pub struct Egress {
    /// What is allowed although it is not public.
    pub allow: Vec<EgressPattern>,
    /// What is denied although it is public.
    pub deny: Vec<EgressPattern>,
    /// Ports that a CONNECT may name; empty = any but 25.
    pub connect_ports: Vec<u16>,
}

/// How much of a response is looked at, decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspect {
    /// Bytes of an ordinary response.
    pub bytes: usize,
    /// Bytes of a 4xx, a 5xx and a 202.
    pub error_bytes: usize,
    /// Longest time that a response is held back for its verdict.
    pub delay: Duration,
    /// Whether a site that answers different URLs with one page that looks like a wall blocks.
    pub same_page: bool,
    /// Where pages are kept that look like walls and match no signature; `None`: nowhere.
    pub keep: Option<Keep>,
}

impl Inspect {
    /// How much of a body the classifier looks at.
    #[must_use]
    pub const fn limits(&self) -> ScanLimits {
        ScanLimits { bytes: self.bytes, error_bytes: self.error_bytes }
    }
}

/// A folder of pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keep {
    /// Where.
    pub folder: PathBuf,
    /// Files at most: a new one replaces the oldest.
    pub most: usize,
}

/// How long each step may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// A request head, from its first byte (and a silent new connection).
    pub header: Duration,
    /// Name look-up, connection and TLS.
    pub connect: Duration,
    /// The response head.
    pub response: Duration,
    /// Silence: of a body in either direction, a tunnel, a kept-alive connection.
    pub idle: Duration,
    /// From `/readyz` saying 503 to the end of accepting, when the proxy stops.
    pub notice: Duration,
    /// Finishing what is in flight when the proxy stops.
    pub drain: Duration,
}

/// What is bounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Client connections.
    pub connections: usize,
    /// Client connections of one address.
    pub per_client: usize,
    /// Open tunnels.
    pub tunnels: usize,
    /// Bytes of a request or response head.
    pub header_bytes: usize,
    /// Fields of a head.
    pub headers: usize,
    /// Requests at a time of one HTTP/2 client connection.
    pub streams: u32,
    /// Streams that a client may open and reset before they are looked at ("rapid reset",
    /// CVE-2023-44487).
    pub resets: usize,
    /// Idle connections kept to one site.
    pub idle_per_host: usize,
    /// Idle connections kept to all sites.
    pub idle_total: usize,
}

/// Statuses of our own refusals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RefuseStatuses {
    /// The wait would exceed `max_wait`.
    pub limit: u16,
    /// The scope is cooling down for longer than `max_wait`.
    pub cooldown: u16,
}

/// Logging.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    /// A level or a filter (`info`, `tidegate=debug`).
    pub level: String,
    /// For people or for programs.
    pub format: LogFormat,
    /// One line per request as well.
    pub access: bool,
    /// Where those lines go instead of standard error.
    pub access_file: Option<PathBuf>,
}

/// The form of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}
