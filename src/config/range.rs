//! Parses texts to values within the range or the words of a kind; and "did you mean".

use std::time::Duration;

use super::{
    keys::Kind,
    units::{self, Read, Wrong, quote},
};

/// A duration within the range of `kind`.
pub(super) fn duration(kind: &Kind, text: &str) -> Read<Duration> {
    let Kind::Duration(min, max) = kind else { unreachable!("the key is a duration") };
    let value = units::duration(text)?;
    let fits = (units::duration(min)?..=units::duration(max)?).contains(&value);
    if fits { Ok(value) } else { Err(out_of_range(text, kind)) }
}

/// A whole number within the range of `kind`.
pub(super) fn count<T: TryFrom<u64>>(kind: &Kind, text: &str) -> Read<T> {
    let Kind::Count(min, max) = kind else { unreachable!("the key is a count") };
    let value = units::count(text)?;
    let fits = (*min..=*max).contains(&value);
    T::try_from(value).ok().filter(|_| fits).ok_or_else(|| out_of_range(text, kind))
}

/// A number within the range of `kind`.
pub(super) fn factor(kind: &Kind, text: &str) -> Read<f64> {
    let Kind::Factor(min, max) = kind else { unreachable!("the key is a number") };
    let value = units::factor(text)?;
    if (*min..=*max).contains(&value) { Ok(value) } else { Err(out_of_range(text, kind)) }
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

pub(super) fn out_of_range(text: &str, kind: &Kind) -> Wrong {
    Wrong::new(format!("{} is out of range", quote(text)), format!("write {}", kind.words()))
}

/// The word most similar to `text`, if one is similar enough.
pub(super) fn did_you_mean<'w>(
    text: &str,
    words: impl Iterator<Item = &'w str>,
) -> Option<&'w str> {
    if text.len() > 64 {
        return None;
    }
    let lower = text.to_ascii_lowercase();
    let scored = words.map(|word| (strsim::jaro_winkler(&lower, word), word));
    let best = scored.max_by(|a, b| a.0.total_cmp(&b.0));
    best.filter(|(score, _)| *score >= 0.8).map(|(_, word)| word)
}

/// A suggestion for an unknown key or word: the most similar one, otherwise all of them.
pub(super) fn nearest<'w>(text: &str, words: impl Iterator<Item = &'w str> + Clone) -> String {
    match did_you_mean(text, words.clone()) {
        Some(word) => format!("did you mean `{word}`?"),
        None => format!("known here: {}", words.collect::<Vec<_>>().join(", ")),
    }
}
