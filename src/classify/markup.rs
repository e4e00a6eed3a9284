//! Splits HTML into visible text, titles and tags in one pass, however the input is split.
//!
//! This is not a full parser. It follows the tokenizer of HTML section 13.2.5 as far as separating
//! text from markup requires. A tag, comment or script that the cut left open is markup, never
//! text.

use std::sync::LazyLock;

use memchr::{memchr, memchr3, memmem::Finder};

use super::tag::{Tag, ends_name, whole_content};

/// A piece of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
    /// Visible text, entities not yet decoded.
    Text(&'a str),
    /// A part of a title.
    Title(&'a str),
    /// The title is complete.
    TitleEnd,
    /// A tag. It separates words.
    Tag,
    /// The first element that shows or does something even without text.
    Content,
}

/// Longest tag name that matters.
const MAX_NAME: usize = 16;

/// Bytes of a `<meta>` that are examined.
const MAX_META: usize = 256;

/// Whether a page with this element is not blank.
const fn is_content(name: &[u8]) -> bool {
    matches!(
        name,
        b"script"
            | b"iframe"
            | b"frame"
            | b"frameset"
            | b"img"
            | b"image"
            | b"svg"
            | b"object"
            | b"embed"
            | b"video"
            | b"audio"
            | b"canvas"
            | b"form"
            | b"input"
            | b"button"
            | b"select"
            | b"textarea"
            | b"link"
            | b"picture"
            | b"applet"
    )
}

/// Whether the content of an element is raw text. Only that of a title is used.
pub(super) const fn is_raw(name: &[u8]) -> bool {
    matches!(
        name,
        b"script"
            | b"style"
            | b"title"
            | b"textarea"
            | b"xmp"
            | b"iframe"
            | b"noembed"
            | b"noframes"
    )
}

/// The attributes of a `<meta>` that redirects.
static REFRESH: LazyLock<[Finder<'static>; 2]> =
    LazyLock::new(|| [Finder::new("refresh"), Finder::new("http-equiv")]);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Text,
    /// After `<`.
    Open,
    /// After `</`.
    CloseOpen,
    Name,
    /// After the name, before `>`.
    Attributes,
    Quoted(u8),
    /// After `<!`.
    Bang,
    /// After `<!-`.
    BangDash,
    Comment,
    /// `<!doctype`, `<?xml` and broken tags: up to the next `>`.
    Bogus,
    /// In an element of raw text, see [`is_raw`].
    Raw,
    /// After `<` in raw text: the number of bytes of `/name` that have matched.
    RawClose(usize),
}

/// The tokenizer.
#[derive(Debug)]
pub(crate) struct Markup {
    state: State,
    closing: bool,
    name: [u8; MAX_NAME],
    name_len: usize,
    /// The last byte of the tag that is not a blank. A quote opens a value only after `=`.
    last: u8,
    /// The last bytes of a comment.
    tail: [u8; 3],
    meta: Vec<u8>,
    /// Whether the page has an element for which [`is_content`] holds.
    has_content: bool,
}

impl Markup {
    pub(crate) const fn new() -> Self {
        Self {
            state: State::Text,
            closing: false,
            name: [0; MAX_NAME],
            name_len: 0,
            last: 0,
            tail: *b"---",
            meta: Vec::new(),
            has_content: false,
        }
    }

    /// Takes the next piece of a page.
    pub(crate) fn push<'a>(&mut self, text: &'a str, sink: &mut impl FnMut(Piece<'a>)) {
        let mut rest = text;
        while let Some(first) = rest.as_bytes().first().copied() {
            rest = match self.state {
                State::Text => self.whole_tags(rest, sink),
                State::Open => self.open(first, rest, sink),
                State::CloseOpen => self.close_open(first, rest),
                State::Name => self.name(rest),
                State::Attributes => self.attributes(rest, sink),
                State::Quoted(quote) => self.quoted(quote, rest),
                State::Bang | State::BangDash => self.bang(first, rest),
                State::Comment => self.comment(rest),
                State::Bogus => self.bogus(rest, sink),
                State::Raw => self.raw(rest, sink),
                State::RawClose(matched) => self.raw_close(matched, first, rest),
            };
        }
    }

    /// Takes text whose tags and scripts are complete. Everything else goes through the state
    /// machine.
    fn whole_tags<'a>(&mut self, text: &'a str, sink: &mut impl FnMut(Piece<'a>)) -> &'a str {
        let bytes = text.as_bytes();
        let (mut taken, mut apart) = (0, false);
        while taken < bytes.len() {
            // Most tags follow each other directly or after blanks.
            let blanks = bytes[taken..].iter().position(|byte| !byte.is_ascii_whitespace());
            let words = taken + blanks.unwrap_or(0);
            let before = if bytes[words] == b'<' { Some(0) } else { memchr(b'<', &bytes[words..]) };
            let Some(before) = before else {
                sink(Piece::Text(&text[taken..]));
                return "";
            };
            let begin = words + before + 1;
            let tag = self.whole(&bytes[begin..]);
            if before > 0 || tag.is_none() && words > taken {
                sink(Piece::Text(&text[taken..begin - 1]));
                apart = false;
            }
            let Some((len, piece)) = tag else {
                self.state = State::Open;
                return &text[begin..];
            };
            if piece != Piece::Tag || !apart {
                sink(piece);
                apart = true;
            }
            taken = begin + len;
            if self.state != State::Text {
                break;
            }
        }
        &text[taken..]
    }

    /// Takes a complete tag, whose name or `/` begins `bytes`, and the content of a script. Returns
    /// the number of bytes. `None` if it is not a tag, is incomplete, or needs its attributes read.
    #[inline]
    fn whole<'a>(&mut self, bytes: &[u8]) -> Option<(usize, Piece<'a>)> {
        let closing = usize::from(*bytes.first()? == b'/');
        let initial = bytes.get(closing)?.to_ascii_lowercase();
        if !initial.is_ascii_lowercase() {
            return None;
        }
        let tag = Tag::whole(&bytes[closing..])?;
        // The names of most tags do not matter.
        let matters = !self.has_content || matches!(initial, b'i' | b'n' | b's' | b't' | b'x');
        if closing == 1 || !matters {
            return Some((closing + tag.len, Piece::Tag));
        }
        self.name_len = 0;
        self.add_to_name(tag.name);
        if self.tag() == b"meta" && !self.has_content {
            return None;
        }
        self.closing = false;
        let piece = self.tag_end();
        let mut len = tag.len;
        if self.state == State::Raw
            && matches!(self.tag(), b"script" | b"style")
            && let Some(content) = whole_content(&bytes[len..], self.tag())
        {
            self.state = State::Text;
            len += content;
        }
        Some((len, piece))
    }

    fn open<'a>(&mut self, first: u8, rest: &'a str, sink: &mut impl FnMut(Piece<'a>)) -> &'a str {
        self.closing = false;
        let (state, taken) = match first {
            b'/' => (State::CloseOpen, 1),
            b'!' => (State::Bang, 1),
            b'?' => (State::Bogus, 1),
            b'a'..=b'z' | b'A'..=b'Z' => (State::Name, 0),
            _ => (State::Text, 0),
        };
        if state == State::Text {
            sink(Piece::Text("<"));
        }
        self.name_len = 0;
        self.state = state;
        &rest[taken..]
    }

    fn close_open<'a>(&mut self, first: u8, rest: &'a str) -> &'a str {
        self.closing = true;
        self.state = if first.is_ascii_alphabetic() { State::Name } else { State::Bogus };
        rest
    }

    fn name<'a>(&mut self, rest: &'a str) -> &'a str {
        let bytes = rest.as_bytes();
        let end = bytes.iter().position(|byte| ends_name(*byte));
        self.add_to_name(&bytes[..end.unwrap_or(bytes.len())]);
        let Some(end) = end else { return "" };
        self.state = State::Attributes;
        self.last = 0;
        self.meta.clear();
        &rest[end..]
    }

    fn add_to_name(&mut self, part: &[u8]) {
        for byte in part {
            if let Some(slot) = self.name.get_mut(self.name_len) {
                *slot = byte.to_ascii_lowercase();
            }
            self.name_len = self.name_len.saturating_add(1);
        }
    }

    /// The name of the tag; empty if it is longer than any name that matters.
    fn tag(&self) -> &[u8] {
        self.name.get(..self.name_len).unwrap_or(b"")
    }

    fn attributes<'a>(&mut self, rest: &'a str, sink: &mut impl FnMut(Piece<'a>)) -> &'a str {
        let bytes = rest.as_bytes();
        let at = memchr3(b'>', b'"', b'\'', bytes);
        let before = &bytes[..at.unwrap_or(bytes.len())];
        if let Some(last) = before.trim_ascii_end().last() {
            self.last = *last;
        }
        self.keep_meta(before);
        let Some(at) = at else { return "" };
        match bytes[at] {
            b'>' => sink(self.tag_end()),
            quote if self.last == b'=' => self.state = State::Quoted(quote),
            quote => self.last = quote,
        }
        &rest[at + 1..]
    }

    fn quoted<'a>(&mut self, quote: u8, rest: &'a str) -> &'a str {
        let (before, after) = split_at_byte(rest, memchr(quote, rest.as_bytes()));
        self.keep_meta(before.as_bytes());
        if before.len() < rest.len() {
            self.state = State::Attributes;
            self.last = quote;
        }
        after
    }

    fn keep_meta(&mut self, bytes: &[u8]) {
        if !self.has_content && self.tag() == b"meta" {
            let room = MAX_META.saturating_sub(self.meta.len());
            self.meta.extend(bytes.iter().take(room).map(u8::to_ascii_lowercase));
        }
    }

    /// The end of a tag with a known name. For a `<meta>`, the attributes are read.
    fn tag_end<'a>(&mut self) -> Piece<'a> {
        self.state = State::Text;
        let name = self.tag();
        if self.closing {
            return if name == b"title" { Piece::TitleEnd } else { Piece::Tag };
        }
        let refreshes = || name == b"meta" && REFRESH.iter().all(|f| f.find(&self.meta).is_some());
        let is_first = !self.has_content && (is_content(name) || refreshes());
        if is_raw(name) {
            self.state = State::Raw;
        }
        self.has_content |= is_first;
        if is_first { Piece::Content } else { Piece::Tag }
    }

    fn bang<'a>(&mut self, first: u8, rest: &'a str) -> &'a str {
        match (self.state, first) {
            (State::Bang, b'-') => self.state = State::BangDash,
            (State::BangDash, b'-') => {
                self.state = State::Comment;
                // `<!-->` and `<!--->` are complete comments.
                self.tail = *b"---";
            }
            _ => {
                self.state = State::Bogus;
                return rest;
            }
        }
        &rest[1..]
    }

    fn comment<'a>(&mut self, rest: &'a str) -> &'a str {
        let (before, after) = split_at_byte(rest, memchr(b'>', rest.as_bytes()));
        for byte in &before.as_bytes()[before.len().saturating_sub(3)..] {
            self.tail = [self.tail[1], self.tail[2], *byte];
        }
        if before.len() < rest.len() {
            if self.tail.ends_with(b"--") || self.tail == *b"--!" {
                self.state = State::Text;
            }
            self.tail = [self.tail[1], self.tail[2], b'>'];
        }
        after
    }

    fn bogus<'a>(&mut self, rest: &'a str, sink: &mut impl FnMut(Piece<'a>)) -> &'a str {
        let (before, after) = split_at_byte(rest, memchr(b'>', rest.as_bytes()));
        if before.len() < rest.len() {
            self.state = State::Text;
            sink(Piece::Tag);
        }
        after
    }

    fn raw<'a>(&mut self, rest: &'a str, sink: &mut impl FnMut(Piece<'a>)) -> &'a str {
        let (before, after) = split_at_byte(rest, memchr(b'<', rest.as_bytes()));
        if !before.is_empty() && self.tag() == b"title" {
            sink(Piece::Title(before));
        }
        if before.len() < rest.len() {
            self.state = State::RawClose(0);
        }
        after
    }

    fn raw_close<'a>(&mut self, matched: usize, first: u8, rest: &'a str) -> &'a str {
        let wanted = if matched == 0 { Some(b'/') } else { self.tag().get(matched - 1).copied() };
        match wanted {
            Some(wanted) if wanted == first.to_ascii_lowercase() => {
                self.state = State::RawClose(matched + 1);
                return &rest[1..];
            }
            None if matches!(first, b'>' | b'/') || first.is_ascii_whitespace() => {
                self.closing = true;
                self.last = 0;
                self.state = State::Attributes;
            }
            _ => self.state = State::Raw,
        }
        rest
    }
}

/// The text before and after the ASCII byte at `at`; all of it and nothing if `at` is `None`.
#[inline]
fn split_at_byte(text: &str, at: Option<usize>) -> (&str, &str) {
    at.map_or((text, ""), |at| (&text[..at], &text[at + 1..]))
}
