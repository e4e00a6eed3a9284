//! Connections to sites after a reload, or after a client's login on them.

use std::sync::atomic::Ordering;

use tokio::io::AsyncWriteExt as _;

use super::{
    bench::{Bench, Site, rule, settings, until},
    intercept::{ask, h2, intercept},
    secure::{Flaw, Root, SecureSite, connected, proxy, proxy_with},
};
use crate::rules::settings::{EgressPattern, Settings};

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-type: image/png\r\ncontent-length: 2\r\n\r\nhi";

/// Gets a page over a connection to a site, then reloads with the settings of `change`. The next request is refused
/// with this status and word, and does not reach the site.
async fn a_reload_refuses(change: fn(&mut Settings), status: u16, word: &str) {
    let root = Root::new();
    for alpn in [&["h2", "http/1.1"][..], &["http/1.1"]] {
        let site = SecureSite::start(&root, Flaw::None, alpn).await;
        let bench = proxy(&root, intercept).await;
        let mut sender = h2(&bench, &site.authority()).await;
        assert_eq!(ask(&mut sender, &site.url("/")).await.unwrap().status(), 200);
        let mut settings = bench.cx.live().settings.clone();
        change(&mut settings);
        bench.cx.reload(settings);
        let refused = ask(&mut sender, &site.url("/")).await.unwrap();
        assert_eq!(refused.status(), status, "{alpn:?}");
        assert_eq!(refused.headers()["tidegate-refused"], word);
        assert_eq!(site.requests.lock().len(), 1);
    }
}

#[tokio::test]
async fn a_reload_applies_to_connections_in_use() {
    let deny = |settings: &mut Settings| settings.egress.deny = vec![EgressPattern::Loopback];
    a_reload_refuses(deny, 403, "egress").await;
}

#[tokio::test]
async fn a_root_that_a_reload_removes_is_no_longer_trusted() {
    a_reload_refuses(|settings| settings.upstream_ca.clear(), 502, "tls").await;
}

#[tokio::test]
async fn a_connection_in_use_during_a_reload_is_not_kept() {
    // The site sends only its head until the client reads on.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let bench = Bench::start().await;
    let mut client = bench.connect().await;
    client.send(&format!("GET http://{at}/ HTTP/1.1\r\nhost: {at}\r\n\r\n")).await;
    let (mut site, _) = listener.accept().await.unwrap();
    let (head, body) = OK.split_at(OK.len() - 2);
    site.write_all(head.as_bytes()).await.unwrap();
    assert_eq!(client.head().await.status(), 200);
    bench.cx.reload(settings());
    site.write_all(body.as_bytes()).await.unwrap();
    client.read_to("hi").await;
    until("it is closed", || bench.metric("tidegate_upstream_connections") == 0.0).await;
}

#[tokio::test]
async fn a_held_request_is_judged_by_the_settings_in_force_when_it_goes() {
    let site = Site::answering(OK).await;
    let mut slow = rule();
    (slow.limits.rate, slow.limits.burst) = (Some(2.0), 1);
    let bench = Bench::with(settings(), vec![slow]).await;
    assert_eq!(bench.get(&site.url("/")).await.status(), 200);
    let mut client = bench.connect().await;
    client.send(&format!("GET {} HTTP/1.1\r\nhost: x\r\n\r\n", site.url("/"))).await;
    let held = || bench.metric(r#"tidegate_held_requests{rule="default"}"#);
    until("it is held", || held() == 1.0).await;
    let mut denying = settings();
    denying.egress.deny = vec![EgressPattern::Loopback];
    bench.cx.reload(denying);
    assert_eq!(client.answer().await.status(), 403);
    assert_eq!(site.count(), 1);
}

/// A request of a client, with these fields.
fn get(site: &Site, fields: &str) -> String {
    format!("GET {} HTTP/1.1\r\nhost: {}\r\n{fields}\r\n", site.url("/"), site.addr)
}

#[tokio::test]
async fn a_connection_with_a_login_is_not_shared_with_other_clients() {
    for scheme in ["NTLM TlRMTVNTUAAB", "negotiate YII=", "Negotiate YII="] {
        let site = Site::answering(OK).await;
        let bench = Bench::start().await;
        let connections = || site.connections.load(Ordering::SeqCst);
        let (mut alice, mut bob) = (bench.connect().await, bench.connect().await);
        // A pooled connection that others have already used.
        bob.send(&get(&site, "")).await;
        assert_eq!((bob.answer().await.status(), connections()), (200, 1));
        alice.send(&get(&site, &format!("authorization: {scheme}\r\n"))).await;
        assert_eq!((alice.answer().await.status(), connections()), (200, 2), "one of her own");
        // The second half of the handshake, and the next request.
        alice.send(&get(&site, &format!("authorization: {scheme}\r\n"))).await;
        assert_eq!((alice.answer().await.status(), connections()), (200, 2));
        alice.send(&get(&site, "")).await;
        assert_eq!((alice.answer().await.status(), connections()), (200, 2));
        for _ in 0..2 {
            bob.send(&get(&site, "")).await;
            assert_eq!((bob.answer().await.status(), connections()), (200, 2), "the one before");
        }
        let open = || bench.metric("tidegate_upstream_connections");
        assert_eq!(open(), 2.0);
        drop(alice);
        until("hers ends with her", || open() == 1.0).await;
    }
}

#[tokio::test]
async fn two_users_on_one_client_connection_share_no_login() {
    let site = Site::answering(OK).await;
    let mut settings = settings();
    settings.auth.none = false;
    let secret = || crate::rules::secret::Secret::new("pw");
    settings.auth.users = vec![("alice".into(), secret()), ("bob".into(), secret())];
    let bench = Bench::with(settings, vec![rule()]).await;
    let connections = || site.connections.load(Ordering::SeqCst);
    // alice:pw and bob:pw
    let (alice, bob) = ("Basic YWxpY2U6cHc=", "Basic Ym9iOnB3");
    let mut client = bench.connect().await;
    for (who, login, expected) in
        [(alice, "authorization: NTLM x\r\n", 1), (bob, "", 2), (alice, "", 2), (bob, "", 2)]
    {
        client.send(&get(&site, &format!("proxy-authorization: {who}\r\n{login}"))).await;
        assert_eq!((client.answer().await.status(), connections()), (200, expected), "{who}");
    }
}

/// Settings with one user, `alice:pw`.
fn with_alice(settings: &mut crate::rules::settings::Settings) {
    settings.auth.none = false;
    settings.auth.users = vec![("alice".into(), crate::rules::secret::Secret::new("pw"))];
}

#[tokio::test]
async fn a_removed_user_loses_intercepted_connects_and_tunnels() {
    let site = Site::answering(OK).await;
    let root = Root::new();
    let at = site.addr;
    for intercepted in [true, false] {
        let bench = proxy_with(&root, |rule| rule.intercept = intercepted, with_alice).await;
        let mut client = bench.connect().await;
        let login = "proxy-authorization: Basic YWxpY2U6cHc=";
        client.send(&format!("CONNECT {at} HTTP/1.1\r\nhost: {at}\r\n{login}\r\n\r\n")).await;
        assert_eq!(client.head().await.status(), 200);
        let before = site.count();
        let get = format!("GET / HTTP/1.1\r\nhost: {at}\r\n\r\n");
        client.send(&get).await;
        assert_eq!(client.answer().await.status(), 200);
        bench.cx.reload(bench.cx.live().settings.clone());
        client.send(&get).await;
        assert_eq!(client.answer().await.status(), 200, "the same users");
        let mut changed = bench.cx.live().settings.clone();
        changed.auth.users = vec![("alice".into(), crate::rules::secret::Secret::new("another"))];
        bench.cx.reload(changed);
        client.send(&get).await;
        if intercepted {
            let answer = client.answer().await;
            assert_eq!((answer.status(), answer.field("tidegate-refused")), (403, Some("auth")));
        } else {
            assert_eq!(client.rest().await, "", "the tunnel ends");
        }
        assert_eq!(site.count(), before + 2);
    }
}

#[tokio::test]
async fn a_tunnel_to_a_newly_denied_site_ends_with_its_next_bytes() {
    let site = Site::answering(OK).await;
    let bench = Bench::start().await;
    let mut client = connected(&bench, &site.addr.to_string()).await;
    let get = format!("GET / HTTP/1.1\r\nhost: {}\r\n\r\n", site.addr);
    client.send(&get).await;
    assert_eq!(client.answer().await.status(), 200);
    let mut denying = settings();
    denying.egress.deny = vec![EgressPattern::Loopback];
    bench.cx.reload(denying);
    client.send(&get).await;
    assert_eq!(client.rest().await, "");
    assert_eq!(site.count(), 1);
}
