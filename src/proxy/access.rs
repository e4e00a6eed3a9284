//! What the access log says about a request, gathered on its way (`log.access`).

use std::sync::Arc;

use http::{Method, Request, StatusCode};
use hyper::body::Incoming;

use super::Told;
use crate::{event::Access, gate::Client, target::Target};

/// W3C trace context, which ties our line to the crawler's own.
const TRACEPARENT: &str = "traceparent";

/// The line of one request in the making.
#[derive(Debug)]
pub(super) struct Line {
    client: String,
    method: Method,
    target: Target,
    traceparent: Option<String>,
    /// Name of the rule, once it is found.
    pub(super) rule: Arc<str>,
}

impl Line {
    pub(super) fn new(client: &Client, target: &Target, request: &Request<Incoming>) -> Box<Self> {
        let client = match client {
            Client::User(name) => name.to_string(),
            Client::Address(address) => address.to_string(),
        };
        let traceparent = request.headers().get(TRACEPARENT).and_then(|value| value.to_str().ok());
        Box::new(Self {
            client,
            method: request.method().clone(),
            target: target.clone(),
            traceparent: traceparent.map(str::to_owned),
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
            traceparent: self.traceparent.as_deref(),
        }
        .log();
    }
}
