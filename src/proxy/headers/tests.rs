//! Fields taken away and fields kept.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use super::*;

fn fields(lines: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        headers.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    headers
}

fn names(headers: &HeaderMap) -> Vec<&str> {
    headers.keys().map(HeaderName::as_str).collect()
}

#[test]
fn stripping_keeps_the_order_and_every_line() {
    let mut headers = fields(&[
        ("host", "h"),
        ("connection", "x-a, ,keep-alive"),
        ("x-b", "1"),
        ("x-a", "1"),
        ("connection", "X-C"),
        ("x-b", "2"),
        ("x-c", "1"),
        ("accept", "*/*"),
        ("tidegate-anything", "1"),
        ("te", "trailers"),
        ("x-d", "1"),
    ]);
    strip(&mut headers);
    assert_eq!(names(&headers), ["host", "x-b", "accept", "x-d"]);
    assert_eq!(headers.get_all("x-b").iter().collect::<Vec<_>>(), ["1", "2"]);
}

#[test]
fn a_connection_field_that_is_no_text_is_dropped_with_nothing_else() {
    let mut headers = fields(&[("connection", "\u{e9}, x-a"), ("x-a", "1")]);
    strip(&mut headers);
    assert_eq!(names(&headers), ["x-a"]);
}

#[test]
fn our_own_name_in_via_is_found_behind_others() {
    let headers = fields(&[("via", "1.0 a, HTTP/1.1 tidegate-1 (comment)"), ("via", "2 b")]);
    assert!(has_passed(&headers, "tidegate-1"));
    assert!(!has_passed(&headers, "tidegate-"));
    assert!(!has_passed(&headers, "comment"));
    assert!(has_passed(&headers, "b"));
}

#[test]
fn a_preference_to_wait_is_ours_and_the_rest_is_the_sites() {
    let mut headers = fields(&[("prefer", "respond-async, Wait=\"7\""), ("prefer", "x=1")]);
    assert_eq!(patience(&headers), Some(Duration::from_secs(7)));
    take_patience(&mut headers);
    assert_eq!(headers.get_all("prefer").iter().collect::<Vec<_>>(), ["respond-async, x=1"]);
    for nonsense in ["wait", "wait=", "wait=-1", "wait=1.5", "wait=99999999999", "waiting=3"] {
        assert_eq!(patience(&fields(&[("prefer", nonsense)])), None, "{nonsense}");
    }
    let mut only = fields(&[("prefer", "wait=0")]);
    assert_eq!(patience(&only), Some(Duration::ZERO));
    take_patience(&mut only);
    assert!(only.is_empty());
}

#[test]
fn an_upgrade_needs_both_fields_and_is_never_h2c() {
    let asks = |connection: &str, protocol: &str| {
        upgrade(&fields(&[("connection", connection), ("upgrade", protocol)]))
            .map(|protocol| protocol.to_str().unwrap().to_owned())
    };
    assert_eq!(asks("keep-alive, Upgrade", "websocket").as_deref(), Some("websocket"));
    assert_eq!(asks("keep-alive", "websocket"), None);
    assert_eq!(asks("upgrade, http2-settings", "h2c"), None);
    assert_eq!(asks("upgrade", "websocket, H2C"), None);
}

#[test]
fn only_chunked_is_a_coding_that_we_asked_for() {
    let foreign = |value: &str| has_foreign_coding(&fields(&[("transfer-encoding", value)]));
    assert!(!foreign("chunked") && !foreign("Chunked"));
    assert!(foreign("gzip, chunked") && foreign("identity") && foreign("chunked, x"));
}

#[test]
fn max_forwards_counts_down_to_us() {
    let mut headers = fields(&[("max-forwards", "1")]);
    assert!(!count_down(&mut headers));
    assert_eq!(headers["max-forwards"], "0");
    assert!(count_down(&mut headers));
    assert!(!count_down(&mut fields(&[("max-forwards", "x")])));
}

#[test]
fn times_are_told_in_milliseconds_with_one_digit() {
    let micros = Duration::from_micros;
    for (held, took, expected) in [
        (Duration::ZERO, micros(49), "hold;dur=0.0, upstream;dur=0.0"),
        (micros(50), micros(1_249), "hold;dur=0.1, upstream;dur=1.2"),
        (micros(12_999_950), micros(99_950), "hold;dur=13000.0, upstream;dur=100.0"),
    ] {
        assert_eq!(timing(held, took).unwrap(), expected);
    }
    assert!(timing(Duration::MAX, Duration::MAX).is_some());
}
