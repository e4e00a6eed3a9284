//! The report of `tidegate explain`: plain data for `--json`, and text for people.

use std::{collections::BTreeMap, fmt};

use serde::Serialize;

use crate::classify::{
    NearMiss,
    verdict::{Confidence, Evidence, Verdict},
};

/// The report.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Report {
    /// About one response.
    One(Box<Item>),
    /// About several responses.
    Many {
        /// The responses, in the order of the source.
        items: Vec<Item>,
        /// The summary.
        summary: Summary,
    },
}

/// One response.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Item {
    /// File name, URL or position in the source.
    pub name: String,
    /// The requested URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The status it was served with.
    pub status: u16,
    /// Its verdict.
    pub verdict: Verdict,
    /// How certain the verdict is.
    pub confidence: Confidence,
    /// True if it is neither a block nor a sign of health, whatever the verdict.
    pub neutral: bool,
    /// The rule that applies, if any.
    pub rule: Option<String>,
    /// The evidence; `None` for a plain `ok`.
    pub evidence: Option<Box<Evidence>>,
    /// The wait that the site requested, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<f64>,
    /// Signatures that nearly matched, and what was missing.
    pub near: Vec<NearMiss>,
    /// Signatures whose marks are on a page without the shape of a wall.
    pub decoys: Vec<String>,
    /// Signatures that matched and are only logged.
    pub logged: Vec<String>,
    /// Characters of visible text (an East Asian character counts as two).
    pub visible_text: usize,
    /// The verdict that the source expected, if it names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
}

/// The summary of all responses.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// Number of responses.
    pub responses: usize,
    /// Number of responses by verdict.
    pub verdicts: BTreeMap<&'static str, usize>,
    /// Number of responses by signature.
    pub signatures: BTreeMap<String, usize>,
    /// The cooldowns that these responses, one after the other, would have tripped.
    pub cooldowns: Vec<Cooldown>,
    /// Number of responses with another verdict than expected; `None` if the source expects none.
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
    /// The reason: `3 in a row`, `50% of the last 20`, `Retry-After`.
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
            writeln!(f, "wait        {wait} s, requested by the site")?;
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
            writeln!(f, "{unexpected} not as expected")?;
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
