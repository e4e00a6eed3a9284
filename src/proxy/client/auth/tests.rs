//! Tests of accepted and refused clients.
#![allow(clippy::unwrap_used)]

use http::HeaderValue;

use super::*;
use crate::rules::secret::Secret;

const OUTSIDE: &str = "203.0.113.9";

fn auth(users: &[(&str, &str)], networks: &[&str]) -> Authenticator {
    Authenticator::new(&settings::Auth {
        users: users.iter().map(|(name, word)| (Arc::from(*name), Secret::new(*word))).collect(),
        networks: networks.iter().map(|network| network.parse().unwrap()).collect(),
        none: false,
    })
}

fn fields(values: &[&str]) -> HeaderMap {
    let value = |text: &&str| (PROXY_AUTHORIZATION, HeaderValue::from_str(text).unwrap());
    values.iter().map(value).collect()
}

fn credentials(pair: &[u8]) -> HeaderMap {
    fields(&[&format!("Basic {}", STANDARD.encode(pair))])
}

fn address(text: &str) -> Client {
    Client::Address(text.parse().unwrap())
}

#[test]
fn without_users_and_networks_every_client_is_admitted() {
    let open = auth(&[], &[]);
    assert_eq!(open.check(&HeaderMap::new(), OUTSIDE.parse().unwrap()), Ok(address(OUTSIDE)));
}

#[test]
fn a_user_with_the_right_password_is_admitted_by_name() {
    let users = auth(&[("crawler", "s3cret:with:colons"), ("ünïcode", "pässword")], &[]);
    let check = |headers: &HeaderMap| users.check(headers, OUTSIDE.parse().unwrap());
    let crawler = Ok(Client::User("crawler".into()));
    assert_eq!(check(&credentials(b"crawler:s3cret:with:colons")), crawler);
    let encoded = STANDARD.encode("crawler:s3cret:with:colons");
    assert_eq!(check(&fields(&[&format!("bASIC   {encoded}")])), crawler);
    assert_eq!(
        check(&credentials("ünïcode:pässword".as_bytes())),
        Ok(Client::User("ünïcode".into()))
    );
}

#[test]
fn a_password_may_be_written_as_its_hash() {
    let hash = "sha256:2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"; // "secret"
    let users = auth(&[("crawler", hash), ("odd", "sha256:word")], &[]);
    let check = |pair: &str| users.check(&credentials(pair.as_bytes()), OUTSIDE.parse().unwrap());
    assert!(check("crawler:secret").is_ok());
    assert_eq!(check(&format!("crawler:{hash}")), Err(Unauthorised::Wrong));
    assert!(check("odd:sha256:word").is_ok());
}

#[test]
fn anything_but_the_right_credentials_is_refused() {
    let users = auth(&[("crawler", "secret")], &[]);
    let check = |headers: &HeaderMap| users.check(headers, OUTSIDE.parse().unwrap());
    assert_eq!(check(&HeaderMap::new()), Err(Unauthorised::Missing));
    for wrong in ["crawler:Secret", "crawler:", "nobody:secret", ":secret", "Crawler:secret"] {
        assert_eq!(check(&credentials(wrong.as_bytes())), Err(Unauthorised::Wrong), "{wrong}");
    }
    let good = STANDARD.encode("crawler:secret");
    for malformed in [
        credentials(b"crawler"),
        credentials(b"crawler:secret\0"),
        credentials(b"crawler:\xff"),
        credentials(&[b'a'; 8192]),
        fields(&["Basic"]),
        fields(&["Basic "]),
        fields(&["Basic ***"]),
        fields(&[&format!("Bearer {good}")]),
        fields(&[&format!("Basic{good}")]),
        fields(&[&format!("Basic {good}, Basic {good}")]),
        fields(&[&format!("Basic {good}"), &format!("Basic {good}")]),
    ] {
        assert_eq!(check(&malformed), Err(Unauthorised::Malformed), "{malformed:?}");
    }
}

#[test]
fn a_listed_network_needs_no_password_and_others_do() {
    let both = auth(&[("crawler", "secret")], &["10.0.0.0/8"]);
    let none = HeaderMap::new();
    assert_eq!(both.check(&none, "10.1.2.3".parse().unwrap()), Ok(address("10.1.2.3")));
    assert_eq!(both.check(&none, "::ffff:10.1.2.3".parse().unwrap()), Ok(address("10.1.2.3")));
    assert_eq!(both.check(&none, OUTSIDE.parse().unwrap()), Err(Unauthorised::Missing));
    let named = both.check(&credentials(b"crawler:secret"), "10.1.2.3".parse().unwrap());
    assert_eq!(named, Ok(Client::User("crawler".into())));
    let networks = auth(&[], &["10.0.0.0/8"]);
    assert_eq!(networks.check(&none, OUTSIDE.parse().unwrap()), Err(Unauthorised::Network));
}

#[test]
fn debug_output_shows_no_credentials() {
    let shown = format!("{:?}", auth(&[("crawler", "secret")], &[]));
    assert!(!shown.contains("crawler") && !shown.contains("secret"), "{shown}");
}
