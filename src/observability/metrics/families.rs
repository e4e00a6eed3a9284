//! Every metric, once: its name, help text, type and buckets.

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
/// Responses of sites, up to the default response timeout and beyond.
const UPSTREAM_BUCKETS: [f64; 12] =
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0, 60.0];
/// Store calls: a round trip in a rack takes tenths of a millisecond, the default timeout is 100 ms.
const STORE_BUCKETS: [f64; 10] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 1.0];

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

/// Defines a set of metrics, which are registered under the names of their fields. The comment of a metric is its help
/// text.
macro_rules! metrics {
    ($(#[$about:meta])* $vis:vis struct $set:ident {
        $($(#[doc = $help:literal])+ $name:ident: $type:ty = $new:expr,)*
    }) => {
        $(#[$about])*
        $vis struct $set {
            $($(#[doc = $help])+ $vis $name: $type,)*
        }

        impl $set {
            /// The metrics, registered.
            pub(super) fn register(registry: &mut Registry) -> Self {
                let set = Self { $($name: $new,)* };
                $(registry.register(
                    stringify!($name),
                    concat!($($help),+).trim_ascii_start(),
                    set.$name.clone(),
                );)*
                set
            }
        }
    };
}

metrics! {
    /// Metrics with labels.
    pub(super) struct Families {
        /// Responses, and failures to get one, by verdict
        requests: Family<Labels, Counter> = Family::default(),
        /// Responses that counted towards a cooldown, by type
        blocks: Family<Labels, Counter> = Family::default(),
        /// Requests that the proxy answered itself, by reason
        refused: Family<Labels, Counter> = Family::default(),
        /// Blocks in a row over the whole fleet; the largest of the rule's scopes
        consecutive_blocks: Family<Labels, Gauge> = Family::default(),
        /// Cooldowns tripped by this member, by the block that tripped them
        cooldowns: Family<Labels, Counter> = Family::default(),
        /// Scopes of the rule that are cooling down
        cooldown_active: Family<Labels, Gauge> = Family::default(),
        /// Longest remaining cooldown of the rule's scopes
        cooldown_remaining_seconds: Family<Labels, Float> = Family::default(),
        /// Length of the cooldowns tripped by this member
        cooldown_seconds: Family<Labels, Seconds> = Family::default(),
        /// Requests waiting in the proxy, unsent
        held_requests: Family<Labels, Gauge> = Family::default(),
        /// How long requests waited before they were sent
        hold_seconds: Histograms = Family::new_with_constructor(|| Histogram::new(HOLD_BUCKETS)),
        /// Requests that were released, by urgency (`Priority`)
        urgency_requests: Family<Labels, Counter> = Family::default(),
        /// How long they waited, by urgency
        urgency_hold_seconds: Family<Labels, Seconds> = Family::default(),
        /// Tokens taken from the bucket by this member
        tokens_granted: Family<Labels, Counter> = Family::default(),
        /// Tokens per second as written in the rule file
        rate_limit: Family<Labels, Float> = Family::default(),
        /// Tokens per second in force; the smallest of the rule's scopes
        rate_current: Family<Labels, Float> = Family::default(),
        /// Tokens per second for all scopes of the rule on this member together
        rate_allowed: Family<Labels, Float> = Family::default(),
        /// How long the worst of the rule's scopes has been closed without a break
        cooldown_age_seconds: Family<Labels, Float> = Family::default(),
        /// Learned rate that the site is known to tolerate; the smallest of the rule's scopes, 0 if
        /// no limit has been met
        rate_mark: Family<Labels, Float> = Family::default(),
        /// How long the oldest held request of the rule has waited
        oldest_held_seconds: Family<Labels, Float> = Family::default(),
        /// Bytes of bodies and tunnels, up to sites and down to clients
        bytes: Family<Labels, Counter> = Family::default(),
        /// Responses of sites, by class of status
        responses: Family<Labels, Counter> = Family::default(),
        /// Responses that were late or failed, of rules with `overload: ease`
        strain_answers: Family<Labels, Counter> = Family::default(),
        /// From sending a request to the head of its response
        upstream_seconds: Histograms =
            Family::new_with_constructor(|| Histogram::new(UPSTREAM_BUCKETS)),
        /// Duration of calls to the store, by command
        store_seconds: Histograms = Family::new_with_constructor(|| Histogram::new(STORE_BUCKETS)),
        /// Decisions taken without the store, by mode
        store_fallback: Family<Labels, Counter> = Family::default(),
        /// Calls to the store that failed, by kind
        store_errors: Family<Labels, Counter> = Family::default(),
        /// Probes at the end of a cooldown, by result
        probes: Family<Labels, Counter> = Family::default(),
        /// Clients that disconnected while their request was held
        held_gone: Family<Labels, Counter> = Family::default(),
        /// Open tunnels
        tunnels: Family<Labels, Gauge> = Family::default(),
        /// Requests under way that `parallel` counts
        under_way_requests: Family<Labels, Gauge> = Family::default(),
        /// What `mode: observe` would have done
        observed: Family<Labels, Counter> = Family::default(),
        /// How long `mode: observe` would have held requests, each by itself
        observed_seconds: Family<Labels, Seconds> = Family::default(),
        /// Verdicts by this signature, and its matches with `log`
        signature_hits: Family<Labels, Counter> = Family::default(),
        /// Matches of this signature on ordinary pages, where they do not count
        signature_decoys: Family<Labels, Counter> = Family::default(),
        /// Pages that look like a wall and match no signature
        suspects: Family<Labels, Counter> = Family::default(),
        /// Requests of each user of the rule file, by result
        user_requests: Family<Labels, Counter> = Family::default(),
        /// Reloads of the rule file, by result
        config_reloads: Family<Labels, Counter> = Family::default(),
        /// How often a limit on clients or sites was reached, by limit
        limit_hits: Family<Labels, Counter> = Family::default(),
    }
}

metrics! {
    /// Metrics of the member as a whole.
    #[derive(Debug)]
    pub struct MemberMetrics {
        /// Whether the store answers
        store_up: Gauge = Gauge::default(),
        /// Whether this member receives the fleet's news
        store_subscribed: Gauge = Gauge::default(),
        /// Running proxies of the fleet, as last known
        members: Gauge = Gauge::default(),
        /// Open client connections
        client_connections: Gauge = Gauge::default(),
        /// Open connections to sites
        upstream_connections: Gauge = Gauge::default(),
        /// Panics; each ended one task, usually a connection
        panics: Counter = Counter::default(),
        /// TLS handshakes that a client aborted because it does not trust our certificate
        tls_client_rejected: Counter = Counter::default(),
        /// Requests sent again because a kept-alive connection to the site had gone stale
        upstream_retries: Counter = Counter::default(),
        /// Log lines dropped because of a full disk or an unread pipe
        log_lines_dropped: Counter = Counter::default(),
        /// Spans that the collector has accepted
        spans_exported: Counter = Counter::default(),
        /// Spans dropped because the collector is away or too slow
        spans_dropped: Counter = Counter::default(),
        /// Whether the current rule file is in force: 0 while it is invalid
        config_last_reload_ok: Gauge = Gauge::default(),
    }
}

metrics! {
    /// Metrics of the process under the standard Prometheus names.
    #[derive(Debug)]
    pub(super) struct ProcessMetrics {
        /// User and system CPU time of the process
        process_cpu_seconds: Seconds = Seconds::default(),
        /// Resident memory of the process
        process_resident_memory_bytes: Gauge = Gauge::default(),
        /// Open file descriptors
        process_open_fds: Gauge = Gauge::default(),
        /// File descriptors that the process may open
        process_max_fds: Gauge = Gauge::default(),
        /// When the process started, in seconds since 1970
        process_start_time_seconds: Float = Float::default(),
    }
}
