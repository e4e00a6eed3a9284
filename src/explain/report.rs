//! What `tidegate explain` says: plain data for `--json`, and text for people.

use std::{collections::BTreeMap, fmt};

use serde::Serialize;

use crate::classify::{
    NearMiss,
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
    /// The cooldowns that this sequence would have tripped, had the requests been sent one after
    /// the other.
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

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(item) => item.fmt(f),
            Self::Many { items, summary } => {
                for item in items {
                    item.write_line(f)?;
                }
                writeln!(f)?;
                summary.fmt(f)
            }
        }
    }
}

impl Item {
    /// One line, for lists.
    fn write_line(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<20} {:>3}  {}", self.verdict.as_str(), self.status, self.name)?;
        if let Some(proof) = &self.evidence {
            write!(f, "  ({})", proof.signature)?;
        }
        if self.expected.as_deref().is_some_and(|expected| !meets(expected, self.verdict)) {
            write!(f, "  expected {}", self.expected.as_deref().unwrap_or(""))?;
        }
        writeln!(f)
    }
}

/// Whether `verdict` is one of the words in `expected` (separated by `|`).
pub(super) fn meets(expected: &str, verdict: Verdict) -> bool {
    expected.split('|').any(|word| word == verdict.as_str())
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "verdict     {} ({} confidence)", self.verdict, self.confidence.as_str())?;
        if self.neutral {
            writeln!(f, "            neutral: neither a block nor a sign of health")?;
        }
        writeln!(f, "rule        {}", self.rule.as_deref().unwrap_or("none matches"))?;
        match &self.evidence {
            None => writeln!(f, "evidence    none")?,
            Some(proof) => {
                let vendor = proof.vendor.as_deref().map(|vendor| format!(", {vendor}"));
                writeln!(f, "evidence    {}{}", proof.signature, vendor.unwrap_or_default())?;
                writeln!(f, "            in {}: {}", proof.place, proof.excerpt)?;
            }
        }
        if let Some(wait) = self.retry_after {
            writeln!(f, "wait        {wait} s, says the site")?;
        }
        for near in &self.near {
            let NearMiss { signature, verdict, missing } = near;
            writeln!(f, "nearly      {signature} ({verdict}), which lacks {missing}")?;
        }
        for logged in &self.logged {
            writeln!(f, "log only    {logged}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} responses", self.responses)?;
        for (verdict, count) in &self.verdicts {
            writeln!(f, "  {count:>6}  {verdict}")?;
        }
        if let Some(unexpected) = self.unexpected {
            writeln!(f, "{unexpected} other than expected")?;
        }
        if self.cooldowns.is_empty() {
            return writeln!(f, "no cooldown would have been tripped");
        }
        writeln!(f, "cooldowns that these responses, one after the other, would have tripped:")?;
        for cooldown in &self.cooldowns {
            let (shortest, longest) = cooldown.seconds;
            writeln!(
                f,
                "  {}  after response {} ({}, {}): {shortest} to {longest} s",
                cooldown.scope, cooldown.position, cooldown.verdict, cooldown.why
            )?;
        }
        Ok(())
    }
}
