//! The status of one member: the snapshot that the API, the status page, `tidegate status` and
//! `tidegate top` share.

mod fleet;

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use crate::{
    limiter::{
        learn::{KnownRate, NamedWall, RateReason},
        policy::Limits,
    },
    rules::{Mode, Rule},
};

pub use fleet::{
    BlockedMember, FleetScope, FleetStatus, MemberFigures, MemberStatus, RateChange, ScopeFigures,
    Summary, TripStatus,
};

/// The member that responds, and its own state.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Responder {
    /// Version of the program.
    pub version: String,
    /// Name of this member.
    pub member: String,
    /// The time of this snapshot, in milliseconds since 1970.
    pub at_ms: u64,
    /// The address for clients.
    pub listen: String,
    /// Whether `/readyz` reports ready.
    pub ready: bool,
    /// The store.
    pub store: StoreStatus,
    /// The rule file.
    pub config: ConfigStatus,
}

/// The status of one member.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The member.
    #[serde(flatten)]
    pub responder: Responder,
    /// Seconds since the start.
    pub uptime_s: u64,
    /// Running proxies of the fleet, as last known.
    pub members: i64,
    /// Open client connections.
    pub client_connections: i64,
    /// Open connections to sites.
    pub upstream_connections: i64,
    /// The scopes, those with the most trouble first. Their number is bounded.
    pub scopes: Vec<ScopeStatus>,
    /// The number of all scopes.
    pub scopes_total: usize,
}

/// The store as this member sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StoreStatus {
    /// `memory` or `redis`.
    pub kind: String,
    /// Whether it works.
    pub up: bool,
    /// Whether it has been reached since the start. `/readyz` waits for that.
    pub reached: bool,
    /// What happens to requests while it is away; `None` for `memory`.
    pub on_failure: Option<String>,
    /// `host:port` of its servers; empty for `memory`.
    pub server: String,
    /// The current failure.
    pub trouble: Option<StoreTrouble>,
}

/// A store that is away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreTrouble {
    /// The kind of failure, as in `tidegate_store_errors_total`: `auth`, `unreachable`, ...
    pub kind: String,
    /// The message of the server or the client.
    pub reason: String,
    /// What to check first.
    pub advice: String,
    /// What this member enforces during the outage.
    pub meanwhile: String,
}

/// The rule file in force.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigStatus {
    /// Its path; `None` for the built-in defaults.
    pub file: Option<String>,
    /// When it took effect, in milliseconds since 1970.
    pub loaded_ms: u64,
    /// Why the current file did not take effect; empty if it did.
    pub problems: Vec<String>,
    /// Keys that changed but need a restart.
    pub needs_restart: Vec<String>,
}

/// What is said of a scope, whether a member or the store says it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScopeFacts {
    /// Name of the rule.
    pub rule: String,
    /// The scope's key (domain, host or address); empty if the rule is not split.
    pub key: String,
    /// The state.
    pub state: ScopeState,
    /// The time until the end of the cooldown or ramp, or until the rule's hours begin, in
    /// milliseconds; 0 if open.
    pub remaining_ms: u64,
    /// Blocks in a row over the whole fleet (a sum of weights).
    pub streak: f64,
    /// The streak that trips; `None` if the rule has no cooldown.
    pub after: Option<f64>,
    /// The rate in the rule file, in tokens per second; `None` if the rule has none.
    pub rate_limit: Option<f64>,
    /// Whether the rule uses `rate: auto`. Then `rate_limit` is not from the rule file.
    #[serde(default)]
    pub rate_auto: bool,
    /// The current rate in tokens per second: as learned, and reduced during `ramp`.
    pub rate_current: Option<f64>,
    /// The learned rate; `None` if the rate is not learned, or before the first request.
    #[serde(default)]
    pub learned: Option<LearnedStatus>,
    /// The rate that the site announces, in tokens per second.
    #[serde(default)]
    pub site_rate: Option<f64>,
    /// Requests held, by this member or by all.
    pub held: u64,
    /// `parallel` of the rule.
    #[serde(default)]
    pub parallel: Option<u32>,
    /// Requests under way that `parallel` counts, of this member or of all.
    #[serde(default)]
    pub under_way: u64,
    /// The limits of each user (`each_user`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub each_user: Option<UserLimits>,
    /// The rule's upstream proxy, without its login.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<String>,
    /// Counts the trips and clears of the scope.
    pub epoch: u64,
    /// Whether the rule only observes (`mode: observe`).
    pub observe: bool,
}

impl ScopeFacts {
    /// An open scope without traffic. `None`: the rule file has no rule of this name.
    #[must_use]
    pub fn idle(rule_name: &str, key: &str, rule: Option<&Rule>) -> Self {
        Self {
            rule: rule_name.to_owned(),
            key: key.to_owned(),
            state: ScopeState::Open,
            remaining_ms: 0,
            streak: 0.0,
            after: rule.and_then(|rule| rule.cooldown.as_ref()).map(|policy| policy.after),
            rate_limit: rule.and_then(|rule| rule.limits.rate),
            rate_auto: rule.is_some_and(|rule| rule.auto_rate),
            rate_current: None,
            learned: None,
            site_rate: None,
            held: 0,
            parallel: rule.and_then(|rule| rule.parallel),
            under_way: 0,
            each_user: rule.and_then(|rule| rule.each_user.as_ref()).map(Into::into),
            via: rule.and_then(|rule| rule.via.as_ref()).map(ToString::to_string),
            epoch: 0,
            observe: rule.is_some_and(|rule| rule.mode == Mode::Observe),
        }
    }

    /// The scope's name: `rule`, or `rule/key` if the rule is split.
    #[must_use]
    pub fn name(&self) -> String {
        scope_name(&self.rule, &self.key)
    }
}

/// One scope as this member knows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScopeStatus {
    /// What the fleet's view has too.
    #[serde(flatten)]
    pub facts: ScopeFacts,
    /// Capacity of the bucket.
    pub burst: u32,
    /// Tokens in the bucket, as last known to this member.
    pub tokens: Option<f64>,
    /// Requests that this member has sent since its start.
    pub sent: u64,
    /// Responses by verdict, seen by this member since its start.
    pub verdicts: BTreeMap<String, u64>,
}

/// The limits of each user of a rule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UserLimits {
    /// Tokens per second; `None` if only quotas limit users.
    pub rate: Option<f64>,
    /// The quotas.
    pub quotas: Vec<QuotaLimit>,
}

/// A quota.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QuotaLimit {
    /// Tokens per window.
    pub tokens: u64,
    /// Length of the window.
    pub seconds: u64,
}

impl From<&Limits> for UserLimits {
    fn from(limits: &Limits) -> Self {
        let quotas = limits
            .quotas
            .iter()
            .map(|quota| QuotaLimit { tokens: quota.tokens, seconds: quota.window.as_secs() });
        Self { rate: limits.rate, quotas: quotas.collect() }
    }
}

/// A learned rate, as last known to this member.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LearnedStatus {
    /// Tokens per second, without the ramp after a cooldown.
    pub rate: f64,
    /// The rate that the site is known to tolerate, in tokens per second; `None` if no limit has
    /// been met.
    pub mark: Option<f64>,
    /// Whether an operator has frozen it.
    pub frozen: bool,
    /// The reason for the current rate, as a word.
    pub why: String,
    /// The name that an operator gave with a manual change, if a member of the fleet knows it.
    #[serde(default)]
    pub who: Option<String>,
    /// The site's limit by count, if long bans have shown one.
    #[serde(default)]
    pub wall: Option<WallStatus>,
}

/// A site's limit by count.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct WallStatus {
    /// Requests that the site lets through in its window.
    pub requests: f64,
    /// The window in milliseconds.
    pub window_ms: u64,
    /// How long it bans, in milliseconds.
    pub ban_ms: u64,
    /// Trips in a row that agree with it.
    pub trips: u32,
}

impl From<NamedWall> for WallStatus {
    fn from(wall: NamedWall) -> Self {
        let NamedWall { requests, window, ban, trips } = wall;
        let [window_ms, ban_ms] = [window, ban].map(|us| u64::try_from(us / 1_000).unwrap_or(0));
        Self { requests: requests.round(), window_ms, ban_ms, trips }
    }
}

/// `300 per 5 min, ban of 10 min (2 trips)`.
impl fmt::Display for WallStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requests, window_ms, ban_ms, trips } = self;
        let window = match *window_ms {
            ms if ms % 3_600_000 == 0 => format!("{} h", ms / 3_600_000),
            ms if ms % 60_000 == 0 => format!("{} min", ms / 60_000),
            ms if ms % 1_000 == 0 => format!("{} s", ms / 1_000),
            ms => format!("{}.{} s", ms / 1_000, ms / 100 % 10),
        };
        let ban = (ban_ms + 30_000) / 60_000;
        let s = if *trips == 1 { "" } else { "s" };
        write!(f, "{requests} per {window}, ban of {ban} min ({trips} trip{s})")
    }
}

impl LearnedStatus {
    /// What a member knows; `None` before the first request.
    #[must_use]
    pub fn of(known: KnownRate) -> Option<Self> {
        (known.turn > 0).then(|| Self {
            rate: known.rate,
            mark: (known.mark > 0.0).then_some(known.mark),
            frozen: known.frozen,
            why: known.why.as_str().to_owned(),
            who: None,
            wall: known.wall.map(Into::into),
        })
    }

    /// Whether an operator set it.
    #[must_use]
    pub fn is_by_hand(&self) -> bool {
        self.frozen
            || self.why == RateReason::Manual.as_str()
            || self.why == RateReason::Forgotten.as_str()
    }
}

words! {
    /// How a scope handles requests.
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum ScopeState {
        /// They are sent as fast as the rate allows.
        Open = "open",
        /// They are held until the cooldown ends.
        Cooling = "cooling",
        /// One is in flight; the others wait for its response.
        Probing = "probing",
        /// They are sent, slower at first.
        Ramping = "ramping",
        /// They are held until the rule's hours begin.
        OutsideHours = "outside_hours",
    }
}

impl ScopeState {
    /// Whether no requests of the scope are sent, except for a probe.
    #[must_use]
    pub const fn is_closed(self) -> bool {
        matches!(self, Self::Cooling | Self::Probing)
    }
}

/// `rule`, or `rule/key` if the rule is split.
#[must_use]
pub fn scope_name(rule: &str, key: &str) -> String {
    if key.is_empty() { rule.to_owned() } else { format!("{rule}/{key}") }
}
