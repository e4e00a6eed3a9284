//! The strings that signatures search for, and where a page contains them.

use super::{
    family::{Extent, FamilyMatcher},
    page::Page,
    patterns::{Hits, Patterns},
    text::weight,
};

/// Longest excerpt, in characters.
const MAX_EXCERPT: usize = 120;

/// The strings that signatures search for.
pub(crate) struct Strings {
    /// In the markup.
    pub(crate) raw: Patterns,
    /// In the visible text.
    pub(crate) text: Patterns,
}

/// The search results for one page.
#[derive(Debug)]
pub(crate) struct Findings<'a> {
    pub(crate) page: &'a Page,
    /// The body as sent, decoded to characters.
    source: &'a str,
    /// Evaluates the families of walls.
    pub(super) families: FamilyMatcher<'a>,
    raw: Hits,
    text: Hits,
}

impl Strings {
    /// Searches `page`, which was read from `source`, for all strings. Without `all`, it may omit
    /// strings that are not enough for any signature.
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
            // A signature may need one string in the markup and another one in the text.
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
    /// Whether any string was found.
    pub(crate) fn has_any(&self) -> bool {
        self.raw.has_any() || self.text.has_any()
    }

    /// The first match of pattern number `pattern` in the markup, and the text that follows.
    pub(crate) fn in_markup(&self, pattern: usize) -> Option<String> {
        let (begin, _) = self.raw.of(pattern)?;
        Some(safe(&self.source[begin..]))
    }

    /// The same for the visible text. The match must end within the first `within` characters.
    pub(crate) fn in_text(&self, pattern: usize, within: usize) -> Option<String> {
        let (begin, end) = self.text.of(pattern)?;
        let text = self.page.visible.text();
        (weight(&text[..end]) <= within).then(|| safe(&text[begin..]))
    }
}

/// The beginning of `text` as an excerpt, without control characters and line breaks.
pub(crate) fn safe(text: &str) -> String {
    let plain = |c: char| if c.is_control() || c.is_whitespace() { ' ' } else { c };
    text.chars().map(plain).take(MAX_EXCERPT).collect()
}
