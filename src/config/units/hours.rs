//! `22:00-06:00 Europe/Berlin`.

use jiff::{civil::Time, tz};

use super::{Read, Wrong, quote};
use crate::rules::Hours;

const HELP: &str = "write a time of day and a zone: `22:00-06:00 Europe/Berlin`, `09:00-17:00 UTC`";

/// A time of day and its zone.
pub(in crate::config) fn hours(text: &str) -> Read<Hours> {
    let wrong = |message: String| Wrong::new(message, HELP);
    let (span, zone) = text
        .trim()
        .split_once(char::is_whitespace)
        .ok_or_else(|| wrong(format!("{} has no time zone", quote(text))))?;
    let (from, to) = span
        .split_once('-')
        .ok_or_else(|| wrong(format!("{} is not a span of a day", quote(span))))?;
    let zone = zone.trim();
    let found = tz::TimeZone::get(zone).map_err(|_| {
        let message = format!("{} is not a time zone", quote(zone));
        Wrong::new(message, "write a name of the IANA database: `Europe/Berlin`, `UTC`")
    })?;
    let same = || wrong(format!("{} begins when it ends", quote(span)));
    Hours::new(time(from)?, time(to)?, found).ok_or_else(same)
}

/// `22:00`, or `22:00:30`; `24:00` is the end of the day.
fn time(text: &str) -> Read<Time> {
    let wrong = || Wrong::new(format!("{} is not a time of day", quote(text)), HELP);
    let two = |digits: &str| {
        let valid = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
        if valid { digits.parse::<i8>().ok() } else { None }
    };
    let parts: Option<Vec<i8>> = text.split(':').map(two).collect();
    let found = match *parts.ok_or_else(wrong)? {
        [24, 0] => Some(Time::midnight()),
        [hour, minute] => Time::new(hour, minute, 0, 0).ok(),
        [hour, minute, second] => Time::new(hour, minute, second, 0).ok(),
        _ => None,
    };
    found.ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_in_hours_are_named() {
        for good in ["22:00-06:00 Europe/Berlin", "09:30-17:00:30  America/New_York"] {
            assert!(hours(good).is_ok(), "{good}");
        }
        assert_eq!(hours("12:00-24:00 UTC"), hours("12:00-00:00 UTC"));
        for (text, message) in [
            ("22:00-06:00", "`22:00-06:00` has no time zone"),
            ("22:00 UTC", "`22:00` is not a span of a day"),
            ("22-06:00 UTC", "`22` is not a time of day"),
            ("22:00-25:00 UTC", "`25:00` is not a time of day"),
            ("22:00-6:00 UTC", "`6:00` is not a time of day"),
            ("22:00-06:00 Berlin", "`Berlin` is not a time zone"),
            ("06:00-06:00 UTC", "`06:00-06:00` begins when it ends"),
            ("00:00-24:00 UTC", "`00:00-24:00` begins when it ends"),
        ] {
            assert_eq!(hours(text).expect_err(text).message, message);
        }
    }
}
