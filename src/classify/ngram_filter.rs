//! A filter that proves, in a fraction of the time of a search, that none of some strings occurs
//! in a text. It has no false negatives.
//!
//! Wherever a string of at least `stride + GRAM - 1` bytes begins, it covers [`GRAM`] bytes at some
//! multiple of `stride`. So the filter reads only those positions. If the bytes there occur in a
//! string, that string is compared. Letter case does not matter.

use std::sync::LazyLock;

/// Bytes read at one position.
const GRAM: usize = 4;

/// Shortest string that a filter accepts. A shorter one would need nearly every position.
pub(super) const SHORTEST: usize = 8;

/// Longest part of a string that is used. A longer stride would save hardly anything.
const LONGEST: usize = 16;

/// log2 of the number of hash slots.
const LOG_SLOTS: u32 = 11;

/// Number of hash slots.
const SLOTS: usize = 1 << LOG_SLOTS;

/// Positions that share one branch.
const AT_ONCE: usize = 4;

/// Text that nearly every page contains. The filter uses the part of a long string that overlaps least with it, because
/// each overlap costs a useless comparison.
const COMMON: &str = "<div class=\"container header footer content wrapper\" id=\"<span class=\"</span>\
    </div><a href=\"https://www.http://<li class=\"menu-item</li></ul><link rel=\"stylesheet\" \
    type=\"text/css\" href=\"/assets/<script type=\"text/javascript\" src=\"https://cdn.async defer\
    </script><meta property=\"og:image\" content=\"name=\"description\"<form action=\"<input type=\"hidden\" \
    value=\"title=\"<img src=\"data-function(window.document.getElementById('return var error page \
    script challenge access blocked security request please your you are that this with from have";

/// A string to search for: at each position the bytes that match.
#[derive(Debug, Clone)]
pub(crate) struct Shape {
    /// How many positions precede the string itself.
    pub(crate) before: usize,
    pub(crate) places: Vec<Vec<u8>>,
}

impl Shape {
    /// Exactly this string.
    pub(crate) fn of(text: &[u8]) -> Self {
        Self { before: 0, places: text.iter().map(|byte| vec![*byte]).collect() }
    }
}

/// The grams of [`COMMON`], ascending.
static COMMON_GRAMS: LazyLock<Vec<u32>> = LazyLock::new(|| {
    let mut grams: Vec<u32> = COMMON.as_bytes().windows(GRAM).filter_map(gram).collect();
    grams.sort_unstable();
    grams
});

/// A compiled set of strings.
#[derive(Debug)]
pub(crate) struct NgramFilter {
    stride: usize,
    /// For each slot, one bit for each folded first byte of its grams.
    first: Box<[u32; SLOTS]>,
    /// Where the grams of each slot begin; the last entry is the end.
    begins: Box<[u32; SLOTS + 1]>,
    /// The grams of all strings, by slot.
    grams: Vec<Gram>,
}

/// [`GRAM`] bytes of a string.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Gram {
    slot: usize,
    bytes: u32,
    /// Number of the string.
    string: usize,
    /// Distance from the beginning of the string.
    offset: isize,
}

impl NgramFilter {
    /// A filter for `strings`; `None` if one of them is too short.
    pub(crate) fn new(strings: &[Shape]) -> Option<Self> {
        let shortest = strings.iter().map(|string| string.places.len()).min().unwrap_or(LONGEST);
        if shortest < SHORTEST {
            return None;
        }
        let used = shortest.min(LONGEST);
        let stride = used + 1 - GRAM;
        let mut grams = Vec::new();
        for (number, string) in strings.iter().enumerate() {
            let begin = rarest(&string.places, stride, string.places.len() - used);
            for place in begin..begin + stride {
                let offset = place.cast_signed() - string.before.cast_signed();
                let gram = |bytes| Gram { slot: slot(bytes), bytes, string: number, offset };
                grams.extend(forms(&string.places[place..]).into_iter().map(gram));
            }
        }
        grams.sort_unstable();
        grams.dedup();
        let mut first = Box::new([0; SLOTS]);
        let mut begins = Box::new([0; SLOTS + 1]);
        for gram in &grams {
            first[gram.slot] |= 1 << (gram.bytes % 32);
            begins[gram.slot + 1] += 1;
        }
        for slot in 0..SLOTS {
            begins[slot + 1] += begins[slot];
        }
        Some(Self { stride, first, begins, grams })
    }

    /// Whether `is_there` confirms that one of the strings, given by its number, begins at a position of `text`. It is
    /// called for each candidate position; some are false positives.
    pub(crate) fn any(&self, text: &[u8], is_there: impl FnMut(usize, usize) -> bool) -> bool {
        if self.grams.is_empty() {
            return false;
        }
        // With a constant stride the compiler drops the bounds checks.
        match self.stride {
            5 => self.any_by::<5>(text, is_there),
            6 => self.any_by::<6>(text, is_there),
            7 => self.any_by::<7>(text, is_there),
            8 => self.any_by::<8>(text, is_there),
            9 => self.any_by::<9>(text, is_there),
            10 => self.any_by::<10>(text, is_there),
            11 => self.any_by::<11>(text, is_there),
            12 => self.any_by::<12>(text, is_there),
            _ => self.any_by::<13>(text, is_there),
        }
    }

    fn any_by<const STRIDE: usize>(
        &self,
        text: &[u8],
        mut is_there: impl FnMut(usize, usize) -> bool,
    ) -> bool {
        let (strides, rest) = text.as_chunks::<STRIDE>();
        // One branch for several positions.
        let (groups, others) = strides.as_chunks::<AT_ONCE>();
        for (number, group) in groups.iter().enumerate() {
            let hits = group.iter().fold(0, |hits, stride| hits | self.hits(stride));
            let begin = number * AT_ONCE * STRIDE;
            if hits & 1 == 1 && self.is_among(group, begin, &mut is_there) {
                return true;
            }
        }
        // A string may end at the end of the text.
        let mut last = [b' '; STRIDE];
        last[..rest.len()].copy_from_slice(rest);
        let begin = groups.len() * AT_ONCE * STRIDE;
        self.is_among(others, begin, &mut is_there)
            || self.is_among(&[last], begin + others.len() * STRIDE, &mut is_there)
    }

    /// 1 in the lowest bit if one of the strings may contain the first of these bytes.
    #[inline]
    fn hits(&self, bytes: &[u8]) -> u32 {
        let gram = gram(bytes).unwrap_or(0);
        self.first[slot(gram)] >> (gram % 32)
    }

    /// Whether one of the strings occurs at one of `strides`, the first of which begins at `begin`.
    ///
    /// A separate function, so that the hot loop keeps its registers.
    #[cold]
    #[inline(never)]
    fn is_among<const STRIDE: usize>(
        &self,
        strides: &[[u8; STRIDE]],
        begin: usize,
        is_there: &mut impl FnMut(usize, usize) -> bool,
    ) -> bool {
        let mut places = strides.iter().zip((begin..).step_by(STRIDE));
        places.any(|(stride, place)| {
            self.hits(stride) & 1 == 1
                && gram(stride).is_some_and(|bytes| self.is_one(bytes, place, is_there))
        })
    }

    /// Whether `bytes` at `place` belong to an occurrence of one of the strings.
    fn is_one(
        &self,
        bytes: u32,
        place: usize,
        is_there: &mut impl FnMut(usize, usize) -> bool,
    ) -> bool {
        let slot = slot(bytes);
        let [begin, end] = [slot, slot + 1].map(|slot| self.begins[slot] as usize);
        let mut same = self.grams[begin..end].iter().filter(|gram| gram.bytes == bytes);
        same.any(|gram| {
            let begin = place.checked_add_signed(-gram.offset);
            begin.is_some_and(|begin| is_there(gram.string, begin))
        })
    }
}

/// The start, at most `latest`, of the `count` positions with the fewest common grams. The last of equals wins, because
/// many patterns begin like ordinary markup.
fn rarest(places: &[Vec<u8>], count: usize, latest: usize) -> usize {
    // A position that matches any byte yields many grams, each a possible false positive.
    let cost = |place: usize| match forms(&places[place..]).as_slice() {
        [bytes] => usize::from(COMMON_GRAMS.binary_search(bytes).is_ok()),
        several => several.len(),
    };
    let costs: Vec<usize> = (0..latest + count).map(cost).collect();
    let cost = |begin: &usize| costs[*begin..begin + count].iter().sum::<usize>();
    (0..=latest).rev().min_by_key(cost).unwrap_or(latest)
}

/// All grams that match at the first of these positions; none if there are too few positions.
fn forms(places: &[Vec<u8>]) -> Vec<u32> {
    let Some(places) = places.first_chunk::<GRAM>() else { return Vec::new() };
    let mut all = vec![[0; GRAM]];
    for (at, choices) in places.iter().enumerate() {
        let with = |gram: &[u8; GRAM], byte: u8| {
            let mut gram = *gram;
            gram[at] = byte;
            gram
        };
        all = all.iter().flat_map(|gram| choices.iter().map(|byte| with(gram, *byte))).collect();
    }
    let mut all: Vec<u32> = all.iter().filter_map(|bytes| gram(bytes)).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// The first bytes as a number, without letter case. Each byte folds to 64 values, so that a
/// position that matches any byte yields few grams.
fn gram(text: &[u8]) -> Option<u32> {
    text.first_chunk::<GRAM>().map(|bytes| u32::from_le_bytes(*bytes) & 0x5f5f_5f5f)
}

/// Multiplicative hashing: the upper bits depend on all bytes.
fn slot(bytes: u32) -> usize {
    (bytes.wrapping_mul(0x9e37_79b9) >> (u32::BITS - LOG_SLOTS)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(strings: &[&str]) -> Option<NgramFilter> {
        let shapes: Vec<Shape> = strings.iter().map(|text| Shape::of(text.as_bytes())).collect();
        NgramFilter::new(&shapes)
    }

    #[test]
    fn a_string_is_found_at_any_position_and_nothing_else_is() {
        let strings = ["Eight-by", "a string of more than sixteen bytes", "<input id=\"other\">"];
        let filter = filter(&strings).expect("none is too short");
        for length in 0..60 {
            let before = "x".repeat(length);
            for string in strings {
                for (text, expected) in [
                    (format!("{before}{string}"), true),
                    (format!("{before}{}yz", string.to_uppercase()), true),
                    (format!("{before}{}", &string[1..]), false),
                    (format!("{before}{}", &string[..string.len() - 1]), false),
                ] {
                    let is_there = |string: usize, begin: usize| {
                        let there = text.get(begin..begin + strings[string].len());
                        there.is_some_and(|there| there.eq_ignore_ascii_case(strings[string]))
                    };
                    assert_eq!(filter.any(text.as_bytes(), is_there), expected, "{text}");
                }
            }
        }
    }

    #[test]
    fn a_string_is_found_with_any_of_its_alternative_bytes() {
        let mut shape = Shape::of(b"?banned?");
        shape.before = 1;
        (shape.places[0], shape.places[7]) = (b" >".to_vec(), b" .".to_vec());
        let filter = NgramFilter::new(&[shape]).expect("it is long enough");
        for length in 0..20 {
            for (before, after) in [(" ", "."), (">", " "), (" ", "")] {
                let before = format!("{}{before}", "x".repeat(length));
                let text = format!("{before}Banned{after}");
                let found = filter.any(text.as_bytes(), |_, begin| begin == before.len());
                assert!(found, "{text}");
            }
        }
        assert!(filter.any(b"banned", |_, begin| begin == 0));
    }

    #[test]
    fn a_short_string_makes_no_filter_and_none_at_all_one_that_finds_nothing() {
        assert!(filter(&["long enough", "short"]).is_none());
        let empty = filter(&[]).expect("nothing is too short");
        assert!(!empty.any(b"anything", |_, _| true));
    }
}
