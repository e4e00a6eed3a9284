//! Error responses of the admin port, and the header fields of all responses.

use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde_json::{Map, json};

/// An error response (RFC 9457).
#[derive(Debug)]
pub(super) struct Problem {
    status: StatusCode,
    detail: String,
    retry_after: Option<Duration>,
    extra: Map<String, serde_json::Value>,
}

impl Problem {
    /// `detail` is one sentence for people.
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into(), retry_after: None, extra: Map::new() }
    }

    /// The sentence.
    pub(super) fn detail(self) -> String {
        self.detail
    }

    /// Adds `Retry-After`.
    pub(super) fn retry_after(mut self, wait: Option<Duration>) -> Self {
        self.retry_after = wait;
        self
    }

    /// Adds a field for programs.
    pub(super) fn with(mut self, name: &str, value: impl Into<serde_json::Value>) -> Self {
        self.extra.insert(name.to_owned(), value.into());
        self
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut body = json!({
            "title": self.status.canonical_reason().unwrap_or("refused"),
            "status": self.status.as_u16(),
            "detail": self.detail,
        });
        if let Some(fields) = body.as_object_mut() {
            fields.extend(self.extra);
        }
        let mut response = (self.status, body.to_string()).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(wait) = self.retry_after {
            // Rounded up, so that a retry after this time is not refused again.
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// For unknown paths.
pub(super) async fn not_found() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "there is nothing here; the status page is at /")
}

/// For a method that a path does not take; axum adds `Allow`.
pub(super) async fn wrong_method() -> Problem {
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "this path does not support this method")
}

/// Adds the header fields of every response: the page runs only its own files, no other page can
/// frame it, and browsers neither store a response nor guess its type.
pub(super) async fn harden(mut response: Response) -> Response {
    const FIELDS: [(header::HeaderName, &str); 6] = [
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
             img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        ),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
        (header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    for (name, value) in FIELDS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
