//! The policy of a scope as plain values: its limits, and when it cools down.

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use serde::Deserialize;

use super::learn::Learn;
use crate::{
    classify::verdict::Verdict,
    target::{Host, Target},
};

/// The key of a rule that is not split. Shared, because every request looks it up.
static WHOLE: LazyLock<Arc<str>> = LazyLock::new(|| Arc::from(""));

/// How a rule is split into scopes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Split {
    /// One scope for the whole rule.
    All,
    /// One per registrable domain (public suffix list).
    Domain,
    /// One per host name.
    Host,
    /// One per server, by the address that is dialled.
    Address,
}

impl Split {
    /// The finest split whose parts contain only whole scopes of both: scopes that share a bucket or a cooldown are in
    /// the same part. A host may change its address, so host and address have only `All` in common.
    #[must_use]
    pub fn coarser(self, other: Self) -> Self {
        match (self, other) {
            (one, other) if one == other => one,
            (Self::Domain, Self::Host) | (Self::Host, Self::Domain) => Self::Domain,
            _ => Self::All,
        }
    }

    /// The part of the scope's name after the rule's name: empty, the domain, the host, or the server (empty before its
    /// look-up).
    #[must_use]
    pub fn key_of(self, target: &Target) -> Arc<str> {
        match self {
            Self::Address => target.server.clone().unwrap_or_default(),
            Self::All | Self::Domain | Self::Host => self.key(&target.host),
        }
    }

    /// The same if only the host is known. Before a look-up, each host counts as a server of its own.
    #[must_use]
    pub fn key(self, host: &Host) -> Arc<str> {
        match (self, host) {
            (Self::All, _) => Arc::clone(&WHOLE),
            (Self::Host | Self::Address, Host::Name(name)) => Arc::clone(name),
            (Self::Domain, Host::Name(name)) => match psl::domain_str(name) {
                Some(domain) if domain.len() < name.len() => Arc::from(domain),
                _ => Arc::clone(name),
            },
            (Self::Host | Self::Domain | Self::Address, Host::Ip(_)) => Arc::from(host.to_string()),
        }
    }
}

/// A fixed window: at most `tokens` in each `window`, which starts with its first request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// Tokens per window, at least the rule's cost.
    pub tokens: u64,
    /// Length of the window.
    pub window: Duration,
}

/// How fast the requests of one scope may be sent.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// Tokens per second (positive, finite); `None` limits nothing.
    pub rate: Option<f64>,
    /// Capacity of the bucket, at least `cost`.
    pub burst: u32,
    /// Fixed windows on top of the rate.
    pub quotas: Vec<Quota>,
    /// Tokens that one request takes, at least 1.
    pub cost: u32,
    /// How the rate is learned, with `rate` as the ceiling; `None` if it is fixed.
    pub learn: Option<Learn>,
}

impl Limits {
    /// No limit.
    pub const NONE: Self = Self { rate: None, burst: 1, quotas: Vec::new(), cost: 1, learn: None };

    /// Whether there is neither a rate nor a quota.
    #[must_use]
    pub fn is_unlimited(&self) -> bool {
        self.rate.is_none() && self.quotas.is_empty()
    }
}

/// The weight of each kind of response in the cooldown.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Weights {
    /// By verdict; a missing verdict is not a block.
    pub verdicts: Vec<(Verdict, f64)>,
    /// By status, for responses with the verdict `ok` (`on: [5xx, 404]`): first and last status of
    /// a range, weight.
    pub statuses: Vec<(u16, u16, f64)>,
}

impl Weights {
    /// The weight of a response with this verdict and status; `None` if it is not a block.
    #[must_use]
    pub fn of(&self, verdict: Verdict, status: Option<u16>) -> Option<f64> {
        let by_verdict = self.verdicts.iter().find(|(v, _)| *v == verdict).map(|(_, w)| *w);
        by_verdict.or_else(|| {
            let status = status?;
            let hit = |(from, to, _): &&(u16, u16, f64)| (*from..=*to).contains(&status);
            self.statuses.iter().find(hit).map(|(_, _, w)| *w)
        })
    }
}

/// `ratio: 50% of 20`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio {
    /// The share of blocks that trips, above 0 and at most 1.
    pub share: f64,
    /// The number of last verdicts that it applies to (2 to 1,000).
    pub of: u32,
}

/// When a scope cools down, and how it opens again.
#[derive(Debug, Clone, PartialEq)]
pub struct CooldownPolicy {
    /// How cooldowns are split; may differ from the rule's `per`.
    pub per: Split,
    /// Consecutive blocks (the sum of their weights) that trip.
    pub after: f64,
    /// This share of the last verdicts trips too.
    pub ratio: Option<Ratio>,
    /// This many connections in a row that were dropped, refused or not answered trip, if the site answered before.
    /// `None` if they never trip.
    pub silence: Option<u32>,
    /// Which responses are blocks, and their weights.
    pub on: Weights,
    /// Shortest and longest first cooldown. The length is drawn uniformly, once for the whole
    /// fleet.
    pub length: (Duration, Duration),
    /// A streak without a new response is forgotten after this time.
    pub forget_after: Duration,
    /// Whether a single request goes first when a cooldown ends.
    pub probe: bool,
    /// Factor by which a failed probe multiplies the next cooldown, at least 1.
    pub grow: f64,
    /// Longest cooldown.
    pub max: Duration,
    /// Whether a block with a `Retry-After` trips at once, for that long.
    pub respect_retry_after: bool,
    /// The time until the full rate is reached again.
    pub ramp: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> Host {
        Host::parse(text).expect("a valid host")
    }

    #[test]
    fn a_scope_is_named_after_the_registrable_domain() {
        assert_eq!(&*Split::Domain.key(&host("www.shop.co.uk")), "shop.co.uk");
        assert_eq!(&*Split::Domain.key(&host("a.github.io")), "a.github.io");
        assert_eq!(&*Split::Domain.key(&host("co.uk")), "co.uk");
        assert_eq!(&*Split::Domain.key(&host("127.0.0.1")), "127.0.0.1");
        assert_eq!(&*Split::Host.key(&host("WWW.Example.com.")), "www.example.com");
        assert_eq!(&*Split::All.key(&host("example.com")), "");
    }
}
