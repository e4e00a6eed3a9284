//! Words that stand in the bytes of a page otherwise than letter by letter: with letters written as
//! entities, or with a comment, a soft hyphen or a mark without width between two of them.
//!
//! Hardly any page has one, and a search for words in bytes would miss it.

use memchr::{memchr2_iter, memchr3_iter};

use super::{
    literal::{is_run_byte, is_run_letter},
    text::{MAX_ENTITY, decode_entity, is_invisible},
};

/// Whether a word in `bytes` (UTF-8) may be torn that has `letters` beyond ASCII, ascending, or
/// none.
pub(super) fn is_obfuscated(bytes: &[u8], letters: &[char]) -> bool {
    let text = Text { bytes, letters };
    let is_obfuscated_by_mark =
        || memchr3_iter(0xc2, 0xe2, 0xef, bytes).any(|at| text.is_obfuscated_by_mark(at));
    let is_obfuscated_at = |at: usize| match bytes[at] {
        b'&' => text.is_obfuscated_by_entity(at),
        _ => text.is_obfuscated_by_comment(at),
    };
    memchr2_iter(b'&', b'!', bytes).any(is_obfuscated_at)
        || !bytes.is_ascii() && is_obfuscated_by_mark()
}

/// A page, and the letters of words.
#[derive(Clone, Copy)]
struct Text<'a> {
    bytes: &'a [u8],
    letters: &'a [char],
}

impl Text<'_> {
    fn is_obfuscated_by_entity(self, at: usize) -> bool {
        let rest = &self.bytes[at + 1..];
        let matters = match rest.first() {
            Some(b'#') => true,
            Some(b's') => rest.starts_with(b"shy"),
            Some(b'z') => rest.starts_with(b"zwnj"),
            Some(b'p') => rest.starts_with(b"period"),
            _ => false,
        };
        if !matters {
            return false;
        }
        let number = usize::from(rest[0] == b'#');
        let name = rest[number..].iter().take_while(|byte| byte.is_ascii_alphanumeric());
        let end = at + MAX_ENTITY.min(1 + number + name.count());
        let entity = std::str::from_utf8(&self.bytes[at..end]).ok();
        match entity.and_then(decode_entity) {
            Some(mark) if is_invisible(mark) => {
                let end = end + usize::from(self.bytes.get(end) == Some(&b';'));
                self.goes_on(at, end)
            }
            Some(letter) => self.is_in_words(letter),
            None => false,
        }
    }

    fn is_obfuscated_by_mark(self, at: usize) -> bool {
        match self.bytes[at..] {
            [0xc2, 0xad, ..] => self.goes_on(at, at + 2),
            [0xe2, 0x80, 0x8b..=0x8f, ..] | [0xe2, 0x81, 0xa0, ..] | [0xef, 0xbb, 0xbf, ..] => {
                self.goes_on(at, at + 3)
            }
            // The sign of Kelvin, which is lowered to an ASCII letter.
            [0xe2, 0x84, 0xaa, ..] => true,
            _ => false,
        }
    }

    fn is_obfuscated_by_comment(self, at: usize) -> bool {
        let (before, after) = self.bytes.split_at(at);
        if !after.starts_with(b"!--") || before.last() != Some(&b'<') {
            return false;
        }
        let mut from = at + 3;
        self.ends_inside(at - 1)
            && loop {
                let Some(end) = memchr::memchr(b'>', &self.bytes[from..]) else { break false };
                // The dashes that begin a comment may end it too (HTML section 13.2.5.43).
                let comment = &self.bytes[at + 1..from + end];
                from += end + 1;
                if comment.ends_with(b"--") || comment.ends_with(b"--!") {
                    break self.begins_inside(from);
                }
            }
    }

    /// Whether a word before `begin` may go on at `end`.
    fn goes_on(self, begin: usize, end: usize) -> bool {
        self.ends_inside(begin) && self.begins_inside(end)
    }

    /// Whether what ends at `end` may be inside a word.
    fn ends_inside(self, end: usize) -> bool {
        let before = &self.bytes[..end];
        match before.last() {
            None => false,
            Some(b'&' | b'#' | b';') => true,
            Some(b'>') => before.ends_with(b"->") || before.ends_with(b"!>"),
            Some(byte) if byte.is_ascii() => is_run_byte(*byte),
            Some(_) => {
                let last = before[before.len().saturating_sub(4)..].utf8_chunks().last();
                let last = last.filter(|chunk| chunk.invalid().is_empty());
                last.and_then(|chunk| chunk.valid().chars().last())
                    .is_some_and(|c| self.is_inside(c))
            }
        }
    }

    /// Whether what begins at `begin` may be inside a word.
    fn begins_inside(self, begin: usize) -> bool {
        let after = &self.bytes[begin..];
        match after.first() {
            None => false,
            Some(b'&' | b'#') => true,
            Some(b'<') => after.starts_with(b"<!--"),
            Some(byte) if byte.is_ascii() => is_run_byte(*byte),
            Some(_) => {
                let first = after[..after.len().min(4)].utf8_chunks().next();
                let first = first.and_then(|chunk| chunk.valid().chars().next());
                first.is_some_and(|c| self.is_inside(c))
            }
        }
    }

    fn is_inside(self, character: char) -> bool {
        is_invisible(character) || self.is_in_words(character)
    }

    /// Whether words have this letter, in small or in capital form.
    fn is_in_words(self, letter: char) -> bool {
        letter.to_lowercase().any(|letter| match u8::try_from(letter) {
            Ok(byte) if byte.is_ascii() => is_run_byte(byte),
            _ => is_run_letter(letter) && self.letters.binary_search(&letter).is_ok(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_torn_by_what_stands_between_two_of_its_letters() {
        for text in [
            "wo&#114;d",
            "wo&#x52;d",
            "wo&#114-d",
            "&#119;&#111;&#114;&#100;",
            "wo&shy;rd",
            "wo&#173;rd",
            "wo\u{ad}rd",
            "wo\u{200b}\u{2060}rd",
            "wo&zwnj;&#8203;rd",
            "wo<!-- -->rd",
            "www&#46;word&period;de",
            "wo<!-->rd",
            "wo<!-- > --!>rd",
            "wo<!-- --><!-- -->rd",
            "wo\u{ad}<!-- -->rd",
            "wo&<!-- -->#114;d",
            "wo&#11<!-- -->4;d",
            "\u{212a}elvin",
            "им\u{ad}я",
            "&#1071;",
        ] {
            assert!(is_obfuscated(text.as_bytes(), &['м', 'я']), "{text}");
        }
    }

    #[test]
    fn words_beside_marks_comments_and_entities_are_whole() {
        for text in [
            "don&#39;t &amp; won&rsquo;t &shyness &#8230; &#60; &#1103;",
            "word<!-- --> word <!-- -->word <p><!-- --></p>",
            "word<!-- left open",
            "\u{feff}word \u{200b}word\u{200b} “word”",
            "им\u{ad}я می\u{200c}خواهم",
            "\u{130}stanbul",
        ] {
            assert!(!is_obfuscated(text.as_bytes(), &[]), "{text}");
        }
    }
}
