//! Tests of targets and hosts: accepted and refused ones.
#![allow(clippy::unwrap_used)]

use super::*;

fn get(uri: &str) -> Result<Target, BadTarget> {
    Target::parse(&Method::GET, &uri.parse().map_err(|e| BadTarget(format!("{e}")))?)
}

fn connect(uri: &str) -> Result<Target, BadTarget> {
    Target::parse(&Method::CONNECT, &uri.parse().map_err(|e| BadTarget(format!("{e}")))?)
}

#[test]
fn every_spelling_of_a_site_is_one_target() {
    let plain = get("http://example.com/a").unwrap();
    for same in ["http://Example.COM/a", "HTTP://example.com./a", "http://example.com:80/a"] {
        assert_eq!(get(same).unwrap(), plain, "{same}");
    }
    assert_eq!(get("http://example.com:/a").unwrap(), plain);
    assert_eq!(get("https://example.com/a").unwrap().port, 443);
}

#[test]
fn path_and_query_stay_as_they_were_sent() {
    for path in ["//", "/a/../b", "/%2f%0d%0a", "/a;b?c=d&e=%zz", "/?", "/{a}|b"] {
        assert_eq!(&*get(&format!("http://h{path}")).unwrap().path, path);
    }
    assert_eq!(&*get("http://h").unwrap().path, "/");
    assert_eq!(&*get("http://h?q").unwrap().path, "/?q");
    assert_eq!(&*get("http://h/a#fragment").unwrap().path, "/a");
}

#[test]
fn options_for_the_whole_site_asks_for_the_asterisk() {
    let options = |uri: &str| Target::parse(&Method::OPTIONS, &uri.parse().unwrap()).unwrap();
    assert_eq!(&*options("http://h?").path, "*");
    assert_eq!(&*options("http://h/").path, "/");
    assert_eq!(&*get("http://h?").unwrap().path, "/?");
}

#[test]
fn a_target_that_is_not_in_absolute_form_is_refused() {
    for bad in [
        "/path",
        "*",
        "h:80",
        "ftp://h/",
        "ws://h/",
        "http://user@h/",
        "http://user:password@h/",
        "http://h:0/",
        "http://h:65536/",
        "http://h:-1/",
        "http://h:+80/",
        "http://h:000080/",
        "http://[::1/",
        "http://[::1]x/",
        "http://:80/",
    ] {
        assert!(get(bad).is_err(), "{bad}");
    }
}

#[test]
fn connect_takes_a_host_with_a_port_and_nothing_else() {
    assert_eq!(connect("Example.com.:443").unwrap(), connect("example.com:443").unwrap());
    assert_eq!(connect("[::1]:8443").unwrap().host, Host::parse("[::1]").unwrap());
    for bad in [
        "example.com",
        "example.com:",
        "example.com:0",
        "example.com:65536",
        "example.com:-1",
        "example.com:443/",
        "http://example.com/",
        "http://example.com:443",
        "user@example.com:443",
        "user:pw@example.com:443",
        "[::1",
        "[::1]",
        "[example.com]:443",
        "::1:443",
        ":443",
        "*",
        "/",
    ] {
        assert!(connect(bad).is_err(), "{bad}");
    }
}

#[test]
fn spellings_that_only_some_resolvers_read_as_an_address_are_refused() {
    for bad in [
        "2130706433",
        "0x7f.1",
        "0x7f000001",
        "0X7F000001",
        "0177.0.0.1",
        "127.1",
        "127.0.0.1.1",
        "127.0.0.256",
        "1.2.3.08",
        "example.123",
        "%31%32%37.0.0.1",
        "\u{ff11}\u{ff12}\u{ff17}.0.0.1",
        "[fe80::1%25lo]",
        "[example.com]",
        "[127.0.0.1]",
        "[]",
        "",
        ".",
        "a..b",
        "example.com..",
        "exa mple",
        "a\0b",
        "xn--localhost-",
        "XN--.example",
        "a.xn--example-.com",
    ] {
        assert!(Host::parse(bad).is_err(), "{bad:?}");
    }
    assert!(Host::parse(&"a".repeat(64)).is_err());
    assert!(Host::parse(&format!("{}a", "abc.".repeat(64))).is_err());
}

#[test]
fn addresses_and_names_are_distinguished() {
    let ip = |text: &str| Host::Ip(text.parse().unwrap());
    assert_eq!(Host::parse("127.0.0.1").unwrap(), ip("127.0.0.1"));
    assert_eq!(Host::parse("127.0.0.1.").unwrap(), ip("127.0.0.1"));
    assert_eq!(Host::parse("[::FFFF:127.0.0.1]").unwrap(), ip("127.0.0.1"));
    assert_eq!(Host::parse("[0:0::1]").unwrap(), ip("::1"));
    assert_eq!(Host::parse("LOCALHOST.").unwrap(), Host::Name("localhost".into()));
    assert_eq!(Host::parse("a_b.xn--bcher-kva.de").unwrap().to_string(), "a_b.xn--bcher-kva.de");
}

#[test]
fn a_host_field_names_the_target_or_does_not() {
    let target = get("http://example.com/").unwrap();
    for same in ["example.com", "EXAMPLE.com.", "example.com:80", "example.com:"] {
        assert!(target.is_named_by(same), "{same}");
    }
    for other in ["", "www.example.com", "example.com:8080", "example.com:80:80", "[::1"] {
        assert!(!target.is_named_by(other), "{other}");
    }
    assert_eq!(target.authority(), "example.com");
    assert_eq!(get("https://[::1]:8443/").unwrap().authority(), "[::1]:8443");
}

#[test]
fn a_request_inside_a_connect_stays_on_its_site() {
    let outer = connect("example.com:443").unwrap();
    let inside =
        |method: Method, uri: &str| outer.inside(Scheme::Https, &method, &uri.parse().unwrap());
    let target = inside(Method::GET, "/a?b").unwrap();
    assert_eq!((target.scheme, target.port, &*target.path), (Scheme::Https, 443, "/a?b"));
    assert_eq!(inside(Method::GET, "https://EXAMPLE.com/a?b").unwrap(), target);
    assert_eq!(&*inside(Method::OPTIONS, "*").unwrap().path, "*");
    assert!(inside(Method::GET, "https://other.example/").is_err());
    assert!(inside(Method::GET, "http://example.com/").is_err());
    assert!(inside(Method::GET, "https://example.com:8443/").is_err());
    assert!(inside(Method::CONNECT, "example.com:443").is_err());
}
