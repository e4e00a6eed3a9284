//! Takes tags and scripts in one step. Most are complete within one piece of a page, so no state has to be kept between
//! bytes.

use std::sync::LazyLock;

use memchr::{memchr, memchr2, memmem::Finder};

/// A complete tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tag<'a> {
    /// As written.
    pub(super) name: &'a [u8],
    /// Bytes from the start of the name up to and including the `>`.
    pub(super) len: usize,
}

impl<'a> Tag<'a> {
    /// The tag whose name begins `bytes`; `None` if its end is missing.
    #[inline]
    pub(super) fn whole(bytes: &'a [u8]) -> Option<Self> {
        let end = bytes.iter().position(|byte| ends_name(*byte))?;
        let (name, rest) = bytes.split_at(end);
        let more = if rest[0] == b'>' { 1 } else { whole_attributes(rest)? };
        Some(Self { name, len: end + more })
    }
}

/// The number of bytes after the name of a tag, up to and including its `>`.
fn whole_attributes(bytes: &[u8]) -> Option<usize> {
    if bytes.first() == Some(&b'>') {
        return Some(1);
    }
    let at = memchr2(b'>', b'\'', bytes)?;
    if bytes[at] == b'>' {
        // If the `>` were inside a value, the last quote before it would be the opening quote.
        let quote = bytes[..at].iter().rposition(|byte| *byte == b'"');
        if !quote.is_some_and(|quote| opens_value(&bytes[..quote])) {
            return Some(at + 1);
        }
    }
    let mut at = 0;
    loop {
        at += memchr2(b'>', b'=', &bytes[at..])? + 1;
        if bytes[at - 1] == b'>' {
            return Some(at);
        }
        at += bytes[at..].iter().position(|byte| !byte.is_ascii_whitespace())?;
        let quote = bytes[at];
        if matches!(quote, b'"' | b'\'') {
            at += memchr(quote, &bytes[at + 1..])? + 2;
        }
    }
}

/// Whether a quote after `attributes` opens a value: only directly after `=`.
fn opens_value(attributes: &[u8]) -> bool {
    attributes.trim_ascii_end().last() == Some(&b'=')
}

/// The start of every closing tag.
static CLOSING: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("</"));

/// The length of the raw content of an element, including its closing tag. `name` is in lower case.
pub(super) fn whole_content(bytes: &[u8], name: &[u8]) -> Option<usize> {
    let closing = &*CLOSING;
    let mut at = 0;
    loop {
        at += closing.find(&bytes[at..])? + 2;
        let (found, rest) = bytes[at..].split_at_checked(name.len())?;
        let is_same = found.iter().zip(name).all(|(one, other)| one.to_ascii_lowercase() == *other);
        if is_same && rest.first().is_some_and(|byte| ends_name(*byte)) {
            return Some(at + name.len() + whole_attributes(rest)?);
        }
    }
}

/// Whether this byte ends the name of a tag (HTML section 13.2.5.8).
#[inline]
pub(super) const fn ends_name(byte: u8) -> bool {
    // Names consist of letters, which are greater than all of these.
    byte <= b'>' && (matches!(byte, b'>' | b'/') || byte.is_ascii_whitespace())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_ends_behind_its_values() {
        for (text, expected) in [
            ("p>x", Some(("p", 2))),
            ("a href=\"/x\">y>", Some(("a", 12))),
            ("a title=\"a > b\">y", Some(("a", 16))),
            ("a title='a > b'>y", Some(("a", 16))),
            ("a title='say \"' alt=\">\">y", Some(("a", 24))),
            ("a title= \n\">\" b=c>y", Some(("a", 18))),
            ("a b\"c=\">\">y", Some(("a", 10))),
            ("a b\">c\">y", Some(("a", 5))),
            ("a b= c=\"\">y", Some(("a", 10))),
            ("a=\">\">y", Some(("a=\"", 4))),
            ("br/>y", Some(("br", 4))),
            ("a title=\"a > b>y", None),
            ("a title=", None),
            ("a", None),
            ("", None),
        ] {
            let tag = Tag::whole(text.as_bytes());
            let expected = expected.map(|(name, len): (&str, _)| (name.as_bytes(), len));
            assert_eq!(tag.map(|tag| (tag.name, tag.len)), expected, "{text}");
        }
    }

    #[test]
    fn a_script_ends_with_its_own_tag() {
        for (text, expected) in [
            ("a < b</script>x", Some(14)),
            ("</scrip></SCRIPT >x", Some(18)),
            ("</scripts></script/>x", Some(20)),
            ("</</script\n>x", Some(12)),
            ("</script", None),
            ("</script a='>", None),
            ("", None),
        ] {
            assert_eq!(whole_content(text.as_bytes(), b"script"), expected, "{text}");
        }
    }
}
