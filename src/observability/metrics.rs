//! Every metric of the proxy, its help text and its labels; `docs/metrics.md` is the reference.
//!
//! The rule file bounds the labels: rule names, verdicts and other closed sets, never a host. The
//! handles of a rule are resolved once ([`RuleMetrics`]), so the request path only touches atomics.

mod families;
mod process;
mod text;
mod words;

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use parking_lot::Mutex;
use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram, info::Info},
    registry::Registry,
};

pub use families::{Float, MemberMetrics, Seconds};
pub use text::prometheus_text;
pub use words::{Bound, Observed, Reason};

use crate::classify::verdict::Verdict;
use families::{Families, Labels, label, rule_and};
use process::Process;

/// The name of the rule in `tidegate_refused_total` for requests that are refused before a rule is found.
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
    observed_seconds: [Seconds; 3],
    pub consecutive_blocks: Gauge,
    pub cooldown_active: Gauge,
    pub cooldown_remaining: Float,
    pub cooldown_seconds: Seconds,
    pub held: Gauge,
    hold_seconds: Histogram,
    urgency_requests: [Counter; URGENCIES.len()],
    urgency_hold_seconds: [Seconds; URGENCIES.len()],
    pub tokens_granted: Counter,
    pub rate_limit: Float,
    pub rate_current: Float,
    pub upstream_seconds: Histogram,
    pub probes_ok: Counter,
    pub probes_block: Counter,
    pub probes_lost: Counter,
    pub held_gone: Counter,
    pub suspects: Counter,
    pub tunnels: Gauge,
    /// Requests under way that `parallel` counts.
    pub under_way: Gauge,
    pub rate_mark: Float,
    pub rate_allowed: Float,
    pub cooldown_age: Float,
    pub oldest_held: Float,
    pub bytes_up: Counter,
    pub bytes_down: Counter,
    responses: [Counter; 5],
    pub strain_late: Counter,
    pub strain_failed: Counter,
}

impl RuleMetrics {
    /// Responses of sites with a status of this class, from 1xx to 5xx.
    #[must_use]
    pub fn response(&self, status: u16) -> &Counter {
        &self.responses[usize::from((status / 100).clamp(1, 5)) - 1]
    }

    /// Counts a request of this urgency (0 to 7) that was released after it was held.
    pub fn held_for(&self, urgency: u8, held: Duration) {
        let (seconds, urgency) = (held.as_secs_f64(), usize::from(urgency));
        self.hold_seconds.observe(seconds);
        self.urgency_requests[urgency].inc();
        self.urgency_hold_seconds[urgency].inc_by(seconds);
    }

    /// Responses with this verdict.
    #[must_use]
    pub fn verdict(&self, verdict: Verdict) -> &Counter {
        &self.verdicts[verdict as usize]
    }

    /// Resets the gauges of a rule that was removed; its counters stay.
    pub fn rule_is_gone(&self) {
        for gauge in [&self.consecutive_blocks, &self.cooldown_active, &self.held, &self.under_way]
        {
            gauge.set(0);
        }
        for gauge in [
            &self.cooldown_remaining,
            &self.rate_limit,
            &self.rate_current,
            &self.rate_mark,
            &self.rate_allowed,
            &self.cooldown_age,
            &self.oldest_held,
        ] {
            gauge.set(0.0);
        }
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

    /// Responses of the proxy itself.
    #[must_use]
    pub fn refused(&self, reason: Reason) -> &Counter {
        &self.refused[reason as usize]
    }

    /// Requests to which `mode: observe` would have done this.
    #[must_use]
    pub fn observed(&self, action: Observed) -> &Counter {
        &self.observed[action as usize]
    }

    /// How long it would have held them, in total.
    #[must_use]
    pub fn observed_seconds(&self, action: Observed) -> &Seconds {
        &self.observed_seconds[action as usize]
    }
}

/// Levels of urgency (RFC 9218 section 4.1).
const URGENCIES: [&str; 8] = ["0", "1", "2", "3", "4", "5", "6", "7"];

/// Classes of statuses.
const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// Most users with their own metrics; further users share [`OTHER_USERS`].
const MOST_USERS: usize = 200;
/// The name of all further users.
pub const OTHER_USERS: &str = "other";

/// The metrics of one user of the rule file.
#[derive(Debug)]
pub struct UserMetrics {
    /// Requests that got a response of a site.
    pub relayed: Counter,
    /// Requests that the proxy refused.
    pub refused: Counter,
}

/// All metrics of the process.
pub struct Metrics {
    registry: Registry,
    families: Families,
    process: Process,
    /// The metrics of the member as a whole.
    pub member: MemberMetrics,
    rules: Mutex<HashMap<Arc<str>, Arc<RuleMetrics>>>,
    users: Mutex<HashMap<Arc<str>, Arc<UserMetrics>>>,
    limit_hits: [Counter; Bound::ALL.len()],
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    /// All metrics, at zero.
    #[must_use]
    pub fn new() -> Arc<Self> {
        let mut whole = Registry::default();
        let process = Process::register(&mut whole);
        let registry = whole.sub_registry_with_prefix("tidegate");
        let families = Families::register(registry);
        for result in ["ok", "error"] {
            // From zero on, because an alert on an increase would otherwise miss the first one.
            drop(families.config_reloads.get_or_create_owned(&label("result", result)));
        }
        let limit_hits = Bound::ALL
            .map(|bound| families.limit_hits.get_or_create_owned(&label("limit", bound.as_str())));
        let member = MemberMetrics::register(registry);
        member.config_last_reload_ok.set(1);
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "The running program", build);
        let (rules, users) = (Mutex::default(), Mutex::default());
        Arc::new(Self { registry: whole, families, process, member, rules, users, limit_hits })
    }

    /// The handles of one rule, created on first use.
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

    /// The handles of one user, created on first use. Names come from the rule file, never from a request.
    #[must_use]
    pub fn user(&self, name: &str) -> Arc<UserMetrics> {
        let mut users = self.users.lock();
        if let Some(metrics) = users.get(name) {
            return Arc::clone(metrics);
        }
        let shown = if users.len() < MOST_USERS { name } else { OTHER_USERS };
        let counter = |result: &str| {
            let labels = vec![("user", shown.to_owned()), ("result", result.to_owned())];
            self.families.user_requests.get_or_create_owned(&labels)
        };
        let (relayed, refused) = (counter("relayed"), counter("refused"));
        let metrics = Arc::new(UserMetrics { relayed, refused });
        if users.len() < MOST_USERS {
            users.insert(Arc::from(name), Arc::clone(&metrics));
        }
        metrics
    }

    fn resolve(&self, rule: &str) -> RuleMetrics {
        let f = &self.families;
        let own = label("rule", rule);
        let by_verdict = |family: &Family<Labels, Counter>, name: &'static str| {
            Verdict::ALL.map(|v| family.get_or_create_owned(&rule_and(rule, name, v.as_str())))
        };
        let probe = |result| f.probes.get_or_create_owned(&rule_and(rule, "result", result));
        let by_urgency = |urgency| rule_and(rule, "urgency", urgency);
        let action = |action: Observed| rule_and(rule, "action", action.as_str());
        RuleMetrics {
            verdicts: by_verdict(&f.requests, "verdict"),
            blocks: by_verdict(&f.blocks, "type"),
            cooldowns: by_verdict(&f.cooldowns, "type"),
            refused: Reason::ALL
                .map(|r| f.refused.get_or_create_owned(&rule_and(rule, "reason", r.as_str()))),
            observed: Observed::ALL.map(|a| f.observed.get_or_create_owned(&action(a))),
            observed_seconds: Observed::ALL
                .map(|a| f.observed_seconds.get_or_create_owned(&action(a))),
            consecutive_blocks: f.consecutive_blocks.get_or_create_owned(&own),
            cooldown_active: f.cooldown_active.get_or_create_owned(&own),
            cooldown_remaining: f.cooldown_remaining_seconds.get_or_create_owned(&own),
            cooldown_seconds: f.cooldown_seconds.get_or_create_owned(&own),
            held: f.held_requests.get_or_create_owned(&own),
            hold_seconds: f.hold_seconds.get_or_create_owned(&own),
            urgency_requests: URGENCIES
                .map(|u| f.urgency_requests.get_or_create_owned(&by_urgency(u))),
            urgency_hold_seconds: URGENCIES
                .map(|u| f.urgency_hold_seconds.get_or_create_owned(&by_urgency(u))),
            tokens_granted: f.tokens_granted.get_or_create_owned(&own),
            rate_limit: f.rate_limit.get_or_create_owned(&own),
            rate_current: f.rate_current.get_or_create_owned(&own),
            upstream_seconds: f.upstream_seconds.get_or_create_owned(&own),
            probes_ok: probe("ok"),
            probes_block: probe("block"),
            probes_lost: probe("lost"),
            held_gone: f.held_gone.get_or_create_owned(&own),
            suspects: f.suspects.get_or_create_owned(&own),
            tunnels: f.tunnels.get_or_create_owned(&own),
            under_way: f.under_way_requests.get_or_create_owned(&own),
            rate_allowed: f.rate_allowed.get_or_create_owned(&own),
            cooldown_age: f.cooldown_age_seconds.get_or_create_owned(&own),
            rate_mark: f.rate_mark.get_or_create_owned(&own),
            oldest_held: f.oldest_held_seconds.get_or_create_owned(&own),
            bytes_up: f.bytes.get_or_create_owned(&rule_and(rule, "direction", "up")),
            bytes_down: f.bytes.get_or_create_owned(&rule_and(rule, "direction", "down")),
            responses: CLASSES
                .map(|class| f.responses.get_or_create_owned(&rule_and(rule, "class", class))),
            strain_late: f.strain_answers.get_or_create_owned(&rule_and(rule, "kind", "late")),
            strain_failed: f.strain_answers.get_or_create_owned(&rule_and(rule, "kind", "failed")),
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

    /// Verdicts by a signature, and matches of one with `log`. The built-in file and the rule file bound the ids.
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
        self.families.config_reloads.get_or_create_owned(&label("result", result))
    }

    /// Responses, good pages and blocks since the start, over all rules.
    #[must_use]
    pub fn totals(&self) -> [u64; 3] {
        let sum = |counters: &[Counter]| counters.iter().map(Counter::get).sum::<u64>();
        self.rules.lock().values().fold([0; 3], |[responses, pages, blocks], rule| {
            let good = rule.verdict(Verdict::Ok).get();
            [responses + sum(&rule.verdicts), pages + good, blocks + sum(&rule.blocks)]
        })
    }

    /// Counts a request that is refused before its rule is known.
    pub fn refused_without_rule(&self, reason: Reason) {
        self.rule(NO_RULE).refused(reason).inc();
    }

    /// Counts a limit on a client or a site that is reached.
    pub fn reached(&self, bound: Bound) {
        self.limit_hits[bound as usize].inc();
    }

    /// All metrics in the OpenMetrics text format.
    #[must_use]
    pub fn render(&self) -> String {
        self.process.refresh();
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry)
            .expect("writing to a String does not fail");
        text
    }
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

    #[test]
    fn users_beyond_the_bound_share_one_name() {
        let metrics = Metrics::new();
        for n in 0..MOST_USERS + 50 {
            metrics.user(&format!("user-{n}")).relayed.inc();
        }
        let text = metrics.render();
        let series = text.lines().filter(|line| line.starts_with("tidegate_user_requests_total{"));
        assert_eq!(series.count(), 2 * (MOST_USERS + 1));
        let rest = r#"tidegate_user_requests_total{user="other",result="relayed"} 50"#;
        assert!(text.contains(rest), "{text}");
    }
}
