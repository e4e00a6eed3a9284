//! What a scan finds beside its verdict, for a person who asks why.

use super::{compiled::Compiled, verdict::Verdict};

/// Near misses that are told.
const MAX_NEAR: usize = 12;

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

impl Trace {
    pub(super) fn add(&mut self, signature: &Compiled, missing: String) {
        if self.near.len() < MAX_NEAR {
            let (name, verdict) = (signature.source.name.to_string(), signature.source.verdict);
            self.near.push(NearMiss { signature: name, verdict, missing });
        }
    }
}
