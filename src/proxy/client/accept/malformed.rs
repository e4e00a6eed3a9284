//! Responds to malformed requests, and records requests that cannot be read.

use std::{net::IpAddr, sync::Arc, time::Duration};

use bytes::Bytes;

use crate::{
    http1::{Refuse, Violation},
    observability::{
        event::Access,
        metrics::{Bound, Metrics, Reason},
    },
    runtime::clock::{self, LogThrottle},
};

/// Limits the reports of clients that speak another protocol.
static NOT_HTTP: LogThrottle = LogThrottle::every(Duration::from_secs(600));

/// Responds to the malformed requests of one connection.
#[derive(Debug)]
pub(super) struct Malformed {
    metrics: Arc<Metrics>,
    client: Option<IpAddr>,
    /// Whether refused requests are written to the access log.
    logs: bool,
}

impl Malformed {
    pub(super) fn new(metrics: Arc<Metrics>) -> Self {
        Self { metrics, client: None, logs: false }
    }

    /// Names the client, and whether its refused requests are written to the access log.
    pub(super) fn log_for(&mut self, client: IpAddr, logs: bool) {
        (self.client, self.logs) = (Some(client), logs);
    }

    /// Writes the access log line of a request that was refused before it could be read.
    pub(super) fn log(&self, reason: Reason, status: Option<u16>, detail: &str) {
        if let Some(client) = self.client.filter(|_| self.logs) {
            Access::unread(client, reason, status, detail.to_owned()).log();
        }
    }
}

impl Refuse for Malformed {
    fn refuse(&mut self, violation: Violation, in_body: bool) -> Bytes {
        self.metrics.refused_without_rule(Reason::Malformed);
        if let Some(bound) = bound(violation) {
            self.metrics.reached(bound);
        }
        tracing::debug!(%violation, "a malformed request is refused");
        if violation == Violation::NotHttp
            && let Some(client) = self.client
            && NOT_HTTP.allows()
        {
            tracing::warn!(
                %client,
                "a client speaks TLS, SOCKS or another protocol to the proxy's port: the URL of \
                 the proxy begins with http://, also for https sites"
            );
        }
        if !in_body {
            // A request with a malformed body already has a line.
            let status = violation.status().0;
            self.log(Reason::Malformed, Some(status), &violation.to_string());
        }
        answer(violation)
    }
}

/// The exceeded limit, if the violation is one.
const fn bound(violation: Violation) -> Option<Bound> {
    match violation {
        Violation::HeadTooLarge
        | Violation::TargetTooLong
        | Violation::TrailersTooLarge
        | Violation::ChunkExtensions => Some(Bound::HeaderBytes),
        Violation::TooManyFields => Some(Bound::Headers),
        _ => None,
    }
}

/// The complete response. It contains nothing from the client.
fn answer(violation: Violation) -> Bytes {
    let (status, title) = violation.status();
    let body = format!(
        r#"{{"type":"about:blank","title":"{title}","status":{status},"detail":"{violation}."}}"#
    );
    let date = httpdate::fmt_http_date(clock::wall());
    Bytes::from(format!(
        "HTTP/1.1 {status} {title}\r\n\
         Date: {date}\r\n\
         Content-Type: application/problem+json\r\n\
         Content-Length: {length}\r\n\
         Cache-Control: no-store\r\n\
         Proxy-Status: tidegate; error=http_request_error; details=\"{violation}\"\r\n\
         Tidegate-Refused: malformed\r\n\
         Connection: close\r\n\r\n{body}",
        length = body.len(),
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_refusal_has_the_fields_of_every_answer_of_the_proxy() {
        let answer = answer(Violation::Host);
        let (head, body) = std::str::from_utf8(&answer).unwrap().split_once("\r\n\r\n").unwrap();
        for line in [
            "HTTP/1.1 400 Bad Request",
            "Content-Type: application/problem+json",
            "Tidegate-Refused: malformed",
            "Connection: close",
            "Cache-Control: no-store",
        ] {
            assert!(head.lines().any(|l| l == line), "{line} is missing in\n{head}");
        }
        assert!(head.contains("\r\nProxy-Status: tidegate; error=http_request_error; details=\""));
        let problem: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(problem["status"], 400);
        assert!(problem["detail"].as_str().unwrap().contains("Host field"), "{problem}");
    }
}
