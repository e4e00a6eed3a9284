//! What was found in a body so far.

use super::{
    classifier::Classifier,
    markup::{Markup, Piece},
    patterns::Search,
    text::{Visible, normalised, weight},
};

/// Characters of a title that are kept; longer ones are no wall's.
const MAX_TITLE: usize = 256;

/// Characters of an excerpt.
const MAX_EXCERPT: usize = 120;

/// A place where a string was found: the first one in visible text, any one in markup.
#[derive(Debug)]
pub(crate) struct Hit {
    pub(crate) pattern: usize,
    /// Characters of visible text up to its end (0 in markup).
    pub(crate) within: usize,
    pub(crate) excerpt: String,
}

/// The title of a page.
#[derive(Debug)]
pub(crate) enum Title {
    None,
    Open(String),
    /// Normalised as visible text is.
    Known(String),
}

/// A body being read.
#[derive(Debug)]
pub(crate) struct Page {
    /// `None` for what is no HTML.
    markup: Option<Markup>,
    pub(crate) visible: Visible,
    pub(crate) title: Title,
    pub(crate) raw: Search,
    pub(crate) text: Search,
    pub(crate) raw_hits: Vec<Hit>,
    pub(crate) text_hits: Vec<Hit>,
    /// Whether there is an element that shows or does something without text.
    pub(crate) has_content: bool,
}

impl Page {
    pub(crate) fn new(classifier: &Classifier, is_html: bool) -> Self {
        Self {
            markup: is_html.then(Markup::new),
            visible: Visible::default(),
            title: Title::None,
            raw: classifier.raw.search(),
            text: classifier.text.search(),
            raw_hits: Vec::new(),
            text_hits: Vec::new(),
            has_content: false,
        }
    }

    pub(crate) const fn is_html(&self) -> bool {
        self.markup.is_some()
    }

    /// The title once it is complete, normalised; empty where there is none.
    pub(crate) fn title(&self) -> &str {
        if let Title::Known(title) = &self.title { title } else { "" }
    }

    /// Takes the next characters.
    pub(crate) fn push(&mut self, classifier: &Classifier, text: &str) {
        let Self { raw, raw_hits, .. } = self;
        classifier.raw.advance_anyhow(raw, text.as_bytes(), |pattern, end| {
            let excerpt = excerpt(text, end, classifier.raw_patterns[pattern].len());
            raw_hits.push(Hit { pattern, within: 0, excerpt });
        });
        match self.markup.take() {
            None => self.see(classifier, text),
            Some(mut markup) => {
                markup.push(text, &mut |piece| self.piece(classifier, piece));
                self.markup = Some(markup);
            }
        }
    }

    fn piece(&mut self, classifier: &Classifier, piece: Piece<'_>) {
        match piece {
            Piece::Text(text) => self.see(classifier, text),
            Piece::Tag => self.visible.separate(),
            Piece::Content => {
                self.visible.separate();
                self.has_content = true;
            }
            Piece::Title(text) => match &mut self.title {
                Title::None => self.title = Title::Open(text.chars().take(MAX_TITLE).collect()),
                Title::Open(title) if title.len() < MAX_TITLE => {
                    title.extend(text.chars().take(MAX_TITLE));
                }
                Title::Open(_) | Title::Known(_) => {}
            },
            Piece::TitleEnd => {
                if let Title::Open(title) = &self.title {
                    self.title = Title::Known(normalised(title).trim().to_owned());
                }
            }
        }
    }

    fn see(&mut self, classifier: &Classifier, text: &str) {
        let Self { visible, text: search, text_hits, .. } = self;
        let before = visible.count();
        let piece = visible.push(text);
        classifier.text.advance(search, piece.as_bytes(), |pattern, end| {
            let within = before + weight(piece.get(..end).unwrap_or(piece));
            let excerpt = excerpt(piece, end, classifier.text_patterns[pattern].len());
            text_hits.push(Hit { pattern, within, excerpt });
        });
    }
}

/// The match of `len` bytes that ends at `end`, and what follows.
fn excerpt(text: &str, end: usize, len: usize) -> String {
    let mut start = end.saturating_sub(len);
    while !text.is_char_boundary(start) {
        start -= 1;
    }
    safe(&text[start..])
}

/// `text` cut to what an excerpt may have, without control characters and line breaks.
pub(crate) fn safe(text: &str) -> String {
    let plain = |c: char| if c.is_control() || c.is_whitespace() { ' ' } else { c };
    text.chars().map(plain).take(MAX_EXCERPT).collect()
}
