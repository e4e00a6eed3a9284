//! A signature as plain data, built in or written by a user under `detect`.
//!
//! All conditions must hold. A condition that is left out always holds. A signature without any
//! condition would match every response, so it does not compile.

use std::{collections::BTreeMap, sync::Arc};

use serde::Deserialize;

use crate::{
    classify::verdict::{Confidence, Verdict},
    target::glob_matches,
};

/// The marks of a wall, and the verdict that they mean.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Signature {
    /// Its unique id, used as a label value: at most 64 characters of `[A-Za-z0-9_.-]`.
    pub name: Arc<str>,
    /// The verdict of a match. `ok` overrides the built-in signatures. Never `connection_error` or
    /// `timeout`.
    pub verdict: Verdict,
    /// The vendor of the wall, if known.
    #[serde(default)]
    pub vendor: Option<Arc<str>>,
    /// How certain a match is.
    #[serde(default)]
    pub confidence: Confidence,
    /// Whether a match decides or is only logged, or the signature is off.
    #[serde(default)]
    pub action: Action,
    /// The kinds of body that it applies to.
    #[serde(default)]
    pub content: Content,
    /// The shape that the page must have.
    #[serde(default)]
    pub shape: Shape,
    /// Most characters of visible text; `None` if the shape alone decides.
    #[serde(default)]
    pub max_text: Option<usize>,
    /// The response must have one of these statuses; empty means any.
    #[serde(default)]
    pub status: Vec<StatusRange>,
    /// Required header fields: the name, and a glob for one of its whole values. `*` stands for any
    /// characters; letter case does not matter.
    #[serde(default)]
    pub header: BTreeMap<String, String>,
    /// Where the redirect must lead.
    #[serde(default)]
    pub location: Option<LocationMatch>,
    /// The page must have one of these titles. They are globs; letter case does not matter, and several blanks count as
    /// one. An empty title matches a page without a title.
    #[serde(default, deserialize_with = "one_or_many")]
    pub title: Vec<String>,
    /// The decoded prefix must contain all of these strings, in its markup or visible text. Letter
    /// case does not matter.
    #[serde(default, deserialize_with = "one_or_many")]
    pub body: Vec<String>,
    /// The decoded prefix must contain at least one of these strings.
    #[serde(default, deserialize_with = "one_or_many")]
    pub any: Vec<String>,
    /// The visible text must contain at least one of these strings.
    #[serde(default, deserialize_with = "one_or_many")]
    pub text: Vec<String>,
    /// The decoded prefix must contain none of these strings; for built-in signatures.
    #[serde(default)]
    pub none: Vec<String>,
    /// The family of walls that the page must belong to; for built-in signatures.
    #[serde(default)]
    pub family: Option<Family>,
    /// `text` must match within this many characters of visible text.
    #[serde(default)]
    pub within: Option<usize>,
    /// Where the wall was seen; for maintainers.
    #[serde(default)]
    pub seen: Option<String>,
    /// A similar page that is not a wall; for maintainers.
    #[serde(default)]
    pub trap: Option<String>,
    /// Responses that it must match and others that it must not.
    #[serde(default)]
    pub expect: Vec<Example>,
}

/// The effect of a match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// It decides the verdict.
    #[default]
    Decide,
    /// It is listed in the judgement but does not change the verdict.
    Log,
    /// The signature is not evaluated.
    Off,
}

/// The kinds of body that a signature applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Content {
    /// HTML, by its header or its first bytes.
    Page,
    /// JSON, XML and plain text.
    Data,
    /// All of these.
    #[default]
    Any,
}

/// The shape that a page must have for a match in its title or body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// Any shape. A user's signature for one site needs no such guard.
    #[default]
    Any,
    /// Little visible text, like the pages that replace the requested one. The built-in signatures
    /// require it. On any other page the marks are decoys: counted, but not evidence.
    Interstitial,
}

/// A family of walls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Family {
    /// Requires a proof that the visitor is human or uses a browser.
    HumanCheck,
    /// Shows nothing: a script computes an answer and reloads the page.
    ScriptCheck,
    /// Reports too many requests.
    TooMany,
    /// Refuses the request on behalf of a firewall.
    Refusal,
}

/// Statuses from the first to the last, both included; written `403`, `5xx` or `520-530`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "StatusWord")]
pub struct StatusRange(pub u16, pub u16);

/// A status in YAML: a number or a word.
#[derive(Deserialize)]
#[serde(untagged)]
enum StatusWord {
    Number(u16),
    Word(String),
}

impl TryFrom<StatusWord> for StatusRange {
    type Error = String;

    fn try_from(word: StatusWord) -> Result<Self, Self::Error> {
        match word {
            StatusWord::Number(status) => Ok(Self(status, status)),
            StatusWord::Word(word) => word.parse(),
        }
    }
}

impl std::str::FromStr for StatusRange {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        let bad = || format!("`{word}` is not a valid status: write 403, 5xx or 520-530");
        let status = |digits: &str| {
            digits.parse::<u16>().ok().filter(|status| (100..=999).contains(status)).ok_or_else(bad)
        };
        if let Some(hundreds) = word.strip_suffix("xx") {
            let first = status(&format!("{hundreds}00"))?;
            return Ok(Self(first, first + 99));
        }
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        let range = Self(status(first.trim())?, status(last.trim())?);
        if range.0 <= range.1 { Ok(range) } else { Err(bad()) }
    }
}

impl StatusRange {
    /// Whether the range contains `status`.
    #[must_use]
    pub const fn contains(self, status: u16) -> bool {
        self.0 <= status && status <= self.1
    }

    /// Whether the ranges overlap.
    pub(super) const fn overlaps(self, other: Self) -> bool {
        self.0 <= other.1 && other.0 <= self.1
    }
}

/// The target of a redirect, as globs; letter case does not matter.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LocationMatch {
    /// The host. A relative `Location` stays on the requested host.
    #[serde(default)]
    pub host: Option<String>,
    /// The path, without the query.
    #[serde(default)]
    pub path: Option<String>,
    /// The name of one query parameter.
    #[serde(default)]
    pub query: Option<String>,
}

/// A response, and whether the signature must match it.
///
/// In `body`, `{prose}` stands for about 2,000 characters of harmless text, and `{filler}` for 20
/// KB of markup without text.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Example {
    /// Whether the signature must match.
    #[serde(default = "yes")]
    pub matches: bool,
    /// The requested URL; without one, the front page of some site.
    #[serde(default)]
    pub url: Option<String>,
    /// The status.
    #[serde(default = "success")]
    pub status: u16,
    /// Header fields. The default `content-type` is `text/html; charset=utf-8`.
    #[serde(default)]
    pub header: BTreeMap<String, String>,
    /// The body.
    #[serde(default)]
    pub body: String,
}

const fn yes() -> bool {
    true
}

const fn success() -> u16 {
    200
}

/// A string, or a list of strings.
fn one_or_many<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum OneOrMany {
        One(String),
        Many(Vec<String>),
    }
    Ok(match OneOrMany::deserialize(deserializer)? {
        OneOrMany::One(one) => vec![one],
        OneOrMany::Many(many) => many,
    })
}

impl Signature {
    /// A signature without conditions, to be completed by the caller.
    #[must_use]
    pub fn new(name: &str, verdict: Verdict) -> Self {
        Self {
            name: Arc::from(name),
            verdict,
            vendor: None,
            confidence: Confidence::High,
            action: Action::Decide,
            content: Content::Any,
            shape: Shape::Any,
            max_text: None,
            status: Vec::new(),
            header: BTreeMap::new(),
            location: None,
            title: Vec::new(),
            body: Vec::new(),
            any: Vec::new(),
            text: Vec::new(),
            none: Vec::new(),
            family: None,
            within: None,
            seen: None,
            trap: None,
            expect: Vec::new(),
        }
    }

    /// Whether the head alone decides.
    #[must_use]
    pub fn is_head_only(&self) -> bool {
        let strings = [&self.title, &self.body, &self.any, &self.text];
        self.family.is_none() && strings.into_iter().all(Vec::is_empty)
    }
}

/// Why signatures were rejected; a message for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// Two signatures have the same name.
    #[error("two signatures are called `{0}`: give each its own name")]
    Duplicate(Arc<str>),
    /// The name is not a valid label value.
    #[error("`{0}` is not a valid signature name: use 1 to 64 characters of A-Z a-z 0-9 _ . -")]
    BadName(Arc<str>),
    /// The signature would match every response.
    #[error(
        "the signature `{0}` has no condition and would match every response: add \
         status, header, location, title, body, any or text"
    )]
    NoCondition(Arc<str>),
    /// A signature cannot give this verdict.
    #[error(
        "the signature `{0}` says `{1}`, which no response can be: use ok or one of the five blocks"
    )]
    BadVerdict(Arc<str>, Verdict),
    /// Not a valid field name.
    #[error("the signature `{0}` asks for the header `{1}`, which is not a valid header name")]
    BadHeader(Arc<str>, String),
    /// An empty or overlong pattern.
    #[error("the signature `{0}` has a pattern of {1} bytes: write 1 to 512")]
    BadPattern(Arc<str>, usize),
    /// A switch for a signature that does not exist, and the one that is probably meant.
    #[error("there is no signature `{0}`")]
    Unknown(Arc<str>, Option<Arc<str>>),
    /// More than the automaton can hold.
    #[error("the signatures of one rule are too many or too long to compile: {0}")]
    TooMany(String),
}

/// Built-in or custom signatures that a rule switches off or only logs, by name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Switches {
    /// Not evaluated.
    pub off: Vec<Arc<str>>,
    /// Listed in the judgement, but not decisive.
    pub log: Vec<Arc<str>>,
}

impl LocationMatch {
    /// Whether `redirect` leads there.
    pub(crate) fn matches(&self, redirect: &super::head::Redirect) -> bool {
        let fits = |glob: &Option<String>, text: &str| {
            glob.as_ref().is_none_or(|glob| glob_matches(&glob.to_ascii_lowercase(), text))
        };
        let mut names = redirect.query.split('&').map(|pair| pair.split('=').next().unwrap_or(""));
        fits(&self.host, &redirect.host)
            && fits(&self.path, &redirect.path)
            && (self.query.is_none() || names.any(|name| fits(&self.query, name)))
    }
}
