//! `/metrics`. Gauges that depend on time alone, such as the remaining cooldown, are updated on
//! each scrape.

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse as _, Response},
};
use http::{HeaderMap, header};

use super::Context;
use crate::observability::metrics::prometheus_text;

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// All metrics: OpenMetrics if the scraper asks for it, otherwise the older Prometheus text.
pub(super) async fn scrape(State(cx): State<Arc<Context>>, headers: HeaderMap) -> Response {
    cx.gate.refresh_metrics();
    let text = cx.metrics.render();
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or("");
    if accept.contains("application/openmetrics-text") {
        ([(header::CONTENT_TYPE, OPENMETRICS)], text).into_response()
    } else {
        ([(header::CONTENT_TYPE, PROMETHEUS)], prometheus_text(&text)).into_response()
    }
}
