//! Tells in a fraction of the time of a search that a text has none of some strings.
//!
//! Every string of at least `stride + GRAM - 1` bytes covers [`GRAM`] bytes at some multiple of
//! `stride`, wherever it stands. So only those places are looked at; where the bytes there occur in
//! a string at all, that string is compared. Letter case does not matter.

/// Bytes looked at in one place.
const GRAM: usize = 4;

/// Shortest string that a sieve takes: shorter ones would want a look at nearly every place.
const SHORTEST: usize = 8;

/// Longest part of a string that is used: a longer stride would hardly save anything more.
const LONGEST: usize = 16;

/// log2 of the number of bits that tell whether a gram occurs at all.
const LOG_BITS: u32 = 16;

/// What pages are full of. Of a long string that part is used which has least of it, since every
/// look at it would be in vain.
const COMMON: &str = "<div class=\"container header footer content wrapper\" id=\"<span class=\"</span>\
    </div><a href=\"https://www.http://<li class=\"menu-item</li></ul><link rel=\"stylesheet\" \
    type=\"text/css\" href=\"/assets/<script type=\"text/javascript\" src=\"https://cdn.async defer\
    </script><meta property=\"og:image\" content=\"name=\"description\"<form action=\"<input type=\"hidden\" \
    value=\"title=\"<img src=\"data-function(window.document.getElementById('return var error page \
    script challenge access blocked security request please your you are that this with from have";

/// Some strings, prepared.
#[derive(Debug)]
pub(crate) struct Sieve {
    stride: usize,
    /// One bit for each hash of a gram.
    bits: Box<[u64; 1 << (LOG_BITS - 6)]>,
    /// The grams of all strings, ascending.
    grams: Vec<Gram>,
    strings: Vec<Vec<u8>>,
}

/// Bytes of a string.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Gram {
    bytes: u32,
    /// Number of the string.
    string: usize,
    /// Where they stand in it.
    offset: usize,
}

impl Sieve {
    /// A sieve for `strings`; `None` where one of them is too short.
    pub(crate) fn new<'a>(strings: impl Iterator<Item = &'a str>) -> Option<Self> {
        let strings: Vec<Vec<u8>> = strings.map(|text| text.as_bytes().to_vec()).collect();
        let shortest = strings.iter().map(Vec::len).min().unwrap_or(LONGEST);
        if shortest < SHORTEST {
            return None;
        }
        let used = shortest.min(LONGEST);
        let stride = used + 1 - GRAM;
        let bits = Box::new([0; 1 << (LOG_BITS - 6)]);
        let mut sieve = Self { stride, bits, grams: Vec::new(), strings };
        for (number, string) in sieve.strings.iter().enumerate() {
            let begin = rarest(string, stride, string.len() - used);
            for offset in begin..begin + stride {
                let Some(bytes) = gram(&string[offset..]) else { continue };
                let at = hash(bytes);
                sieve.bits[at / 64] |= 1 << (at % 64);
                sieve.grams.push(Gram { bytes, string: number, offset });
            }
        }
        sieve.grams.sort_unstable();
        Some(sieve)
    }

    /// Whether `text` has any of the strings.
    pub(crate) fn has_any(&self, text: &[u8]) -> bool {
        if self.grams.is_empty() {
            return false;
        }
        // As a constant, the stride makes a loop without any look at the text's end.
        match self.stride {
            5 => self.has_any_by::<5>(text),
            6 => self.has_any_by::<6>(text),
            7 => self.has_any_by::<7>(text),
            8 => self.has_any_by::<8>(text),
            9 => self.has_any_by::<9>(text),
            10 => self.has_any_by::<10>(text),
            11 => self.has_any_by::<11>(text),
            12 => self.has_any_by::<12>(text),
            _ => self.has_any_by::<13>(text),
        }
    }

    fn has_any_by<const STRIDE: usize>(&self, text: &[u8]) -> bool {
        let (strides, rest) = text.as_chunks::<STRIDE>();
        for (number, stride) in strides.iter().enumerate() {
            let Some(bytes) = gram(stride) else { break };
            if self.may_have(bytes) && self.is_one(bytes, text, number * STRIDE) {
                return true;
            }
        }
        let last = gram(rest).filter(|bytes| self.may_have(*bytes));
        last.is_some_and(|bytes| self.is_one(bytes, text, strides.len() * STRIDE))
    }

    /// Whether one of the strings may have these bytes.
    #[inline]
    fn may_have(&self, bytes: u32) -> bool {
        let at = hash(bytes);
        self.bits[at / 64] >> (at % 64) & 1 == 1
    }

    /// Whether `bytes`, which stand at `place` in `text`, belong to one of the strings there.
    #[inline(never)]
    fn is_one(&self, bytes: u32, text: &[u8], place: usize) -> bool {
        let first = self.grams.partition_point(|gram| gram.bytes < bytes);
        let same = self.grams[first..].iter().take_while(|gram| gram.bytes == bytes);
        same.into_iter().any(|gram| {
            let string = &self.strings[gram.string];
            let begin = place.checked_sub(gram.offset);
            begin
                .and_then(|begin| text.get(begin..begin + string.len()))
                .is_some_and(|there| there.eq_ignore_ascii_case(string))
        })
    }
}

/// Where in `string`, no later than `latest`, the `count` grams begin of which fewest are common;
/// among equals the last, since many marks begin as all markup does.
fn rarest(string: &[u8], count: usize, latest: usize) -> usize {
    let is_common = |offset: &usize| {
        let bytes = string.get(*offset..).and_then(gram);
        COMMON.as_bytes().windows(GRAM).any(|common| gram(common) == bytes)
    };
    let commons = |begin: usize| (begin..begin + count).filter(is_common).count();
    (0..=latest).rev().min_by_key(|begin| commons(*begin)).unwrap_or(latest)
}

/// The first bytes as a number, the same for both cases of a letter.
fn gram(text: &[u8]) -> Option<u32> {
    text.first_chunk::<GRAM>().map(|bytes| u32::from_le_bytes(*bytes) | 0x2020_2020)
}

/// Multiplicative hashing: the upper bits depend on all bytes.
fn hash(bytes: u32) -> usize {
    (bytes.wrapping_mul(0x9e37_79b1) >> (u32::BITS - LOG_BITS)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_is_found_wherever_it_stands_and_nothing_else_is() {
        let strings = ["Eight-by", "a string of more than sixteen bytes", "<input id=\"other\">"];
        let sieve = Sieve::new(strings.iter().copied()).expect("none is too short");
        for length in 0..60 {
            let before = "x".repeat(length);
            for string in strings {
                for (text, expected) in [
                    (format!("{before}{string}"), true),
                    (format!("{before}{}yz", string.to_uppercase()), true),
                    (format!("{before}{}", &string[1..]), false),
                    (format!("{before}{}", &string[..string.len() - 1]), false),
                ] {
                    assert_eq!(sieve.has_any(text.as_bytes()), expected, "{text}");
                }
            }
        }
    }

    #[test]
    fn a_short_string_makes_no_sieve_and_none_at_all_one_that_finds_nothing() {
        assert!(Sieve::new(["long enough", "short"].into_iter()).is_none());
        let empty = Sieve::new(std::iter::empty()).expect("nothing is too short");
        assert!(!empty.has_any(b"anything"));
    }
}
