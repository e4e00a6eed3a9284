//! A string of a signature as it may stand in the bytes of a page, before anything is decoded.
//!
//! Signatures are matched against text without tags, with entities decoded, blanks collapsed and
//! letters lowered. A run of letters of such a string stands in the bytes all the same, but for its
//! case and for what [`super::obfuscated`] looks for. That run is searched for; where it is found, what
//! stands around it is compared as far as bytes are clear. In doubt the string is said to be there.

use std::ops::Range;

use super::{
    markup::is_raw,
    ngram_filter::{SHORTEST, Shape},
    tag::Tag,
    text::MAX_ENTITY,
};

/// Longest run that is better than a shorter one before it.
const LONG_ENOUGH: usize = 10;

/// Whether a byte is an ASCII character of which runs are made.
pub(super) const fn is_run_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.')
}

/// Whether a small letter beyond ASCII is one of which runs are made: it has no capital, or one of as
/// many bytes, and nothing else is lowered to it. Letters of western Europe have entities with
/// names and are none.
pub(super) const fn is_run_letter(letter: char) -> bool {
    matches!(letter,
        '\u{430}'..='\u{45f}' | '\u{3041}'..='\u{30ff}' | '\u{4e00}'..='\u{9fff}'
        | '\u{ac00}'..='\u{d7a3}')
}

/// Whether a byte makes a blank of itself.
const fn is_blank(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte.is_ascii_control()
}

/// A string to look for in bytes.
#[derive(Debug)]
pub(super) struct Literal {
    /// As it stands in visible text.
    text: String,
    run: Range<usize>,
    /// As it stands in the markup, where it may, and where the run begins in that.
    raw: Option<(String, usize)>,
}

impl Literal {
    /// `text` may stand in the visible text (normalised), `raw` in the markup. `None` where no run
    /// is long enough.
    pub(super) fn new(text: &str, raw: Option<&str>) -> Option<Self> {
        // Bytes that are broken make this character, and are none of its own.
        if raw.is_some_and(|raw| raw.contains('\u{fffd}')) {
            return None;
        }
        let begin = |run: &Range<usize>| raw.map_or(Some(0), |raw| raw.find(&text[run.clone()]));
        let fits = |run: &Range<usize>| run.len() + 2 >= SHORTEST && begin(run).is_some();
        let better = |run: &Range<usize>| run.len().min(LONG_ENOUGH);
        let best = |runs: Vec<Range<usize>>| runs.into_iter().filter(fits).rev().max_by_key(better);
        // Dots in the markup may be entities.
        let run = best(runs(text, '\0')).or_else(|| best(runs(text, '.')))?;
        let raw = raw.and_then(|raw| Some((raw.to_owned(), raw.find(&text[run.clone()])?)));
        Some(Self { text: text.to_owned(), run, raw })
    }

    /// How many bytes of it are looked for.
    pub(super) fn len(&self) -> usize {
        self.run.len()
    }

    /// The characters beyond ASCII that are looked for.
    pub(super) fn letters(&self) -> impl Iterator<Item = char> {
        self.text[self.run.clone()].chars().filter(|letter| !letter.is_ascii())
    }

    /// What is looked for, with what may stand beside it where it is short.
    pub(super) fn shape(&self) -> Shape {
        let run = &self.text[self.run.clone()];
        let mut places = Vec::new();
        for letter in run.chars() {
            let forms = [letter].into_iter().chain(letter.to_uppercase());
            let forms: Vec<String> = forms.map(String::from).collect();
            let forms = || forms.iter().filter(|form| form.len() == letter.len_utf8());
            let of = |at: usize| forms().map(|form| form.as_bytes()[at]).collect();
            places.extend((0..letter.len_utf8()).map(of));
        }
        if run.len() >= SHORTEST {
            return Shape { before: 0, places };
        }
        let text = self.text.as_bytes();
        let raw = |at: Option<usize>| {
            let there = at.and_then(|at| self.raw.as_ref()?.0.as_bytes().get(at));
            self.raw.is_none() || there == Some(&b' ')
        };
        let begin = self.raw.as_ref().map_or(0, |(_, begin)| *begin);
        // Before a letter no entity ends without its `;`.
        let apart = self.text[..self.run.start].ends_with(' ')
            && run.as_bytes()[0].is_ascii_alphanumeric()
            && raw(begin.checked_sub(1));
        places.insert(0, beside(apart));
        let apart = text.get(self.run.end) == Some(&b' ') && raw(Some(begin + run.len()));
        places.push(beside(apart));
        Shape { before: 1, places }
    }

    /// Whether it may be that the string stands in `bytes` so that its run begins at `begin`.
    pub(super) fn may_stand(&self, bytes: &[u8], begin: usize) -> bool {
        let run = &self.text[self.run.clone()];
        let there = bytes.get(begin..begin + run.len());
        if !there.is_some_and(|there| is_same(there, run)) {
            return false;
        }
        let in_markup = self.raw.as_ref().is_some_and(|(raw, before)| {
            let begin = begin.checked_sub(*before);
            let there = begin.and_then(|begin| bytes.get(begin..begin + raw.len()));
            there.is_some_and(|there| there.eq_ignore_ascii_case(raw.as_bytes()))
        });
        let text = self.text.as_bytes();
        in_markup
            || may_precede(&bytes[..begin], &text[..self.run.start])
                && may_follow(&bytes[begin + run.len()..], &text[self.run.end..])
    }
}

/// The runs of `text`, none with `end` in it.
fn runs(text: &str, end: char) -> Vec<Range<usize>> {
    let is_in_run = |c: char| match u8::try_from(c) {
        Ok(byte) if byte.is_ascii() => is_run_byte(byte) && c != end,
        _ => is_run_letter(c),
    };
    let (mut runs, mut begin) = (Vec::new(), 0);
    for part in text.split_inclusive(|c| !is_in_run(c)) {
        let run = part.trim_end_matches(|c| !is_in_run(c));
        let mut end = begin + run.len();
        // A capital I with a dot is lowered to two characters, of which this is the first.
        if !text[end..].starts_with(|c: char| c.is_ascii()) {
            end = begin + run.trim_end_matches('i').len();
        }
        runs.push(begin..end);
        begin += part.len();
    }
    runs
}

/// The bytes that may stand beside a run, each but for its case; `apart`: where a blank belongs.
fn beside(apart: bool) -> Vec<u8> {
    (0..=u8::MAX).filter(|byte| !apart || !byte.is_ascii_alphabetic()).collect()
}

/// Whether `there` is `run` but for its case.
fn is_same(there: &[u8], run: &str) -> bool {
    if run.is_ascii() {
        return there.eq_ignore_ascii_case(run.as_bytes());
    }
    let there = std::str::from_utf8(there);
    there.is_ok_and(|there| there.chars().flat_map(char::to_lowercase).eq(run.chars()))
}

/// Whether `bytes` may end with `wanted`.
fn may_precede(mut bytes: &[u8], wanted: &[u8]) -> bool {
    for wanted in wanted.iter().rev() {
        let Some((last, rest)) = bytes.split_last() else { return true };
        if matches!(last, b'>' | b';' | 0x80..) {
            // Behind a tag, an entity or what cannot be seen.
            return true;
        }
        if *wanted == b' ' && is_blank(*last) {
            let words = bytes.iter().rposition(|byte| !is_blank(*byte));
            bytes = &bytes[..words.map_or(0, |last| last + 1)];
        } else if last.eq_ignore_ascii_case(wanted) {
            bytes = rest;
        } else {
            return ends_with_entity(bytes);
        }
    }
    true
}

/// Whether `bytes` may end with an entity that has no `;`.
fn ends_with_entity(bytes: &[u8]) -> bool {
    let last = bytes.iter().rev().take(MAX_ENTITY);
    let mut before = last.skip_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'#');
    before.next() == Some(&b'&')
}

/// Whether `bytes` may begin with `wanted`.
fn may_follow(mut bytes: &[u8], wanted: &[u8]) -> bool {
    for wanted in wanted {
        if *wanted == b' ' {
            let Some(rest) = behind_blanks(bytes) else { return true };
            if rest.len() == bytes.len() {
                return false;
            }
            bytes = rest;
            continue;
        }
        match bytes.split_first() {
            None | Some((b'&' | b'<' | 0x80.., _)) => return true,
            Some((first, rest)) if first.eq_ignore_ascii_case(wanted) => bytes = rest,
            Some(_) => return false,
        }
    }
    true
}

/// What follows blanks and tags; `None` where bytes do not tell.
fn behind_blanks(mut bytes: &[u8]) -> Option<&[u8]> {
    loop {
        bytes = match *bytes.first()? {
            b'<' => {
                let closing = usize::from(bytes.get(1) == Some(&b'/'));
                let name = &bytes[1 + closing..];
                let tag = name.first().filter(|first| first.is_ascii_alphabetic());
                let tag = tag.and_then(|_| Tag::whole(name))?;
                if closing == 0 && is_raw(&tag.name.to_ascii_lowercase()) {
                    return None;
                }
                &name[tag.len..]
            }
            b'&' | 0x80.. => return None,
            byte if is_blank(byte) => &bytes[1..],
            _ => return Some(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_of_runs_have_no_other_forms_than_those_that_are_looked_for() {
        for form in '\u{80}'..=char::MAX {
            for letter in form.to_lowercase() {
                let known = form == letter || letter.to_uppercase().eq([form]);
                let same = known && form.len_utf8() == letter.len_utf8();
                assert!(!is_run_letter(letter) || same, "{form} is lowered to {letter}");
                // The sign of Kelvin and the capital with a dot.
                let ascii = matches!(form, '\u{212a}' | '\u{130}');
                assert!(!letter.is_ascii() || ascii, "{form} is lowered to {letter}");
            }
        }
    }

    #[test]
    fn what_stands_around_a_run_is_compared_as_far_as_it_is_clear() {
        let literal = Literal::new("your ip address has been banned", None).expect("it has a run");
        for (text, expected) in [
            ("Your IP address has been banned", true),
            ("your  IP\n address\thas been  BANNED.", true),
            ("<b>IP</b> Address<br class=\"a > b\">has been banned", true),
            ("<th>Address</th><td>has been", true),
            ("&#105;p&nbsp;address&nbsp;for", true),
            ("your \u{200b}address \u{200b}for", true),
            ("<th>Address</th><td>Phone</td>", false),
            ("your email address has been banned", false),
            ("your ip address was banned", false),
            ("your ip addressed has been banned", false),
        ] {
            let begin = text.to_ascii_lowercase().find("address").expect("it is there");
            assert_eq!(literal.may_stand(text.as_bytes(), begin), expected, "{text}");
        }
    }

    #[test]
    fn a_string_of_short_words_has_no_run() {
        assert!(Literal::new("you are a bot", None).is_none());
        assert!(Literal::new("a wall of words", Some("a wall of w&#111;rds")).is_none());
        assert_eq!(runs("a run-of.1 мир é", '\0'), [0..1, 2..10, 11..17, 18..18]);
        assert_eq!(runs("run.hi hi", '.'), [0..3, 4..6, 7..8], "a capital with a dot may end it");
    }
}
