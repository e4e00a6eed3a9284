//! Signatures made ready for use.

use std::sync::{Arc, OnceLock};

use http::HeaderName;
use serde::Deserialize;

use super::{
    Head,
    head::{Redirect, is_origin_fault},
    page::{Page, Title, safe},
    patterns::Patterns,
    signature::{Action, Content, Shape, Signature, SignatureError, Switches},
    text::normalised,
};
use crate::{
    rules::glob_matches,
    verdict::{Evidence, Verdict},
};

/// The built-in signatures, as data.
const BUILTIN: &str = include_str!("../../config/signatures.yaml");

/// Longest pattern.
const MAX_PATTERN: usize = 512;

/// Characters of visible text up to which a page has the shape of a wall.
const FEW: usize = 1_500;

/// The same under a status that walls are served with.
const SOME: usize = 4_000;

/// Compiled signatures, in the order in which they are asked: a user's `ok`, a user's others, built-in ones for
/// heads, built-in ones for bodies; else as written. The first that matches decides.
pub struct Classifier {
    pub(crate) signatures: Vec<Compiled>,
    pub(crate) raw: Patterns,
    pub(crate) raw_patterns: Vec<String>,
    pub(crate) text: Patterns,
    pub(crate) text_patterns: Vec<String>,
}

impl std::fmt::Debug for Classifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let signatures = self.signatures.len();
        f.debug_struct("Classifier").field("signatures", &signatures).finish_non_exhaustive()
    }
}

impl PartialEq for Classifier {
    fn eq(&self, other: &Self) -> bool {
        let sources = |one: &Self| {
            one.signatures.iter().map(|s| &s.source).eq(other.signatures.iter().map(|s| &s.source))
        };
        sources(self)
    }
}

/// A string that may stand in the markup or in the visible text: its number in each automaton.
#[derive(Debug, Clone, Copy)]
struct Marker {
    raw: usize,
    text: usize,
}

/// One signature, compiled.
#[derive(Debug)]
pub(crate) struct Compiled {
    pub(crate) source: Signature,
    header: Vec<(HeaderName, String)>,
    title: Vec<String>,
    body: Vec<Marker>,
    any: Vec<Marker>,
    text: Vec<usize>,
}

/// Where a signature matched.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) place: &'static str,
    pub(crate) excerpt: String,
}

/// How far the marks of a signature are there.
#[derive(Debug)]
pub(crate) enum Marks {
    All(Found),
    /// At least one, but this is missing.
    Some(String),
    None,
}

/// The file, by what its entries are looked for in.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SignatureFile {
    heads: Vec<Signature>,
    pages: Vec<Signature>,
    bodies: Vec<Signature>,
}

/// The built-in signatures as they stand in `config/signatures.yaml`.
///
/// # Panics
/// Never: the file is part of the binary, and a test reads it.
#[must_use]
pub fn builtin_signatures() -> Vec<Signature> {
    let file: SignatureFile =
        serde_yaml::from_str(BUILTIN).expect("config/signatures.yaml is read by a test");
    let as_page = |signature: Signature| Signature {
        content: Content::Page,
        shape: Shape::Interstitial,
        ..signature
    };
    let pages = file.pages.into_iter().map(as_page);
    file.heads.into_iter().chain(pages).chain(file.bodies).collect()
}

impl Classifier {
    /// The built-in signatures, compiled once.
    ///
    /// # Panics
    /// Never: a test compiles them.
    #[must_use]
    pub fn builtin() -> Arc<Self> {
        static BUILTIN: OnceLock<Arc<Classifier>> = OnceLock::new();
        let compile = || {
            let compiled = Self::compile(builtin_signatures());
            Arc::new(compiled.expect("config/signatures.yaml is compiled by a test"))
        };
        Arc::clone(BUILTIN.get_or_init(compile))
    }

    /// The built-in signatures and those of one rule, which come first (`ok` before the others).
    ///
    /// # Errors
    /// A signature that cannot be compiled, or a switch for one that does not exist.
    pub fn with(
        mut custom: Vec<Signature>,
        switches: &Switches,
    ) -> Result<Arc<Self>, SignatureError> {
        if custom.is_empty() && *switches == Switches::default() {
            return Ok(Self::builtin());
        }
        custom.sort_by_key(|signature| signature.verdict != Verdict::Ok);
        custom.extend(builtin_signatures());
        switches.apply(&mut custom)?;
        Self::compile(custom).map(Arc::new)
    }

    /// Only these signatures, in this order.
    pub(crate) fn compile(sources: Vec<Signature>) -> Result<Self, SignatureError> {
        let mut names = std::collections::HashSet::new();
        let (mut raw_patterns, mut text_patterns) = (Vec::new(), Vec::new());
        let mut signatures = Vec::with_capacity(sources.len());
        for source in sources {
            check(&source)?;
            if !names.insert(Arc::clone(&source.name)) {
                return Err(SignatureError::Duplicate(source.name));
            }
            if source.action != Action::Off {
                signatures.push(Compiled::new(source, &mut raw_patterns, &mut text_patterns)?);
            }
        }
        let raw = Patterns::new(&raw_patterns).map_err(SignatureError::TooMany)?;
        let text = Patterns::new(&text_patterns).map_err(SignatureError::TooMany)?;
        Ok(Self { signatures, raw, raw_patterns, text, text_patterns })
    }
}

impl Switches {
    /// Sets the actions of the signatures that are named.
    fn apply(&self, signatures: &mut [Signature]) -> Result<(), SignatureError> {
        let off = self.off.iter().map(|name| (name, Action::Off));
        for (name, action) in off.chain(self.log.iter().map(|name| (name, Action::Log))) {
            match signatures.iter_mut().find(|signature| signature.name == *name) {
                Some(signature) => signature.action = action,
                None => {
                    return Err(SignatureError::Unknown(Arc::clone(name), hint(name, signatures)));
                }
            }
        }
        Ok(())
    }
}

/// The name that was probably meant.
fn hint(name: &str, signatures: &[Signature]) -> String {
    let likeness = |signature: &&Signature| {
        (strsim::jaro_winkler(name, &signature.name) * 1_000.0).round() as u64
    };
    let near = signatures.iter().max_by_key(likeness).filter(|best| likeness(best) > 850);
    near.map_or_else(String::new, |best| format!("; did you mean `{}`?", best.name))
}

/// Refuses what could never work.
fn check(source: &Signature) -> Result<(), SignatureError> {
    let name = || Arc::clone(&source.name);
    let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
    if source.name.is_empty() || source.name.len() > 64 || !source.name.bytes().all(fits) {
        return Err(SignatureError::BadName(name()));
    }
    if matches!(source.verdict, Verdict::ConnectionError | Verdict::Timeout) {
        return Err(SignatureError::BadVerdict(name(), source.verdict));
    }
    let location = source.location.iter().flat_map(|l| [&l.host, &l.path, &l.query]).flatten();
    let conditions = source.status.len() + source.header.len() + location.count();
    if source.is_head_only() && conditions == 0 {
        return Err(SignatureError::NoCondition(name()));
    }
    let titles = source.title.iter().filter(|title| !title.is_empty());
    let patterns = [&source.body, &source.any, &source.text];
    let bad = patterns
        .into_iter()
        .flatten()
        .chain(titles)
        .find(|pattern| pattern.len() > MAX_PATTERN || normalised(pattern).trim().is_empty());
    bad.map_or(Ok(()), |pattern| Err(SignatureError::BadPattern(name(), pattern.len())))
}

/// The number of `pattern` in `all`, where it is put if it is new.
fn number(all: &mut Vec<String>, pattern: String) -> usize {
    all.iter().position(|known| *known == pattern).unwrap_or_else(|| {
        all.push(pattern);
        all.len() - 1
    })
}

impl Compiled {
    fn new(
        source: Signature,
        raw: &mut Vec<String>,
        text: &mut Vec<String>,
    ) -> Result<Self, SignatureError> {
        let mut header = Vec::new();
        for (name, glob) in &source.header {
            let parsed = HeaderName::from_bytes(name.as_bytes())
                .map_err(|_| SignatureError::BadHeader(Arc::clone(&source.name), name.clone()))?;
            header.push((parsed, glob.to_ascii_lowercase()));
        }
        let mut marker = |pattern: &String| Marker {
            raw: number(raw, pattern.to_ascii_lowercase()),
            text: number(text, normalised(pattern).trim().to_owned()),
        };
        let body = source.body.iter().map(&mut marker).collect();
        let any = source.any.iter().map(&mut marker).collect();
        let visible = source.text.iter();
        let visible = visible.map(|p| number(text, normalised(p).trim().to_owned())).collect();
        let title = source.title.iter().map(|title| normalised(title).trim().to_owned()).collect();
        Ok(Self { source, header, title, body, any, text: visible })
    }

    /// Whether all that it asks of the head is there.
    pub(crate) fn holds_at(&self, head: Head<'_>, redirect: Option<&Redirect>) -> bool {
        let status = head.status.as_u16();
        let source = &self.source;
        let headers_hold = |(name, glob): &(HeaderName, String)| {
            head.headers.get_all(name).iter().any(|value| {
                glob == "*"
                    || glob_matches(
                        glob,
                        &String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase(),
                    )
            })
        };
        (source.status.is_empty() || source.status.iter().any(|range| range.contains(status)))
            && (source.is_head_only() || source.shape == Shape::Any || !is_origin_fault(status))
            && self.header.iter().all(headers_hold)
            && source
                .location
                .as_ref()
                .is_none_or(|wanted| redirect.is_some_and(|redirect| wanted.matches(redirect)))
    }

    /// Whether it is looked for in a body of this kind.
    pub(crate) const fn applies_to(&self, is_html: bool) -> bool {
        match self.source.content {
            Content::Any => true,
            Content::Page => is_html,
            Content::Data => !is_html,
        }
    }

    /// How many characters of visible text a page may have at most for a match to count.
    pub(crate) fn most_text(&self, status: u16, title: &Title) -> usize {
        let by_shape = match self.source.shape {
            Shape::Any => usize::MAX,
            Shape::Interstitial if status >= 400 && self.may_have_title(title) => usize::MAX,
            Shape::Interstitial if is_refusal(status) => SOME,
            Shape::Interstitial => FEW,
        };
        self.source.max_text.unwrap_or(usize::MAX).min(by_shape)
    }

    /// Whether the title is one that it asks for, or may still become one.
    fn may_have_title(&self, title: &Title) -> bool {
        !self.title.is_empty()
            && match title {
                Title::None | Title::Open(_) => true,
                Title::Known(title) => self.title.iter().any(|glob| glob_matches(glob, title)),
            }
    }

    /// How far its marks are on `page`; the shape is another question.
    pub(crate) fn marks(&self, page: &Page) -> Marks {
        let mut found = None;
        let mut missing = None;
        if !self.title.is_empty() {
            if self.title.iter().any(|glob| glob_matches(glob, page.title())) {
                let title = page.title();
                found = (!title.is_empty()).then(|| Found { place: "title", excerpt: safe(title) });
            } else {
                missing = Some(format!("the title `{}`", self.source.title.join("` or `")));
            }
        }
        for (marker, wanted) in self.body.iter().zip(&self.source.body) {
            match marker.find(page) {
                Some(hit) => found = found.or(Some(hit)),
                None => missing = missing.or_else(|| Some(format!("`{wanted}`"))),
            }
        }
        if !self.any.is_empty() {
            match self.any.iter().find_map(|marker| marker.find(page)) {
                Some(hit) => found = found.or(Some(hit)),
                None => missing = missing.or_else(|| Some(one_of(&self.source.any))),
            }
        }
        if !self.text.is_empty() {
            let within = self.source.within.unwrap_or(usize::MAX);
            match self.text.iter().find_map(|pattern| find_text(page, *pattern, within)) {
                Some(hit) => found = found.or(Some(hit)),
                None => missing = missing.or_else(|| Some(one_of(&self.source.text))),
            }
        }
        match (found, missing) {
            (Some(found), None) => Marks::All(found),
            (Some(_), Some(missing)) => Marks::Some(missing),
            (None, _) => Marks::None,
        }
    }

    /// What a match rests on.
    pub(crate) fn evidence(&self, found: Found) -> Evidence {
        Evidence {
            signature: Arc::clone(&self.source.name),
            vendor: self.source.vendor.clone(),
            place: found.place.to_owned(),
            excerpt: found.excerpt,
        }
    }

    /// What a match on the head alone rests on.
    pub(crate) fn head_evidence(&self, head: Head<'_>) -> Evidence {
        let (place, excerpt) = if let Some((name, _)) = self.header.first() {
            let value = head.headers.get(name).map_or(&b""[..], |value| value.as_bytes());
            (format!("header {name}"), safe(&String::from_utf8_lossy(value)))
        } else if self.source.location.is_some() {
            let value = head.headers.get(http::header::LOCATION);
            let value = value.map_or(&b""[..], |value| value.as_bytes());
            ("location".to_owned(), safe(&String::from_utf8_lossy(value)))
        } else {
            ("status".to_owned(), head.status.as_u16().to_string())
        };
        Evidence {
            signature: Arc::clone(&self.source.name),
            vendor: self.source.vendor.clone(),
            place,
            excerpt,
        }
    }
}

impl Marker {
    fn find(self, page: &Page) -> Option<Found> {
        if page.raw.has(self.raw) {
            let hit = page.raw_hits.iter().find(|hit| hit.pattern == self.raw)?;
            return Some(Found { place: "body", excerpt: hit.excerpt.clone() });
        }
        find_text(page, self.text, usize::MAX)
    }
}

fn find_text(page: &Page, pattern: usize, within: usize) -> Option<Found> {
    if !page.text.has(pattern) {
        return None;
    }
    let hit = page.text_hits.iter().find(|hit| hit.pattern == pattern && hit.within <= within)?;
    Some(Found { place: "text", excerpt: hit.excerpt.clone() })
}

fn one_of(wanted: &[String]) -> String {
    match wanted {
        [one] => format!("`{one}`"),
        [first, ..] => format!("`{first}` or one of {} others", wanted.len() - 1),
        [] => String::new(),
    }
}

/// Statuses that walls are served with.
const fn is_refusal(status: u16) -> bool {
    matches!(status, 202 | 401 | 403 | 405 | 418 | 429 | 503)
}
