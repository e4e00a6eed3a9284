//! Judges whether a response is a block or a page.
//!
//! A verdict is a pure function of one response: its method, status, header fields, a bounded
//! decoded prefix of the body, and whether the body is complete. Other responses, rules and time
//! play no part. The steps are:
//!
//! 1. **Head** ([`Classifier::read`]): some header fields and redirects are enough for a verdict.
//!    Most responses end here, among them every one that is neither text nor HTML.
//! 2. **Body** ([`Scan`]): a prefilter over the raw bytes rules most pages out. One pass over the
//!    decoded prefix of the others counts visible text and searches for all patterns at once. A
//!    match counts only on a page with the shape of a wall; on any other page it is a decoy.
//! 3. **Fallback**: a plain 429 or 403; a blank page.
//!
//! The signatures are data: `config/signatures.yaml`. Precision comes before recall, because a
//! false block stalls the whole fleet: a doubtful response is `ok`.

mod charset;
mod classifier;
mod compiled;
mod decode;
mod examples;
mod family;
mod findings;
mod head;
mod header_index;
mod markup;
mod ngram_filter;
mod page;
mod patterns;
mod retry_after;
pub mod robots;
mod scan;
mod script_acts;
pub mod signature;
pub mod site_limits;
mod structure;
mod tag;
mod text;
mod trace;
pub mod verdict;
mod weights;
mod words;

use std::{sync::Arc, time::Duration};

use http::{HeaderMap, Method, StatusCode};

use crate::{
    classify::verdict::{Confidence, Evidence, Judgement, Verdict},
    runtime::clock,
    target::Target,
};
use head::{BodyFields, Kind};

pub use classifier::{Classifier, builtin_signatures};
pub use page::read_page;
pub use retry_after::{MAX_RETRY_AFTER, retry_after};
pub use scan::{Scan, Traced};
pub use signature::{Signature, SignatureError, Switches};
pub use trace::{NearMiss, Trace};

/// The head of a response, and the request that it answers.
#[derive(Debug, Clone, Copy)]
pub struct Head<'a> {
    /// Method of the request.
    pub method: &'a Method,
    /// Target of the request.
    pub target: &'a Target,
    /// Status of the response.
    pub status: StatusCode,
    /// Header fields of the response.
    pub headers: &'a HeaderMap,
}

/// How many decoded bytes of a body are scanned.
#[derive(Debug, Clone, Copy)]
pub struct ScanLimits {
    /// For an ordinary response.
    pub bytes: usize,
    /// For a 4xx, a 5xx and a 202.
    pub error_bytes: usize,
}

/// How the scanned bytes ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyEnd {
    /// The body is complete.
    Complete,
    /// The site cut it off (an error, or fewer bytes than announced).
    CutOff,
    /// There is more, but it is not scanned.
    Open,
}

/// The result of reading the head.
#[derive(Debug)]
pub enum Reading {
    /// The head decides the verdict.
    Judged(Judgement),
    /// The body must be scanned.
    Scan(Box<Scan>),
}

/// What the head contributes to every judgement, regardless of the body.
#[derive(Debug)]
struct HeadContext {
    status: u16,
    /// Many sites refuse this target to robots, so a refusal is never evidence.
    neutral: bool,
    /// An image, a stylesheet or the like: neutral unless the status is a block.
    decoration: bool,
    retry_after: Option<Duration>,
    logged: Vec<Arc<str>>,
}

impl Classifier {
    /// Reads the head of a response.
    #[must_use]
    pub fn read(self: &Arc<Self>, head: Head<'_>, limits: ScanLimits) -> Reading {
        let fields = BodyFields::of(head.headers);
        let kind = head::kind(fields);
        let mut context = HeadContext {
            status: head.status.as_u16(),
            neutral: head::is_habitual_refusal(head.target),
            decoration: kind == Kind::Neutral,
            retry_after: if fields.has_retry_after { requested_wait(head) } else { None },
            logged: Vec::new(),
        };
        let codings =
            if fields.is_encoded { decode::codings(head.headers) } else { Ok(Vec::new()) };
        let scans = limits.of(head.status) > 0
            && matches!(kind, Kind::Page | Kind::Data)
            && head::has_informative_body(head.method, head.status)
            && codings.is_ok();
        let redirect = head::redirect(head);
        let status = head.status.as_u16();
        let mut unconditional = if scans { self.header_index.unconditional() } else { &[] };
        let (mut conditional, mut by_head) = (Vec::new(), None);
        for number in self.header_index.conditional(head.status, head.headers).iter().copied() {
            let signature = &self.signatures[number];
            let possible = scans || signature.is_head_only;
            if !possible || !signature.matches_head(head, redirect.as_ref()) {
                continue;
            }
            if !signature.is_head_only {
                conditional.push(number);
            } else if signature.source.action == signature::Action::Log {
                context.logged.push(Arc::clone(&signature.source.name));
            } else {
                by_head = Some(context.decided(&signature.source, signature.head_evidence(head)));
                // Signatures of lower priority need no evaluation.
                unconditional = &unconditional
                    [..unconditional.partition_point(|candidate| *candidate < number)];
                break;
            }
        }
        let accepts_status = |number: &usize| self.signatures[*number].accepts_status(status);
        let no_candidate = conditional.is_empty() && !unconditional.iter().any(accepts_status);
        let may_be_blank = scans && kind == Kind::Page && head::may_be_blank(head);
        let by_head = match by_head {
            Some(judgement) if no_candidate => return Reading::Judged(judgement),
            by_head => by_head,
        };
        if no_candidate && !may_be_blank {
            return Reading::Judged(context.fallback());
        }
        Reading::Scan(Box::new(Scan::new(scan::Start {
            classifier: Arc::clone(self),
            context,
            conditional,
            unconditional: unconditional.len(),
            by_head,
            may_be_blank,
            codings: codings.unwrap_or_default(),
            content_type: fields.content_type,
            is_html: kind == Kind::Page,
            limit: limits.of(head.status),
        })))
    }
}

impl ScanLimits {
    /// The limit for a response with this status.
    const fn of(self, status: StatusCode) -> usize {
        if status.as_u16() >= 400 || status.as_u16() == 202 { self.error_bytes } else { self.bytes }
    }
}

/// The wait that `Retry-After` requests. On a redirect the field only says when to follow it.
fn requested_wait(head: Head<'_>) -> Option<Duration> {
    if head.status.is_redirection() { None } else { retry_after(head.headers, clock::wall()) }
}

impl HeadContext {
    /// The judgement if `signature` matches and decides.
    fn decided(&self, signature: &Signature, evidence: Evidence) -> Judgement {
        // Under a 429, the text of a refusal explains the rate limit.
        let verdict = match signature.verdict {
            Verdict::Forbidden
                if self.status == 429 && signature.shape != signature::Shape::Any =>
            {
                Verdict::RateLimited
            }
            verdict => verdict,
        };
        self.judgement(verdict, signature.confidence, Some(evidence))
    }

    /// The judgement by the status alone.
    fn fallback(&self) -> Judgement {
        let by_status = |id: &str| Evidence {
            signature: Arc::from(id),
            vendor: None,
            place: "status".to_owned(),
            excerpt: self.status.to_string(),
        };
        match self.status {
            429 => {
                let evidence = by_status("status-429");
                self.judgement(Verdict::RateLimited, Confidence::High, Some(evidence))
            }
            // Some sites refuse robots with 418 (RFC 2324), others use it as a joke, so confidence
            // is low. Shopify sends 430 for a request that it suspects to be an attack.
            403 | 418 | 430 => {
                let evidence = by_status(&format!("status-{}", self.status));
                self.judgement(Verdict::Forbidden, Confidence::Low, Some(evidence))
            }
            _ => self.judgement(Verdict::Ok, Confidence::High, None),
        }
    }

    /// The judgement of a body that no signature matches.
    fn without_match(&self, end: BodyEnd) -> Judgement {
        let fallback = self.fallback();
        if fallback.verdict != Verdict::Ok || end != BodyEnd::CutOff {
            return fallback;
        }
        let mut cut = Judgement::transport(Verdict::ConnectionError, "the body was cut off");
        cut.status = fallback.status;
        cut.neutral = fallback.neutral;
        cut
    }

    fn judgement(
        &self,
        verdict: Verdict,
        confidence: Confidence,
        evidence: Option<Evidence>,
    ) -> Judgement {
        let neutral = self.neutral || (self.decoration && verdict == Verdict::Ok);
        Judgement {
            verdict,
            confidence,
            neutral,
            evidence: evidence.map(Box::new),
            retry_after: self.retry_after.filter(|_| !neutral),
            status: Some(self.status),
            decoys: Vec::new(),
            logged: self.logged.clone(),
            suspect: None,
            bytes: 0,
        }
    }
}
