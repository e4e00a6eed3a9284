//! The status of the fleet: every member and every scope, for the page, `tidegate status` and
//! `tidegate top`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Responder, ScopeFacts};

/// The status of the whole fleet.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FleetStatus {
    /// The member that responds, and the store as it sees it.
    #[serde(flatten)]
    pub responder: Responder,
    /// Whether this is the store's view of the fleet. If `false`, it is only this member's view.
    pub whole: bool,
    /// Why the store could not be read; `None` if it was, or if it is away.
    #[serde(default)]
    pub unread: Option<String>,
    /// The totals of the fleet.
    pub summary: Summary,
    /// Members; those seen most recently come first.
    pub members: Vec<MemberStatus>,
    /// Names of the rules.
    pub rules: Vec<String>,
    /// The scopes, those with the most trouble first unless another order was requested. Their
    /// number is bounded by the request.
    pub scopes: Vec<FleetScope>,
    /// The number of scopes that match the request.
    pub scopes_total: usize,
    /// Whether the store has more scopes than were read.
    pub more: bool,
}

/// The totals of the fleet.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Known scopes.
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

/// The figures that a member publishes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemberFigures {
    /// Version of the program.
    pub version: String,
    /// The address for its clients.
    pub address: String,
    /// Its admin port; empty if it has none.
    pub admin: String,
    /// Seconds since its start.
    pub uptime_s: u64,
    /// Whether it is ready.
    pub ready: bool,
    /// Whether its store answers.
    pub store_up: bool,
    /// Whether its current rule file is invalid.
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
    /// Its latest trips, by the name of the scope.
    pub trips: BTreeMap<String, TripStatus>,
    /// The latest manual rate changes on it, by the name of the scope.
    pub rates: BTreeMap<String, RateChange>,
}

/// A manual change of a learned rate.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RateChange {
    /// The time in milliseconds since 1970.
    pub at_ms: u64,
    /// The name that the operator gave.
    pub who: Option<String>,
}

/// A member's figures for one scope.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ScopeFigures {
    /// Requests held.
    pub held: u64,
    /// Requests sent per second.
    pub per_s: f64,
    /// Requests under way that `parallel` counts.
    pub under_way: u64,
    /// Responses of the last minutes; older ones count less.
    pub responses: f64,
    /// Blocks among them.
    pub blocks: f64,
}

/// A member that a site blocks far more often than the others.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BlockedMember {
    /// Its name.
    pub name: String,
    /// The share of its recent responses that are blocks.
    pub share: f64,
    /// The same of all other members.
    pub others: f64,
}

/// A member as the store knows it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MemberStatus {
    /// Its name.
    pub name: String,
    /// Whether it was seen recently.
    pub up: bool,
    /// Milliseconds since it was last seen, by the store's clock.
    pub heard_ms: u64,
    /// The figures that it last published.
    #[serde(flatten)]
    pub figures: MemberFigures,
}

/// One scope of the fleet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FleetScope {
    /// What each member's own view has too.
    #[serde(flatten)]
    pub facts: ScopeFacts,
    /// Requests sent per second by all members.
    pub sent_per_s: f64,
    /// Members with requests that wait for a token.
    pub members_waiting: u64,
    /// The latest trip, if it is known.
    pub trip: Option<TripStatus>,
    /// The member that is blocked far more often than the others, if there is one.
    #[serde(default)]
    pub blocked_member: Option<BlockedMember>,
}

/// The trip of a scope.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TripStatus {
    /// The time in milliseconds since 1970; 0 if only the store knows the trip.
    pub at_ms: u64,
    /// The block that tripped it, or `hand`.
    pub by: String,
    /// `streak`, `ratio`, `retry_after`, `hand`, ...
    pub cause: String,
    /// The counted blocks, by type.
    pub blocks: BTreeMap<String, u64>,
    /// The sum of their weights.
    pub streak: f64,
    /// The URL whose response tripped it, without its query.
    pub url: Option<String>,
    /// The status of that response.
    pub status: Option<u16>,
    /// The evidence of the verdict.
    pub evidence: Option<String>,
    /// The member that reported it.
    pub member: String,
    /// The name that the operator gave, for a manual trip.
    pub who: Option<String>,
}
