//! `POST /api/v1/judge`: a crawler sends a response that the proxy could not read (HTTPS in a
//! tunnel) and gets its verdict under the current rule file. The code of `tidegate explain` judges
//! it. With `report` the verdict also counts, like that of a response through the proxy.

use std::{collections::BTreeMap, sync::Arc};

use axum::{Json, body::Bytes, extract::State};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use serde::{Deserialize, Serialize};

use super::{
    Context,
    api::{bad, no_rule, read, target},
    locate::locate,
    reply::Problem,
};
use crate::{
    classify::{BodyEnd, Classifier},
    explain::{Exchange, Item, judge as explain},
};

/// Largest request: six times the default of `inspect.error_bytes` in base64.
pub(super) const BODY: usize = 1024 * 1024;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Received {
    url: String,
    method: Option<String>,
    status: u16,
    #[serde(default)]
    headers: BTreeMap<String, Values>,
    /// The start of the body as text; `Content-Encoding` is then ignored.
    body: Option<String>,
    /// The start of the body as received, encoded with base64.
    body_base64: Option<String>,
    /// Whether that is the whole body.
    #[serde(default = "yes")]
    complete: bool,
    /// Whether the verdict counts towards the cooldown and the metrics.
    #[serde(default)]
    report: bool,
}

const fn yes() -> bool {
    true
}

/// One value of a header field, or several.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Values {
    One(String),
    Many(Vec<String>),
}

/// The response: the fields of `tidegate explain --json`, and the scope.
#[derive(Debug, Serialize)]
pub(super) struct Judged {
    #[serde(flatten)]
    item: Item,
    /// `rule`, or `rule/key` if the rule is split.
    scope: String,
    reported: bool,
}

/// Handles `POST /api/v1/judge`.
pub(super) async fn judge(
    State(cx): State<Arc<Context>>,
    body: Bytes,
) -> Result<Json<Judged>, Problem> {
    let received: Received = read(&body)?;
    let mut target = target(&received.url)?;
    let Some(entry) = cx.gate.find(&target) else {
        return Err(no_rule());
    };
    let report = received.report;
    let exchange = exchange(received)?;
    let limits = cx.proxy.live().settings.inspect.limits();
    let builtin = Classifier::builtin();
    let (judgement, item) = explain(&exchange, &target, Some(&entry.rule), &builtin, limits);
    let located = locate(&cx, &mut target).await;
    if report {
        located?;
    }
    let reported = report && cx.gate.report_outside(&target, &judgement).await;
    Ok(Json(Judged { item, scope: entry.scope_name(&target), reported }))
}

fn exchange(received: Received) -> Result<Exchange, Problem> {
    let Received { url, method, status, headers, body, body_base64, complete, .. } = received;
    let method = method.as_deref().unwrap_or("GET").parse::<Method>();
    let method = method.map_err(|_| bad("method: not an HTTP method"))?;
    let status = StatusCode::from_u16(status).ok().filter(|status| status.as_u16() < 600);
    let status = status.ok_or_else(|| bad("status: an HTTP status is a number from 100 to 599"))?;
    let mut fields = fields(headers)?;
    let body = match (body, body_base64) {
        (Some(_), Some(_)) => return Err(bad("send either `body` or `body_base64`")),
        (Some(text), None) => {
            fields.remove(header::CONTENT_ENCODING);
            text.into_bytes()
        }
        (None, Some(text)) => {
            STANDARD.decode(text).map_err(|error| bad(format!("body_base64: {error}")))?
        }
        (None, None) => Vec::new(),
    };
    let end = if complete { BodyEnd::Complete } else { BodyEnd::Open };
    let name = url.clone();
    let headers = fields;
    Ok(Exchange { name, method, url: Some(url), status, headers, body, end, expected: None })
}

fn fields(headers: BTreeMap<String, Values>) -> Result<HeaderMap, Problem> {
    let mut fields = HeaderMap::new();
    for (name, values) in headers {
        let wrong = || bad(format!("headers: `{name}` is not a valid field"));
        let parsed: HeaderName = name.parse().map_err(|_| wrong())?;
        let values = match values {
            Values::One(value) => vec![value],
            Values::Many(values) => values,
        };
        for value in values {
            let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| wrong())?;
            fields.try_append(parsed.clone(), value).map_err(|_| bad("headers: too many"))?;
        }
    }
    Ok(fields)
}
