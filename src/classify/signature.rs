//! What a signature is: plain data, whether built in or written by a user under `detect`.
//!
//! Every condition given must hold. A condition that is left out holds always; a signature without
//! any condition is an error when it is compiled, since it would match every response.

use std::{collections::BTreeMap, sync::Arc};

use serde::Deserialize;

use crate::{
    classify::verdict::{Confidence, Verdict},
    target::glob_matches,
};

/// A mark by which a wall is recognised, and what it means.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Signature {
    /// Its id: unique, at most 64 characters of `[A-Za-z0-9_.-]`; a label value.
    pub name: Arc<str>,
    /// What a match means; `ok` overrules the built-in signatures. Never `connection_error` or
    /// `timeout`.
    pub verdict: Verdict,
    /// Whose wall it is, where known.
    #[serde(default)]
    pub vendor: Option<Arc<str>>,
    /// How sure a match is.
    #[serde(default)]
    pub confidence: Confidence,
    /// Whether a match decides, is only written down, or is not looked for.
    #[serde(default)]
    pub action: Action,
    /// Which bodies it is looked for in.
    #[serde(default)]
    pub content: Content,
    /// Which shape the page must have.
    #[serde(default)]
    pub shape: Shape,
    /// Most characters of visible text; `None`: the shape alone decides.
    #[serde(default)]
    pub max_text: Option<usize>,
    /// The statuses, one of which the response must have; empty: any.
    #[serde(default)]
    pub status: Vec<StatusRange>,
    /// Fields the head must have: name, and a glob (`*` stands for any run of characters) that one
    /// of its values must match as a whole, letter case aside.
    #[serde(default)]
    pub header: BTreeMap<String, String>,
    /// Where a redirect must lead.
    #[serde(default)]
    pub location: Option<LocationMatch>,
    /// Titles (globs, letter case aside, runs of blanks are one blank), one of which the page must
    /// have; an empty one stands for a page without title.
    #[serde(default, deserialize_with = "one_or_many")]
    pub title: Vec<String>,
    /// Strings that must all stand in the decoded prefix, in the markup or in the visible text,
    /// letter case aside.
    #[serde(default, deserialize_with = "one_or_many")]
    pub body: Vec<String>,
    /// Strings of which at least one must stand there.
    #[serde(default, deserialize_with = "one_or_many")]
    pub any: Vec<String>,
    /// Strings of which at least one must stand in the visible text.
    #[serde(default, deserialize_with = "one_or_many")]
    pub text: Vec<String>,
    /// Strings of which none may stand in the decoded prefix; for built-in signatures.
    #[serde(default)]
    pub none: Vec<String>,
    /// The family of walls that the page must belong to; for built-in signatures.
    #[serde(default)]
    pub family: Option<Family>,
    /// How many characters of visible text may stand before the end of a match of `text`.
    #[serde(default)]
    pub within: Option<usize>,
    /// Where it was seen, for whoever maintains it.
    #[serde(default)]
    pub seen: Option<String>,
    /// What it must not be taken in by, for whoever maintains it.
    #[serde(default)]
    pub trap: Option<String>,
    /// Responses that it must match and others that it must not.
    #[serde(default)]
    pub expect: Vec<Example>,
}

/// What a match does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// It decides.
    #[default]
    Decide,
    /// It is named in the judgement and decides nothing.
    Log,
    /// It is not looked for.
    Off,
}

/// Which bodies a signature is looked for in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Content {
    /// HTML, by header or by its first bytes.
    Page,
    /// JSON, XML and plain text.
    Data,
    /// All of these.
    #[default]
    Any,
}

/// Which shape a page must have for a match in its title or body to count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// Any: what a user writes about one site needs no such guard.
    #[default]
    Any,
    /// Little visible text, as pages that stand in the way have; the built-in signatures ask for
    /// it. On any other page the marks are decoys: counted, no evidence.
    Interstitial,
}

/// A family of walls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Family {
    /// Asks for a proof of being human or of having a browser.
    HumanCheck,
    /// Shows nothing: a script computes an answer and comes back.
    ScriptCheck,
    /// Says that there were too many requests.
    TooMany,
    /// Refuses the request in the name of a firewall.
    Refusal,
}

/// Statuses from the first to the last, both included; written `403`, `5xx` or `520-530`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "StatusWord")]
pub struct StatusRange(pub u16, pub u16);

/// A status as YAML has it: a number or a word.
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
    /// Whether `status` lies in it.
    #[must_use]
    pub const fn contains(self, status: u16) -> bool {
        self.0 <= status && status <= self.1
    }

    /// Whether some status lies in both.
    pub(super) const fn overlaps(self, other: Self) -> bool {
        self.0 <= other.1 && other.0 <= self.1
    }
}

/// Where a redirect must lead; globs, letter case aside.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LocationMatch {
    /// The host; a relative `Location` stays on the host that was asked.
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
/// In `body`, `{prose}` stands for about 2,000 characters of harmless text and `{filler}` for 20 KB
/// of markup without any text, so that examples stay short.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Example {
    /// Whether the signature must match.
    #[serde(default = "yes")]
    pub matches: bool,
    /// What was asked for; without it the front page of some site.
    #[serde(default)]
    pub url: Option<String>,
    /// The status.
    #[serde(default = "success")]
    pub status: u16,
    /// Fields of the head; without a `content-type` it is `text/html; charset=utf-8`.
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
    /// A signature that matches nothing yet: a starting point for conditions.
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

/// Why signatures were not accepted; the text is for a person.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// Two have the same name.
    #[error("two signatures are called `{0}`: give each its own name")]
    Duplicate(Arc<str>),
    /// A name that no label can have.
    #[error("`{0}` is not a valid signature name: use 1 to 64 characters of A-Z a-z 0-9 _ . -")]
    BadName(Arc<str>),
    /// It would match everything.
    #[error(
        "the signature `{0}` has no condition and would match every response: add \
         status, header, location, title, body, any or text"
    )]
    NoCondition(Arc<str>),
    /// What a signature cannot say.
    #[error(
        "the signature `{0}` says `{1}`, which no response can be: use ok or one of the five blocks"
    )]
    BadVerdict(Arc<str>, Verdict),
    /// Not a field name.
    #[error("the signature `{0}` asks for the header `{1}`, which is not a valid header name")]
    BadHeader(Arc<str>, String),
    /// An empty or overlong pattern.
    #[error("the signature `{0}` has a pattern of {1} bytes: write 1 to 512")]
    BadPattern(Arc<str>, usize),
    /// Off or log-only for a signature that does not exist.
    #[error("there is no signature `{0}` to switch off{1}")]
    Unknown(Arc<str>, String),
    /// More than fit the automaton.
    #[error("the signatures of one rule are too many or too long to compile: {0}")]
    TooMany(String),
}

/// Signatures (built in or custom) that a rule silences, by name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Switches {
    /// Not looked for at all.
    pub off: Vec<Arc<str>>,
    /// Named in the judgement, without deciding.
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
