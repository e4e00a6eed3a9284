//! Tests of removed and kept fields.

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
fn fields_that_connection_names_are_removed_with_any_other_content() {
    for value in ["\u{e9}, x-a", "x-a, \u{e9}", "\"x-a, x-b\"", "\"x-a\"", "a b,\tX-A ,,"] {
        for strip in [strip, strip_answer] {
            let mut headers = fields(&[("connection", value), ("x-a", "1"), ("x-c", "1")]);
            strip(&mut headers);
            assert_eq!(names(&headers), ["x-c"], "{value}");
        }
    }
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
    assert_eq!(max_wait(&headers), Some(Duration::from_secs(7)));
    take_max_wait(&mut headers);
    assert_eq!(headers.get_all("prefer").iter().collect::<Vec<_>>(), ["respond-async, x=1"]);
    for nonsense in ["wait", "wait=", "wait=-1", "wait=1.5", "wait=99999999999", "waiting=3"] {
        assert_eq!(max_wait(&fields(&[("prefer", nonsense)])), None, "{nonsense}");
    }
    let mut only = fields(&[("prefer", "wait=0")]);
    assert_eq!(max_wait(&only), Some(Duration::ZERO));
    take_max_wait(&mut only);
    assert!(only.is_empty());
}

#[test]
fn the_urgency_is_read_from_the_priority_field_and_nonsense_is_ignored() {
    let urgency_of = |lines: &[&str]| {
        let lines: Vec<_> = lines.iter().map(|line| ("priority", *line)).collect();
        urgency(&fields(&lines))
    };
    for (lines, number) in [
        (&["u=0"][..], 0),
        (&["u=7, i"], 7),
        (&["i, u=5;x=1"], 5),
        (&["i", "u=2"], 2),
        (&["u=1, u=6"], 6),
    ] {
        assert_eq!(urgency_of(lines), Urgency::new(number), "{lines:?}");
    }
    for nonsense in
        ["", "i", "u", "u=8", "u=-1", "u=1.0", "u=\"1\"", "u=(1)", "u=1,", "U=1", "u==1"]
    {
        assert_eq!(urgency_of(&[nonsense]), None, "{nonsense}");
    }
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
    assert_eq!(asks("upgrade", "websocket, H2C").as_deref(), Some("websocket"));
    assert_eq!(asks("\"upgrade\", \u{e9}", "websocket").as_deref(), Some("websocket"));
}

#[test]
fn only_chunked_is_a_coding_that_we_asked_for() {
    let foreign = |value: &str| has_foreign_coding(&fields(&[("transfer-encoding", value)]));
    assert!(!foreign("chunked") && !foreign("Chunked"));
    assert!(foreign("gzip, chunked") && foreign("identity") && foreign("chunked, x"));
    assert!(foreign("chunked, chunked") && foreign("chunked,") && foreign("\"chunked\""));
    let twice = fields(&[("transfer-encoding", "chunked"), ("transfer-encoding", "chunked")]);
    assert!(has_foreign_coding(&twice));
}

#[test]
fn a_length_is_forwarded_as_one_number_or_not_at_all() {
    for (values, expected) in [
        (&["2"][..], Some("2")),
        (&["0"], Some("0")),
        (&["02, 2"], Some("2")),
        (&["2", "2"], Some("2")),
        (&["007"], Some("7")),
        (&[], Some("")),
        (&["2, 3"], None),
        (&["+2"], None),
        (&["2,"], None),
        (&[""], None),
        (&["0x2"], None),
        (&["-1"], None),
        (&["99999999999999999999, 99999999999999999999"], None),
    ] {
        let lines: Vec<_> = values.iter().map(|value| ("content-length", *value)).collect();
        let mut headers = fields(&lines);
        let good = normalise_length(&mut headers);
        let length = headers.get("content-length").map_or("", |one| one.to_str().unwrap());
        assert_eq!(good.then_some(length), expected, "{values:?}");
    }
}

#[test]
fn a_site_cannot_use_our_name_in_proxy_status() {
    for (value, stays) in [
        ("tidegate; error=dns_error", false),
        ("Tidegate-1", false),
        ("\"tidegate\"; error=x", false),
        ("cache.example; hit, tidegate", false),
        ("cache.example; details=tidegate", true),
    ] {
        let mut headers = fields(&[("proxy-status", "other"), ("proxy-status", value)]);
        strip_our_status(&mut headers);
        assert_eq!(
            headers.get_all("proxy-status").iter().count(),
            1 + usize::from(stays),
            "{value}"
        );
    }
}

#[test]
fn logins_of_connections_and_of_requests_are_distinguished() {
    let logs_in = |value: &str| logs_a_connection_in(&fields(&[("authorization", value)]));
    assert!(logs_in("NTLM TlRM") && logs_in("negotiate YII=") && logs_in(" Negotiate\tYII="));
    assert!(!logs_in("Basic YTpi") && !logs_in("Bearer negotiate") && !logs_in(""));
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
fn times_are_shown_in_milliseconds_with_one_digit() {
    let micros = Duration::from_micros;
    for (held, took, expected) in [
        (Duration::ZERO, micros(49), "hold;dur=0.0, upstream;dur=0.0"),
        (micros(50), micros(1_249), "hold;dur=0.1, upstream;dur=1.2"),
        (micros(12_999_950), micros(99_950), "hold;dur=13000.0, upstream;dur=100.0"),
    ] {
        assert_eq!(server_timing(held, took).unwrap(), expected);
    }
    assert!(server_timing(Duration::MAX, Duration::MAX).is_some());
}
