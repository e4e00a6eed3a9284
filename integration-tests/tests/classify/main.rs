//! Verdicts on whole responses: every signature with its own examples, common mistakes of
//! detectors, and bodies that are split, encoded, broken or endless.
#![allow(clippy::unwrap_used)]

mod bodies;
mod custom;
mod disguises;
mod explain;
mod families;
mod forms;
mod fresh;
mod heads;
mod mutations;
mod pages;
mod short_pages;
mod stubs;
mod unseen;

use std::sync::Arc;

use http::{HeaderMap, HeaderName, Method, StatusCode};
use tidegate::{
    classify::{
        BodyEnd, Classifier, Head, Reading, ScanLimits, builtin_signatures,
        verdict::{Judgement, Verdict},
    },
    target::Target,
};

/// As by default in the rule file.
const LIMITS: ScanLimits = ScanLimits { bytes: 16 * 1024, error_bytes: 128 * 1024 };

/// A response.
#[derive(Clone)]
struct Response {
    method: Method,
    url: &'static str,
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
    end: BodyEnd,
    /// Bytes that come at a time.
    piece: usize,
}

/// An HTML page.
fn page(status: u16, body: &str) -> Response {
    Response {
        method: Method::GET,
        url: "https://site.example/page",
        status,
        headers: vec![("content-type", "text/html; charset=utf-8".to_owned())],
        body: body.as_bytes().to_vec(),
        end: BodyEnd::Complete,
        piece: 8 * 1024,
    }
}

/// A response without a body.
fn head(status: u16, fields: &[(&'static str, &str)]) -> Response {
    fields.iter().fold(page(status, ""), |response, (name, value)| response.with(name, value))
}

impl Response {
    /// Sets a field.
    fn with(mut self, name: &'static str, value: &str) -> Self {
        self.headers.retain(|(known, _)| *known != name);
        self.headers.push((name, value.to_owned()));
        self
    }

    fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(known, _)| *known != name);
        self
    }

    fn judgement(&self) -> Judgement {
        self.judged_by(&Classifier::builtin())
    }

    fn judged_by(&self, classifier: &Arc<Classifier>) -> Judgement {
        let headers: HeaderMap = self
            .headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()))
            .collect();
        let target = Target::of_url(self.url).unwrap();
        let status = StatusCode::from_u16(self.status).unwrap();
        let head = Head { method: &self.method, target: &target, status, headers: &headers };
        match classifier.read(head, LIMITS) {
            Reading::Judged(judgement) => judgement,
            Reading::Scan(mut scan) => {
                let all = self.body.chunks(self.piece).all(|piece| scan.push(piece));
                scan.finish(if all { self.end } else { BodyEnd::Open })
            }
        }
    }

    fn verdict(&self) -> Verdict {
        self.judgement().verdict
    }

    /// The signature that decided; empty if none did.
    fn signature(&self) -> String {
        self.judgement().evidence.map_or_else(String::new, |e| e.signature.to_string())
    }
}

/// About this many characters of harmless text.
fn prose(characters: usize) -> String {
    "The ferry leaves twice a day and takes an hour. ".repeat(characters / 48 + 1)
}

/// About this many bytes of markup without visible text.
fn filler(bytes: usize) -> String {
    "<div class=\"row\" data-key=\"0123456789abcdef0123\"></div>".repeat(bytes / 56 + 1)
}

#[test]
fn every_built_in_signature_matches_its_examples_and_no_counterexample() {
    let signatures = builtin_signatures();
    assert!(signatures.len() > 60, "the file is not read in full");
    let mut failures = Vec::new();
    for signature in &signatures {
        let both = [true, false].map(|side| signature.expect.iter().any(|e| e.matches == side));
        assert_eq!(both, [true, true], "{} needs an example on both sides", signature.name);
        assert!(signature.seen.is_some() && signature.trap.is_some(), "{}", signature.name);
        failures.extend(signature.failed_examples().unwrap());
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert_eq!(Classifier::builtin(), Classifier::builtin());
}
