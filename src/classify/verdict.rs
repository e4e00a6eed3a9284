//! The judgement of one response, and its evidence.
//!
//! The strings of [`Verdict::as_str`] are label values of the metrics, header values and words of
//! the rule file.

use std::{fmt, str::FromStr, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

words! {
    /// The judgement of one response, or of a missing one.
    #[derive(PartialOrd, Ord)]
    pub enum Verdict {
        /// An ordinary page, or an error that is not a block.
        Ok = "ok",
        /// The site refused the request: any plain 403, or a vendor's "you have been blocked" with any status.
        Forbidden = "403_forbidden",
        /// The site reports too many requests: a 429, or a page that says so.
        RateLimited = "429_rate_limited",
        /// A wall that requires a human: captchas, and the challenges of vendors other than Cloudflare.
        Captcha = "captcha",
        /// Cloudflare's challenge.
        CloudflareChallenge = "cloudflare_challenge",
        /// A complete HTML page without any content.
        BlankPage = "blank_page",
        /// No response: refused, reset, TLS failure, cut off.
        ConnectionError = "connection_error",
        /// No response in time.
        Timeout = "timeout",
    }
}

impl Verdict {
    /// Its letter in compact lists: `a` for the first of [`Verdict::ALL`], and so on.
    #[must_use]
    pub const fn letter(self) -> char {
        (b'a' + self as u8) as char
    }

    /// The verdict of a letter.
    #[must_use]
    pub fn of_letter(letter: char) -> Option<Self> {
        Self::ALL.into_iter().find(|verdict| verdict.letter() == letter)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The word is not one of the eight verdicts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a verdict")]
pub struct UnknownVerdict(pub String);

impl FromStr for Verdict {
    type Err = UnknownVerdict;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|verdict| verdict.as_str() == word)
            .ok_or_else(|| UnknownVerdict(word.to_owned()))
    }
}

impl Serialize for Verdict {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Verdict {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        word.parse().map_err(serde::de::Error::custom)
    }
}

/// How certain a verdict is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// Based on a header by name, a vendor's page or an unmistakable status.
    #[default]
    High,
    /// Based only on the status (a plain 403) or on missing content (a blank page).
    Low,
}

impl Confidence {
    /// The word in headers, logs and the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::High => "high",
            Self::Low => "low",
        }
    }
}

/// The evidence of a verdict: enough to correct a false one within minutes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Evidence {
    /// Id of the signature, or of the built-in step (`status-403`) that decided.
    pub signature: Arc<str>,
    /// The vendor of the wall, if known.
    pub vendor: Option<Arc<str>>,
    /// Where it matched: `status`, `header server`, `location`, `title`, `body`, `text`.
    pub place: String,
    /// The matching text, cut to 120 characters, without control characters.
    pub excerpt: String,
}

/// A page that looks like a wall but matches no signature. It is not evidence, but worth a review.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suspect {
    /// The signature that matches in part, and the matching part.
    pub evidence: Evidence,
    /// The decoded page, as far as it was read.
    pub page: String,
}

/// The place of the evidence if a host name could not be resolved.
const DNS: &str = "dns";

/// The judgement of one response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// The verdict.
    pub verdict: Verdict,
    /// How certain it is.
    pub confidence: Confidence,
    /// Counted, but neither a block nor a sign of health, whatever the verdict. True for content that no crawler parses
    /// (images, stylesheets, scripts, media), and for targets that sites often refuse to robots (`/robots.txt`,
    /// `/favicon.ico`).
    pub neutral: bool,
    /// The evidence; `None` for a plain `ok`.
    pub evidence: Option<Box<Evidence>>,
    /// The wait that the site requested (`Retry-After`, RFC 9110 section 10.2.3).
    pub retry_after: Option<Duration>,
    /// The status, if there was a response.
    pub status: Option<u16>,
    /// Signatures whose marks are on a page without the shape of a wall. They are counted: a
    /// signature with many decoys and few hits is a bad one.
    pub decoys: Vec<Arc<str>>,
    /// Signatures that matched and are set to log only.
    pub logged: Vec<Arc<str>>,
    /// Set for a page that looks like a wall although no signature matches.
    pub suspect: Option<Box<Suspect>>,
    /// Decoded bytes of HTML that were scanned.
    pub bytes: usize,
}

impl Judgement {
    /// An ordinary page.
    #[must_use]
    pub fn ok(status: u16) -> Self {
        Self {
            verdict: Verdict::Ok,
            confidence: Confidence::High,
            neutral: false,
            evidence: None,
            retry_after: None,
            status: Some(status),
            decoys: Vec::new(),
            logged: Vec::new(),
            suspect: None,
            bytes: 0,
        }
    }

    /// For traffic that cannot be judged (a tunnel, an upgraded connection): neither a block nor a sign of health. A
    /// `probe` succeeds if the site responded, because no better evidence can follow.
    #[must_use]
    pub fn unseen(probe: bool) -> Self {
        Self { neutral: !probe, status: None, ..Self::ok(200) }
    }

    /// Whether there was no response at all.
    #[must_use]
    pub fn is_transport(&self) -> bool {
        matches!(self.verdict, Verdict::ConnectionError | Verdict::Timeout)
    }

    /// Whether the site did not respond: it dropped, refused or did not answer a connection. An unresolved name says
    /// nothing about the site.
    #[must_use]
    pub fn is_silence(&self) -> bool {
        self.is_transport() && self.evidence.as_ref().is_none_or(|evidence| evidence.place != DNS)
    }

    /// No response, because the host name could not be resolved.
    #[must_use]
    pub fn unresolved(verdict: Verdict, what: &str) -> Self {
        let mut judgement = Self::transport(verdict, what);
        if let Some(evidence) = &mut judgement.evidence {
            DNS.clone_into(&mut evidence.place);
        }
        judgement
    }

    /// No response. `verdict` is [`Verdict::ConnectionError`] or [`Verdict::Timeout`]; `what` names
    /// the step that failed.
    #[must_use]
    pub fn transport(verdict: Verdict, what: &str) -> Self {
        Self {
            verdict,
            confidence: Confidence::Low,
            neutral: false,
            evidence: Some(Box::new(Evidence {
                signature: Arc::from(verdict.as_str()),
                vendor: None,
                place: "transport".to_owned(),
                excerpt: what.chars().take(120).collect(),
            })),
            retry_after: None,
            status: None,
            decoys: Vec::new(),
            logged: Vec::new(),
            suspect: None,
            bytes: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verdict_is_read_back_from_its_word() {
        for verdict in Verdict::ALL {
            assert_eq!(verdict.as_str().parse(), Ok(verdict));
            assert_eq!(Verdict::of_letter(verdict.letter()), Some(verdict));
        }
        assert!("forbidden".parse::<Verdict>().is_err());
    }
}
