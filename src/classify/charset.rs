//! Decodes the bytes of a body into characters.
//!
//! A byte order mark overrides the header, and the header overrides a `<meta>` in the first
//! [`PRESCAN`] bytes (WHATWG Encoding section 6.1 and HTML section 13.2.3.2). Without any of them
//! the charset is UTF-8. The result is UTF-8 in whole characters, however the bytes are split.

use encoding_rs::{CoderResult, Decoder, Encoding, UTF_8};
use http::HeaderValue;

/// The `<meta charset>` must be within this many bytes (HTML section 4.2.5.4).
const PRESCAN: usize = 1024;

/// Bytes of output that a decoder may need beyond the length of its input.
pub(super) const ROOM: usize = 64;

/// Turns bytes into text. Waits for the first [`PRESCAN`] bytes, or for all if there are fewer.
pub(crate) struct Charset {
    state: State,
    named: Option<&'static Encoding>,
}

enum State {
    /// The first bytes, kept to search them for a byte order mark or a `<meta>`.
    Undecided(Vec<u8>),
    Decided(Decoder),
}

impl std::fmt::Debug for Charset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Charset").finish_non_exhaustive()
    }
}

impl Charset {
    /// `content_type` may name the charset.
    pub(crate) fn new(content_type: Option<&HeaderValue>) -> Self {
        let named = content_type.and_then(|value| charset_of(value.as_bytes()));
        Self { state: State::Undecided(Vec::new()), named }
    }

    /// Whether a body that begins with `first` is UTF-8. Must be called before the first push.
    pub(crate) fn is_utf_8(&self, first: &[u8]) -> bool {
        let marked = matches!(first, [0xff, 0xfe, ..] | [0xfe, 0xff, ..]);
        !marked && self.named.unwrap_or_else(|| guess(first)) == UTF_8
    }

    /// Appends the characters of `bytes` to `text`.
    pub(crate) fn push(&mut self, bytes: &[u8], text: &mut String) {
        match &mut self.state {
            State::Decided(decoder) => decode(decoder, bytes, false, text),
            State::Undecided(first) if first.is_empty() && bytes.len() >= PRESCAN => {
                self.decide(bytes, text);
            }
            State::Undecided(first) => {
                first.extend_from_slice(bytes);
                if first.len() >= PRESCAN {
                    let first = std::mem::take(first);
                    self.decide(&first, text);
                }
            }
        }
    }

    /// Appends what is still buffered.
    pub(crate) fn finish(&mut self, text: &mut String) {
        if let State::Undecided(first) = &mut self.state {
            let first = std::mem::take(first);
            self.decide(&first, text);
        }
        if let State::Decided(decoder) = &mut self.state {
            decode(decoder, b"", true, text);
        }
    }

    fn decide(&mut self, first: &[u8], text: &mut String) {
        let mut decoder = self.named.unwrap_or_else(|| guess(first)).new_decoder();
        decode(&mut decoder, first, false, text);
        self.state = State::Decided(decoder);
    }
}

fn decode(decoder: &mut Decoder, mut bytes: &[u8], last: bool, text: &mut String) {
    loop {
        // Enough for nearly all texts. If the text grows more, the loop runs again.
        text.reserve(bytes.len() + ROOM);
        let (result, read, _) = decoder.decode_to_string(bytes, text, last);
        bytes = &bytes[read..];
        if result == CoderResult::InputEmpty {
            return;
        }
    }
}

/// The charset that a `<meta>` in the first bytes declares; UTF-8 if there is none.
fn guess(first: &[u8]) -> &'static Encoding {
    let first = &first[..first.len().min(PRESCAN)];
    let mut rest = first;
    while let Some(at) = memchr::memchr(b'<', rest) {
        rest = &rest[at + 1..];
        let is_meta = rest.len() > 5 && rest[..4].eq_ignore_ascii_case(b"meta");
        if !is_meta {
            continue;
        }
        let tag = &rest[..memchr::memchr(b'>', rest).unwrap_or(rest.len())];
        if let Some(encoding) = charset_of(tag) {
            // A page with readable ASCII markup is not UTF-16, even if it says so (HTML section
            // 13.2.3.3).
            return encoding.output_encoding();
        }
    }
    UTF_8
}

/// The value of `charset=` in a header or a tag.
fn charset_of(text: &[u8]) -> Option<&'static Encoding> {
    let is_name = |word: &[u8]| word[0] | 0x20 == b'c' && word.eq_ignore_ascii_case(b"charset");
    let at = text.windows(7).position(is_name)?;
    let value = text[at + 7..].trim_ascii_start().strip_prefix(b"=")?;
    let value = value.trim_ascii_start();
    let value = value.strip_prefix(b"\"").or(value.strip_prefix(b"'")).unwrap_or(value);
    let ends = |b: &u8| matches!(b, b'"' | b'\'' | b';' | b'>' | b'/') || b.is_ascii_whitespace();
    let end = value.iter().position(ends).unwrap_or(value.len());
    match &value[..end] {
        // By far the most frequent label, and a comparison is faster than a lookup.
        label if label.eq_ignore_ascii_case(b"utf-8") => Some(UTF_8),
        label => Encoding::for_label(label),
    }
}
