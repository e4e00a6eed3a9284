//! What the gates look like at one moment: the one snapshot that the API, the status page, `tidegate status` and
//! `tidegate top` share.

mod fleet;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::limiter::learn::Why;

pub use fleet::{
    FleetScope, FleetStatus, MemberFigures, MemberStatus, RateChange, ScopeFigures, Summary,
    TripStatus,
};

/// The whole proxy as it is now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Version of the program.
    pub version: String,
    /// Name of this member.
    pub member: String,
    /// Milliseconds since 1970 at which this snapshot was made.
    pub at_ms: u64,
    /// Seconds since the start.
    pub uptime_s: u64,
    /// Where clients connect.
    pub listen: String,
    /// Whether `/readyz` says yes.
    pub ready: bool,
    /// The store.
    pub store: StoreStatus,
    /// Running proxies of the fleet, as last known.
    pub members: i64,
    /// Open client connections.
    pub client_connections: i64,
    /// Open connections to sites.
    pub upstream_connections: i64,
    /// The rule file.
    pub config: ConfigStatus,
    /// Scopes, the most worrying first; at most a bounded number of them.
    pub scopes: Vec<ScopeStatus>,
    /// How many scopes there are.
    pub scopes_total: usize,
}

/// The store as this member sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StoreStatus {
    /// `memory` or `redis`.
    pub kind: String,
    /// Whether it answers.
    pub up: bool,
    /// Whether it has answered since the start; `/readyz` waits for that.
    pub reached: bool,
    /// What happens while it is away; `None` for `memory`.
    pub on_failure: Option<String>,
    /// `host:port` of its servers; empty for `memory`.
    pub server: String,
    /// What keeps it away now.
    pub trouble: Option<StoreTrouble>,
}

/// A store that is away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreTrouble {
    /// As `tidegate_store_errors_total` has it: `auth`, `unreachable`, ...
    pub kind: String,
    /// The server's or the client's words.
    pub reason: String,
    /// What to look at first.
    pub advice: String,
    /// What this member enforces meanwhile.
    pub meanwhile: String,
}

/// The rule file in force.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigStatus {
    /// Its path; `None` for the defaults inside the program.
    pub file: Option<String>,
    /// Milliseconds since 1970 at which it took effect.
    pub loaded_ms: u64,
    /// Why the file as it is now did not take effect; empty where it did.
    pub problems: Vec<String>,
    /// Keys that changed but need a restart.
    pub needs_restart: Vec<String>,
}

/// A note on requests under way, for a table: empty where nothing limits them.
#[must_use]
pub fn under_way(count: u64, parallel: Option<u32>) -> String {
    parallel.map_or_else(String::new, |most| format!(", {count} of {most} under way"))
}

/// One scope as this member knows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScopeStatus {
    /// Name of the rule.
    pub rule: String,
    /// The scope's key (domain or host); empty where the rule is not split.
    pub key: String,
    /// The rate in the rule file, in tokens per second; `None` if the rule has none.
    pub rate_limit: Option<f64>,
    /// Whether the rule says `rate: auto`; `rate_limit` is then not from the rule file.
    #[serde(default)]
    pub rate_auto: bool,
    /// Tokens per second in force: as learned, and climbing over `ramp`.
    pub rate_current: Option<f64>,
    /// What has been learned of the rate; `None` where nothing is, or before the first request.
    #[serde(default)]
    pub learned: Option<LearnedStatus>,
    /// The rate that the site itself names, in tokens per second.
    #[serde(default)]
    pub site_rate: Option<f64>,
    /// Capacity of the bucket.
    pub burst: u32,
    /// Tokens in the bucket when this member last heard of it.
    pub tokens: Option<f64>,
    /// Requests held by this member.
    pub held: u64,
    /// `parallel` of the rule.
    #[serde(default)]
    pub parallel: Option<u32>,
    /// Requests of this member under way that `parallel` counts.
    #[serde(default)]
    pub under_way: u64,
    /// Requests that this member has let through since its start.
    pub sent: u64,
    /// Blocks in a row over the whole fleet (a sum of weights).
    pub streak: f64,
    /// Streak that trips; `None` where the rule has no cooldown.
    pub after: Option<f64>,
    /// Open, cooling, ...
    pub state: ScopeState,
    /// What is left of the cooldown, of the ramp, or until the rule's hours begin, in milliseconds; 0 when open.
    pub remaining_ms: u64,
    /// Counts the trips and clears of the scope.
    pub epoch: u64,
    /// Whether the rule only watches (`mode: observe`).
    pub observe: bool,
    /// Answers by verdict, seen by this member since its start.
    pub verdicts: BTreeMap<String, u64>,
}

/// A learned rate as this member last heard of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LearnedStatus {
    /// Tokens per second, without the climb after a cooldown.
    pub rate: f64,
    /// What the site bears, in tokens per second; `None` as long as no limit has been met.
    pub mark: Option<f64>,
    /// Whether a person has frozen it.
    pub frozen: bool,
    /// Why it is what it is, in a word.
    pub why: String,
    /// Who set it by hand, as they call themselves, as far as a member of the fleet remembers.
    #[serde(default)]
    pub who: Option<String>,
}

impl LearnedStatus {
    /// Whether a person made it what it is.
    #[must_use]
    pub fn is_by_hand(&self) -> bool {
        self.frozen || self.why == Why::Hand.as_str() || self.why == Why::Forgotten.as_str()
    }
}

/// What a scope does with requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScopeState {
    /// They go as fast as the rate allows.
    Open,
    /// They are held until the cooldown ends.
    Cooling,
    /// One is on its way; the others wait for its answer.
    Probing,
    /// They go again, slower at first.
    Ramping,
    /// They are held until the rule's hours begin.
    OutsideHours,
}

impl ScopeState {
    /// Whether nothing of the scope is sent, but for a probe.
    #[must_use]
    pub const fn is_closed(self) -> bool {
        matches!(self, Self::Cooling | Self::Probing)
    }

    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Cooling => "cooling",
            Self::Probing => "probing",
            Self::Ramping => "ramping",
            Self::OutsideHours => "outside_hours",
        }
    }
}

impl ScopeStatus {
    /// The scope's name: `rule`, or `rule/key` where the rule is split.
    #[must_use]
    pub fn name(&self) -> String {
        scope_name(&self.rule, &self.key)
    }
}

/// `rule`, or `rule/key` where the rule is split.
#[must_use]
pub fn scope_name(rule: &str, key: &str) -> String {
    if key.is_empty() { rule.to_owned() } else { format!("{rule}/{key}") }
}
