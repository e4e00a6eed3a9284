//! The access log: one line per request, if `log.access` is on.

use std::{net::IpAddr, time::Duration};

use super::json::ms;
use crate::{classify::verdict::Verdict, observability::metrics::Reason};

words! {
    /// Why a request is or was held.
    pub enum HoldCause {
        /// No token was available.
        Rate = "rate",
        /// A quota was used up.
        Quota = "quota",
        /// The scope was cooling down, or its probe was in flight.
        Cooldown = "cooldown",
        /// The request came outside of the rule's hours.
        Hours = "hours",
        /// As many requests were under way as `parallel` allows.
        Parallel = "parallel",
        /// Other requests of the scope were before it.
        Queue = "queue",
        /// The store was away, or slow.
        Store = "store",
    }
}

words! {
    /// How a request ended.
    #[derive(Default)]
    pub enum Outcome {
        /// The client got the site's complete response.
        Relayed = "relayed",
        /// The client got a page of the proxy itself.
        Answered = "answered",
        /// The client got a refusal.
        Refused = "refused",
        /// A tunnel or an upgraded connection ended.
        Tunnelled = "tunnelled",
        /// An intercepted CONNECT ended; the requests inside have lines of their own.
        Intercepted = "intercepted",
        /// The site closed the connection within its response.
        CutOff = "cut_off",
        /// The client disconnected before its response was complete.
        #[default]
        Abandoned = "abandoned",
    }
}

/// The log line of one request.
#[derive(Debug, Default)]
pub struct Access {
    /// The id of the request, which its client knows; `None` if a span around the line has it.
    pub request_id: Option<String>,
    /// Proxy user or address.
    pub client: String,
    /// Its method.
    pub method: String,
    /// `http`, `https`, or `tunnel` for a CONNECT.
    pub scheme: &'static str,
    /// The requested URL, without its query.
    pub url: String,
    /// Name of the rule, once known.
    pub rule: Option<String>,
    /// The scope, once known.
    pub scope: Option<String>,
    /// How it ended.
    pub outcome: Outcome,
    /// Status that the client got.
    pub status: Option<u16>,
    /// The reason of a refusal.
    pub reason: Option<Reason>,
    /// Why a request could not be read.
    pub detail: Option<String>,
    /// The verdict if the request was sent.
    pub verdict: Option<Verdict>,
    /// Time held.
    pub held: Duration,
    /// Why it was held, if for longer than a millisecond.
    pub held_by: Option<HoldCause>,
    /// From sending the request to the head of the response.
    pub upstream: Duration,
    /// From the request's head to its end.
    pub duration: Duration,
    /// How often it was sent to the site.
    pub attempts: u32,
    /// Bytes of bodies or of a tunnel, from the client.
    pub bytes_up: u64,
    /// The same, to the client.
    pub bytes_down: u64,
    /// Flights of a tunnel that took a token.
    pub flights: Option<u32>,
}

impl Access {
    /// The line of a request that was refused before it could be read.
    #[must_use]
    pub fn unread(client: IpAddr, reason: Reason, status: Option<u16>, detail: String) -> Self {
        Self {
            client: client.to_string(),
            method: "-".to_owned(),
            scheme: "-",
            url: "-".to_owned(),
            outcome: Outcome::Refused,
            status,
            reason: Some(reason),
            detail: Some(detail),
            ..Self::default()
        }
    }

    /// The log target of the line, for filters and for a log file of its own.
    pub const TARGET: &'static str = "tidegate::access";

    /// Writes the line.
    pub fn log(&self) {
        tracing::info!(
            target: Access::TARGET,
            request_id = self.request_id,
            client = self.client,
            method = self.method,
            scheme = self.scheme,
            url = self.url,
            rule = self.rule,
            scope = self.scope,
            outcome = self.outcome.as_str(),
            status = self.status,
            reason = self.reason.map(Reason::as_str),
            detail = self.detail,
            verdict = self.verdict.map(Verdict::as_str),
            held_ms = ms(self.held),
            held_by = self.held_by.map(HoldCause::as_str),
            upstream_ms = ms(self.upstream),
            duration_ms = ms(self.duration),
            attempts = self.attempts,
            bytes_up = self.bytes_up,
            bytes_down = self.bytes_down,
            flights = self.flights,
            "request"
        );
    }
}
