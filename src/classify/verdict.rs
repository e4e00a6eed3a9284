//! What one response was judged to be, and why.
//!
//! The strings of [`Verdict::as_str`] are the label values of the metrics, the header values and
//! the words of the rule file.

use std::{fmt, str::FromStr, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

/// What one response (or the lack of one) was judged to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verdict {
    /// A page, or an error that is no block.
    Ok,
    /// The site refused: any plain 403, or a vendor's "you have been blocked" under any status.
    Forbidden,
    /// The site says "too fast": 429 or a page that says so.
    RateLimited,
    /// A wall that wants a person: captchas and other vendors' challenges.
    Captcha,
    /// Cloudflare's challenge.
    CloudflareChallenge,
    /// A complete HTML page with nothing in it.
    BlankPage,
    /// No response: refused, reset, TLS failure, cut off.
    ConnectionError,
    /// No response in time.
    Timeout,
}

impl Verdict {
    /// Every verdict, in the order of the documentation.
    pub const ALL: [Self; 8] = [
        Self::Ok,
        Self::Forbidden,
        Self::RateLimited,
        Self::Captcha,
        Self::CloudflareChallenge,
        Self::BlankPage,
        Self::ConnectionError,
        Self::Timeout,
    ];

    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Forbidden => "403_forbidden",
            Self::RateLimited => "429_rate_limited",
            Self::Captcha => "captcha",
            Self::CloudflareChallenge => "cloudflare_challenge",
            Self::BlankPage => "blank_page",
            Self::ConnectionError => "connection_error",
            Self::Timeout => "timeout",
        }
    }
}

impl Verdict {
    /// Its letter, where a line of them is kept: `a` for the first of [`Verdict::ALL`], and so on.
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

/// The word is none of the eight verdicts.
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

/// How sure a verdict is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// A named header, a vendor's page, an unmistakable status.
    #[default]
    High,
    /// Nothing but the status (a plain 403) or an absence (a blank page) speaks.
    Low,
}

impl Confidence {
    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::High => "high",
            Self::Low => "low",
        }
    }
}

/// What a verdict rests on: enough to mend a false one in minutes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evidence {
    /// Id of the signature, or of the built-in step (`status-403`) that decided.
    pub signature: Arc<str>,
    /// Whose wall it is, where known.
    pub vendor: Option<Arc<str>>,
    /// Where it matched: `status`, `header server`, `location`, `title`, `body`, `text`.
    pub place: String,
    /// What matched, cut to 120 characters, control characters replaced.
    pub excerpt: String,
}

/// A page that looks like a wall and matches no signature: no evidence, but worth a person's look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suspect {
    /// The signature that it comes near to, and what of it is there.
    pub evidence: Evidence,
    /// What was read of it, decoded.
    pub page: String,
}

/// Where the evidence is, if a name could not be resolved.
const DNS: &str = "dns";

/// The judgement of one response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// The verdict.
    pub verdict: Verdict,
    /// How sure.
    pub confidence: Confidence,
    /// True for what no person or parser would read (images, styles, scripts, media), and for what
    /// sites refuse to robots out of habit (`/robots.txt`, `/favicon.ico`): counted, but neither a
    /// block nor a sign of health, whatever the verdict says.
    pub neutral: bool,
    /// What it rests on; nothing for a plain `ok`.
    pub evidence: Option<Box<Evidence>>,
    /// The wait that the site itself asked for (`Retry-After`, RFC 9110 section 10.2.3).
    pub retry_after: Option<Duration>,
    /// The status, where there was a response.
    pub status: Option<u16>,
    /// Signatures whose marks stood on a page that has not the shape of a wall: no evidence, but
    /// counted. One with many decoys and few hits is a bad one.
    pub decoys: Vec<Arc<str>>,
    /// Signatures that matched and are set to log only.
    pub logged: Vec<Arc<str>>,
    /// Set on a page that looks like a wall all the same.
    pub suspect: Option<Box<Suspect>>,
    /// Decoded bytes of HTML that were looked at.
    pub bytes: usize,
}

impl Judgement {
    /// A page as it should be.
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

    /// What passes unseen (a tunnel, an upgraded connection): neither a block nor a sign of health. For a `probe` the
    /// site's answer is good enough: where nothing can be judged, nothing better would ever come.
    #[must_use]
    pub fn unseen(probe: bool) -> Self {
        Self { neutral: !probe, status: None, ..Self::ok(200) }
    }

    /// Whether there was no response at all.
    #[must_use]
    pub fn is_transport(&self) -> bool {
        matches!(self.verdict, Verdict::ConnectionError | Verdict::Timeout)
    }

    /// Whether the site itself gave no response: it dropped, refused or did not answer a connection. A name that cannot
    /// be resolved says nothing about the site.
    #[must_use]
    pub fn is_silence(&self) -> bool {
        self.is_transport() && self.evidence.as_ref().is_none_or(|evidence| evidence.place != DNS)
    }

    /// No response, since the name of the site could not be resolved.
    #[must_use]
    pub fn unresolved(verdict: Verdict, what: &str) -> Self {
        let mut judgement = Self::transport(verdict, what);
        if let Some(evidence) = &mut judgement.evidence {
            DNS.clone_into(&mut evidence.place);
        }
        judgement
    }

    /// No response at all: `verdict` is [`Verdict::ConnectionError`] or [`Verdict::Timeout`],
    /// `what` says which step failed.
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
