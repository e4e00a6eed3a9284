//! Parses texts with units: durations, sizes, rates, shares. Pure.
//!
//! A unit is never guessed: a bare number without its unit is a mistake, and the message suggests
//! the likely unit.

mod hours;

use std::time::Duration;

pub(super) use self::hours::hours;

use crate::limiter::policy::{Quota, Ratio};

/// Why a text is not a valid value of its kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wrong {
    /// The mistake.
    pub(super) message: String,
    /// The fix.
    pub(super) help: Option<String>,
}

impl Wrong {
    /// A mistake with a fix.
    pub(super) fn new(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { message: message.into(), help: Some(help.into()) }
    }
}

/// The result of reading a text.
pub(super) type Read<T> = Result<T, Wrong>;

const DURATION_HELP: &str = "write a number and a unit: `500ms`, `30s`, `2m`, `1h`, `7d`";

/// A text as quoted in a message: short, and on one line.
pub(super) fn quote(text: &str) -> String {
    if text.is_empty() {
        return "an empty text".to_owned();
    }
    let mut shown: String = text.chars().take(60).flat_map(char::escape_debug).collect();
    if text.chars().nth(60).is_some() {
        shown.push_str("...");
    }
    format!("`{shown}`")
}

/// A decimal number: digits with at most one point. No sign, exponent, `inf` or `nan`.
fn decimal(text: &str) -> Option<f64> {
    let plain = !text.is_empty()
        && text.len() <= 32
        && text.bytes().all(|b| b.is_ascii_digit() || b == b'.')
        && text.starts_with(|c: char| c.is_ascii_digit());
    if plain { text.parse().ok() } else { None }
}

/// Splits `30s` into `30` and `s`.
pub(super) fn split_unit(text: &str) -> (&str, &str) {
    let at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    (text[..at].trim_end(), text[at..].trim())
}

/// `500ms`, `30s`, `2m`, `1h`, `7d`; decimals allowed.
pub(super) fn duration(text: &str) -> Read<Duration> {
    let (number, unit) = split_unit(text);
    let Some(value) = decimal(number) else {
        return Err(Wrong::new(format!("{} is not a valid duration", quote(text)), DURATION_HELP));
    };
    let seconds = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86400.0,
        "" => {
            let help = format!("did you mean `{text}s`? {DURATION_HELP}");
            return Err(Wrong::new(format!("{} has no unit", quote(text)), help));
        }
        other => {
            let message = format!("{} is not a valid unit of time", quote(other));
            return Err(Wrong::new(message, DURATION_HELP));
        }
    };
    // Whole microseconds: the unit of the stores.
    Duration::try_from_secs_f64((value * seconds * 1e6).round() / 1e6)
        .map_err(|_| Wrong::new(format!("{} is too long", quote(text)), DURATION_HELP))
}

/// The unit that a word for a time stands for.
pub(super) fn time_unit(word: &str) -> Option<&'static str> {
    Some(match word {
        "ms" | "msec" | "millis" | "milliseconds" => "ms",
        "s" | "sec" | "secs" | "second" | "seconds" => "s",
        "m" | "min" | "mins" | "minute" | "minutes" => "m",
        "h" | "hr" | "hrs" | "hour" | "hours" => "h",
        "d" | "day" | "days" => "d",
        _ => return None,
    })
}

/// A duration, or a range of durations: `45s`, `30s-60s`.
pub(super) fn span(text: &str) -> Read<(Duration, Duration)> {
    let Some((from, to)) = text.split_once('-') else {
        return duration(text).map(|length| (length, length));
    };
    let (from, to) = (from.trim(), to.trim());
    let to_value = duration(to)?;
    let from_value = match decimal(from) {
        Some(_) => {
            let (_, unit) = split_unit(to);
            let help = format!("did you mean `{from}{unit}-{to}`?");
            return Err(Wrong::new(format!("{} has no unit", quote(from)), help));
        }
        None => duration(from)?,
    };
    if from_value > to_value {
        let message = format!("{} ends before it starts", quote(text));
        return Err(Wrong::new(message, format!("did you mean `{to}-{from}`?")));
    }
    Ok((from_value, to_value))
}

/// `512B`, `16KiB`, `4MiB`, `1GiB`; `kB`, `MB`, `GB` count in thousands.
pub(super) fn size(text: &str) -> Read<u64> {
    const HELP: &str = "write a number and a unit: `512B`, `16KiB`, `4MiB`";
    let (number, unit) = split_unit(text);
    let Some(value) = decimal(number) else {
        return Err(Wrong::new(format!("{} is not a valid size", quote(text)), HELP));
    };
    let bytes = match unit {
        "B" => 1.0,
        "KiB" => 1024.0,
        "MiB" => 1024.0 * 1024.0,
        "GiB" => 1024.0 * 1024.0 * 1024.0,
        "kB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        "" => {
            let help = format!("did you mean `{text}B`? {HELP}");
            return Err(Wrong::new(format!("{} has no unit", quote(text)), help));
        }
        other => {
            return Err(Wrong::new(format!("{} is not a valid unit of size", quote(other)), HELP));
        }
    };
    let total = value * bytes;
    if total > 1e15 {
        return Err(Wrong::new(format!("{} is too big", quote(text)), HELP));
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 1e15")]
    Ok(total.round() as u64)
}

/// Slowest rate, in tokens per second: one a day.
const SLOWEST: f64 = 1.0 / 86400.0;
/// Fastest rate, in tokens per second; more than a proxy can send.
const FASTEST: f64 = 1_000_000.0;

fn window(text: &str) -> Option<Duration> {
    let seconds = match text {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86400,
        _ => return None,
    };
    Some(Duration::from_secs(seconds))
}

/// Splits `3/s` into number and window.
fn per_window<'a>(text: &'a str, what: &str) -> Read<(&'a str, Duration)> {
    let (unit, example) = if what == "quota" { ("d", "`5000/d`") } else { ("s", "`3/s`") };
    let help =
        format!("write a number per second, minute, hour or day: {example}, `100/m` ({what})");
    let Some((number, unit)) = text.split_once('/') else {
        let message = format!("{} is not a valid {what}", quote(text));
        let help = match decimal(text) {
            Some(_) => format!("did you mean `{text}/{unit}`? {help}"),
            None => help,
        };
        return Err(Wrong::new(message, help));
    };
    let (number, unit) = (number.trim(), unit.trim());
    match window(unit) {
        Some(window) => Ok((number, window)),
        None => Err(Wrong::new(format!("{} is not a valid unit of time", quote(unit)), help)),
    }
}

/// `3/s`, `100/m`, `0.5/s`: tokens per second.
pub(super) fn rate(text: &str) -> Read<f64> {
    let (number, window) = per_window(text, "rate")?;
    let Some(value) = decimal(number) else {
        let help = "write digits and at most one point: `3/s`, `0.5/s`";
        return Err(Wrong::new(format!("{} is not a valid number of tokens", quote(number)), help));
    };
    let rate = value / window.as_secs_f64();
    if rate <= 0.0 {
        let help = "to send nothing, use `action: deny`; for no limit, omit `rate`";
        return Err(Wrong::new("a rate of 0 would hold requests for ever", help));
    }
    if rate < SLOWEST * 0.999 {
        return Err(Wrong::new(format!("{} is too slow", quote(text)), "at least `1/d`"));
    }
    if rate > FASTEST {
        return Err(Wrong::new(format!("{} is too fast", quote(text)), "at most `1000000/s`"));
    }
    Ok(rate)
}

/// `100000/d`: tokens in a fixed window.
pub(super) fn quota(text: &str) -> Read<Quota> {
    const MOST: u64 = 1_000_000_000_000;
    let (number, window) = per_window(text, "quota")?;
    match number.parse::<u64>() {
        Ok(0) => Err(Wrong::new("a quota of 0 lets no request pass", "use `action: deny`")),
        Ok(tokens) if tokens <= MOST && decimal(number).is_some() => Ok(Quota { tokens, window }),
        _ => {
            let message = format!("{} is not a valid number of tokens for a quota", quote(number));
            Err(Wrong::new(message, format!("write a whole number, 1 to {MOST}")))
        }
    }
}

/// `25%` as 0.25; above 0, at most 1.
pub(super) fn share(text: &str) -> Read<f64> {
    let help = "write a share above 0%, at most 100%, such as `25%`";
    let value = text.strip_suffix('%').and_then(|number| decimal(number.trim_end()));
    match value.map(|percent| percent / 100.0) {
        Some(share) if share > 0.0 && share <= 1.0 => Ok(share),
        _ => Err(Wrong::new(format!("{} is not a valid share", quote(text)), help)),
    }
}

/// `50% of 20`.
pub(super) fn ratio(text: &str) -> Read<Ratio> {
    let help = "write a share of the last verdicts, `50% of 20` (2 to 1000), or `off`";
    let mut words = text.split_ascii_whitespace();
    let parts = (words.next(), words.next(), words.next(), words.next());
    let (Some(percent), Some("of"), Some(count), None) = parts else {
        return Err(Wrong::new(format!("{} is not a valid share of verdicts", quote(text)), help));
    };
    match count.parse() {
        Ok(of @ 2..=1000) => Ok(Ratio { share: share(percent)?, of }),
        _ => Err(Wrong::new(format!("{} is not a valid number of verdicts", quote(count)), help)),
    }
}

/// A number: digits with at most one point.
pub(super) fn factor(text: &str) -> Read<f64> {
    decimal(text).ok_or_else(|| {
        Wrong::new(
            format!("{} is not a valid number", quote(text)),
            "write digits and at most one point",
        )
    })
}

/// A whole number. One that is too large becomes `u64::MAX`, so that the range check reports it.
pub(super) fn count(text: &str) -> Read<u64> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        let what = format!("{} is not a whole number", quote(text));
        return Err(Wrong::new(what, "write digits only"));
    }
    Ok(text.parse().unwrap_or(u64::MAX))
}

/// `true` or `false`.
pub(super) fn flag(text: &str) -> Read<bool> {
    let guess = match text.to_ascii_lowercase().as_str() {
        "true" if text == "true" => return Ok(true),
        "false" if text == "false" => return Ok(false),
        "true" | "yes" | "on" | "y" | "1" => "did you mean `true`?",
        "false" | "no" | "off" | "n" | "0" => "did you mean `false`?",
        _ => "write `true` or `false`",
    };
    Err(Wrong::new(format!("{} is neither `true` nor `false`", quote(text)), guess))
}

/// `503` as 503 to 503, `5xx` as 500 to 599.
pub(super) fn status(text: &str) -> Read<(u16, u16)> {
    let wrong = || {
        Wrong::new(
            format!("{} is not a valid status", quote(text)),
            "write `503`, or `5xx` for all of 500 to 599",
        )
    };
    if let [class @ b'1'..=b'5', b'x', b'x'] = text.as_bytes() {
        let first = u16::from(class - b'0') * 100;
        return Ok((first, first + 99));
    }
    match text.parse::<u16>() {
        Ok(status @ 100..=599) if text.len() == 3 => Ok((status, status)),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
