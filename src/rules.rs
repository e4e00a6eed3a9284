//! Rules: which requests they match, how fast those may go, what trips their cooldown.
//!
//! A [`RuleSet`] is compiled once from the rule file and never changes; a reload makes another one.
//! The first rule that matches a target wins.

pub mod hours;
mod path;
pub mod secret;
mod server;
pub mod settings;
pub mod upstream;

use std::{cell::OnceCell, collections::HashMap, net::IpAddr, sync::Arc, time::Duration};

use ipnet::IpNet;
use serde::Deserialize;

pub use self::{hours::Hours, path::normalise, server::server_network, upstream::UpstreamProxy};
use crate::{
    classify::{Classifier, verdict::Verdict},
    limiter::policy::{CooldownPolicy, Limits, Quota, Split},
    target::{Host, Target, glob_matches},
};

/// What a rule does with the requests it matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Limits, judges and cools down: the default.
    Limit,
    /// Relays without gate and verdict.
    Bypass,
    /// Refuses with 403.
    Deny,
}

/// The order in which one member sends held requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Clients (by proxy user, otherwise by address) take turns.
    Fair,
    /// First in, first out.
    Fifo,
}

/// Whether a rule is enforced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Holds and refuses.
    Enforce,
    /// Judges and counts everything, holds and refuses nothing.
    Observe,
}

/// What takes a token in a tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TunnelCount {
    /// Each flight of the client after a response.
    Flights,
    /// Only the CONNECT.
    Connect,
    /// Every CONNECT is refused. On a rule that intercepts, only traffic that is neither TLS nor HTTP
    /// is refused.
    Refuse,
}

/// Blocked requests to repeat after the cooldown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Retry {
    /// How often; 0 switches it off.
    pub attempts: u32,
    /// Which verdicts.
    pub on: Vec<Verdict>,
    /// Which methods (upper case).
    pub methods: Vec<http::Method>,
}

/// Which requests a rule matches. Empty lists match everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Matcher {
    /// Host patterns.
    pub hosts: Vec<HostPattern>,
    /// Path globs (`*` matches any run of characters) in their normal form ([`normalise`]), which are
    /// compared with the normal form of path and query.
    pub paths: Vec<Arc<str>>,
}

/// A pattern of hosts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum HostPattern {
    /// `*`: everything.
    Any,
    /// `shop.example`: this name only.
    Exact(Arc<str>),
    /// `*.shop.example`: every name below it, not the name itself.
    Below(Arc<str>),
    /// An address; one that is written as mapped into IPv6 (`::ffff:10.0.0.1`) is the same.
    Ip(IpAddr),
}

impl HostPattern {
    /// Whether the pattern covers `host`.
    #[must_use]
    pub fn matches(&self, host: &Host) -> bool {
        match (self, host) {
            (Self::Any, _) => true,
            (Self::Exact(pattern), Host::Name(name)) => pattern == name,
            (Self::Below(suffix), Host::Name(name)) => name
                .strip_suffix(&**suffix)
                .is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
            (Self::Ip(pattern), Host::Ip(ip)) => pattern.to_canonical() == ip.to_canonical(),
            (Self::Exact(_) | Self::Below(_), Host::Ip(_)) | (Self::Ip(_), Host::Name(_)) => false,
        }
    }
}

/// One rule.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// Its name: unique, `[A-Za-z0-9_.-]`, at most 64 characters; a label value.
    pub name: Arc<str>,
    /// Which requests.
    pub matcher: Matcher,
    /// What to do with them.
    pub action: Action,
    /// How the rule is split into scopes.
    pub per: Split,
    /// Networks whose hosts keep a scope each under `per: address`.
    pub address_except: Vec<IpNet>,
    /// Rate, burst, quotas, cost.
    pub limits: Limits,
    /// Whether `rate` is `auto`: the rate in `limits` is then not from the rule file.
    pub auto_rate: bool,
    /// Whether limits that a site names in its responses count.
    pub site_limits: bool,
    /// The limits of each user in a scope, in addition to the rule's.
    pub each_user: Option<Limits>,
    /// Most concurrent requests of a scope, for the whole fleet; `None`: no limit.
    pub parallel: Option<u32>,
    /// Most responses with a 4xx, without blocks, in a sliding window.
    pub errors: Option<Quota>,
    /// Whether an overloaded site lowers the learned rate.
    pub eases: bool,
    /// Longest hold.
    pub max_wait: Duration,
    /// Most held requests of a scope in this process.
    pub queue: usize,
    /// The time of day at which its requests may be sent; `None`: always.
    pub hours: Option<Hours>,
    /// Order of held requests.
    pub order: Order,
    /// Whether the rule is enforced or only observed.
    pub mode: Mode,
    /// Whether the proxy terminates TLS.
    pub intercept: bool,
    /// Whether certificates of its sites are verified.
    pub verify: bool,
    /// The upstream proxy of its requests; `None`: a direct connection.
    pub via: Option<Arc<UpstreamProxy>>,
    /// What its tunnels count.
    pub tunnel: TunnelCount,
    /// Blocked requests to repeat.
    pub retry: Retry,
    /// When its scopes cool down; `None`: never.
    pub cooldown: Option<CooldownPolicy>,
    /// Signatures of its own, compiled together with the built-in ones.
    pub classifier: Arc<Classifier>,
}

impl Rule {
    /// A rule that matches everything and limits nothing. All other keys have their defaults.
    #[must_use]
    pub fn unlimited(name: &str) -> Self {
        Self {
            name: Arc::from(name),
            matcher: Matcher::default(),
            action: Action::Limit,
            per: Split::All,
            limits: Limits { rate: None, burst: 1, quotas: Vec::new(), cost: 1, learn: None },
            address_except: Vec::new(),
            auto_rate: false,
            site_limits: true,
            each_user: None,
            parallel: None,
            errors: None,
            eases: false,
            max_wait: Duration::from_secs(120),
            queue: 10_000,
            hours: None,
            order: Order::Fair,
            mode: Mode::Enforce,
            intercept: false,
            verify: true,
            via: None,
            tunnel: TunnelCount::Flights,
            retry: Retry::default(),
            cooldown: None,
            classifier: Classifier::builtin(),
        }
    }

    /// How long until the rule's hours begin; `None` if it is within them.
    #[must_use]
    pub fn opens_in(&self) -> Option<Duration> {
        self.hours.as_ref().and_then(Hours::opens_in)
    }

    /// How it is split into parts that share no bucket and no cooldown.
    #[must_use]
    pub fn parts(&self) -> Split {
        self.cooldown.as_ref().map_or(self.per, |policy| self.per.coarser(policy.per))
    }

    /// Whether its requests share a limit that the store divides.
    #[must_use]
    pub fn limits_something(&self) -> bool {
        !self.limits.is_unlimited() || self.parallel.is_some()
    }

    /// The error limit towards which a response with this status counts, unless it is a block.
    #[must_use]
    pub fn error_limit(&self, status: Option<u16>) -> Option<Quota> {
        let is_error = status.is_some_and(|status| (400..500).contains(&status));
        self.errors.filter(|_| is_error && self.cooldown.is_some())
    }
}

/// All rules of a file, in its order.
#[derive(Debug, Clone, Default)]
pub struct RuleSet {
    rules: Vec<Arc<Rule>>,
    index: Arc<Index>,
}

/// Positions of rules by host pattern, each list in the order of the file. To find a rule, one
/// lookup per label of the host is enough, for any number of rules.
#[derive(Debug, Default)]
struct Index {
    exact: HashMap<Arc<str>, Vec<usize>>,
    below: HashMap<Arc<str>, Vec<usize>>,
    ip: HashMap<IpAddr, Vec<usize>>,
    any: Vec<usize>,
}

impl Index {
    fn new(rules: &[Arc<Rule>]) -> Self {
        let mut index = Self::default();
        for (at, rule) in rules.iter().enumerate() {
            if rule.matcher.hosts.is_empty() {
                index.any.push(at);
            }
            for pattern in &rule.matcher.hosts {
                let list = match pattern {
                    HostPattern::Any => &mut index.any,
                    HostPattern::Exact(name) => index.exact.entry(Arc::clone(name)).or_default(),
                    HostPattern::Below(name) => index.below.entry(Arc::clone(name)).or_default(),
                    HostPattern::Ip(ip) => index.ip.entry(ip.to_canonical()).or_default(),
                };
                list.push(at);
            }
        }
        index
    }

    /// The lists of rules one of whose host patterns covers `host`.
    fn lists<'a>(&'a self, host: &'a Host) -> impl Iterator<Item = &'a Vec<usize>> {
        let (exact, ip, name) = match host {
            Host::Name(name) => (self.exact.get(name), None, &**name),
            Host::Ip(ip) => (None, self.ip.get(&ip.to_canonical()), ""),
        };
        let parents = name.match_indices('.').map(|(dot, _)| &name[dot + 1..]);
        let below = parents.filter_map(|parent| self.below.get(parent));
        exact.into_iter().chain(ip).chain(below).chain([&self.any])
    }
}

impl RuleSet {
    /// Compiles `rules`, which are in the order of the file.
    #[must_use]
    pub fn new(rules: Vec<Rule>) -> Self {
        let rules: Vec<_> = rules.into_iter().map(Arc::new).collect();
        Self { index: Arc::new(Index::new(&rules)), rules }
    }

    /// The position of the first rule that matches `target`; `None` if none does.
    #[must_use]
    pub fn find(&self, target: &Target) -> Option<usize> {
        // Few requests reach a rule with paths.
        let path = OnceCell::new();
        let fits = |at: &&usize| {
            let matcher = &self.rules[**at].matcher;
            matcher.paths.is_empty()
                || matcher.matches_path(path.get_or_init(|| normalise(&target.path)))
        };
        self.index.lists(&target.host).filter_map(|list| list.iter().find(fits)).min().copied()
    }

    /// The rules, in the order of the file.
    #[must_use]
    pub fn as_slice(&self) -> &[Arc<Rule>] {
        &self.rules
    }
}

impl Matcher {
    /// Whether the patterns allow this host.
    #[must_use]
    pub fn matches_host(&self, host: &Host) -> bool {
        self.hosts.is_empty() || self.hosts.iter().any(|pattern| pattern.matches(host))
    }

    /// Whether it matches a request to `target`.
    #[must_use]
    pub fn matches(&self, target: &Target) -> bool {
        self.matches_host(&target.host) && self.matches_path(&normalise(&target.path))
    }

    /// Whether it matches a path in its normal form.
    fn matches_path(&self, path: &str) -> bool {
        self.paths.is_empty() || self.paths.iter().any(|glob| glob_matches(glob, path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> Host {
        Host::parse(text).expect("a valid host")
    }

    #[test]
    fn a_wildcard_host_covers_names_below_but_not_the_name_itself() {
        let pattern = HostPattern::Below("shop.example".into());
        assert!(pattern.matches(&host("www.shop.example")));
        assert!(pattern.matches(&host("a.b.shop.example")));
        assert!(!pattern.matches(&host("shop.example")));
        assert!(!pattern.matches(&host("myshop.example")));
    }
}
