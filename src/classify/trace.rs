//! The extra result of a traced scan: why other signatures did not match.

use super::{compiled::Compiled, verdict::Verdict};

/// Most near misses that are reported.
const MAX_NEAR: usize = 12;

/// The extra result of a traced scan.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trace {
    /// Signatures that matched in part.
    pub near: Vec<NearMiss>,
    /// Characters of visible text (an East Asian character counts as two).
    pub visible_text: usize,
    /// Decoded bytes that were scanned.
    pub bytes: usize,
}

/// A signature that matched in part.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct NearMiss {
    /// Its name.
    pub signature: String,
    /// The verdict that it would have given.
    pub verdict: Verdict,
    /// The missing condition, as text for people.
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
