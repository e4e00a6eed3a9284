//! What the log says about a request: the trace that it belongs to, and its line in the access log (`log.access`),
//! gathered on its way.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, Method, StatusCode};
use tracing::Span;

use super::Told;
use crate::{event::Access, gate::Client, target::Target};

/// W3C trace context, which ties our lines to the crawler's own. It goes on to the site as it came.
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Around all that the log says of a request which belongs to a trace; nothing for the others.
pub(super) fn span(headers: &HeaderMap) -> Span {
    let field = headers.get(TRACEPARENT).and_then(|value| value.to_str().ok());
    match field.and_then(trace) {
        // As an error, so that no level of the log leaves it out.
        Some((trace_id, parent_id)) => tracing::error_span!("request", trace_id, parent_id),
        None => Span::none(),
    }
}

/// Trace and parent of a `traceparent` (W3C Trace Context, section 3.2.2): `00-TRACE-PARENT-FLAGS`, in lower-case hex,
/// neither of them all zeros. Later versions may append more fields.
fn trace(field: &str) -> Option<(&str, &str)> {
    let mut parts = field.split('-');
    let (version, trace, parent, flags) =
        (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let hex = |part: &str, digits: usize| {
        part.len() == digits && part.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    };
    let id = |part: &str, digits: usize| hex(part, digits) && part.bytes().any(|b| b != b'0');
    let known = hex(version, 2) && version != "ff" && (version != "00" || parts.next().is_none());
    (known && id(trace, 32) && id(parent, 16) && hex(flags, 2)).then_some((trace, parent))
}

/// The line of one request in the making.
#[derive(Debug)]
pub(super) struct Line {
    client: String,
    method: Method,
    target: Target,
    /// Name of the rule, once it is found.
    pub(super) rule: Arc<str>,
}

impl Line {
    pub(super) fn new(client: &Client, target: &Target, method: &Method) -> Box<Self> {
        let client = match client {
            Client::User(name) => name.to_string(),
            Client::Address(address) => address.to_string(),
        };
        Box::new(Self {
            client,
            method: method.clone(),
            target: target.clone(),
            rule: Arc::from(""),
        })
    }

    /// Writes it.
    pub(super) fn log(&self, status: StatusCode, told: &Told) {
        Access {
            client: &self.client,
            method: &self.method,
            target: &self.target,
            rule: &self.rule,
            status: status.as_u16(),
            verdict: told.verdict,
            held: told.held,
            upstream: told.took,
        }
        .log();
    }
}

#[cfg(test)]
mod tests {
    use super::trace;

    #[test]
    fn only_a_well_formed_traceparent_counts() {
        let (id, parent) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
        for good in [format!("00-{id}-{parent}-01"), format!("cc-{id}-{parent}-00-later")] {
            assert_eq!(trace(&good), Some((id, parent)), "{good}");
        }
        for bad in [
            String::new(),
            format!("00-{id}-{parent}"),
            format!("00-{id}-{parent}-01-more"),
            format!("ff-{id}-{parent}-01"),
            format!("00-{}-{parent}-01", id.to_uppercase()),
            format!("00-{}-{parent}-01", "0".repeat(32)),
            format!("00-{id}-{}-01", "0".repeat(16)),
            format!("00-{id}x-{parent}-01"),
        ] {
            assert_eq!(trace(&bad), None, "{bad}");
        }
    }
}
