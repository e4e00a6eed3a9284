//! Telling blocks from pages.

pub mod signature;

use std::sync::Arc;

use http::{HeaderMap, Method, StatusCode};

pub use signature::{Signature, SignatureError, Switches};

use crate::{
    target::Target,
    verdict::{Judgement, Verdict},
};

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

/// Compiled signatures.
#[derive(Debug, Default, PartialEq)]
pub struct Classifier {}

impl Classifier {
    /// The built-in signatures.
    #[must_use]
    pub fn builtin() -> Arc<Self> {
        Arc::default()
    }

    /// The built-in signatures and those of one rule, which come first (`ok` before the others).
    ///
    /// # Errors
    /// A signature that cannot be compiled, or a switch for one that does not exist.
    pub fn with(
        _custom: Vec<Signature>,
        _switches: &Switches,
    ) -> Result<Arc<Self>, SignatureError> {
        Ok(Self::builtin())
    }

    /// Reads the head of a response.
    #[must_use]
    pub fn read(self: &Arc<Self>, head: Head<'_>, _limits: ScanLimits) -> Reading {
        Reading::Scan(Box::new(Scan { status: head.status.as_u16() }))
    }
}

/// A body being looked at: takes the bytes as they are on the wire, decodes a copy.
#[derive(Debug)]
pub struct Scan {
    status: u16,
}

impl Scan {
    /// Looks at the next bytes as received (still encoded). False once nothing more can matter.
    pub fn push(&mut self, _bytes: &[u8]) -> bool {
        false
    }

    /// The verdict.
    #[must_use]
    pub fn finish(self, end: BodyEnd) -> Judgement {
        self.finish_with_trace(end).0
    }

    /// The verdict, and what else was found on the way.
    #[must_use]
    pub fn finish_with_trace(self, _end: BodyEnd) -> (Judgement, Trace) {
        (Judgement::ok(self.status), Trace::default())
    }
}

/// What a scan found beside its verdict.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trace {
    /// Signatures of which some conditions held.
    pub near: Vec<NearMiss>,
    /// Characters of visible text (an East Asian character counts as two).
    pub visible_text: usize,
}

/// A signature of which some conditions held.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct NearMiss {
    /// Its id.
    pub signature: String,
    /// What it would have meant.
    pub verdict: Verdict,
    /// What was missing, for a person.
    pub missing: String,
}
