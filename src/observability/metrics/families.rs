//! Metrics with labels: their names, help texts and buckets.

use std::sync::atomic::AtomicU64;

use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

/// A gauge of seconds or rates.
pub type Float = Gauge<f64, AtomicU64>;
/// A counter of seconds.
pub type Seconds = Counter<f64, AtomicU64>;

/// Names and values.
pub(super) type Labels = Vec<(&'static str, String)>;

/// Waits from a millisecond to ten minutes: a hold may last as long as `max_wait`.
const HOLD_BUCKETS: [f64; 15] =
    [0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0];
/// Answers of sites, up to the default response timeout and beyond.
const UPSTREAM_BUCKETS: [f64; 12] =
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0, 60.0];
/// Store calls: a round trip in a rack takes tenths of a millisecond, the default timeout is 100 ms.
const STORE_BUCKETS: [f64; 10] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 1.0];

/// Metrics with labels.
pub(super) struct Families {
    pub(super) requests: Family<Labels, Counter>,
    pub(super) blocks: Family<Labels, Counter>,
    pub(super) refused: Family<Labels, Counter>,
    pub(super) consecutive_blocks: Family<Labels, Gauge>,
    pub(super) cooldowns: Family<Labels, Counter>,
    pub(super) cooldown_active: Family<Labels, Gauge>,
    pub(super) cooldown_remaining: Family<Labels, Float>,
    pub(super) cooldown_seconds: Family<Labels, Seconds>,
    pub(super) held: Family<Labels, Gauge>,
    pub(super) hold_seconds: Histograms,
    pub(super) tokens_granted: Family<Labels, Counter>,
    pub(super) rate_limit: Family<Labels, Float>,
    pub(super) rate_current: Family<Labels, Float>,
    pub(super) upstream_seconds: Histograms,
    pub(super) store_seconds: Histograms,
    pub(super) store_fallback: Family<Labels, Counter>,
    pub(super) store_errors: Family<Labels, Counter>,
    pub(super) probes: Family<Labels, Counter>,
    pub(super) held_gone: Family<Labels, Counter>,
    pub(super) tunnels: Family<Labels, Gauge>,
    pub(super) under_way: Family<Labels, Gauge>,
    pub(super) observed: Family<Labels, Counter>,
    pub(super) observed_seconds: Family<Labels, Seconds>,
    pub(super) signature_hits: Family<Labels, Counter>,
    pub(super) signature_decoys: Family<Labels, Counter>,
    pub(super) suspects: Family<Labels, Counter>,
    pub(super) reloads: Family<Labels, Counter>,
    pub(super) limit_hits: Family<Labels, Counter>,
    pub(super) user_requests: Family<Labels, Counter>,
    pub(super) rate_mark: Family<Labels, Float>,
    pub(super) rate_allowed: Family<Labels, Float>,
    pub(super) cooldown_age: Family<Labels, Float>,
    pub(super) oldest_held: Family<Labels, Float>,
    pub(super) bytes: Family<Labels, Counter>,
    pub(super) responses: Family<Labels, Counter>,
    pub(super) strain: Family<Labels, Counter>,
}

/// Histograms by labels.
pub(super) type Histograms = Family<Labels, Histogram, fn() -> Histogram>;

/// One label.
pub(super) fn label(name: &'static str, value: &str) -> Labels {
    vec![(name, value.to_owned())]
}

/// The label `rule` and another.
pub(super) fn rule_and(rule: &str, name: &'static str, value: &str) -> Labels {
    vec![("rule", rule.to_owned()), (name, value.to_owned())]
}

impl Families {
    /// All of them, without any series.
    pub(super) fn new() -> Self {
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
            under_way: Family::default(),
            observed: Family::default(),
            observed_seconds: Family::default(),
            signature_hits: Family::default(),
            signature_decoys: Family::default(),
            suspects: Family::default(),
            reloads: Family::default(),
            limit_hits: Family::default(),
            user_requests: Family::default(),
            rate_mark: Family::default(),
            rate_allowed: Family::default(),
            cooldown_age: Family::default(),
            oldest_held: Family::default(),
            bytes: Family::default(),
            responses: Family::default(),
            strain: Family::default(),
        }
    }

    /// Gives each its name and its help text.
    #[rustfmt::skip] // one metric a line reads as the table it is
    pub(super) fn register(&self, registry: &mut Registry) {
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
        registry.register("rate_allowed", "Tokens per second that the rule's scopes on this member may take together, as written", self.rate_allowed.clone());
        registry.register("cooldown_age_seconds", "For how long the worst of the rule's scopes has been closed, by one cooldown after the other", self.cooldown_age.clone());
        registry.register("rate_mark", "Highest rate that a site was seen to bear, as learned; the smallest of the rule's scopes, 0 where none is known", self.rate_mark.clone());
        registry.register("oldest_held_seconds", "How long the longest held request of the rule has waited", self.oldest_held.clone());
        registry.register("bytes", "Bytes of bodies and tunnels, up to sites and down to clients", self.bytes.clone());
        registry.register("responses", "Responses of sites, by class of status", self.responses.clone());
        registry.register("strain_answers", "Answers that lower the rate of a rule with `overload: ease`, by what was wrong", self.strain.clone());
        registry.register("upstream_seconds", "From sending a request to the head of its response", self.upstream_seconds.clone());
        registry.register("store_seconds", "Duration of calls to the store, by command", self.store_seconds.clone());
        registry.register("store_fallback", "Decisions taken without the store, by what the rule file says about it", self.store_fallback.clone());
        registry.register("store_errors", "Calls to the store that failed, by kind", self.store_errors.clone());
        registry.register("probes", "Probes at the end of a cooldown, by result", self.probes.clone());
        registry.register("held_gone", "Clients that left while their request was held", self.held_gone.clone());
        registry.register("tunnels", "Open tunnels", self.tunnels.clone());
        registry.register("under_way_requests", "Requests under way that `parallel` counts", self.under_way.clone());
        registry.register("observed", "What `mode: observe` would have done", self.observed.clone());
        registry.register("observed_seconds", "For how long `mode: observe` would have held requests, each by itself", self.observed_seconds.clone());
        registry.register("signature_hits", "Verdicts that rest on this signature, and matches of one that is set to log", self.signature_hits.clone());
        registry.register("signature_decoys", "Marks of this signature seen on ordinary pages, where they mean nothing", self.signature_decoys.clone());
        registry.register("suspects", "Pages that look like a wall and match no signature", self.suspects.clone());
        registry.register("user_requests", "Requests of each user of the rule file, by what became of them", self.user_requests.clone());
        registry.register("config_reloads", "Reloads of the rule file, by result", self.reloads.clone());
        registry.register("limit_hits", "How often a bound on clients or sites was reached, by limit", self.limit_hits.clone());
        for result in ["ok", "error"] {
            // From zero on: an alert on an increase would miss the first one otherwise.
            drop(self.reloads.get_or_create_owned(&label("result", result)));
        }
    }
}
