//! The title and visible text of a body, as far as it has been read.

use super::{
    markup::{Markup, Piece},
    text::{Visible, normalised},
};

/// Characters of a title that are kept. No wall has a longer one.
pub(super) const MAX_TITLE: usize = 256;

/// The title of a page.
#[derive(Debug)]
pub(crate) enum Title {
    None,
    Open(String),
    /// Complete, and normalised like visible text.
    Known(String),
}

/// A body being read.
#[derive(Debug)]
pub(crate) struct Page {
    /// `None` if the body is not HTML.
    markup: Option<Markup>,
    pub(crate) visible: Visible,
    pub(crate) title: Title,
    /// Whether an element shows or does something without text.
    pub(crate) has_content: bool,
}

impl Page {
    pub(crate) fn new(is_html: bool) -> Self {
        Self {
            markup: is_html.then(Markup::new),
            visible: Visible::default(),
            title: Title::None,
            has_content: false,
        }
    }

    /// Like `new`, with an empty buffer for the visible text.
    pub(crate) fn with_buffer(is_html: bool, buffer: String) -> Self {
        Self { visible: Visible::in_buffer(buffer), ..Self::new(is_html) }
    }

    pub(crate) const fn is_html(&self) -> bool {
        self.markup.is_some()
    }

    /// The normalised title once it is complete; empty if there is none.
    pub(crate) fn title(&self) -> &str {
        if let Title::Known(title) = &self.title { title } else { "" }
    }

    /// Whether the page has visible text, an element that shows something, or a title.
    pub(crate) fn has_anything(&self) -> bool {
        self.has_content || self.visible.count() > 0 || !self.title().is_empty()
    }

    /// Takes the next characters.
    pub(crate) fn push(&mut self, text: &str) {
        let Self { markup, visible, title, has_content } = self;
        let Some(markup) = markup else { return visible.push(text) };
        markup.push(text, &mut |piece| match piece {
            Piece::Text(text) => visible.push(text),
            Piece::Tag => visible.separate(),
            Piece::Content => {
                visible.separate();
                *has_content = true;
            }
            Piece::Title(text) => title.extend(text),
            Piece::TitleEnd => {
                visible.separate();
                title.end();
            }
        });
    }
}

impl Title {
    fn extend(&mut self, text: &str) {
        match self {
            Self::None => {
                let mut title = String::with_capacity(text.len().min(4 * MAX_TITLE));
                title.extend(text.chars().take(MAX_TITLE));
                *self = Self::Open(title);
            }
            Self::Open(title) if title.len() < MAX_TITLE => {
                title.extend(text.chars().take(MAX_TITLE));
            }
            Self::Open(_) | Self::Known(_) => {}
        }
    }

    fn end(&mut self) {
        if let Self::Open(title) = self {
            let mut title = normalised(title);
            title.truncate(title.trim_end().len());
            *self = Self::Known(title);
        }
    }
}

/// The normalised title and visible text of an HTML page.
#[must_use]
pub fn read_page(source: &str) -> (String, String) {
    let mut page = Page::new(true);
    page.push(source);
    (page.title().to_owned(), page.visible.text().to_owned())
}

/// Whether a body shows anything, so that it is not a blank page. Reads only as far as needed. `declared`: the head
/// declares HTML.
pub(super) fn shows(body: &[u8], declared: bool) -> bool {
    let Ok(text) = std::str::from_utf8(body) else { return false };
    let mut page = Page::new(begins_as_html(text, declared));
    text.split_inclusive('>').any(|piece| {
        page.push(piece);
        !page.is_html() || page.has_anything()
    })
}

/// Whether a body is HTML. Its first characters override its head.
pub(super) fn begins_as_html(text: &str, declared: bool) -> bool {
    let text = text.trim_start_matches('\u{feff}').trim_start();
    let begins =
        |start: &str| text.get(..start.len()).is_some_and(|head| head.eq_ignore_ascii_case(start));
    if declared {
        return !text.starts_with(['{', '[']);
    }
    begins("<!doctype html")
        || begins("<html")
        || begins("<head")
        || (begins("<?xml") && text.get(..text.len().min(1024)).is_some_and(is_xhtml))
}

fn is_xhtml(start: &str) -> bool {
    start.contains("<html") || start.contains("<!DOCTYPE html")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fragments of markup in which states change.
    const SCRAPS: &[&str] = &[
        "<",
        ">",
        "</",
        "/>",
        "<!--",
        "-->",
        "<!",
        "=",
        "\"",
        "'",
        " ",
        "\n ",
        "&",
        "&lt",
        ";",
        "a",
        "word",
        "<p>",
        "</p>",
        "<br/>",
        "<a href=\"",
        "<a b='c>'",
        "<img src=x>",
        "<svg ",
        "<script>",
        "</script>",
        "</SCRIPT a=\">\">",
        "<style b>",
        "</style",
        "<title>",
        "</title>",
        "<textarea>",
        "</textarea>",
        "<meta http-equiv=refresh>",
        "<meta a=\"refresh\" http-equiv",
        "é",
        "漢",
    ];

    #[test]
    fn the_visible_text_does_not_depend_on_how_the_body_is_split() {
        let mut random = fastrand::Rng::with_seed(11);
        for _ in 0..20_000 {
            let scraps = (0..random.usize(1..25)).map(|_| SCRAPS[random.usize(..SCRAPS.len())]);
            let source: String = scraps.collect();
            let (mut whole, mut split) = (Page::new(true), Page::new(true));
            whole.push(&source);
            for (at, character) in source.char_indices() {
                split.push(&source[at..at + character.len_utf8()]);
            }
            assert_eq!(whole.visible.text(), split.visible.text(), "{source}");
            assert_eq!(whole.visible.count(), split.visible.count(), "{source}");
            assert_eq!(whole.has_content, split.has_content, "{source}");
            assert_eq!(whole.title(), split.title(), "{source}");
        }
    }
}
