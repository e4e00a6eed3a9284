//! Every metric of the proxy, its help text and its labels; `docs/metrics.md` is the reference.
//!
//! Labels are bounded by the rule file: rule names, verdicts and other closed sets, never a host. Handles are resolved
//! once per rule ([`RuleMetrics`]), so that the hot path only touches atomics.

use std::{
    collections::HashMap,
    fmt::{self, Write as _},
    sync::{Arc, atomic::AtomicU64},
};

use crate::verdict::Verdict;
use parking_lot::Mutex;
use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram, info::Info},
    registry::Registry,
};

/// A gauge of seconds or rates.
pub type Float = Gauge<f64, AtomicU64>;
/// A counter of seconds.
pub type Seconds = Counter<f64, AtomicU64>;

type Labels = Vec<(&'static str, String)>;

/// Waits from a millisecond to ten minutes: a hold may last as long as `max_wait`.
const HOLD_BUCKETS: [f64; 15] =
    [0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0];
/// Answers of sites, up to the default response timeout and beyond.
const UPSTREAM_BUCKETS: [f64; 12] =
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0, 60.0];
/// Store calls: a round trip in a rack takes tenths of a millisecond, the default timeout is 100 ms.
const STORE_BUCKETS: [f64; 10] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 1.0];

/// Why a request got an answer of our own; the words of `Tidegate-Refused`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(
    missing_docs,
    reason = "the words are documented in docs/metrics.md and mean what they say"
)]
pub enum Reason {
    Limit,
    Cooldown,
    Queue,
    Store,
    Denied,
    Egress,
    Auth,
    Malformed,
    Dns,
    Connect,
    Tls,
    Timeout,
    Loop,
}

impl Reason {
    /// Every reason.
    pub const ALL: [Self; 13] = [
        Self::Limit,
        Self::Cooldown,
        Self::Queue,
        Self::Store,
        Self::Denied,
        Self::Egress,
        Self::Auth,
        Self::Malformed,
        Self::Dns,
        Self::Connect,
        Self::Tls,
        Self::Timeout,
        Self::Loop,
    ];

    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Limit => "limit",
            Self::Cooldown => "cooldown",
            Self::Queue => "queue",
            Self::Store => "store",
            Self::Denied => "denied",
            Self::Egress => "egress",
            Self::Auth => "auth",
            Self::Malformed => "malformed",
            Self::Dns => "dns",
            Self::Connect => "connect",
            Self::Tls => "tls",
            Self::Timeout => "timeout",
            Self::Loop => "loop",
        }
    }
}

/// What `mode: observe` would have done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Observed {
    /// Held for a token.
    Hold,
    /// Held by a cooldown.
    Cooldown,
    /// Refused.
    Refuse,
}

impl Observed {
    /// The label value.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hold => "hold",
            Self::Cooldown => "cooldown",
            Self::Refuse => "refuse",
        }
    }
}

/// The name of the rule in `tidegate_refused_total` for what is refused before a rule is found.
pub const NO_RULE: &str = "";

/// The metrics of one rule.
#[derive(Debug)]
#[allow(
    missing_docs,
    reason = "each field is the metric of its name; the help texts are in `Metrics::new`"
)]
pub struct RuleMetrics {
    verdicts: [Counter; Verdict::ALL.len()],
    blocks: [Counter; Verdict::ALL.len()],
    cooldowns: [Counter; Verdict::ALL.len()],
    refused: [Counter; Reason::ALL.len()],
    observed: [Counter; 3],
    pub consecutive_blocks: Gauge,
    pub cooldown_active: Gauge,
    pub cooldown_remaining: Float,
    pub cooldown_seconds: Seconds,
    pub held: Gauge,
    pub hold_seconds: Histogram,
    pub tokens_granted: Counter,
    pub rate_limit: Float,
    pub rate_current: Float,
    pub upstream_seconds: Histogram,
    pub probes_ok: Counter,
    pub probes_block: Counter,
    pub probes_lost: Counter,
    pub held_gone: Counter,
    pub tunnels: Gauge,
}

impl RuleMetrics {
    /// Responses with this verdict.
    #[must_use]
    pub fn verdict(&self, verdict: Verdict) -> &Counter {
        &self.verdicts[verdict as usize]
    }

    /// Blocks of this type.
    #[must_use]
    pub fn block(&self, verdict: Verdict) -> &Counter {
        &self.blocks[verdict as usize]
    }

    /// Cooldowns that a block of this type tripped.
    #[must_use]
    pub fn cooldown(&self, verdict: Verdict) -> &Counter {
        &self.cooldowns[verdict as usize]
    }

    /// Own answers.
    #[must_use]
    pub fn refused(&self, reason: Reason) -> &Counter {
        &self.refused[reason as usize]
    }

    /// What `mode: observe` would have done.
    #[must_use]
    pub fn observed(&self, action: Observed) -> &Counter {
        &self.observed[action as usize]
    }
}

/// All metrics of the process.
pub struct Metrics {
    registry: Registry,
    families: Families,
    rules: Mutex<HashMap<Arc<str>, Arc<RuleMetrics>>>,
    /// Whether the store answers (1) or is away (0).
    pub store_up: Gauge,
    /// Running proxies of the fleet, as last known.
    pub members: Gauge,
    /// Open client connections.
    pub client_connections: Gauge,
    /// Open connections to sites.
    pub upstream_connections: Gauge,
    /// Panics caught in a connection's task.
    pub panics: Counter,
    /// TLS handshakes that a client broke off because it does not trust our certificate.
    pub tls_client_rejected: Counter,
    /// Requests repeated once because a kept-alive connection to the site had gone stale.
    pub upstream_retries: Counter,
    /// Log lines dropped because nobody takes them (a full disk, a pipe that is not read).
    pub log_lines_dropped: Counter,
}

struct Families {
    requests: Family<Labels, Counter>,
    blocks: Family<Labels, Counter>,
    refused: Family<Labels, Counter>,
    consecutive_blocks: Family<Labels, Gauge>,
    cooldowns: Family<Labels, Counter>,
    cooldown_active: Family<Labels, Gauge>,
    cooldown_remaining: Family<Labels, Float>,
    cooldown_seconds: Family<Labels, Seconds>,
    held: Family<Labels, Gauge>,
    hold_seconds: Histograms,
    tokens_granted: Family<Labels, Counter>,
    rate_limit: Family<Labels, Float>,
    rate_current: Family<Labels, Float>,
    upstream_seconds: Histograms,
    store_seconds: Histograms,
    store_fallback: Family<Labels, Counter>,
    store_errors: Family<Labels, Counter>,
    probes: Family<Labels, Counter>,
    held_gone: Family<Labels, Counter>,
    tunnels: Family<Labels, Gauge>,
    observed: Family<Labels, Counter>,
    signature_hits: Family<Labels, Counter>,
    signature_decoys: Family<Labels, Counter>,
    reloads: Family<Labels, Counter>,
}

type Histograms = Family<Labels, Histogram, fn() -> Histogram>;

fn label(name: &'static str, value: &str) -> Labels {
    vec![(name, value.to_owned())]
}

fn rule_and(rule: &str, name: &'static str, value: &str) -> Labels {
    vec![("rule", rule.to_owned()), (name, value.to_owned())]
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Families {
    fn new() -> Self {
        Self {
            requests: Family::default(),
            blocks: Family::default(),
            refused: Family::default(),
            consecutive_blocks: Family::default(),
            cooldowns: Family::default(),
            cooldown_active: Family::default(),
            cooldown_remaining: Family::default(),
            cooldown_seconds: Family::default(),
            held: Family::default(),
            hold_seconds: Family::new_with_constructor(|| Histogram::new(HOLD_BUCKETS)),
            tokens_granted: Family::default(),
            rate_limit: Family::default(),
            rate_current: Family::default(),
            upstream_seconds: Family::new_with_constructor(|| Histogram::new(UPSTREAM_BUCKETS)),
            store_seconds: Family::new_with_constructor(|| Histogram::new(STORE_BUCKETS)),
            store_fallback: Family::default(),
            store_errors: Family::default(),
            probes: Family::default(),
            held_gone: Family::default(),
            tunnels: Family::default(),
            observed: Family::default(),
            signature_hits: Family::default(),
            signature_decoys: Family::default(),
            reloads: Family::default(),
        }
    }

    #[rustfmt::skip] // one metric a line reads as the table it is
    fn register(&self, registry: &mut Registry) {
        registry.register("requests", "Responses (and failures to get one), by what they were judged to be", self.requests.clone());
        registry.register("blocks", "Responses that counted towards a cooldown, by type", self.blocks.clone());
        registry.register("refused", "Requests that the proxy answered itself, by reason", self.refused.clone());
        registry.register("consecutive_blocks", "Blocks in a row over the whole fleet; the largest of the rule's scopes", self.consecutive_blocks.clone());
        registry.register("cooldowns", "Cooldowns tripped by this member, by the block that tripped them", self.cooldowns.clone());
        registry.register("cooldown_active", "Scopes of the rule that are cooling down", self.cooldown_active.clone());
        registry.register("cooldown_remaining_seconds", "Longest remaining cooldown of the rule's scopes", self.cooldown_remaining.clone());
        registry.register("cooldown_seconds", "Length of the cooldowns tripped by this member", self.cooldown_seconds.clone());
        registry.register("held_requests", "Requests waiting in the proxy, unsent", self.held.clone());
        registry.register("hold_seconds", "How long requests waited before they were sent", self.hold_seconds.clone());
        registry.register("tokens_granted", "Tokens taken from the bucket by this member", self.tokens_granted.clone());
        registry.register("rate_limit", "Tokens per second as written in the rule file", self.rate_limit.clone());
        registry.register("rate_current", "Tokens per second in force; the smallest of the rule's scopes", self.rate_current.clone());
        registry.register("upstream_seconds", "From sending a request to the head of its response", self.upstream_seconds.clone());
        registry.register("store_seconds", "Duration of calls to the store, by command", self.store_seconds.clone());
        registry.register("store_fallback", "Decisions taken without the store, by what the rule file says about it", self.store_fallback.clone());
        registry.register("store_errors", "Calls to the store that failed, by kind", self.store_errors.clone());
        registry.register("probes", "Probes at the end of a cooldown, by result", self.probes.clone());
        registry.register("held_gone", "Clients that left while their request was held", self.held_gone.clone());
        registry.register("tunnels", "Open tunnels", self.tunnels.clone());
        registry.register("observed", "What `mode: observe` would have done", self.observed.clone());
        registry.register("signature_hits", "Verdicts that rest on this signature", self.signature_hits.clone());
        registry.register("signature_decoys", "Marks of this signature seen on ordinary pages, where they mean nothing", self.signature_decoys.clone());
        registry.register("config_reloads", "Reloads of the rule file, by result", self.reloads.clone());
    }
}

impl Metrics {
    /// All metrics, at zero.
    #[must_use]
    pub fn new() -> Arc<Self> {
        let mut registry = Registry::with_prefix("tidegate");
        let families = Families::new();
        families.register(&mut registry);
        let store_up = Gauge::default();
        let members = Gauge::default();
        let client_connections = Gauge::default();
        let upstream_connections = Gauge::default();
        let panics = Counter::default();
        let tls_client_rejected = Counter::default();
        let upstream_retries = Counter::default();
        let log_lines_dropped = Counter::default();
        registry.register("store_up", "Whether the store answers", store_up.clone());
        registry.register(
            "members",
            "Running proxies of the fleet, as last known",
            members.clone(),
        );
        registry.register(
            "client_connections",
            "Open client connections",
            client_connections.clone(),
        );
        registry.register(
            "upstream_connections",
            "Open connections to sites",
            upstream_connections.clone(),
        );
        registry.register("panics", "Panics caught in the task of one connection", panics.clone());
        registry.register(
            "tls_client_rejected",
            "TLS handshakes that a client broke off because it does not trust our certificate",
            tls_client_rejected.clone(),
        );
        registry.register(
            "upstream_retries",
            "Requests sent again because a kept-alive connection to the site had gone stale",
            upstream_retries.clone(),
        );
        registry.register(
            "log_lines_dropped",
            "Log lines dropped because nobody takes them",
            log_lines_dropped.clone(),
        );
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "The running program", build);
        Arc::new(Self {
            registry,
            families,
            rules: Mutex::default(),
            store_up,
            members,
            client_connections,
            upstream_connections,
            panics,
            tls_client_rejected,
            upstream_retries,
            log_lines_dropped,
        })
    }

    /// The handles of one rule, made on first need.
    #[must_use]
    pub fn rule(&self, name: &str) -> Arc<RuleMetrics> {
        let mut rules = self.rules.lock();
        if let Some(metrics) = rules.get(name) {
            return Arc::clone(metrics);
        }
        let metrics = Arc::new(self.resolve(name));
        rules.insert(Arc::from(name), Arc::clone(&metrics));
        metrics
    }

    fn resolve(&self, rule: &str) -> RuleMetrics {
        let f = &self.families;
        let own = label("rule", rule);
        let by_verdict = |family: &Family<Labels, Counter>, name: &'static str| {
            Verdict::ALL.map(|v| family.get_or_create_owned(&rule_and(rule, name, v.as_str())))
        };
        let probe = |result| f.probes.get_or_create_owned(&rule_and(rule, "result", result));
        let observed = |action: Observed| {
            f.observed.get_or_create_owned(&rule_and(rule, "action", action.as_str()))
        };
        RuleMetrics {
            verdicts: by_verdict(&f.requests, "verdict"),
            blocks: by_verdict(&f.blocks, "type"),
            cooldowns: by_verdict(&f.cooldowns, "type"),
            refused: Reason::ALL
                .map(|r| f.refused.get_or_create_owned(&rule_and(rule, "reason", r.as_str()))),
            observed: [Observed::Hold, Observed::Cooldown, Observed::Refuse].map(observed),
            consecutive_blocks: f.consecutive_blocks.get_or_create_owned(&own),
            cooldown_active: f.cooldown_active.get_or_create_owned(&own),
            cooldown_remaining: f.cooldown_remaining.get_or_create_owned(&own),
            cooldown_seconds: f.cooldown_seconds.get_or_create_owned(&own),
            held: f.held.get_or_create_owned(&own),
            hold_seconds: f.hold_seconds.get_or_create_owned(&own),
            tokens_granted: f.tokens_granted.get_or_create_owned(&own),
            rate_limit: f.rate_limit.get_or_create_owned(&own),
            rate_current: f.rate_current.get_or_create_owned(&own),
            upstream_seconds: f.upstream_seconds.get_or_create_owned(&own),
            probes_ok: probe("ok"),
            probes_block: probe("block"),
            probes_lost: probe("lost"),
            held_gone: f.held_gone.get_or_create_owned(&own),
            tunnels: f.tunnels.get_or_create_owned(&own),
        }
    }

    /// Duration of calls to the store (`take`, `report`, ...).
    #[must_use]
    pub fn store_seconds(&self, command: &'static str) -> Histogram {
        self.families.store_seconds.get_or_create_owned(&label("command", command))
    }

    /// Decisions taken without the store (`local`, `open`, `closed`).
    #[must_use]
    pub fn store_fallback(&self, mode: &'static str) -> Counter {
        self.families.store_fallback.get_or_create_owned(&label("mode", mode))
    }

    /// Failed calls to the store; `kind` is from a closed set.
    #[must_use]
    pub fn store_errors(&self, kind: &'static str) -> Counter {
        self.families.store_errors.get_or_create_owned(&label("kind", kind))
    }

    /// Verdicts that rest on a signature (ids are bounded by the built-in file and the rule file).
    #[must_use]
    pub fn signature_hits(&self, signature: &str) -> Counter {
        self.families.signature_hits.get_or_create_owned(&label("signature", signature))
    }

    /// Marks of a signature on ordinary pages.
    #[must_use]
    pub fn signature_decoys(&self, signature: &str) -> Counter {
        self.families.signature_decoys.get_or_create_owned(&label("signature", signature))
    }

    /// Reloads of the rule file; `result` is `ok` or `error`.
    #[must_use]
    pub fn config_reloads(&self, result: &'static str) -> Counter {
        self.families.reloads.get_or_create_owned(&label("result", result))
    }

    /// What is refused before a rule is known.
    pub fn refused_without_rule(&self, reason: Reason) {
        self.rule(NO_RULE).refused(reason).inc();
    }

    /// All metrics in the OpenMetrics text format.
    #[must_use]
    pub fn render(&self) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry)
            .expect("writing to a String does not fail");
        text
    }
}

/// The OpenMetrics text in the older Prometheus form (0.0.4): there a counter's name has its `_total` in the comments
/// too, an info is a gauge, and neither `# UNIT` nor `# EOF` exists.
#[must_use]
pub fn prometheus_text(openmetrics: &str) -> String {
    let mut text = String::with_capacity(openmetrics.len() + 1_024);
    let mut help = "";
    for line in openmetrics.lines() {
        if line.starts_with("# HELP ") {
            help = line;
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.rsplit_once(' ').unwrap_or((rest, "untyped"));
            let (suffix, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                "unknown" => ("", "untyped"),
                other => ("", other),
            };
            let words = help.splitn(4, ' ').nth(3).unwrap_or("");
            // Writing to a String does not fail.
            _ = writeln!(text, "# HELP {name}{suffix} {words}\n# TYPE {name}{suffix} {kind}");
        } else if !line.starts_with('#') {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_have_their_documented_names_and_labels() {
        let metrics = Metrics::new();
        metrics.rule("default").verdict(Verdict::Captcha).inc();
        metrics.rule("default").refused(Reason::Egress).inc();
        let text = metrics.render();
        for line in [
            r#"tidegate_requests_total{rule="default",verdict="captcha"} 1"#,
            r#"tidegate_refused_total{rule="default",reason="egress"} 1"#,
            concat!(r#"tidegate_build_info{version=""#, env!("CARGO_PKG_VERSION"), r#""} 1"#),
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
    }
}
