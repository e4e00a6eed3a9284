//! Rules: which requests they match, how fast those may go, what trips their cooldown.
//!
//! A [`RuleSet`] is compiled once from the rule file and never changes; a reload makes another one. The first rule
//! that matches a target wins.

mod path;

use std::{cell::OnceCell, collections::HashMap, net::IpAddr, sync::Arc, time::Duration};

pub use self::path::normalise;
use crate::{
    learn::Learn,
    target::{Host, Target},
    verdict::Verdict,
};

/// What a rule does with the requests it matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Limits, judges and cools down: the usual one.
    Limit,
    /// Lets through: no gate, no verdict.
    Bypass,
    /// Refuses with 403.
    Deny,
}

/// How a rule is split into scopes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Split {
    /// One scope for the whole rule.
    All,
    /// One per registrable domain (public suffix list).
    Domain,
    /// One per host name.
    Host,
}

impl Split {
    /// The part of the scope's name behind the rule's: empty, the domain, or the host.
    #[must_use]
    pub fn key(self, host: &Host) -> Arc<str> {
        match (self, host) {
            (Self::All, _) => Arc::from(""),
            (Self::Host, Host::Name(name)) => Arc::clone(name),
            (Self::Domain, Host::Name(name)) => match psl::domain_str(name) {
                Some(domain) if domain.len() < name.len() => Arc::from(domain),
                _ => Arc::clone(name),
            },
            (Self::Host | Self::Domain, Host::Ip(_)) => Arc::from(host.to_string()),
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

/// How fast the requests of one scope may go.
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
    /// How the rate is learned, `rate` being the ceiling; `None`: it is fixed.
    pub learn: Option<Learn>,
}

impl Limits {
    /// True where there is nothing to take: neither rate nor quota.
    #[must_use]
    pub fn is_unlimited(&self) -> bool {
        self.rate.is_none() && self.quotas.is_empty()
    }
}

/// The order in which held requests of one member go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Clients (proxy user, else address) take turns.
    Fair,
    /// First in, first out.
    Fifo,
}

/// Whether a rule bites.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Holds and refuses.
    Enforce,
    /// Judges and counts everything, holds and refuses nothing.
    Observe,
}

/// What a tunnel counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TunnelCount {
    /// Each new client flight after an answer.
    Flights,
    /// Only the CONNECT.
    Connect,
    /// Nothing: there is none. A CONNECT is refused; on a rule that intercepts, what is neither TLS
    /// nor HTTP inside one.
    Refuse,
}

/// Blocked answers to send again after the cooldown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Retry {
    /// How often; 0 switches it off.
    pub attempts: u32,
    /// Which verdicts.
    pub on: Vec<Verdict>,
    /// Which methods (upper case).
    pub methods: Vec<http::Method>,
}

/// How much one kind of answer counts towards the cooldown.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Weights {
    /// By verdict; absent = no block.
    pub verdicts: Vec<(Verdict, f64)>,
    /// By status, for answers whose verdict is `ok` (`on: [5xx, 404]`): first and last of a range, weight.
    pub statuses: Vec<(u16, u16, f64)>,
}

impl Weights {
    /// What an answer with this verdict and status counts; `None` where it is no block.
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
    /// Share of blocks, above 0 and at most 1.
    pub share: f64,
    /// Of how many last verdicts (2 to 1,000).
    pub of: u32,
}

/// When a scope cools down, and how it comes back.
#[derive(Debug, Clone, PartialEq)]
pub struct CooldownPolicy {
    /// How cooldowns are split; may differ from the rule's `per`.
    pub per: Split,
    /// Consecutive blocks (the sum of their weights) that trip.
    pub after: f64,
    /// Trips also on this share of the last verdicts.
    pub ratio: Option<Ratio>,
    /// What is a block, and what it weighs.
    pub on: Weights,
    /// Shortest and longest length of a first cooldown; drawn uniformly, once for the fleet.
    pub length: (Duration, Duration),
    /// A streak without news for this long is forgotten.
    pub forget_after: Duration,
    /// Whether one request goes first when a cooldown ends.
    pub probe: bool,
    /// Factor by which a failed probe multiplies the next cooldown, at least 1.
    pub grow: f64,
    /// Longest cooldown.
    pub max: Duration,
    /// Whether a block that names its own wait trips at once, for that long.
    pub respect_retry_after: bool,
    /// Time to climb back to the full rate.
    pub ramp: Duration,
}

/// Which requests a rule matches. Empty lists match everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Matcher {
    /// Host patterns.
    pub hosts: Vec<HostPattern>,
    /// Path globs (`*` matches any run of characters), in their normal form; matched against that of
    /// path and query, see [`normalise`].
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
    /// Rate, burst, quotas, cost.
    pub limits: Limits,
    /// Longest hold.
    pub max_wait: Duration,
    /// Most held requests of a scope in this process.
    pub queue: usize,
    /// Order of held requests.
    pub order: Order,
    /// Whether the rule bites.
    pub mode: Mode,
    /// Whether TLS is ended here.
    pub intercept: bool,
    /// Whether certificates of its sites are verified.
    pub verify: bool,
    /// What its tunnels count.
    pub tunnel: TunnelCount,
    /// Blocked answers to send again.
    pub retry: Retry,
    /// When its scopes cool down; `None`: never.
    pub cooldown: Option<CooldownPolicy>,
    /// Signatures of its own, compiled together with the built-in ones.
    pub classifier: Arc<crate::classify::Classifier>,
}

/// All rules of a file, in its order.
#[derive(Debug, Clone, Default)]
pub struct RuleSet {
    rules: Vec<Arc<Rule>>,
    index: Arc<Index>,
}

/// Positions of rules by what their host patterns say, each list in the order of the file: finding a rule costs a
/// look-up per label of the host, however many rules there are.
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

    /// The position of the first rule that matches; `None` where the file has no rule for `target`.
    #[must_use]
    pub fn find(&self, target: &Target) -> Option<usize> {
        // Hardly any request comes to a rule with paths.
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
    /// Whether a request to `target` is meant.
    #[must_use]
    pub fn matches(&self, target: &Target) -> bool {
        (self.hosts.is_empty() || self.hosts.iter().any(|pattern| pattern.matches(&target.host)))
            && self.matches_path(&normalise(&target.path))
    }

    /// Whether a path in its normal form is meant.
    fn matches_path(&self, path: &str) -> bool {
        self.paths.is_empty() || self.paths.iter().any(|glob| glob_matches(glob, path))
    }
}

/// Whether `text` matches `glob`, in which `*` stands for any run of characters. Linear in both.
#[must_use]
pub fn glob_matches(glob: &str, text: &str) -> bool {
    // Of many globs most fail at their first letter.
    match glob.as_bytes().first() {
        Some(first) if *first != b'*' && text.as_bytes().first() != Some(first) => return false,
        _ => {}
    }
    let mut parts = glob.split('*');
    let first = parts.next().unwrap_or("");
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    true
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

    #[test]
    fn a_wildcard_host_covers_what_is_below_but_not_the_name_itself() {
        let pattern = HostPattern::Below("shop.example".into());
        assert!(pattern.matches(&host("www.shop.example")));
        assert!(pattern.matches(&host("a.b.shop.example")));
        assert!(!pattern.matches(&host("shop.example")));
        assert!(!pattern.matches(&host("myshop.example")));
    }

    #[test]
    fn a_glob_matches_the_whole_text() {
        assert!(glob_matches("/search*", "/search?q=1"));
        assert!(glob_matches("*", ""));
        assert!(glob_matches("/a*/b*c", "/axx/b/bc"));
        assert!(!glob_matches("/a*/b", "/axx/bc"));
        assert!(!glob_matches("/search", "/search2"));
        assert!(!glob_matches("/ab*ba", "/aba"));
    }
}
