//! The API for clients: the state as JSON, reports and tokens. [`super::scopes`] has the manual
//! changes.

use std::{net::IpAddr, sync::Arc, time::Duration};

use axum::{Json, body::Bytes, extract::State};
use http::{Method, StatusCode, Uri};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{Context, locate::locate, reply::Problem};
use crate::{
    classify::verdict::{Confidence, Evidence, Judgement, Verdict},
    gate::{Client, Preferences, RefusalReason},
    observability::status::Status,
    rules::Action,
    target::Target,
};

/// Largest body: a URL and a few words.
pub(super) const BODY: usize = 64 * 1024;
/// Longest wait for a token: more than any sensible `max_wait`.
const MAX_WAIT_S: f64 = 3_600.0;

/// `GET /api/v1/status`
pub(super) async fn status(State(cx): State<Arc<Context>>) -> Json<Status> {
    Json(cx.status())
}

/// `GET /api/v1/config`: every key with its current value; secrets are `***`.
pub(super) async fn config(State(cx): State<Arc<Context>>) -> Json<Value> {
    Json(json!({"file": cx.config.lock().file, "values": &**cx.values.load()}))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Reported {
    url: Option<String>,
    /// Replaces the URL if the rules do not depend on paths.
    host: Option<String>,
    verdict: String,
    status: Option<u16>,
}

/// `POST /api/v1/report`: a crawler that uses tunnels reports a verdict.
pub(super) async fn report(
    State(cx): State<Arc<Context>>,
    body: Bytes,
) -> Result<(StatusCode, Json<Value>), Problem> {
    let reported: Reported = read(&body)?;
    let mut target = match (&reported.url, &reported.host) {
        (Some(url), None) => target(url)?,
        (None, Some(host)) => target(&format!("http://{host}/"))?,
        _ => return Err(bad("name the site with `url` or `host`")),
    };
    let verdict: Verdict = reported.verdict.parse().map_err(|error| {
        let words = Verdict::ALL.map(Verdict::as_str).join(", ");
        bad(format!("verdict: {error}; there are {words}"))
    })?;
    if reported.status.is_some_and(|status| !(100..=599).contains(&status)) {
        return Err(bad("status: an HTTP status is a number from 100 to 599"));
    }
    let evidence = Evidence {
        signature: Arc::from("reported"),
        vendor: None,
        place: "api".to_owned(),
        excerpt: "reported by a client".to_owned(),
    };
    let judgement = Judgement {
        verdict,
        confidence: Confidence::High,
        neutral: false,
        evidence: (verdict != Verdict::Ok).then(|| Box::new(evidence)),
        retry_after: None,
        status: reported.status,
        decoys: Vec::new(),
        logged: Vec::new(),
        suspect: None,
        bytes: 0,
    };
    locate(&cx, &mut target).await?;
    if !cx.gate.report_outside(&target, &judgement).await {
        return Err(no_rule());
    }
    Ok((StatusCode::ACCEPTED, Json(json!({"accepted": true}))))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Acquire {
    url: String,
    /// Longest wait in seconds; the rule's `max_wait` is the upper limit.
    wait: Option<f64>,
    /// The client whose turn it is, if clients take turns.
    client: Option<String>,
}

/// `POST /api/v1/acquire`: waits for a token for a request that does not go through the proxy.
pub(super) async fn acquire(
    State(cx): State<Arc<Context>>,
    body: Bytes,
) -> Result<Json<Value>, Problem> {
    let asked: Acquire = read(&body)?;
    let mut target = target(&asked.url)?;
    let max_wait = asked.wait.map(|wait| seconds("wait", wait, 0.0, MAX_WAIT_S)).transpose()?;
    let preferences = Preferences { max_wait, ..Preferences::default() };
    let Some(entry) = cx.gate.find(&target) else {
        return Err(no_rule());
    };
    if entry.rule.action == Action::Deny {
        let why = format!("rule `{}` denies this URL", entry.rule.name);
        return Err(Problem::new(StatusCode::FORBIDDEN, why).with("reason", "denied"));
    }
    let client = match asked.client {
        Some(name) if !name.is_empty() && name.len() <= 256 => Client::Caller(Arc::from(name)),
        Some(_) => return Err(bad("client: a name has 1 to 256 bytes")),
        None => Client::Address(IpAddr::from([127, 0, 0, 1])),
    };
    locate(&cx, &mut target).await?;
    match cx.gate.acquire(&entry, &target, &client, preferences).await {
        Ok(held) => {
            let (rule, held) = (&*entry.rule.name, held.as_millis());
            Ok(Json(json!({"granted": true, "rule": rule, "held_ms": held})))
        }
        Err(refused) => {
            let (status, reason) = match refused.why {
                RefusalReason::Limit | RefusalReason::Parallel | RefusalReason::User => {
                    (StatusCode::TOO_MANY_REQUESTS, "limit")
                }
                RefusalReason::Cooldown => (StatusCode::SERVICE_UNAVAILABLE, "cooldown"),
                RefusalReason::Hours => (StatusCode::SERVICE_UNAVAILABLE, "hours"),
                RefusalReason::Queue => (StatusCode::SERVICE_UNAVAILABLE, "queue"),
                RefusalReason::Store | RefusalReason::Stopping => {
                    (StatusCode::SERVICE_UNAVAILABLE, "store")
                }
            };
            let problem = Problem::new(status, format!("no token for this URL: {reason}"));
            Err(problem.retry_after(refused.retry_after).with("reason", reason))
        }
    }
}

pub(super) fn target(url: &str) -> Result<Target, Problem> {
    let uri: Uri = url.parse().map_err(|error| bad(format!("url: {error}")))?;
    Target::parse(&Method::GET, &uri).map_err(|error| bad(format!("url: {error}")))
}

/// A duration between `least` and `most`, all in seconds.
pub(super) fn seconds(name: &str, value: f64, least: f64, most: f64) -> Result<Duration, Problem> {
    if !(least..=most).contains(&value) {
        return Err(bad(format!("{name}: a number of seconds from {least} to {most}")));
    }
    Ok(Duration::from_secs_f64(value))
}

pub(super) fn no_rule() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "no rule matches this URL")
}

pub(super) fn bad(why: impl Into<String>) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, why)
}

/// Parses a JSON body, whose size [`super::access::body`] has checked. Unknown fields are errors.
/// An empty body counts as `{}`.
pub(super) fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    let text = if bytes.is_empty() { b"{}" } else { bytes };
    serde_json::from_slice(text).map_err(|error| bad(format!("the body: {error}")))
}
