//! Converts finished requests to OTLP JSON: an `ExportTraceServiceRequest` (OTLP specification 1.x,
//! "JSON Protobuf Encoding"). Ids are hex, 64-bit numbers are strings, enums are numbers.

use serde_json::{Value, json};

use super::{Finished, Step, StepName};
use crate::{
    classify::verdict::Verdict,
    observability::{
        event::{Access, HoldCause, Outcome, QUERY_LEFT_OUT},
        metrics::Reason,
    },
};

/// Kinds of spans.
const INTERNAL: u8 = 1;
const SERVER: u8 = 2;
const CLIENT: u8 = 3;
/// The status of a span that failed.
const ERROR: u8 = 2;

/// The body of one export.
pub(super) fn export(resource: &[(String, String)], finished: &[Box<Finished>]) -> Value {
    let attributes: Vec<Value> =
        resource.iter().map(|(key, value)| text(key, value.as_str())).collect();
    let spans: Vec<Value> = finished.iter().flat_map(|finished| spans(finished)).collect();
    json!({
        "resourceSpans": [{
            "resource": {"attributes": attributes},
            "scopeSpans": [{
                "scope": {"name": "tidegate", "version": env!("CARGO_PKG_VERSION")},
                "spans": spans,
            }],
        }],
    })
}

fn spans(finished: &Finished) -> impl Iterator<Item = Value> {
    std::iter::once(request(finished)).chain(finished.steps.iter().map(|one| step(finished, one)))
}

fn request(finished: &Finished) -> Value {
    let access = &finished.access;
    let mut span = json!({
        "traceId": trace_id(finished.id),
        "spanId": span_id(finished.span),
        "name": name(access),
        "kind": SERVER,
        "startTimeUnixNano": finished.begin_ns.to_string(),
        "endTimeUnixNano": finished.end_ns.to_string(),
        "attributes": attributes(access),
    });
    if let Some(parent) = finished.parent {
        span["parentSpanId"] = span_id(parent).into();
    }
    if finished.left_out > 0 {
        let left_out = i64::from(finished.left_out);
        if let Some(attributes) = span["attributes"].as_array_mut() {
            attributes.push(number("tidegate.steps_left_out", left_out));
        }
    }
    let failed = match access.outcome {
        Outcome::Refused => access.reason.map(|reason| format!("refused: {}", reason.as_str())),
        Outcome::CutOff => Some("the site closed the connection within its response".to_owned()),
        _ => None,
    };
    if let Some(message) = failed {
        span["status"] = json!({"code": ERROR, "message": message});
    }
    span
}

/// The rule file bounds the number of span names.
fn name(access: &Access) -> String {
    match &access.rule {
        Some(rule) => format!("{} {rule}", access.method),
        None => access.method.clone(),
    }
}

/// The attributes of OpenTelemetry's conventions for HTTP, and our own for the rest.
fn attributes(access: &Access) -> Vec<Value> {
    let url = match access.scheme {
        "tunnel" => text("server.address", access.url.as_str()),
        // The whole URL, without the placeholder for its query.
        scheme => {
            text("url.full", format!("{scheme}://{}", access.url.trim_end_matches(QUERY_LEFT_OUT)))
        }
    };
    let mut all = vec![
        text("http.request.method", access.method.as_str()),
        text("url.scheme", access.scheme),
        url,
        text("tidegate.client", access.client.as_str()),
        text("tidegate.outcome", access.outcome.as_str()),
        number("tidegate.bytes_up", i64::try_from(access.bytes_up).unwrap_or(i64::MAX)),
        number("tidegate.bytes_down", i64::try_from(access.bytes_down).unwrap_or(i64::MAX)),
        number("tidegate.attempts", i64::from(access.attempts)),
    ];
    let words = [
        ("tidegate.request_id", access.request_id.as_deref()),
        ("tidegate.rule", access.rule.as_deref()),
        ("tidegate.scope", access.scope.as_deref()),
        ("tidegate.reason", access.reason.map(Reason::as_str)),
        ("tidegate.verdict", access.verdict.map(Verdict::as_str)),
        ("tidegate.held_by", access.held_by.map(HoldCause::as_str)),
    ];
    all.extend(words.into_iter().filter_map(|(key, word)| Some(text(key, word?))));
    let numbers = [
        ("http.response.status_code", access.status.map(i64::from)),
        ("tidegate.flights", access.flights.map(i64::from)),
    ];
    all.extend(numbers.into_iter().filter_map(|(key, value)| Some(number(key, value?))));
    all
}

fn step(finished: &Finished, step: &Step) -> Value {
    let kind = if step.name == StepName::Send { CLIENT } else { INTERNAL };
    let about = &step.about;
    let status = about.status.map(|status| number("http.response.status_code", i64::from(status)));
    let verdict = about.verdict.map(|verdict| text("tidegate.verdict", verdict.as_str()));
    let attributes: Vec<Value> = status.into_iter().chain(verdict).collect();
    let mut span = json!({
        "traceId": trace_id(finished.id),
        "spanId": span_id(step.id),
        "parentSpanId": span_id(finished.span),
        "name": step.name.as_str(),
        "kind": kind,
        "startTimeUnixNano": step.begin_ns.to_string(),
        "endTimeUnixNano": step.end_ns.to_string(),
        "attributes": attributes,
    });
    if let Some(error) = &about.error {
        span["status"] = json!({"code": ERROR, "message": error});
    }
    span
}

fn trace_id(id: u128) -> String {
    format!("{id:032x}")
}

fn span_id(id: u64) -> String {
    format!("{id:016x}")
}

fn text(key: &str, value: impl Into<String>) -> Value {
    json!({"key": key, "value": {"stringValue": value.into()}})
}

fn number(key: &str, value: i64) -> Value {
    json!({"key": key, "value": {"intValue": value.to_string()}})
}
