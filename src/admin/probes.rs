//! What monitoring reads: `/healthz`, `/readyz` and `/metrics`. The first two read only a few
//! atomics, so that they work at full load and while draining.

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    response::{IntoResponse as _, Response},
};
use http::{HeaderMap, StatusCode, header};
use serde_json::{Value, json};

use super::Context;
use crate::observability::metrics::prometheus_text;

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The process is alive. `degraded`: the store is away.
pub(super) async fn healthz(State(cx): State<Arc<Context>>) -> Json<Value> {
    Json(json!({"status": "ok", "degraded": !cx.store_is_up()}))
}

/// Requests would be served. Returns 503 as soon as a drain begins.
pub(super) async fn readyz(State(cx): State<Arc<Context>>) -> (StatusCode, Json<Value>) {
    let ready = cx.is_ready();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let mut body = json!({"ready": ready, "degraded": !cx.store_is_up()});
    if let Some(trouble) = cx.gate.store().trouble {
        body["store"] = json!(trouble.kind);
    }
    (status, Json(body))
}

/// All metrics: OpenMetrics if the scraper asks for it, otherwise the older Prometheus text.
/// Gauges that depend on time alone, such as the remaining cooldown, are updated first.
pub(super) async fn metrics(State(cx): State<Arc<Context>>, headers: HeaderMap) -> Response {
    cx.gate.refresh_metrics();
    let text = cx.metrics.render();
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or("");
    if accept.contains("application/openmetrics-text") {
        ([(header::CONTENT_TYPE, OPENMETRICS)], text).into_response()
    } else {
        ([(header::CONTENT_TYPE, PROMETHEUS)], prometheus_text(&text)).into_response()
    }
}
