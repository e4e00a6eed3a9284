//! `/healthz` and `/readyz`. They read only a few atomics, so that they work at full load and while
//! draining.

use std::sync::Arc;

use axum::{Json, extract::State};
use http::StatusCode;
use serde_json::{Value, json};

use super::Context;

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
