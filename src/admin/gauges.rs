//! `/metrics`. What changes by the passing of time alone (what is left of a cooldown) is brought up to date when asked.

use std::{collections::HashMap, sync::Arc};

use axum::{
    extract::State,
    response::{IntoResponse as _, Response},
};
use http::{HeaderMap, header};

use super::Context;
use crate::{
    metrics::{Metrics, prometheus_text},
    status::{ScopeState, ScopeStatus},
};

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// All metrics: OpenMetrics for who asks for it, else the older Prometheus text.
pub(super) async fn scrape(State(cx): State<Arc<Context>>, headers: HeaderMap) -> Response {
    refresh(&cx.gate.snapshot(), &cx.metrics);
    let text = cx.metrics.render();
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or("");
    if accept.contains("application/openmetrics-text") {
        ([(header::CONTENT_TYPE, OPENMETRICS)], text).into_response()
    } else {
        ([(header::CONTENT_TYPE, PROMETHEUS)], prometheus_text(&text)).into_response()
    }
}

/// One rule's scopes taken together: the largest streak, the smallest rate, all that are not open.
#[derive(Default)]
struct Together {
    streak: f64,
    cooling: i64,
    remaining_ms: u64,
    rate_limit: f64,
    rate_current: Option<f64>,
}

/// Sets the gauges that describe scopes, per rule.
pub(super) fn refresh(scopes: &[ScopeStatus], metrics: &Metrics) {
    let mut rules: HashMap<&str, Together> = HashMap::new();
    for scope in scopes {
        let rule = rules.entry(&scope.rule).or_default();
        rule.streak = rule.streak.max(scope.streak);
        if matches!(scope.state, ScopeState::Cooling | ScopeState::Probing) {
            rule.cooling += 1;
            rule.remaining_ms = rule.remaining_ms.max(scope.remaining_ms);
        }
        rule.rate_limit = scope.rate_limit.unwrap_or(0.0);
        let slower = |rate: f64| rule.rate_current.map_or(rate, |slowest| slowest.min(rate));
        rule.rate_current = scope.rate_current.map(slower).or(rule.rate_current);
    }
    for (name, rule) in rules {
        let metrics = metrics.rule(name);
        #[allow(
            clippy::cast_possible_truncation,
            reason = "a streak is a small sum; `as` saturates"
        )]
        metrics.consecutive_blocks.set(rule.streak.ceil() as i64);
        metrics.cooldown_active.set(rule.cooling);
        #[allow(
            clippy::cast_precision_loss,
            reason = "milliseconds of a cooldown are far below 2^52"
        )]
        metrics.cooldown_remaining.set(rule.remaining_ms as f64 / 1_000.0);
        metrics.rate_limit.set(rule.rate_limit);
        metrics.rate_current.set(rule.rate_current.unwrap_or(0.0));
    }
}
