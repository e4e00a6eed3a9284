//! Telling blocks from pages.
//!
//! A verdict is a pure function of a response: method, status, named fields, a bounded decoded
//! prefix of the body, and whether that is all of it. Nothing is known here of other responses, of
//! rules or of time. The order:
//!
//! 1. **Head** ([`Classifier::read`]): fields and redirects that settle it alone. Most responses
//!    end here, all that is neither text nor HTML does, and costs nothing.
//! 2. **Body** ([`Scan`]): a prefilter over the bytes of a page tells whether it may have any mark; if so,
//!    one pass over the decoded prefix counts visible text and looks for all marks at once. A mark counts only on a page with the shape of a wall; on any other page it is
//!    a decoy.
//! 3. **What is left**: 429 and 403 by themselves; a blank page.
//!
//! What marks there are is data: `config/signatures.yaml`. Precision comes first throughout, since
//! a false block stalls the whole fleet: what is in doubt is `ok`.

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
use head::{Kind, Telling};

pub use classifier::{Classifier, builtin_signatures};
pub use page::read_page;
pub use retry_after::{LONGEST, retry_after};
pub use scan::{Scan, Traced};
pub use signature::{Signature, SignatureError, Switches};
pub use trace::{NearMiss, Trace};

/// The head of a response and what it answers.
#[derive(Debug, Clone, Copy)]
pub struct Head<'a> {
    /// Method of the request.
    pub method: &'a Method,
    /// Where it went.
    pub target: &'a Target,
    /// Status of the response.
    pub status: StatusCode,
    /// Fields of the response.
    pub headers: &'a HeaderMap,
}

/// How much of a body is looked at, decoded.
#[derive(Debug, Clone, Copy)]
pub struct ScanLimits {
    /// Of an ordinary response.
    pub bytes: usize,
    /// Of a 4xx, a 5xx and a 202.
    pub error_bytes: usize,
}

/// How the scanned bytes ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyEnd {
    /// The body is complete.
    Complete,
    /// The site cut it off (an error, or fewer bytes than announced).
    CutOff,
    /// There is more, but nobody looks at it.
    Open,
}

/// What the head says.
#[derive(Debug)]
pub enum Reading {
    /// Enough for a verdict.
    Judged(Judgement),
    /// The body must be looked at.
    Scan(Box<Scan>),
}

/// What the head alone settles, for whatever the body then says.
#[derive(Debug)]
struct Ground {
    status: u16,
    /// Never evidence, whatever it is.
    neutral: bool,
    /// Images, styles and the like: neutral unless their status is a block.
    decoration: bool,
    retry_after: Option<Duration>,
    logged: Vec<Arc<str>>,
}

impl Classifier {
    /// Reads the head of a response.
    #[must_use]
    pub fn read(self: &Arc<Self>, head: Head<'_>, limits: ScanLimits) -> Reading {
        let telling = Telling::of(head.headers);
        let kind = head::kind(telling);
        let mut ground = Ground {
            status: head.status.as_u16(),
            neutral: head::is_habitual_refusal(head.target),
            decoration: kind == Kind::Neutral,
            retry_after: if telling.asks_to_wait { asked_wait(head) } else { None },
            logged: Vec::new(),
        };
        let codings = if telling.coded { decode::codings(head.headers) } else { Ok(Vec::new()) };
        let scans = limits.of(head.status) > 0
            && matches!(kind, Kind::Page | Kind::Data)
            && head::has_telling_body(head.method, head.status)
            && codings.is_ok();
        let redirect = head::redirect(head);
        let status = head.status.as_u16();
        let mut free = if scans { self.header_index.free() } else { &[] };
        let (mut asking, mut settled) = (Vec::new(), None);
        for number in self.header_index.asking(head.status, head.headers).iter().copied() {
            let signature = &self.signatures[number];
            let possible = scans || signature.is_head_only;
            if !possible || !signature.holds_at(head, redirect.as_ref()) {
                continue;
            }
            if !signature.is_head_only {
                asking.push(number);
            } else if signature.source.action == signature::Action::Log {
                ground.logged.push(Arc::clone(&signature.source.name));
            } else {
                settled = Some(ground.decided(&signature.source, signature.head_evidence(head)));
                // Those that stand behind it are not asked any more.
                free = &free[..free.partition_point(|candidate| *candidate < number)];
                break;
            }
        }
        let suits = |number: &usize| self.signatures[*number].suits(status);
        let nobody = asking.is_empty() && !free.iter().any(suits);
        let may_be_blank = scans && kind == Kind::Page && head::may_be_blank(head);
        let settled = match settled {
            Some(judgement) if nobody => return Reading::Judged(judgement),
            settled => settled,
        };
        if nobody && !may_be_blank {
            return Reading::Judged(ground.fallback());
        }
        Reading::Scan(Box::new(Scan::new(scan::Start {
            classifier: Arc::clone(self),
            ground,
            asking,
            free: free.len(),
            settled,
            may_be_blank,
            codings: codings.unwrap_or_default(),
            content_type: telling.content_type,
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

/// `Retry-After`, where it can mean "you are too fast": a redirect's says when to follow it.
fn asked_wait(head: Head<'_>) -> Option<Duration> {
    if head.status.is_redirection() { None } else { retry_after(head.headers, clock::wall()) }
}

impl Ground {
    /// A signature decided.
    fn decided(&self, signature: &Signature, evidence: Evidence) -> Judgement {
        // Under a 429 a page that sounds like a block says why there were too many requests.
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

    /// Nothing but the status is left.
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
            // Some sites refuse robots with 418 (RFC 2324), others answer with it as a joke, so confidence is
            // low. Shopify sends 430 for a request that it suspects to be an attack.
            403 | 418 | 430 => {
                let evidence = by_status(&format!("status-{}", self.status));
                self.judgement(Verdict::Forbidden, Confidence::Low, Some(evidence))
            }
            _ => self.judgement(Verdict::Ok, Confidence::High, None),
        }
    }

    /// What is left of a body where no signature matches.
    fn without_mark(&self, end: BodyEnd) -> Judgement {
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
