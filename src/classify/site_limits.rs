//! Reads the rate limit that a site announces in the header fields of its responses.
//!
//! | fields | where they come from |
//! |---|---|
//! | `RateLimit-Policy`, `RateLimit` | draft-ietf-httpapi-ratelimit-headers, as lists (`"a";q=100;w=60`, `"a";r=5;t=30`) |
//! | `RateLimit: limit=100, remaining=5, reset=30` | the same draft up to version 7 |
//! | `RateLimit-Limit`, `-Remaining`, `-Reset` | the same draft up to version 6 |
//! | `X-RateLimit-*`, `X-Rate-Limit-*` | what most sites send; the reset in seconds, as a moment (seconds or milliseconds since 1970, RFC 3339, an HTTP date), or as `-Reset-After`; the window as `-Interval`, or in the name (`X-RateLimit-Limit-Minute`) |
//! | `X-Rl`, `X-Ttl` | ip-api.com |
//!
//! An invalid field is ignored. The remaining requests are spread over the rest of the window, so
//! that a crawl does not reach the limit.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, header::DATE};
use sfv::{BareItem, Dictionary, Item, List, ListEntry, Parameters, Parser};

/// The lowest rate that a field can set, in requests per second: one per minute.
pub const SLOWEST: f64 = 1.0 / 60.0;
/// Longest window or reset that is accepted, in seconds.
const LONGEST: f64 = 7.0 * 86_400.0;
/// Most requests per window that are accepted.
const MOST: f64 = 1e9;
/// Numbers from here on are points in time: seconds since 1970.
const MOMENT: f64 = 1e9;
/// Numbers from here on are milliseconds since 1970.
const MOMENT_MS: f64 = 1e11;
/// A limit without a reset applies for its window, and at least this long.
const LASTS: f64 = 60.0;
/// Units in the names of fields.
const UNITS: [(&str, f64); 4] =
    [("-second", 1.0), ("-minute", 60.0), ("-hour", 3_600.0), ("-day", 86_400.0)];

/// The limit that a site announces.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SiteLimit {
    /// The highest rate.
    pub ceiling: Option<Ceiling>,
    /// How long until requests are allowed again, if none are left.
    pub hold: Option<Duration>,
}

/// A rate that a site announces.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ceiling {
    /// Requests per second, at least [`SLOWEST`].
    pub rate: f64,
    /// How long it applies.
    pub lasts: Duration,
}

/// Whether a field with this name (in lower case) may announce a limit. Called for each field of
/// each response.
#[must_use]
pub fn may_say(name: &str) -> bool {
    matches!(name.as_bytes(), [b'x', b'-', b'r', b'a' | b'l', ..] | [b'r', b'a', b't', b'e', ..])
}

/// The limit that the fields of a response announce at `now`; `None` if there is none.
#[must_use]
pub fn site_limit(headers: &HeaderMap, now: SystemTime) -> Option<SiteLimit> {
    let sent = text(headers, DATE.as_str()).and_then(|date| httpdate::parse_http_date(date).ok());
    let now = sent.unwrap_or(now);
    let mut windows = standard(headers);
    for prefix in ["ratelimit", "x-ratelimit", "x-rate-limit"] {
        windows.extend(plain(headers, prefix, now));
    }
    windows.push(Window {
        remaining: count(headers, "x-rl"),
        reset: text(headers, "x-ttl").and_then(|text| reset(text, now)),
        ..Window::default()
    });
    let said = windows.iter().map(Window::says).fold(SiteLimit::default(), SiteLimit::stricter);
    (said != SiteLimit::default()).then_some(said)
}

impl SiteLimit {
    fn stricter(self, other: Self) -> Self {
        let ceilings = self.ceiling.into_iter().chain(other.ceiling);
        let ceiling = ceilings.min_by(|one, two| one.rate.total_cmp(&two.rate));
        Self { ceiling, hold: self.hold.max(other.hold) }
    }
}

/// The known parts of one window. Times are in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Window {
    limit: Option<f64>,
    remaining: Option<f64>,
    reset: Option<f64>,
    length: Option<f64>,
}

impl Window {
    fn says(&self) -> SiteLimit {
        let mut said = SiteLimit::default();
        let ceiling = |rate: f64, lasts: f64| Ceiling {
            rate: rate.max(SLOWEST),
            lasts: Duration::from_secs_f64(lasts),
        };
        if let (Some(limit), Some(length)) = (self.limit, self.length) {
            said.ceiling = Some(ceiling(limit / length, length.max(LASTS)));
        }
        if let (Some(remaining), Some(reset)) = (self.remaining, self.reset) {
            if remaining < 1.0 {
                said.hold = Some(Duration::from_secs_f64(reset));
            } else {
                // The site has not yet counted the requests in flight, so one is reserved.
                let spare = (remaining - 1.0).max(0.5);
                let ceiling = Some(ceiling(spare / reset, reset));
                said = said.stricter(SiteLimit { ceiling, hold: None });
            }
        }
        said
    }
}

/// `RateLimit-Policy` and `RateLimit`, in all their versions.
fn standard(headers: &HeaderMap) -> Vec<Window> {
    let mut windows: Vec<(Option<String>, Window)> = Vec::new();
    let policies = all(headers, "ratelimit-policy").and_then(|text| list(&text));
    for item in policies.unwrap_or_default() {
        // Before version 8 the limit was the item itself.
        let limit = parameter(&item.params, "q").or_else(|| number_of(&item.bare_item));
        let limit = limit.filter(|limit| (1.0..=MOST).contains(limit));
        let window = Window { limit, length: length(&item.params, "w"), ..Window::default() };
        windows.push((name_of(&item.bare_item), window));
    }
    let Some(text) = all(headers, "ratelimit") else { return strip(windows) };
    if let Some(items) = list(&text).filter(|items| items.iter().all(|i| !i.params.is_empty())) {
        for item in items {
            let name = name_of(&item.bare_item);
            let known = windows.iter_mut().find(|(other, _)| other.is_some() && *other == name);
            let state = Window {
                remaining: parameter(&item.params, "r"),
                reset: length(&item.params, "t"),
                ..Window::default()
            };
            match known {
                Some((_, window)) => *window = window.with(state),
                None => windows.push((name, state)),
            }
        }
    } else if let Ok(fields) = Parser::new(&text).parse::<Dictionary>() {
        let field = |key: &str| match fields.get(key) {
            Some(ListEntry::Item(item)) => number_of(&item.bare_item),
            _ => None,
        };
        let reset = field("reset").filter(|reset| is_length(*reset));
        let state = Window { remaining: field("remaining"), reset, ..Window::default() };
        windows.push((None, state));
    }
    strip(windows)
}

impl Window {
    fn with(self, state: Self) -> Self {
        Self { remaining: state.remaining, reset: state.reset, ..self }
    }
}

fn strip(windows: Vec<(Option<String>, Window)>) -> Vec<Window> {
    windows.into_iter().map(|(_, window)| window).collect()
}

/// `PREFIX-Limit`, `PREFIX-Remaining`, `PREFIX-Reset` and related fields.
fn plain(headers: &HeaderMap, prefix: &str, now: SystemTime) -> Vec<Window> {
    let field = |name: &str| format!("{prefix}-{name}");
    let after = text(headers, &field("reset-after")).and_then(seconds);
    let reset = after
        .or_else(|| text(headers, &field("reset")).and_then(|text| reset(text, now)))
        .filter(|reset| is_length(*reset));
    let length = ["interval", "window"].iter().find_map(|name| text(headers, &field(name)));
    let mut windows = vec![Window {
        limit: count(headers, &field("limit")).filter(|limit| *limit >= 1.0),
        remaining: count(headers, &field("remaining")),
        reset,
        length: length.and_then(seconds).filter(|length| is_length(*length)),
    }];
    // `100, 100;w=60`: the policies follow the limit.
    for item in all(headers, &field("limit")).and_then(|text| list(&text)).unwrap_or_default() {
        let length = self::length(&item.params, "w");
        let limit = number_of(&item.bare_item).filter(|limit| (1.0..=MOST).contains(limit));
        windows.push(Window { limit, length, ..Window::default() });
    }
    for (unit, length) in UNITS {
        let limit = count(headers, &field(&format!("limit{unit}"))).filter(|limit| *limit >= 1.0);
        windows.push(Window { limit, length: Some(length), ..Window::default() });
    }
    windows
}

/// The time from `now` until a reset, which is given as seconds or as a point in time.
fn reset(text: &str, now: SystemTime) -> Option<f64> {
    let at = match text.parse::<f64>() {
        Ok(number) if !number.is_finite() || number < 0.0 => return None,
        Ok(number) if number < MOMENT => return Some(number).filter(|reset| is_length(*reset)),
        Ok(number) if number < MOMENT_MS => number,
        Ok(number) => number / 1e3,
        Err(_) => since_1970(moment(text)?)?,
    };
    Some(at - since_1970(now)?).filter(|reset| is_length(*reset))
}

fn moment(text: &str) -> Option<SystemTime> {
    let date = httpdate::parse_http_date(text).ok();
    date.or_else(|| text.parse::<jiff::Timestamp>().ok().map(SystemTime::from))
}

fn since_1970(moment: SystemTime) -> Option<f64> {
    moment.duration_since(SystemTime::UNIX_EPOCH).ok().map(|since| since.as_secs_f64())
}

/// A duration in seconds, with or without a unit.
fn seconds(text: &str) -> Option<f64> {
    let (number, unit) = match text.as_bytes().last()? {
        b's' => (&text[..text.len() - 1], 1.0),
        b'm' => (&text[..text.len() - 1], 60.0),
        b'h' => (&text[..text.len() - 1], 3_600.0),
        _ => (text, 1.0),
    };
    number.parse::<f64>().ok().map(|number| number * unit).filter(|length| is_length(*length))
}

fn is_length(seconds: f64) -> bool {
    seconds > 0.0 && seconds <= LONGEST
}

/// The text of the first field of this name.
fn text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

/// The text of all fields of this name, as one list.
fn all(headers: &HeaderMap, name: &str) -> Option<String> {
    let values: Vec<&str> =
        headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).collect();
    (!values.is_empty()).then(|| values.join(", "))
}

/// The number in a field. Some sites send fractions.
fn count(headers: &HeaderMap, name: &str) -> Option<f64> {
    let text = text(headers, name)?;
    let number = text.split([',', ';']).next().unwrap_or(text).trim();
    number.parse::<f64>().ok().filter(|number| (0.0..=MOST).contains(number))
}

/// A list of a structured field (RFC 9651), without its invalid items.
fn list(text: &str) -> Option<Vec<Item>> {
    let entries = Parser::new(text).parse::<List>().ok()?;
    let item = |entry| match entry {
        ListEntry::Item(item) => Some(item),
        ListEntry::InnerList(_) => None,
    };
    Some(entries.into_iter().filter_map(item).collect())
}

fn parameter(parameters: &Parameters, key: &str) -> Option<f64> {
    number_of(parameters.get(key)?).filter(|number| (0.0..=MOST).contains(number))
}

fn length(parameters: &Parameters, key: &str) -> Option<f64> {
    parameter(parameters, key).filter(|length| is_length(*length))
}

fn number_of(item: &BareItem) -> Option<f64> {
    match item {
        BareItem::Integer(_) | BareItem::Decimal(_) => item_text(item).parse().ok(),
        _ => None,
    }
}

fn item_text(item: &BareItem) -> String {
    match item {
        BareItem::Integer(number) => number.to_string(),
        BareItem::Decimal(number) => number.to_string(),
        BareItem::String(text) => text.as_str().to_owned(),
        BareItem::Token(text) => text.as_str().to_owned(),
        _ => String::new(),
    }
}

fn name_of(item: &BareItem) -> Option<String> {
    matches!(item, BareItem::String(_) | BareItem::Token(_)).then(|| item_text(item))
}

#[cfg(test)]
mod tests;
