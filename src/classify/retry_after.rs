//! `Retry-After` (RFC 9110 section 10.2.3): the wait that a site asks for.

use std::time::{Duration, SystemTime};

use http::{
    HeaderMap,
    header::{DATE, RETRY_AFTER},
};

/// Cap of the wait. A site that asks for more means "go away"; each rule caps the wait further.
pub const MAX_RETRY_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// The wait from `now` that the head asks for, at most [`MAX_RETRY_AFTER`]; `None` if the field is
/// missing, invalid, zero or in the past.
///
/// A date counts from the sender's own `Date` if there is one, so that neither clock needs to be
/// right, and otherwise from `now`.
#[must_use]
pub fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = if text.bytes().all(|b| b.is_ascii_digit()) {
        seconds(text)?
    } else {
        let until = httpdate::parse_http_date(text).ok()?;
        let sent = headers.get(DATE).and_then(|value| value.to_str().ok());
        let sent = sent.and_then(|date| httpdate::parse_http_date(date.trim()).ok());
        until.duration_since(sent.unwrap_or(now)).ok()?
    };
    (wait > Duration::ZERO).then(|| wait.min(MAX_RETRY_AFTER))
}

/// Parses seconds. A number too large for an integer counts as [`MAX_RETRY_AFTER`].
fn seconds(digits: &str) -> Option<Duration> {
    if digits.is_empty() {
        return None;
    }
    Some(digits.parse().map_or(MAX_RETRY_AFTER, Duration::from_secs))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(fields: &[(&'static str, &str)]) -> Option<Duration> {
        let headers = fields
            .iter()
            .map(|(name, value)| {
                (http::HeaderName::from_static(name), value.parse().expect("a field value"))
            })
            .collect();
        let now = httpdate::parse_http_date("Fri, 20 Nov 2026 12:00:00 GMT").expect("a date");
        retry_after(&headers, now)
    }

    #[test]
    fn seconds_are_taken_as_they_are_and_capped_at_a_day() {
        assert_eq!(of(&[("retry-after", "120")]), Some(Duration::from_secs(120)));
        assert_eq!(of(&[("retry-after", " 7 ")]), Some(Duration::from_secs(7)));
        assert_eq!(of(&[("retry-after", "99999999999999999999999")]), Some(MAX_RETRY_AFTER));
    }

    #[test]
    fn a_date_counts_from_the_senders_own_clock_if_it_sends_one() {
        let until = ("retry-after", "Fri, 20 Nov 2026 12:00:30 GMT");
        assert_eq!(of(&[until]), Some(Duration::from_secs(30)));
        let date = ("date", "Fri, 20 Nov 2026 12:00:20 GMT");
        assert_eq!(of(&[until, date]), Some(Duration::from_secs(10)));
        let long = ("retry-after", "Sun, 06-Nov-94 08:49:37 GMT");
        assert_eq!(of(&[long]), None, "it is over");
    }

    #[test]
    fn nonsense_values_are_ignored() {
        for junk in ["", "-5", "1.5", "soon", "0", "1e3", "\u{7f}"] {
            let value = http::HeaderValue::from_bytes(junk.as_bytes());
            let Ok(value) = value else { continue };
            let headers = std::iter::once((RETRY_AFTER, value)).collect();
            assert_eq!(retry_after(&headers, SystemTime::UNIX_EPOCH), None, "{junk}");
        }
        assert_eq!(of(&[]), None);
    }
}
