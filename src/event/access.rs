//! The access log: one line per request, for those who ask for it (`log.access`).

use std::{sync::Arc, time::Duration};

use super::{
    text::{clean, shown},
    wire::ms,
};
use crate::{target::Target, verdict::Verdict};

/// What the line of one request says.
#[derive(Debug)]
pub struct Access<'a> {
    /// Proxy user or address.
    pub client: &'a str,
    /// Its method.
    pub method: &'a http::Method,
    /// Where it went.
    pub target: &'a Target,
    /// Name of the rule; empty where none was found.
    pub rule: &'a Arc<str>,
    /// Status that the client got.
    pub status: u16,
    /// The verdict, where the site was asked.
    pub verdict: Option<Verdict>,
    /// Time held.
    pub held: Duration,
    /// From sending to the head of the response.
    pub upstream: Duration,
}

impl Access<'_> {
    /// Writes the line. Its target `tidegate::access` lets a filter treat it apart.
    pub fn log(&self) {
        tracing::info!(
            target: "tidegate::access",
            client = clean(self.client),
            method = clean(self.method.as_str()),
            url = shown(self.target),
            rule = &**self.rule,
            status = self.status,
            verdict = self.verdict.map_or("-", Verdict::as_str),
            held_ms = ms(self.held),
            upstream_ms = ms(self.upstream),
            "request"
        );
    }
}
