//! Attacks: attempts to bypass a rule, a limit or a reload.

use std::time::Duration;

use tokio::io::AsyncWriteExt as _;

use super::{
    bench::{Bench, Site, rule, settings, until},
    intercept::{h2, intercept},
    secure::{Flaw, Root, SecureSite, connected, proxy},
};
use crate::rules::{Action, Matcher, Rule, TunnelCount};

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-type: image/png\r\ncontent-length: 2\r\n\r\nhi";

/// Intercepts, and refuses everything that it cannot inspect.
fn strictly(rule: &mut Rule) {
    intercept(rule);
    rule.tunnel = TunnelCount::Refuse;
}

#[tokio::test]
async fn an_empty_line_before_a_request_inside_hides_nothing() {
    let site = Site::answering(OK).await;
    let root = Root::new();
    // This also applies if raw tunnels are allowed.
    for change in [intercept, strictly] {
        let bench = proxy(&root, change).await;
        let before = site.count();
        for empty in ["\r\n", "\r\n\r\n"] {
            let mut client = connected(&bench, &site.addr.to_string()).await;
            client.send(&format!("{empty}GET /x HTTP/1.1\r\nhost: {}\r\n\r\n", site.addr)).await;
            let answer = client.answer().await;
            assert_eq!((answer.status(), answer.field("tidegate-rule")), (200, Some("default")));
        }
        assert_eq!(site.count(), before + 2);
    }
}

#[tokio::test]
async fn traffic_that_cannot_be_inspected_is_refused_by_an_intercepting_rule() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let root = Root::new();
    let bench = proxy(&root, strictly).await;
    let hellos: [&[u8]; 3] = [
        b"SSH-2.0-test\r\n",
        b"get / HTTP/1.1\r\nhost: x\r\n\r\n",
        b"\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\n\r\n",
    ];
    for hello in hellos {
        let mut client = connected(&bench, &listener.local_addr().unwrap().to_string()).await;
        client.stream.write_all(hello).await.unwrap();
        assert_eq!(client.rest().await, "", "{}", hello.escape_ascii());
    }
    let refused = bench.metric(r#"tidegate_refused_total{rule="default",reason="denied"}"#);
    assert_eq!(refused, 3.0);
    let dialled = tokio::time::timeout(Duration::from_millis(50), listener.accept()).await;
    assert!(dialled.is_err(), "nobody was dialled");
    let said = bench.cx.events.recent();
    let lines = said.iter().filter(|one| format!("{one:?}").contains("neither TLS nor HTTP"));
    assert_eq!(lines.count(), 1, "said once for a rule");
}

#[tokio::test]
async fn bytes_that_some_servers_accept_as_tls_are_not_a_raw_tunnel() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let root = Root::new();
    let hellos: [&[u8]; 3] = [
        b"\x80\x2e\x01\x03\x01\x00\x15\x00\x00\x00\x10",
        b"\x16\x02\x01\x00\x05\x01\x00\x00\x01\x00",
        b"\x15\x03\x01\x00\x02\x01\x00",
    ];
    // This also applies if raw tunnels are allowed.
    for change in [intercept, strictly] {
        let bench = proxy(&root, change).await;
        for hello in hellos {
            let mut client = connected(&bench, &listener.local_addr().unwrap().to_string()).await;
            client.stream.write_all(hello).await.unwrap();
            client.stream.shutdown().await.unwrap();
            client.rest().await;
        }
    }
    let dialled = tokio::time::timeout(Duration::from_millis(50), listener.accept()).await;
    assert!(dialled.is_err(), "nobody was dialled");
}

#[tokio::test]
async fn a_rule_may_refuse_tunnels() {
    let site = Site::answering(OK).await;
    let bench = Bench::with(settings(), vec![Rule { tunnel: TunnelCount::Refuse, ..rule() }]).await;
    let connect = format!("CONNECT {0} HTTP/1.1\r\nhost: {0}\r\n\r\n", site.addr);
    let answer = bench.ask(&connect).await;
    assert_eq!((answer.status(), answer.field("tidegate-refused")), (403, Some("denied")));
    assert_eq!(bench.get(&site.url("/")).await.status(), 200);
}

#[tokio::test]
async fn a_tunnel_takes_its_slot_before_it_is_held() {
    let site = Site::answering(OK).await;
    let mut settings = settings();
    settings.limits.tunnels = 2;
    let mut slow = rule();
    (slow.limits.rate, slow.limits.burst) = (Some(0.001), 1);
    slow.max_wait = Duration::from_secs(3600);
    let bench = Bench::with(settings, vec![slow]).await;
    assert_eq!(bench.get(&site.url("/")).await.status(), 200, "the one token is gone");
    let at = site.addr;
    let connect = format!("CONNECT {at} HTTP/1.1\r\nhost: {at}\r\n\r\n");
    let upgrade = format!(
        "GET http://{at}/ws HTTP/1.1\r\nhost: {at}\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"
    );
    let held = || bench.metric(r#"tidegate_held_requests{rule="default"}"#);
    for request in [connect, upgrade] {
        let mut waiting = Vec::new();
        for n in 1..=2 {
            let mut client = bench.connect().await;
            client.send(&request).await;
            until("it is held", || held() == f64::from(n)).await;
            waiting.push(client);
        }
        for _ in 0..18 {
            let answer = bench.ask(&request).await;
            assert_eq!((answer.status(), answer.field("tidegate-refused")), (503, Some("queue")));
        }
        drop(waiting);
        until("the queue is empty", || held() == 0.0).await;
    }
}

#[tokio::test]
async fn a_refused_upgrade_frees_its_slot() {
    let site = Site::answering(OK).await;
    let mut settings = settings();
    settings.limits.tunnels = 1;
    let bench = Bench::with(settings, vec![rule()]).await;
    for _ in 0..3 {
        let at = site.addr;
        let answer = bench
            .ask(&format!(
                "GET http://{at}/ HTTP/1.1\r\nhost: {at}\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"
            ))
            .await;
        assert_eq!(answer.status(), 200);
    }
}

#[tokio::test]
async fn a_path_rule_is_not_bypassed_by_another_spelling() {
    let site = Site::answering(OK).await;
    let mut deny = rule();
    deny.name = "deny".into();
    deny.action = Action::Deny;
    deny.matcher = Matcher { hosts: Vec::new(), paths: vec!["/admin*".into()] };
    let bench = Bench::with(settings(), vec![deny, rule()]).await;
    for path in ["/admin", "/%61dmin", "//admin", "/./admin", "/a/../admin", "/%2e/admin?x"] {
        let answer = bench.get(&site.url(path)).await;
        assert_eq!((answer.status(), answer.field("tidegate-refused")), (403, Some("denied")));
    }
    assert_eq!(site.count(), 0);
    assert_eq!(bench.get(&site.url("/a//%62/../c")).await.status(), 200);
    assert!(site.request(0).await.starts_with("GET /a//%62/../c HTTP/1.1\r\n"), "sent as it was");
}

#[tokio::test]
async fn ports_of_other_protocols_are_refused_on_every_path() {
    let root = Root::new();
    let bench = proxy(&root, |_| {}).await;
    for port in [25, 22, 6667] {
        let get = bench.get(&format!("http://127.0.0.1:{port}/")).await;
        assert_eq!((get.status(), get.field("tidegate-refused")), (403, Some("egress")), "{port}");
        let named = bench.get(&format!("http://localhost:{port}/")).await;
        assert_eq!(named.status(), 403, "{port}");
        let connect =
            format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n\r\n");
        assert_eq!(bench.ask(&connect).await.status(), 403, "{port}");
    }
}

#[tokio::test]
async fn an_ambiguous_response_or_one_in_our_name_is_not_relayed_unchanged() {
    for (fields, status, relayed) in [
        ("content-length: 02, 2", 200, Some(("content-length", "2"))),
        ("content-length: 2\r\ncontent-length: 2", 200, Some(("content-length", "2"))),
        ("transfer-encoding: chunked, chunked", 502, None),
        ("content-length: 2\r\nproxy-status: tidegate; error=dns_error", 200, None),
    ] {
        let answer = format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\nhi");
        let site = Site::scripted(move |_, _| (answer.clone(), true)).await;
        let bench = Bench::start().await;
        let answer = bench.get(&site.url("/")).await;
        assert_eq!(answer.status(), status, "{fields}");
        if let Some((name, value)) = relayed {
            assert_eq!(answer.field(name), Some(value), "{fields}");
            assert_eq!(answer.head.to_ascii_lowercase().matches(name).count(), 1);
        }
        if status == 200 {
            assert_eq!(answer.field("proxy-status"), None, "{fields}");
        }
    }
}

#[tokio::test]
async fn http2_has_the_bounds_of_http1() {
    let root = Root::new();
    let site = SecureSite::start(&root, Flaw::None, &["h2", "http/1.1"]).await;
    let bench = proxy(&root, intercept).await;
    let sender = h2(&bench, &site.authority()).await;
    let ask = async |change: fn(http::request::Builder) -> http::request::Builder| {
        let request = http::Request::builder().version(http::Version::HTTP_2).uri(site.url("/x"));
        let request = change(request).body(http_body_util::Empty::<bytes::Bytes>::new()).unwrap();
        sender.clone().send_request(request).await.unwrap().status().as_u16()
    };
    assert_eq!(
        ask(|request| (0..90).fold(request, |request, _| request.header("x", "y"))).await,
        200
    );
    assert_eq!(
        ask(|request| (0..101).fold(request, |request, _| request.header("x", "y"))).await,
        431
    );
    assert_eq!(ask(|request| request.header("x", " y")).await, 400);
    assert_eq!(bench.metric(r#"tidegate_limit_hits_total{limit="headers"}"#), 1.0);
    assert_eq!(site.requests.lock().len(), 1);
}

/// An HTTP/2 site that sends too many interim responses and no final one.
async fn endless_interim(root: &Root) -> std::net::SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let acceptor = root.acceptor(&["h2"]);
    tokio::spawn(async move {
        let stream = acceptor.accept(listener.accept().await.unwrap().0).await.unwrap();
        let mut connection = h2::server::handshake(stream).await.unwrap();
        let (_request, mut respond) = connection.accept().await.unwrap().unwrap();
        for _ in 0..1000 {
            let hint = http::Response::builder().status(103).body(()).unwrap();
            respond.send_informational(hint).unwrap();
        }
        while connection.accept().await.is_some() {}
    });
    at
}

#[tokio::test]
async fn endless_interim_responses_of_an_http2_site_end_its_connection() {
    let root = Root::new();
    let at = endless_interim(&root).await;
    let bench = proxy(&root, |_| {}).await;
    let answer = bench.get(&format!("https://localhost:{}/", at.port())).await;
    assert_eq!((answer.status(), answer.field("tidegate-refused")), (502, Some("connect")));
    assert_eq!(bench.metric(r#"tidegate_limit_hits_total{limit="interim"}"#), 1.0);
}

#[tokio::test]
async fn a_name_in_the_hello_to_an_address_falls_under_its_own_rule() {
    let root = Root::new();
    let site = SecureSite::start(&root, Flaw::None, &["http/1.1"]).await;
    let mut shop = rule();
    shop.name = "shop".into();
    shop.matcher.hosts = vec![crate::rules::HostPattern::Exact("localhost".into())];
    let bench = Bench::with(settings(), vec![shop, rule()]).await;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(root.certificate_der()).unwrap();
    for (authority, name, passes) in [
        (site.addr.to_string(), "localhost", false),
        (site.addr.to_string(), "127.0.0.1", true),
        (site.authority(), "localhost", true),
    ] {
        let client = connected(&bench, &authority).await;
        let connector = super::secure::client_config(roots.clone(), &["http/1.1"]);
        let name = name.to_owned().try_into().unwrap();
        let spoken = connector.connect(name, client.stream).await;
        assert_eq!(spoken.is_ok(), passes, "{authority}: {:?}", spoken.err());
    }
    let refused = bench.metric(r#"tidegate_refused_total{rule="default",reason="denied"}"#);
    assert_eq!(refused, 1.0);
}
