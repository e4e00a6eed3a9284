//! Header fields: hop-by-hop fields are removed (RFC 9110 section 7.6.1), and fields from the
//! client to the proxy do not reach a site.

use std::time::Duration;

use bytes::BufMut;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Version, header};
use sfv::{Dictionary, ListEntry, Parser};

use crate::{
    classify::site_limits,
    gate::{Preferences, Urgency},
};

const PREFER: HeaderName = HeaderName::from_static("prefer");
/// RFC 9218.
const PRIORITY: HeaderName = HeaderName::from_static("priority");
pub(crate) const PROXY_STATUS: HeaderName = HeaderName::from_static("proxy-status");
/// Our name in it.
const OUR_NAME: &[u8] = b"tidegate";
/// The prefix of our own fields. They are removed from a site's response, and a client's are not sent to the site.
const OURS: &str = "tidegate-";

/// The verdict, on relayed responses.
pub(crate) const VERDICT: HeaderName = HeaderName::from_static("tidegate-verdict");
/// The rule, on relayed responses.
pub(crate) const RULE: HeaderName = HeaderName::from_static("tidegate-rule");
/// The name of the request in the log.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("tidegate-request-id");
/// How often the request was sent, if more than once.
pub(crate) const ATTEMPTS: HeaderName = HeaderName::from_static("tidegate-attempts");
/// When the scope is free again.
pub(crate) const NEXT: HeaderName = HeaderName::from_static("tidegate-next");
/// Times of the steps (W3C Server Timing).
pub(crate) const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// Writes the head of a response, for those that hyper cannot send.
pub(crate) fn write_head(out: &mut impl BufMut, status: StatusCode, headers: &HeaderMap) {
    out.put_slice(b"HTTP/1.1 ");
    out.put_slice(status.as_str().as_bytes());
    out.put_u8(b' ');
    out.put_slice(status.canonical_reason().unwrap_or_default().as_bytes());
    out.put_slice(b"\r\n");
    for (name, value) in headers {
        out.put_slice(name.as_str().as_bytes());
        out.put_slice(b": ");
        out.put_slice(value.as_bytes());
        out.put_slice(b"\r\n");
    }
    out.put_slice(b"\r\n");
}

/// Our entry in `Via`: the version in which a message came to us, and our name (RFC 9110 section
/// 7.6.3).
#[derive(Debug)]
pub(crate) struct Via {
    http1_0: HeaderValue,
    http1_1: HeaderValue,
    http2: HeaderValue,
}

impl Via {
    /// For a proxy of this name.
    pub(crate) fn new(pseudonym: &str) -> Self {
        let entry = |version| {
            HeaderValue::from_str(&format!("{version} {pseudonym}"))
                .expect("letters, digits, a dash and a space make a field value")
        };
        Self { http1_0: entry("1.0"), http1_1: entry("1.1"), http2: entry("2.0") }
    }

    /// For a message of this version.
    pub(crate) fn of(&self, version: Version) -> HeaderValue {
        match version {
            Version::HTTP_10 => self.http1_0.clone(),
            Version::HTTP_2 => self.http2.clone(),
            _ => self.http1_1.clone(),
        }
    }
}

/// The fields of a head that matter to the proxy, found in one pass over their names. Separate lookups would cost
/// several times as much, and hardly any head has one of these fields.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct HeaderFlags {
    /// Hop-by-hop fields, including `Connection`.
    pub(crate) hop: bool,
    /// `Transfer-Encoding`.
    pub(crate) coding: bool,
    /// `Via`.
    pub(crate) via: bool,
    /// `Prefer`.
    pub(crate) prefer: bool,
    /// `Priority`.
    pub(crate) priority: bool,
    /// `Expect`.
    pub(crate) expect: bool,
    /// `Content-Length`.
    pub(crate) length: bool,
    /// `Proxy-Status`.
    pub(crate) status: bool,
    /// A field about a limit of the site.
    pub(crate) limit: bool,
}

impl HeaderFlags {
    /// For a head with these fields.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let mut flags = Self::default();
        for name in headers.keys() {
            match name.as_str() {
                "via" => flags.via = true,
                "prefer" => flags.prefer = true,
                "priority" => flags.priority = true,
                "expect" => flags.expect = true,
                "content-length" => flags.length = true,
                "proxy-status" => flags.status = true,
                name => {
                    flags.hop |= is_of_one_hop(name);
                    flags.coding |= name == "transfer-encoding";
                    flags.limit |= site_limits::may_say(name);
                }
            }
        }
        flags
    }
}

/// Removes hop-by-hop fields. Keeps the order of the others, because some sites judge a client by it.
pub(crate) fn strip(headers: &mut HeaderMap) {
    let named = connection_options(headers);
    let all = std::mem::take(headers);
    headers.reserve(all.keys_len());
    let mut current = None;
    let mut drops = false;
    for (name, value) in all {
        if let Some(name) = name {
            drops = is_of_one_hop(name.as_str()) || named.contains(&name);
            current = Some(name);
        }
        if let Some(name) = current.as_ref().filter(|_| !drops) {
            headers.append(name.clone(), value);
        }
    }
}

/// The same for a response, whose order does not matter. Most responses have only one such field, so the map is changed
/// in place.
pub(crate) fn strip_answer(headers: &mut HeaderMap) {
    let named = connection_options(headers);
    let unwanted: Vec<HeaderName> = headers
        .keys()
        .filter(|name| is_of_one_hop(name.as_str()) || named.contains(name))
        .cloned()
        .collect();
    for name in unwanted {
        headers.remove(name);
    }
}

/// Hop-by-hop fields: RFC 9110 section 7.6.1, and those that both clients and proxies use.
fn is_of_one_hop(name: &str) -> bool {
    match name {
        "connection"
        | "te"
        | "trailer"
        | "transfer-encoding"
        | "upgrade"
        | "proxy-authorization"
        | "proxy-authenticate"
        | "keep-alive"
        | "proxy-connection"
        | "proxy-authentication-info"
        | "http2-settings" => true,
        name => name.starts_with(OURS),
    }
}

/// The fields that `Connection` names, except those that no sender may name there (RFC 9110 section 7.6.1). Without its
/// length, host or credentials, a message would be a different one.
fn connection_options(headers: &HeaderMap) -> Vec<HeaderName> {
    headers
        .get_all(header::CONNECTION)
        .iter()
        .flat_map(options)
        .filter(|option| !option.eq_ignore_ascii_case(b"close"))
        .filter(|option| !option.eq_ignore_ascii_case(b"keep-alive"))
        .filter_map(|option| HeaderName::from_bytes(option).ok())
        .filter(|name| !is_end_to_end(name))
        .collect()
}

/// The options of a `Connection` field. An invalid option does not hide the others. Quotes, which no option has, are
/// ignored, so every option that a sender wants to drop is dropped.
fn options(value: &HeaderValue) -> impl Iterator<Item = &[u8]> {
    let blank = |b: &u8| b.is_ascii_whitespace() || *b == b'"';
    value.as_bytes().split(|b| *b == b',').map(move |option| {
        let start = option.iter().position(|b| !blank(b)).unwrap_or(option.len());
        let end = option.iter().rposition(|b| !blank(b)).map_or(start, |last| last + 1);
        &option[start..end]
    })
}

static END_TO_END: [HeaderName; 13] = [
    header::AUTHORIZATION,
    header::CACHE_CONTROL,
    header::CONTENT_ENCODING,
    header::CONTENT_LENGTH,
    header::CONTENT_RANGE,
    header::CONTENT_TYPE,
    header::COOKIE,
    header::DATE,
    header::HOST,
    header::LOCATION,
    header::RANGE,
    header::SET_COOKIE,
    header::VIA,
];

fn is_end_to_end(name: &HeaderName) -> bool {
    END_TO_END.contains(name)
}

/// Times of the steps, in milliseconds with one digit: `hold;dur=0.0, upstream;dur=1.2`.
///
/// Written by hand, because every response has it, and `format!` would cost several times as much.
pub(crate) fn server_timing(held: Duration, took: Duration) -> Option<HeaderValue> {
    let mut text = FieldText { bytes: [0; 72], length: 0 };
    text.push(b"hold;dur=");
    text.push_milliseconds(held);
    text.push(b", upstream;dur=");
    text.push_milliseconds(took);
    HeaderValue::from_bytes(&text.bytes[..text.length]).ok()
}

/// Seconds with three decimals, rounded up: `0` for zero, otherwise `1.250`.
pub(crate) fn next_value(wait: Duration) -> HeaderValue {
    if wait.is_zero() {
        return HeaderValue::from_static("0");
    }
    let millis = wait.as_nanos().div_ceil(1_000_000);
    HeaderValue::from_str(&format!("{}.{:03}", millis / 1_000, millis % 1_000))
        .expect("digits and a point make a field value")
}

/// A buffer for one field value: 24 bytes of words, and twice 20 digits, a point and a digit.
struct FieldText {
    bytes: [u8; 72],
    length: usize,
}

impl FieldText {
    fn push(&mut self, piece: &[u8]) {
        self.bytes[self.length..][..piece.len()].copy_from_slice(piece);
        self.length += piece.len();
    }

    /// Milliseconds, rounded to one decimal.
    fn push_milliseconds(&mut self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let tenths = micros.saturating_add(50) / 100;
        self.push(itoa::Buffer::new().format(tenths / 10).as_bytes());
        self.push(&[b'.', b'0' + (tenths % 10) as u8]);
    }
}

/// Whether a request carries our own entry in `Via`, because it came back to us (RFC 9110 section 7.6.3).
pub(crate) fn has_passed(headers: &HeaderMap, pseudonym: &str) -> bool {
    headers
        .get_all(header::VIA)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|entry| entry.split_whitespace().nth(1) == Some(pseudonym))
}

/// Joins cookies, which HTTP/2 may send in several fields, into one field for HTTP/1.1 (RFC 9113 section 8.2.3).
pub(crate) fn join_cookies(headers: &mut HeaderMap) {
    let crumbs: Vec<&[u8]> =
        headers.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if crumbs.len() > 1
        && let Ok(joined) = HeaderValue::from_bytes(&crumbs.join(&b"; "[..]))
    {
        headers.insert(header::COOKIE, joined);
    }
}

/// A client's preferences for its hold.
pub(crate) fn hold_preferences(headers: &HeaderMap, flags: HeaderFlags) -> Preferences {
    let max_wait = if flags.prefer { max_wait(headers) } else { None };
    let urgency = if flags.priority { urgency(headers) } else { None };
    Preferences { max_wait, urgency: urgency.unwrap_or_default() }
}

/// `u` of `Priority` (RFC 9218 section 4.1); an invalid value is ignored.
fn urgency(headers: &HeaderMap) -> Option<Urgency> {
    let lines: Vec<&str> =
        headers.get_all(PRIORITY).iter().map(HeaderValue::to_str).collect::<Result<_, _>>().ok()?;
    let fields: Dictionary = Parser::new(&lines.join(", ")).parse().ok()?;
    let ListEntry::Item(item) = fields.get("u")? else { return None };
    Urgency::new(u8::try_from(i64::from(item.bare_item.as_integer()?)).ok()?)
}

/// The wait that a client allows: `Prefer: wait=SECONDS` (RFC 7240 section 4.3).
fn max_wait(headers: &HeaderMap) -> Option<Duration> {
    preferences(headers)
        .find_map(|preference| wait_of(preference)?.parse::<u32>().ok())
        .map(|seconds| Duration::from_secs(seconds.into()))
}

/// Takes the wait out of `Prefer`, because it is meant for the proxy. Other preferences are sent to the site.
pub(crate) fn take_max_wait(headers: &mut HeaderMap) {
    let rest: Vec<&str> =
        preferences(headers).filter(|preference| wait_of(preference).is_none()).collect();
    let rest = HeaderValue::from_str(&rest.join(", ")).ok().filter(|value| !value.is_empty());
    match rest {
        Some(rest) => drop(headers.insert(PREFER, rest)),
        None => drop(headers.remove(PREFER)),
    }
}

fn preferences(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    headers
        .get_all(PREFER)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
}

fn wait_of(preference: &str) -> Option<&str> {
    let (name, value) = preference.split_once('=')?;
    name.trim().eq_ignore_ascii_case("wait").then(|| value.trim().trim_matches('"'))
}

/// The protocols to which a request wants to upgrade, if `Connection` lists `Upgrade`.
///
/// `h2c` is omitted: proxies never negotiated it, and it is obsolete (RFC 9113 section 3.1).
pub(crate) fn upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    let asked = headers
        .get_all(header::CONNECTION)
        .iter()
        .flat_map(options)
        .any(|option| option.eq_ignore_ascii_case(b"upgrade"));
    if !asked {
        return None;
    }
    let wishes: Option<Vec<&str>> =
        headers.get_all(header::UPGRADE).iter().map(|value| value.to_str().ok()).collect();
    let wishes = wishes?.join(",");
    let mut wishes = wishes.split(',').map(str::trim).filter(|one| !one.is_empty());
    let rest = wishes.by_ref().filter(|one| !one.eq_ignore_ascii_case("h2c")).collect::<Vec<_>>();
    HeaderValue::try_from(rest.join(", ")).ok().filter(|value| !value.is_empty())
}

/// Schemes that authenticate a whole connection instead of a request (RFC 4559 section 6).
const CONNECTION_LOGINS: [&[u8]; 4] = [b"ntlm", b"negotiate", b"kerberos", b"nego2"];

/// Whether a request authenticates the connection on which it is sent.
pub(crate) fn logs_a_connection_in(headers: &HeaderMap) -> bool {
    headers.get_all(header::AUTHORIZATION).iter().any(|value| {
        let scheme = value.as_bytes().split(u8::is_ascii_whitespace).find(|word| !word.is_empty());
        scheme.is_some_and(|scheme| {
            CONNECTION_LOGINS.iter().any(|one| scheme.eq_ignore_ascii_case(one))
        })
    })
}

/// Transfer codings of a response other than a single `chunked`. We requested none, and without the field the client
/// would misread the body.
pub(crate) fn has_foreign_coding(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(header::TRANSFER_ENCODING).iter();
    let first = values.next().map(|value| value.as_bytes().trim_ascii());
    values.next().is_some() || !first.is_some_and(|one| one.eq_ignore_ascii_case(b"chunked"))
}

/// Normalises a length that is repeated or has leading zeros to one number. False if it is invalid
/// or ambiguous (RFC 9112 section 6.3), because the next recipient may read it differently.
pub(crate) fn normalise_length(headers: &mut HeaderMap) -> bool {
    let mut lengths = headers.get_all(header::CONTENT_LENGTH).iter();
    let Some(first) = lengths.next() else { return true };
    let usual = |text: &[u8]| {
        text.iter().all(u8::is_ascii_digit) && (text.len() == 1 || !text.starts_with(b"0"))
    };
    if lengths.next().is_none() && !first.is_empty() && usual(first.as_bytes()) {
        return true;
    }
    let mut known = None;
    for one in headers.get_all(header::CONTENT_LENGTH) {
        for one in one.as_bytes().split(|b| *b == b',').map(<[u8]>::trim_ascii) {
            let digits = std::str::from_utf8(one).ok().filter(|one| !one.starts_with('+'));
            let Some(length) = digits.and_then(|one| one.parse::<u64>().ok()) else { return false };
            if *known.get_or_insert(length) != length {
                return false;
            }
        }
    }
    if let Some(length) = known {
        headers.insert(header::CONTENT_LENGTH, length.into());
    }
    true
}

/// Removes entries of `Proxy-Status` in our name. A field line with such an entry is removed as a whole.
pub(crate) fn strip_our_status(headers: &mut HeaderMap) {
    let ours = |value: &HeaderValue| {
        value.as_bytes().split(|b| *b == b',').any(|entry| {
            let name = entry.split(|b| *b == b';').next().unwrap_or_default();
            let name = name.trim_ascii().strip_prefix(b"\"").unwrap_or(name.trim_ascii());
            name.get(..OUR_NAME.len()).is_some_and(|name| name.eq_ignore_ascii_case(OUR_NAME))
        })
    };
    if headers.get_all(PROXY_STATUS).iter().any(ours) {
        let others: Vec<HeaderValue> =
            headers.get_all(PROXY_STATUS).iter().filter(|one| !ours(one)).cloned().collect();
        headers.remove(PROXY_STATUS);
        for other in others {
            headers.append(PROXY_STATUS, other);
        }
    }
}

/// Decrements `Max-Forwards`. True if it was 0, so that the proxy must answer the request (RFC 9110 section 7.6.2).
pub(crate) fn count_down(headers: &mut HeaderMap) -> bool {
    let left = headers.get(header::MAX_FORWARDS).and_then(|value| value.to_str().ok());
    match left.and_then(|value| value.trim().parse::<u32>().ok()) {
        Some(0) => true,
        Some(left) => {
            headers.insert(header::MAX_FORWARDS, (left - 1).into());
            false
        }
        None => false,
    }
}

#[cfg(test)]
mod tests;
