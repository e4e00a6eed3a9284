//! What signatures look for, and where it stands on a page.

use super::{
    family::{Extent, FamilyMatcher},
    page::Page,
    patterns::{Hits, Patterns},
    text::weight,
};

/// Characters of an excerpt.
const MAX_EXCERPT: usize = 120;

/// The strings that signatures look for.
pub(crate) struct Strings {
    /// In the markup.
    pub(crate) raw: Patterns,
    /// In the visible text.
    pub(crate) text: Patterns,
}

/// What was looked for on a page, and where it stands.
#[derive(Debug)]
pub(crate) struct Findings<'a> {
    pub(crate) page: &'a Page,
    /// All characters of the body, as sent.
    source: &'a str,
    /// For families of walls.
    pub(super) families: FamilyMatcher<'a>,
    raw: Hits,
    text: Hits,
}

impl Strings {
    /// Looks for all of them on `page`, which is read from `source`. Unless `all` is
    /// wanted, what does not suffice for any signature need not be found.
    pub(crate) fn find<'a>(
        &self,
        page: &'a Page,
        source: &'a str,
        extent: Extent,
        all: bool,
    ) -> Findings<'a> {
        let Self { raw, text } = self;
        let visible = page.visible.text();
        let (raw, text) = if all {
            (raw.find_all(source), text.find_all(visible))
        } else {
            let (raw_hits, text_hits) = (raw.find(source), text.find(visible));
            // A mark in the markup may want another one in the text, and the other way round.
            match (raw_hits.has_any(), text_hits.has_any()) {
                (true, false) => (raw_hits, text.find_all(visible)),
                (false, true) => (raw.find_all(source), text_hits),
                _ => (raw_hits, text_hits),
            }
        };
        let families = FamilyMatcher::new(page, source, extent);
        Findings { page, source, families, raw, text }
    }
}

impl Findings<'_> {
    /// Whether any mark was found.
    pub(crate) fn has_any(&self) -> bool {
        self.raw.has_any() || self.text.has_any()
    }

    /// Where pattern number `pattern` stands in the markup first: the match and what follows.
    pub(crate) fn in_markup(&self, pattern: usize) -> Option<String> {
        let (begin, _) = self.raw.of(pattern)?;
        Some(safe(&self.source[begin..]))
    }

    /// The same in the visible text, where the match ends within so many characters.
    pub(crate) fn in_text(&self, pattern: usize, within: usize) -> Option<String> {
        let (begin, end) = self.text.of(pattern)?;
        let text = self.page.visible.text();
        (weight(&text[..end]) <= within).then(|| safe(&text[begin..]))
    }
}

/// `text` cut to what an excerpt may have, without control characters and line breaks.
pub(crate) fn safe(text: &str) -> String {
    let plain = |c: char| if c.is_control() || c.is_whitespace() { ' ' } else { c };
    text.chars().map(plain).take(MAX_EXCERPT).collect()
}
