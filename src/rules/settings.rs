//! The settings of the rule file apart from its rules: plain values, checked by [`crate::config`].

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use ipnet::IpNet;
use serde::Deserialize;

use crate::{
    classify::ScanLimits,
    rules::{HostPattern, secret::Secret},
};

/// All settings except the rules.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The address for clients.
    pub listen: SocketAddr,
    /// The admin port; `None` if it is off.
    pub admin: Option<AdminSettings>,
    /// The store of the scopes.
    pub store: StoreSettings,
    /// Who may use the proxy.
    pub auth: Auth,
    /// Where the proxy may connect to.
    pub egress: Egress,
    /// How much of a response is scanned.
    pub inspect: Inspect,
    /// How long each step may take.
    pub timeouts: Timeouts,
    /// Upper bounds.
    pub limits: Bounds,
    /// The directory of the local CA.
    pub ca_dir: PathBuf,
    /// A given CA instead of the local one: certificate and key file (PEM).
    pub ca: Option<(PathBuf, PathBuf)>,
    /// Extra roots for sites (PEM files).
    pub upstream_ca: Vec<PathBuf>,
    /// Whether relayed responses contain verdict, rule and hold time.
    pub annotate: bool,
    /// Statuses of the proxy's own refusals.
    pub refuse: RefuseStatuses,
    /// Logging.
    pub log: Log,
}

impl Settings {
    /// Whether a proxy that listens on `listen` would be open to everybody without `auth: none`.
    /// After a reload `listen` is the bound address, not the file's.
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
    /// Required on any address except loopback.
    pub token: Option<Secret>,
}

/// The store of the scopes.
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
    /// `redis://`, `rediss://`, `redis-cluster://`, `redis-sentinel://` and their TLS variants; may
    /// contain a password.
    pub url: Secret,
    /// The prefix of every key.
    pub prefix: String,
    /// A slower reply counts as a failure.
    pub timeout: Duration,
    /// How requests are handled while it is away.
    pub on_failure: OnFailure,
    /// The share of each rate that a member uses while the store is away; `None` = 1 / members.
    pub local_share: Option<f64>,
    /// Extra roots for its certificate (PEM files).
    pub ca: Vec<PathBuf>,
}

words! {
    /// How requests are handled while the store is away.
    #[derive(Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum OnFailure {
        /// Each member keeps to its share of the rate.
        Local = "local",
        /// Requests pass.
        Open = "open",
        /// Requests are refused.
        Closed = "closed",
    }
}

/// Who may use the proxy.
#[derive(Debug, Clone, Default)]
pub struct Auth {
    /// Proxy users and their passwords.
    pub users: Vec<(Arc<str>, Secret)>,
    /// Client networks that need no password.
    pub networks: Vec<IpNet>,
    /// `auth: none`: anybody who can connect, as an explicit choice.
    pub none: bool,
}

/// One entry of `egress.allow` or `egress.deny`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EgressPattern {
    /// `loopback`: 127.0.0.0/8 and `::1`.
    Loopback,
    /// `private`: RFC 1918, RFC 4193 and shared address space (RFC 6598).
    Private,
    /// `link_local`: 169.254.0.0/16 and `fe80::/10`, which cloud metadata services use.
    LinkLocal,
    /// A network, optionally with a port.
    Network(IpNet, Option<u16>),
    /// A host pattern, optionally with a port.
    Host(HostPattern, Option<u16>),
}

/// Where the proxy may connect to. Addresses that are not public are denied unless allowed; `deny`
/// overrides `allow`.
#[derive(Debug, Clone, Default)]
pub struct Egress {
    /// Allowed although not public.
    pub allow: Vec<EgressPattern>,
    /// Denied although public.
    pub deny: Vec<EgressPattern>,
    /// Ports that a CONNECT may name; empty = any except 25.
    pub connect_ports: Vec<u16>,
}

/// How many decoded bytes of a response are scanned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspect {
    /// For an ordinary response.
    pub bytes: usize,
    /// For a 4xx, a 5xx and a 202.
    pub error_bytes: usize,
    /// Longest time that a response is delayed for its verdict.
    pub delay: Duration,
    /// Whether a site that sends the same page for different URLs blocks, if the page looks like a
    /// wall.
    pub same_page: bool,
    /// Where to keep pages that look like walls but match no signature; `None` keeps none.
    pub keep: Option<Keep>,
}

impl Inspect {
    /// How many bytes of a body the classifier scans.
    #[must_use]
    pub const fn limits(&self) -> ScanLimits {
        ScanLimits { bytes: self.bytes, error_bytes: self.error_bytes }
    }
}

/// A directory for pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keep {
    /// Its path.
    pub folder: PathBuf,
    /// Most files. A new one replaces the oldest.
    pub most: usize,
}

/// Time limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// For a request head, from its first byte, or from a new connection on.
    pub header: Duration,
    /// For name resolution, connection and TLS together.
    pub connect: Duration,
    /// For the response head.
    pub response: Duration,
    /// Without progress of a body in either direction, a tunnel, or a kept-alive connection.
    pub idle: Duration,
    /// From the failure of `/readyz` until the proxy stops accepting, at a stop.
    pub notice: Duration,
    /// For finishing the requests in flight, at a stop.
    pub drain: Duration,
}

/// Upper bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Client connections.
    pub connections: usize,
    /// Client connections of one address.
    pub per_client: usize,
    /// Open tunnels.
    pub tunnels: usize,
    /// Bytes of the head of a request or response.
    pub header_bytes: usize,
    /// Header fields of a head.
    pub headers: usize,
    /// Concurrent requests of one HTTP/2 client connection.
    pub streams: u32,
    /// Streams that a client may open and reset before they are processed ("rapid reset",
    /// CVE-2023-44487).
    pub resets: usize,
    /// Idle connections kept to one site.
    pub idle_per_host: usize,
    /// Idle connections kept to all sites.
    pub idle_total: usize,
}

/// Statuses of the proxy's own refusals.
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
    /// The format of log lines.
    pub format: LogFormat,
    /// Whether each request gets a line too.
    pub access: bool,
    /// The file for these lines instead of standard error.
    pub access_file: Option<PathBuf>,
}

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}
