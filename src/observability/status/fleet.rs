//! The fleet at one moment: every member and every scope, as the page, `tidegate status` and `tidegate top` show them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{ConfigStatus, LearnedStatus, ScopeState, StoreStatus, scope_name};

/// The whole fleet.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FleetStatus {
    /// Version of the member that answers.
    pub version: String,
    /// Name of the member that answers.
    pub member: String,
    /// Where clients of the member that answers connect.
    pub listen: String,
    /// Milliseconds since 1970 at which this was made.
    pub at_ms: u64,
    /// Whether the member that answers is ready.
    pub ready: bool,
    /// The store as that member sees it.
    pub store: StoreStatus,
    /// The rule file of that member.
    pub config: ConfigStatus,
    /// Whether this is what the store knows of the fleet; `false`: only what this member knows.
    pub whole: bool,
    /// Why the store could not be read; `None` if it was, or if it is away.
    #[serde(default)]
    pub unread: Option<String>,
    /// The sums over the fleet.
    pub summary: Summary,
    /// Members, those heard last first.
    pub members: Vec<MemberStatus>,
    /// Names of the rules.
    pub rules: Vec<String>,
    /// Scopes, the most worrying first unless another order was asked for; at most as many as were asked for.
    pub scopes: Vec<FleetScope>,
    /// How many scopes match what was asked.
    pub scopes_total: usize,
    /// Whether the store has more scopes than were read.
    pub more: bool,
}

/// The sums over the fleet.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Scopes that are known.
    pub scopes: usize,
    /// Scopes that cool down, or wait for a probe.
    pub cooling: usize,
    /// Requests held by all members.
    pub held: u64,
    /// Requests of the last second, over all members.
    pub requests_per_s: f64,
    /// Blocks of the last minute, over all members.
    pub blocks_per_min: u64,
    /// Good pages of the last minute, over all members.
    pub pages_per_min: u64,
    /// Members that are up.
    pub members_up: usize,
}

/// What a member publishes of itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemberFigures {
    /// Version of the program.
    pub version: String,
    /// Where its clients connect.
    pub address: String,
    /// Its admin port; empty if it has none.
    pub admin: String,
    /// Seconds since its start.
    pub uptime_s: u64,
    /// Whether it is ready.
    pub ready: bool,
    /// Whether its store answers.
    pub store_up: bool,
    /// Whether the rule file as it is now could not be put in force.
    pub bad_file: bool,
    /// Requests of the last second.
    pub requests_per_s: f64,
    /// Good pages of the last minute.
    pub pages_per_min: u64,
    /// Blocks of the last minute.
    pub blocks_per_min: u64,
    /// Requests held.
    pub held: u64,
    /// Its busiest scopes, by name.
    pub scopes: BTreeMap<String, ScopeFigures>,
    /// The latest trips that it caused, by the name of the scope.
    pub trips: BTreeMap<String, TripStatus>,
    /// The latest rates that a person changed on it, by the name of the scope.
    pub rates: BTreeMap<String, RateChange>,
}

/// Who changed a learned rate by hand.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RateChange {
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// As they call themselves.
    pub who: Option<String>,
}

/// What a member does in one scope.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ScopeFigures {
    /// Requests held.
    pub held: u64,
    /// Requests sent a second.
    pub per_s: f64,
    /// Requests under way that `parallel` counts.
    pub under_way: u64,
}

/// A member as the store knows it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MemberStatus {
    /// Its name.
    pub name: String,
    /// Whether it was heard lately.
    pub up: bool,
    /// Milliseconds since it was last heard, by the store's clock.
    pub heard_ms: u64,
    /// What it published then.
    #[serde(flatten)]
    pub figures: MemberFigures,
}

/// One scope of the fleet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FleetScope {
    /// Name of the rule.
    pub rule: String,
    /// The scope's key; empty if the rule is not split.
    pub key: String,
    /// Open, cooling, ...
    pub state: ScopeState,
    /// What is left of the cooldown, or until the rule's hours begin, in milliseconds.
    pub remaining_ms: u64,
    /// Blocks in a row (a sum of weights).
    pub streak: f64,
    /// Streak that trips; `None` if the rule has no cooldown.
    pub after: Option<f64>,
    /// The rate in the rule file, in tokens per second; `None` if the rule has none.
    pub rate_limit: Option<f64>,
    /// Whether the rule says `rate: auto`; `rate_limit` is then not from the rule file.
    #[serde(default)]
    pub rate_auto: bool,
    /// Tokens per second in force.
    pub rate_current: Option<f64>,
    /// What has been learned of the rate.
    pub learned: Option<LearnedStatus>,
    /// The rate that the site itself names, in tokens per second.
    #[serde(default)]
    pub site_rate: Option<f64>,
    /// Requests held by all members.
    pub held: u64,
    /// `parallel` of the rule.
    #[serde(default)]
    pub parallel: Option<u32>,
    /// Requests of all members under way that `parallel` counts.
    #[serde(default)]
    pub under_way: u64,
    /// Requests sent a second by all members.
    pub sent_per_s: f64,
    /// Members with requests that wait for a token.
    pub members_waiting: u64,
    /// Counts the trips and clears.
    pub epoch: u64,
    /// Whether the rule only watches.
    pub observe: bool,
    /// What tripped it last, as far as anybody knows.
    pub trip: Option<TripStatus>,
}

/// What tripped a scope.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TripStatus {
    /// When, in milliseconds since 1970; 0 if only the store remembers it.
    pub at_ms: u64,
    /// The block that tripped it, or `hand`.
    pub by: String,
    /// `streak`, `ratio`, `retry_after`, `hand`, ...
    pub cause: String,
    /// The blocks that counted, by type.
    pub blocks: BTreeMap<String, u64>,
    /// Their sum of weights.
    pub streak: f64,
    /// The URL whose answer tripped it, without its query.
    pub url: Option<String>,
    /// The status of that answer.
    pub status: Option<u16>,
    /// What the verdict rests on.
    pub evidence: Option<String>,
    /// The member that reported it.
    pub member: String,
    /// Who did it by hand, as they call themselves.
    pub who: Option<String>,
}

impl FleetScope {
    /// `rule`, or `rule/key` if the rule is split.
    #[must_use]
    pub fn name(&self) -> String {
        scope_name(&self.rule, &self.key)
    }
}
