//! The proxy's own responses: the table of `docs/faq.md`.
//!
//! Each of them has `Proxy-Status` (RFC 9209) for programs that know it, one word in `Tidegate-Refused` for simple
//! clients, and a problem document (RFC 9457) with one sentence for people.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde_json::json;

use super::{
    client::auth::{self, Unauthorised},
    headers::PROXY_STATUS,
    upstream::egress::DialError,
};
use crate::{
    gate::{Entry, RefusalReason},
    observability::metrics::{Metrics, Reason},
    rules::settings::RefuseStatuses,
    target::BadTarget,
};

/// The methods of `Allow`. All methods pass except TRACE.
pub(crate) const ALLOWED: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS, CONNECT";

/// `Retry-After` if the end of the wait is unknown.
const SOON: Duration = Duration::from_secs(1);

/// A refusal. Boxed, because it is returned with `?` next to much smaller values.
pub(crate) type Refused = Box<Refusal>;

/// Why the proxy answers a request itself.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    /// The word of `Tidegate-Refused`.
    pub(crate) reason: Reason,
    /// The error type of `Proxy-Status` (RFC 9209 section 2.3).
    pub(crate) error: &'static str,
    sentence: String,
    /// When to retry, if known.
    pub(crate) retry_after: Option<Duration>,
    /// How long until the scope is free again.
    pub(crate) next: Option<Duration>,
    entry: Option<Arc<Entry>>,
    /// The capacity of the empty bucket.
    burst: Option<u32>,
}

impl Refusal {
    pub(crate) fn new(
        status: StatusCode,
        reason: Reason,
        error: &'static str,
        sentence: impl Into<String>,
    ) -> Refused {
        Box::new(Self {
            status,
            reason,
            error,
            sentence: sentence.into(),
            retry_after: None,
            next: None,
            entry: None,
            burst: None,
        })
    }

    /// Sets the rule of the request, for metrics and text.
    pub(crate) fn under(mut self: Box<Self>, entry: &Arc<Entry>) -> Refused {
        self.entry = Some(Arc::clone(entry));
        self
    }

    /// Sets when the scope is open again.
    pub(crate) fn next(mut self: Box<Self>, next: Option<Duration>) -> Refused {
        self.next = next;
        self
    }

    fn after(mut self: Box<Self>, wait: Duration) -> Refused {
        self.retry_after = Some(wait);
        self
    }

    /// The gate refuses the request. `max_wait` is the client's own `Prefer: wait` if it is shorter than the rule's
    /// `max_wait`.
    pub(crate) fn gate(
        refused: &crate::gate::Refused,
        statuses: RefuseStatuses,
        max_wait: Option<Duration>,
    ) -> Refused {
        let status = |code| StatusCode::from_u16(code).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
        let unavailable = StatusCode::SERVICE_UNAVAILABLE;
        let (status, reason, error) = match refused.why {
            RefusalReason::Limit | RefusalReason::Parallel | RefusalReason::User => {
                (status(statuses.limit), Reason::Limit, "http_request_denied")
            }
            RefusalReason::Cooldown => {
                (status(statuses.cooldown), Reason::Cooldown, "destination_unavailable")
            }
            RefusalReason::Hours => (unavailable, Reason::Hours, "destination_unavailable"),
            RefusalReason::Queue => (unavailable, Reason::Queue, "connection_limit_reached"),
            RefusalReason::Store => (unavailable, Reason::Store, "destination_unavailable"),
            RefusalReason::Stopping => (unavailable, Reason::Queue, "destination_unavailable"),
        };
        let sentence = explain(refused, max_wait);
        let mut refusal = Self::new(status, reason, error, sentence).under(&refused.entry);
        refusal.burst = match refused.why {
            RefusalReason::User => refused.entry.rule.each_user.as_ref(),
            RefusalReason::Parallel => None,
            _ => Some(&refused.entry.rule.limits).filter(|limits| !limits.is_unlimited()),
        }
        .map(|limits| limits.burst);
        let wait = refused.retry_after;
        // A store that is away knows nothing about the scope.
        refusal.next = wait.filter(|_| refused.why != RefusalReason::Store);
        let soon = wait.or_else(|| status.is_server_error().then_some(SOON));
        refusal.retry_after = soon;
        refusal
    }

    /// `action: deny`.
    pub(crate) fn denied(entry: &Arc<Entry>) -> Refused {
        let sentence = format!("Rule `{}` denies this request.", entry.rule.name);
        Self::new(StatusCode::FORBIDDEN, Reason::Denied, "http_request_denied", sentence)
            .under(entry)
    }

    /// No rule matches the request.
    pub(crate) fn unruled() -> Refused {
        let sentence = "No rule matches this request. To allow it, add a last rule with `match: \
                        \"*\"`.";
        Self::new(StatusCode::FORBIDDEN, Reason::Denied, "http_request_denied", sentence)
    }

    /// A malformed or unsupported request.
    pub(crate) fn malformed(status: StatusCode, sentence: impl Into<String>) -> Refused {
        Self::new(status, Reason::Malformed, "http_request_error", sentence)
    }

    /// A request that has been through this proxy before.
    pub(crate) fn looped() -> Refused {
        let sentence = "This request has been through this proxy before (`Via` names it).";
        Self::new(StatusCode::LOOP_DETECTED, Reason::Loop, "proxy_loop_detected", sentence)
    }

    /// The site closed the connection during its response, before any of it was passed on.
    pub(crate) fn cut_off() -> Refused {
        let sentence = "The site broke off its response.";
        let status = StatusCode::BAD_GATEWAY;
        Self::new(status, Reason::Connect, "http_response_incomplete", sentence)
    }

    /// A limit of `limits` is reached.
    pub(crate) fn busy(what: &str) -> Refused {
        let sentence = format!("The proxy already has as many {what} as `limits` allows.");
        let status = StatusCode::SERVICE_UNAVAILABLE;
        Self::new(status, Reason::Queue, "connection_limit_reached", sentence).after(SOON)
    }

    /// Counts it, under its rule if it has one.
    pub(crate) fn count(&self, metrics: &Metrics) {
        match &self.entry {
            Some(entry) => drop(entry.metrics.refused(self.reason).inc()),
            None => metrics.refused_without_rule(self.reason),
        }
    }

    /// The header fields of the response.
    pub(crate) fn fields(&self, headers: &mut HeaderMap) {
        let proxy_status = HeaderValue::from_str(&format!("tidegate; error={}", self.error));
        if let Ok(value) = proxy_status {
            headers.insert(PROXY_STATUS, value);
        }
        headers.insert("tidegate-refused", HeaderValue::from_static(self.reason.as_str()));
        let problem = HeaderValue::from_static("application/problem+json");
        headers.insert(header::CONTENT_TYPE, problem);
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(seconds) = self.seconds() {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        match self.status {
            StatusCode::PROXY_AUTHENTICATION_REQUIRED => {
                let challenge = HeaderValue::from_static(auth::CHALLENGE);
                headers.insert(header::PROXY_AUTHENTICATE, challenge);
            }
            StatusCode::METHOD_NOT_ALLOWED => {
                headers.insert(header::ALLOW, HeaderValue::from_static(ALLOWED));
            }
            _ => {}
        }
        self.rate_fields(headers);
    }

    /// `X-RateLimit-*`: the bucket's capacity, the remaining tokens, and the seconds until there are more.
    fn rate_fields(&self, headers: &mut HeaderMap) {
        let Some(burst) = self.burst else { return };
        headers.insert("x-ratelimit-limit", burst.into());
        headers.insert("x-ratelimit-remaining", 0.into());
        headers.insert("x-ratelimit-reset", self.seconds().unwrap_or(1).into());
    }

    /// Whole seconds, rounded up and at least one, because an earlier retry would be refused again.
    fn seconds(&self) -> Option<u64> {
        let wait = self.retry_after?;
        Some((wait.as_secs() + u64::from(wait.subsec_nanos() > 0)).max(1))
    }

    /// The problem document.
    pub(crate) fn document(&self) -> Bytes {
        let mut document = json!({
            "type": "about:blank",
            "title": self.status.canonical_reason().unwrap_or("Refused"),
            "status": self.status.as_u16(),
            "detail": self.sentence,
            "reason": self.reason.as_str(),
        });
        if let Some(entry) = &self.entry {
            document["rule"] = json!(&*entry.rule.name);
        }
        if let Some(seconds) = self.seconds() {
            document["retry_after"] = json!(seconds);
        }
        let mut text = document.to_string();
        text.push('\n');
        text.into()
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl From<BadTarget> for Refused {
    fn from(bad: BadTarget) -> Self {
        Refusal::malformed(StatusCode::BAD_REQUEST, format!("Bad request: {bad}."))
    }
}

impl From<Unauthorised> for Refused {
    fn from(why: Unauthorised) -> Self {
        let status = match why {
            // No password would help.
            Unauthorised::Network => StatusCode::FORBIDDEN,
            Unauthorised::Missing | Unauthorised::Malformed | Unauthorised::Wrong => {
                StatusCode::PROXY_AUTHENTICATION_REQUIRED
            }
        };
        Refusal::new(status, Reason::Auth, "http_request_denied", sentence(&why.to_string()))
    }
}

impl From<&DialError> for Refused {
    fn from(error: &DialError) -> Self {
        let (status, reason, proxy_error) = error.response();
        let refusal = Refusal::new(status, reason, proxy_error, sentence(&error.to_string()));
        if matches!(error, DialError::Short(_)) { refusal.after(SOON) } else { refusal }
    }
}

/// Why the gate refuses a request. `max_wait` is the client's own if it is shorter than the rule's.
fn explain(refused: &crate::gate::Refused, max_wait: Option<Duration>) -> String {
    let rule = &refused.entry.rule.name;
    let longest = max_wait.map_or_else(
        || "its `max_wait`".to_owned(),
        |own| format!("the {} s of `Prefer: wait`", own.as_secs()),
    );
    match refused.why {
        RefusalReason::Limit => {
            format!("Rule `{rule}` is at its limit: the wait would exceed {longest}.")
        }
        RefusalReason::Parallel => format!(
            "Rule `{rule}` has as many requests under way as `parallel` allows: the wait would \
             exceed {longest}."
        ),
        RefusalReason::User => format!(
            "This user is at its own limit (`each_user` of rule `{rule}`): the wait would exceed \
             {longest}."
        ),
        RefusalReason::Cooldown => {
            format!("Rule `{rule}` is cooling down, for longer than {longest}.")
        }
        RefusalReason::Hours => {
            format!("Rule `{rule}` is outside of its hours, for longer than {longest}.")
        }
        RefusalReason::Queue => format!("The queue of rule `{rule}` is full."),
        RefusalReason::Store => {
            "The store is away: the rule file does not allow requests without it \
                       (`on_failure: closed`), or this proxy has not reached it since its start."
                .to_owned()
        }
        RefusalReason::Stopping => "This proxy is shutting down.".to_owned(),
    }
}

/// An error's phrase as a sentence.
pub(crate) fn sentence(phrase: &str) -> String {
    let mut letters = phrase.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str())
}
