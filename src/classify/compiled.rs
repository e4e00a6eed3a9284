//! One compiled signature: its conditions on the head and on the body.

use std::sync::Arc;

use http::HeaderName;

use super::{
    Head,
    family::Fit,
    findings::{Findings, safe},
    head::{Redirect, is_origin_fault, is_refusal},
    page::Title,
    signature::{Content, Family, Shape, Signature, SignatureError, StatusRange},
    text::normalised,
};
use crate::{classify::verdict::Evidence, target::glob_matches};

/// A page with at most this many characters of visible text can have the shape of a wall.
const MAX_WALL_TEXT: usize = 1_500;

/// The same for a response whose status is a refusal.
const MAX_REFUSAL_TEXT: usize = 4_000;

/// A string to find in the markup or in the visible text: its number in each automaton.
#[derive(Debug, Clone, Copy)]
struct Marker {
    raw: usize,
    text: usize,
}

/// One signature, compiled.
#[derive(Debug)]
pub(crate) struct Compiled {
    pub(crate) source: Signature,
    /// Whether the head alone decides.
    pub(super) is_head_only: bool,
    header: Vec<(HeaderName, String)>,
    title: Vec<String>,
    body: Vec<Marker>,
    any: Vec<Marker>,
    none: Vec<Marker>,
    text: Vec<usize>,
}

/// A match, with its place and text.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) place: &'static str,
    pub(crate) excerpt: String,
}

/// How many of a signature's marks a page has.
#[derive(Debug)]
pub(crate) enum Marks {
    All(Found),
    /// Some of them; this is the first that is missing.
    Some(Missing),
    None,
}

/// The condition of a signature that a page does not meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    Title,
    /// The string at this position under `body`.
    Body(usize),
    Any,
    Text,
    Family,
}

/// The strings of one automaton.
#[derive(Debug, Default)]
pub(super) struct PatternSet {
    pub(super) patterns: Vec<String>,
    /// A subset without which no signature can match.
    pub(super) literals: Vec<usize>,
}

impl PatternSet {
    /// The number of `pattern`. A new pattern is added.
    fn number(&mut self, pattern: String) -> usize {
        let known = self.patterns.iter().position(|known| *known == pattern);
        known.unwrap_or_else(|| {
            self.patterns.push(pattern);
            self.patterns.len() - 1
        })
    }

    fn require(&mut self, number: usize) {
        if !self.literals.contains(&number) {
            self.literals.push(number);
        }
    }
}

/// Chooses strings of which a page must contain one for the signature to match. `body` requires all of its strings, so
/// its longest is enough. Among the conditions, the one with the longest shortest string wins.
fn choose_literals(
    body: &[Marker],
    any: &[Marker],
    visible: &[usize],
    raw: &mut PatternSet,
    text: &mut PatternSet,
) {
    let length =
        |marker: &Marker| raw.patterns[marker.raw].len().min(text.patterns[marker.text].len());
    let of_body = body.iter().max_by_key(|marker| length(marker)).map(std::slice::from_ref);
    let markers = [of_body.unwrap_or_default(), any];
    let best = markers.into_iter().max_by_key(|markers| markers.iter().map(length).min());
    let best = best.unwrap_or_default();
    let in_text = visible.iter().map(|number| text.patterns[*number].len()).min();
    if in_text > best.iter().map(length).min() {
        visible.iter().for_each(|number| text.require(*number));
        return;
    }
    for marker in best {
        raw.require(marker.raw);
        text.require(marker.text);
    }
}

impl Compiled {
    pub(super) fn new(
        source: Signature,
        raw: &mut PatternSet,
        text: &mut PatternSet,
    ) -> Result<Self, SignatureError> {
        let mut header = Vec::new();
        for (name, glob) in &source.header {
            let parsed = HeaderName::from_bytes(name.as_bytes())
                .map_err(|_| SignatureError::BadHeader(Arc::clone(&source.name), name.clone()))?;
            header.push((parsed, glob.to_ascii_lowercase()));
        }
        let mut marker = |pattern: &String| Marker {
            raw: raw.number(pattern.to_ascii_lowercase()),
            text: text.number(normalised(pattern).trim().to_owned()),
        };
        let body: Vec<Marker> = source.body.iter().map(&mut marker).collect();
        let any: Vec<Marker> = source.any.iter().map(&mut marker).collect();
        let none: Vec<Marker> = source.none.iter().map(&mut marker).collect();
        let visible = source.text.iter();
        let visible: Vec<usize> =
            visible.map(|p| text.number(normalised(p).trim().to_owned())).collect();
        choose_literals(&body, &any, &visible, raw, text);
        // A page with one of these must be searched too.
        for marker in &none {
            raw.require(marker.raw);
            text.require(marker.text);
        }
        let title = source.title.iter().map(|title| normalised(title).trim().to_owned()).collect();
        let is_head_only = source.is_head_only();
        Ok(Self { source, is_head_only, header, title, body, any, none, text: visible })
    }

    /// The first header field that it requires.
    pub(super) fn first_field(&self) -> Option<&HeaderName> {
        self.header.first().map(|(name, _)| name)
    }

    /// Whether every head passes; see also [`Compiled::accepts_status`].
    pub(super) fn has_no_head_condition(&self) -> bool {
        !self.is_head_only
            && self.source.status.is_empty()
            && self.source.location.is_none()
            && self.header.is_empty()
    }

    /// Whether the head may match with one of these statuses.
    pub(super) fn may_match_status(&self, some: StatusRange) -> bool {
        let statuses = &self.source.status;
        (statuses.is_empty() || statuses.iter().any(|range| range.overlaps(some)))
            && (self.source.location.is_none() || some.overlaps(REDIRECTS))
    }

    /// Whether a response with this status can match by its body.
    pub(super) fn accepts_status(&self, status: u16) -> bool {
        // Some networks answer 521 with a script that sets a cookie and reloads the page.
        let is_script = status == 521 && self.source.family == Some(Family::ScriptCheck);
        self.is_head_only
            || self.source.shape == Shape::Any
            || is_script
            || !is_origin_fault(status)
    }

    /// Whether the head meets all conditions.
    pub(crate) fn matches_head(&self, head: Head<'_>, redirect: Option<&Redirect>) -> bool {
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
            && self.accepts_status(status)
            && self.header.iter().all(headers_hold)
            && source
                .location
                .as_ref()
                .is_none_or(|wanted| redirect.is_some_and(|redirect| wanted.matches(redirect)))
    }

    /// Whether the signature applies to a body of this kind.
    pub(crate) const fn applies_to(&self, is_html: bool) -> bool {
        match self.source.content {
            Content::Any => true,
            Content::Page => is_html,
            Content::Data => !is_html,
        }
    }

    /// Whether it may match a page that contains none of the searched strings.
    pub(crate) const fn may_match_without_strings(&self) -> bool {
        !self.title.is_empty() || self.source.family.is_some()
    }

    /// Whether an HTML page must have the shape of a wall.
    pub(super) fn requires_wall_shape(&self) -> bool {
        self.is_head_only || self.source.shape == Shape::Interstitial || !self.applies_to(true)
    }

    /// The most characters of visible text that a matching page may have.
    pub(crate) fn max_visible_text(&self, status: u16, title: &Title) -> usize {
        let by_shape = match self.source.shape {
            Shape::Any => usize::MAX,
            Shape::Interstitial if status >= 400 && self.may_have_title(title) => usize::MAX,
            Shape::Interstitial if is_refusal(status) => MAX_REFUSAL_TEXT,
            Shape::Interstitial => MAX_WALL_TEXT,
        };
        self.source.max_text.unwrap_or(usize::MAX).min(by_shape)
    }

    /// Whether the title matches, or is not complete and may still match.
    fn may_have_title(&self, title: &Title) -> bool {
        !self.title.is_empty()
            && match title {
                Title::None | Title::Open(_) => true,
                Title::Known(title) => self.title.iter().any(|glob| glob_matches(glob, title)),
            }
    }

    /// Which of its marks a page has, regardless of the page's shape.
    pub(crate) fn marks(&self, findings: &Findings<'_>) -> Marks {
        let page = findings.page;
        let mut found = None;
        let mut missing = None;
        if self.none.iter().any(|marker| marker.find(findings).is_some()) {
            return Marks::None;
        }
        if !self.title.is_empty() {
            if self.title.iter().any(|glob| glob_matches(glob, page.title())) {
                let title = page.title();
                found = (!title.is_empty()).then(|| Found { place: "title", excerpt: safe(title) });
            } else {
                missing = Some(Missing::Title);
            }
        }
        for (position, marker) in self.body.iter().enumerate() {
            match marker.find(findings) {
                Some(hit) => found = found.or(Some(hit)),
                None => missing = missing.or(Some(Missing::Body(position))),
            }
        }
        if !self.any.is_empty() {
            match self.any.iter().find_map(|marker| marker.find(findings)) {
                Some(hit) => found = found.or(Some(hit)),
                None => missing = missing.or(Some(Missing::Any)),
            }
        }
        if !self.text.is_empty() {
            let within = self.source.within.unwrap_or(usize::MAX);
            match self.text.iter().find_map(|pattern| find_text(findings, *pattern, within)) {
                Some(hit) => found = found.or(Some(hit)),
                None => missing = missing.or(Some(Missing::Text)),
            }
        }
        if let Some(family) = self.source.family {
            match findings.families.is(family) {
                Fit::Full => {
                    let (place, excerpt) = findings.families.evidence(family);
                    found = found.or_else(|| Some(Found { place, excerpt: safe(excerpt) }));
                }
                Fit::Partial => return Marks::Some(Missing::Family),
                Fit::No => return Marks::None,
            }
        }
        match (found, missing) {
            (Some(found), None) => Marks::All(found),
            (Some(_), Some(missing)) => Marks::Some(missing),
            (None, _) => Marks::None,
        }
    }

    /// The missing condition, as a message.
    pub(crate) fn describe(&self, missing: Missing) -> String {
        match missing {
            Missing::Title => format!("the title {}", one_of(&self.source.title)),
            Missing::Body(position) => one_of(&self.source.body[position..=position]),
            Missing::Any => one_of(&self.source.any),
            Missing::Family => "words or structure of such a wall".to_owned(),
            Missing::Text => format!("the text {}", one_of(&self.source.text)),
        }
    }

    /// The evidence for a match.
    pub(crate) fn evidence(&self, found: Found) -> Evidence {
        Evidence {
            signature: Arc::clone(&self.source.name),
            vendor: self.source.vendor.clone(),
            place: found.place.to_owned(),
            excerpt: found.excerpt,
        }
    }

    /// The evidence for a page that matches its family only in part.
    pub(super) fn suspicion(&self, findings: &Findings<'_>) -> Option<Evidence> {
        let (place, excerpt) = findings.families.evidence(self.source.family?);
        Some(self.evidence(Found { place, excerpt: safe(excerpt) }))
    }

    /// The evidence for a match on the head alone.
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
    fn find(self, findings: &Findings<'_>) -> Option<Found> {
        match findings.in_markup(self.raw) {
            Some(excerpt) => Some(Found { place: "body", excerpt }),
            None => find_text(findings, self.text, usize::MAX),
        }
    }
}

fn find_text(findings: &Findings<'_>, pattern: usize, within: usize) -> Option<Found> {
    findings.in_text(pattern, within).map(|excerpt| Found { place: "text", excerpt })
}

fn one_of(wanted: &[String]) -> String {
    match wanted {
        [] => String::new(),
        [one] => format!("`{one}`"),
        [one, other] => format!("`{one}` or `{other}`"),
        [first, ..] => format!("`{first}` or one of {} others", wanted.len() - 1),
    }
}

/// Redirect statuses.
const REDIRECTS: StatusRange = StatusRange(300, 399);
