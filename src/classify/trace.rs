//! A scan that also tells what nearly matched, for a person who asks why.

use super::{BodyEnd, compiled::Compiled, scan::Scan};
use crate::classify::verdict::{Judgement, Verdict};

/// Near misses that are told.
const MAX_NEAR: usize = 12;

/// A scan that looks for everything, also for what cannot change the verdict.
#[derive(Debug)]
pub struct Traced(Scan);

/// What a scan found beside its verdict.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trace {
    /// Signatures of which some conditions held.
    pub near: Vec<NearMiss>,
    /// Characters of visible text (an East Asian character counts as two).
    pub visible_text: usize,
    /// Decoded bytes that were looked at: no more than could matter.
    pub bytes: usize,
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

impl Traced {
    pub(super) const fn new(scan: Scan) -> Self {
        Self(scan)
    }

    /// As [`Scan::push`].
    pub fn push(&mut self, bytes: &[u8]) -> bool {
        self.0.push(bytes)
    }

    /// The verdict, and what else was found on the way.
    #[must_use]
    pub fn finish(self, end: BodyEnd) -> (Judgement, Trace) {
        let mut trace = Trace::default();
        (self.0.conclude(end, Some(&mut trace)), trace)
    }
}

impl Trace {
    pub(super) fn add(&mut self, signature: &Compiled, missing: String) {
        if self.near.len() < MAX_NEAR {
            let (name, verdict) = (signature.source.name.to_string(), signature.source.verdict);
            self.near.push(NearMiss { signature: name, verdict, missing });
        }
    }
}
