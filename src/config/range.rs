//! Parses texts to values within the range or the words of a kind; and "did you mean".

use std::time::Duration;

use super::{
    keys::Kind,
    units::{self, Read, Wrong, quote},
};

/// `value`, if it is within the range of `kind`.
fn within<T: PartialOrd>(value: T, (min, max): (T, T), kind: &Kind, text: &str) -> Read<T> {
    let fits = min <= value && value <= max;
    if fits { Ok(value) } else { Err(out_of_range(text, kind)) }
}

/// A value that a kind describes: its form and its range.
pub(super) trait Ranged: Sized {
    /// Parses `text`, a value of `kind`.
    fn parse(kind: &Kind, text: &str) -> Read<Self>;
}

impl Ranged for bool {
    fn parse(_kind: &Kind, text: &str) -> Read<Self> {
        units::flag(text)
    }
}

impl Ranged for Duration {
    fn parse(kind: &Kind, text: &str) -> Read<Self> {
        let Kind::Duration(min, max) = kind else { unreachable!("the key is a duration") };
        within(units::duration(text)?, (units::duration(min)?, units::duration(max)?), kind, text)
    }
}

/// A duration, or a range of durations.
impl Ranged for (Duration, Duration) {
    fn parse(kind: &Kind, text: &str) -> Read<Self> {
        let Kind::Span(min, max) = kind else { unreachable!("the key is a span") };
        let (from, to) = units::span(text)?;
        within(from, (units::duration(min)?, to), kind, text)?;
        within(to, (from, units::duration(max)?), kind, text)?;
        Ok((from, to))
    }
}

impl Ranged for f64 {
    fn parse(kind: &Kind, text: &str) -> Read<Self> {
        let Kind::Factor(min, max) = kind else { unreachable!("the key is a number") };
        within(units::factor(text)?, (*min, *max), kind, text)
    }
}

/// Whole numbers, and sizes in bytes.
macro_rules! whole {
    ($($number:ty)*) => {$(
        impl Ranged for $number {
            fn parse(kind: &Kind, text: &str) -> Read<Self> {
                Self::try_from(whole(kind, text)?).map_err(|_| out_of_range(text, kind))
            }
        }
    )*};
}

whole! { u16 u32 usize }

fn whole(kind: &Kind, text: &str) -> Read<u64> {
    match kind {
        Kind::Size(min, max) => {
            within(units::size(text)?, (units::size(min)?, units::size(max)?), kind, text)
        }
        Kind::Count(min, max) => within(units::count(text)?, (*min, *max), kind, text),
        _ => unreachable!("the key is a whole number or a size"),
    }
}

/// One of the words of `kind`.
pub(super) fn word(kind: &Kind, text: &str) -> Read<&'static str> {
    let words = kind.all_words();
    words.iter().find(|word| **word == text).copied().ok_or_else(|| {
        let off = words.contains(&"off") && matches!(text, "no" | "false" | "none" | "disabled");
        let near = if off { Some("off") } else { did_you_mean(text, words.iter().copied()) };
        let help = near
            .map_or_else(|| format!("write {}", kind.words()), |w| format!("did you mean `{w}`?"));
        Wrong::new(format!("{} is unknown here", quote(text)), help)
    })
}

fn out_of_range(text: &str, kind: &Kind) -> Wrong {
    Wrong::new(format!("{} is out of range", quote(text)), format!("write {}", kind.words()))
}

/// The word most similar to `text`, if one is similar enough.
pub(super) fn did_you_mean<'w>(
    text: &str,
    words: impl Iterator<Item = &'w str>,
) -> Option<&'w str> {
    let scored = words.map(|word| (similarity(text, word), word));
    let best = scored.max_by(|a, b| a.0.total_cmp(&b.0));
    best.filter(|(score, _)| *score >= 0.8).map(|(_, word)| word)
}

/// How similar `text` is to `word`, from 0 to 1.
pub(super) fn similarity(text: &str, word: &str) -> f64 {
    // The cost grows with both lengths, and no word of the rule file is long.
    if text.len() > 64 { 0.0 } else { strsim::jaro_winkler(&text.to_ascii_lowercase(), word) }
}
