//! What `tidegate explain` says: plain data for `--json`, and text for people.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{
    classify::NearMiss,
    verdict::{Confidence, Verdict},
};

/// The answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Report {
    /// On one response.
    One(Box<Item>),
    /// On several.
    Many {
        /// Each of them, in the order of the source.
        items: Vec<Item>,
        /// All of them together.
        summary: Summary,
    },
}

/// One response.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Item {
    /// File name, URL or position in the source.
    pub name: String,
    /// Where it came from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The status it was served with.
    pub status: u16,
    /// What it was judged to be.
    pub verdict: Verdict,
    /// How sure.
    pub confidence: Confidence,
    /// True for what is neither a block nor a sign of health, whatever the verdict says.
    pub neutral: bool,
    /// The rule of the rule file that applies; nothing where the file has none.
    pub rule: Option<String>,
    /// What the verdict rests on; nothing for a plain `ok`.
    pub evidence: Option<Proof>,
    /// Seconds that the site asked to wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<f64>,
    /// What nearly matched, and what was missing.
    pub near: Vec<NearMiss>,
    /// Signatures whose marks stood on a page that has not the shape of a wall.
    pub decoys: Vec<String>,
    /// Signatures that matched and are set to log only.
    pub logged: Vec<String>,
    /// Characters of visible text that were seen (an East Asian character counts as two).
    pub visible_text: usize,
    /// The verdict that the source expected, where it says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
}

/// What a verdict rests on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Proof {
    /// Id of the signature, or of the built-in step.
    pub signature: String,
    /// Whose wall it is.
    pub vendor: Option<String>,
    /// Where it matched.
    pub place: String,
    /// What matched.
    pub excerpt: String,
}

/// All responses together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// How many.
    pub responses: usize,
    /// How many of each verdict.
    pub verdicts: BTreeMap<&'static str, usize>,
    /// How many of each signature.
    pub signatures: BTreeMap<String, usize>,
    /// The cooldowns that this sequence would have tripped, had the requests been sent one after the other.
    pub cooldowns: Vec<Cooldown>,
    /// How many were judged other than the source expected; nothing where it expects nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unexpected: Option<usize>,
}

/// A cooldown that would have been tripped.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cooldown {
    /// The scope: `rule`, or `rule/key`.
    pub scope: String,
    /// The response that tripped it.
    pub tripped_by: String,
    /// Its position, from 1.
    pub position: usize,
    /// Its verdict.
    #[serde(rename = "type")]
    pub verdict: Verdict,
    /// Why: `3 in a row`, `50% of the last 20`, `Retry-After`.
    pub why: String,
    /// Shortest and longest length in seconds.
    pub seconds: (f64, f64),
}
