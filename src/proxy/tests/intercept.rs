//! CONNECT under a rule that intercepts, with real TLS on both sides.

use std::{process::Stdio, sync::atomic::Ordering, time::Duration};

use bytes::Bytes;
use http::{Request, Response, StatusCode, Version};
use http_body_util::{BodyExt as _, Empty};
use hyper::{body::Incoming, client::conn::http2::SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::RootCertStore;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{
    bench::{Bench, Site, until},
    secure::{Flaw, Root, SecureSite, client_config, connected, proxy, tls_through},
};
use crate::rules::Rule;

const BOTH: &[&str] = &["h2", "http/1.1"];

pub(super) fn intercept(rule: &mut Rule) {
    rule.intercept = true;
}

/// Sends `request` over TLS and reads until the connection ends.
async fn exchange(bench: &Bench, authority: &str, request: &str) -> String {
    let mut stream = tls_through(bench, authority, "localhost", &["http/1.1"]).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let reading = stream.read_to_end(&mut answer);
    // A missing close_notify does not fail the test.
    drop(tokio::time::timeout(Duration::from_secs(5), reading).await.expect("an answer in time"));
    String::from_utf8(answer).unwrap()
}

pub(super) async fn h2(bench: &Bench, authority: &str) -> SendRequest<Empty<Bytes>> {
    let stream = tls_through(bench, authority, "localhost", BOTH).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let handshake =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (sender, connection) = handshake.await.unwrap();
    tokio::spawn(connection);
    sender
}

pub(super) async fn ask(
    sender: &mut SendRequest<Empty<Bytes>>,
    url: &str,
) -> Result<Response<Incoming>, hyper::Error> {
    let request = Request::builder().version(Version::HTTP_2).uri(url);
    sender.send_request(request.body(Empty::new()).unwrap()).await
}

#[tokio::test]
async fn a_request_inside_is_judged_like_any_other() {
    let root = Root::new();
    let site = SecureSite::start(&root, Flaw::None, BOTH).await;
    let bench = proxy(&root, intercept).await;
    let authority = site.authority();
    let request = format!("GET /page HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n\r\n");
    let answer = exchange(&bench, &authority, &request).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains("You asked for /page"), "{answer}");
    let lower = answer.to_ascii_lowercase();
    assert!(lower.contains("tidegate-verdict: ok\r\n"), "{answer}");
    assert!(!lower.contains("alt-svc"), "clients are not led past the proxy: {answer}");
    assert_eq!(bench.metric(r#"tidegate_requests_total{rule="default",verdict="ok"}"#), 1.0);
    assert_eq!(site.requests.lock()[0].authority, authority);
}

#[tokio::test]
async fn streams_of_one_http2_connection_pass_one_by_one() {
    let root = Root::new();
    for alpn in [BOTH, &["http/1.1"]] {
        let site = SecureSite::start(&root, Flaw::None, alpn).await;
        let bench = proxy(&root, intercept).await;
        let sender = h2(&bench, &site.authority()).await;
        let mut tasks = tokio::task::JoinSet::new();
        for n in 0..20 {
            let (mut sender, url) = (sender.clone(), site.url(&format!("/{n}")));
            tasks.spawn(async move {
                let response = ask(&mut sender, &url).await.unwrap();
                assert_eq!(response.status(), 200);
                let body = response.into_body().collect().await.unwrap().to_bytes();
                assert!(String::from_utf8_lossy(&body).contains(&format!("/{n}<")));
            });
        }
        while let Some(asked) = tasks.join_next().await {
            asked.unwrap();
        }
        assert_eq!(bench.metric(r#"tidegate_requests_total{rule="default",verdict="ok"}"#), 20.0);
        let version = site.requests.lock()[0].version;
        assert_eq!(version == Version::HTTP_2, alpn == BOTH);
    }
}

#[tokio::test]
async fn a_stream_that_is_reset_while_held_is_never_sent() {
    let root = Root::new();
    let site = SecureSite::start(&root, Flaw::None, BOTH).await;
    let bench = proxy(&root, |rule| {
        intercept(rule);
        rule.limits.rate = Some(0.001);
        rule.limits.burst = 1;
        rule.max_wait = Duration::from_secs(3600);
    })
    .await;
    let mut sender = h2(&bench, &site.authority()).await;
    assert_eq!(ask(&mut sender, &site.url("/first")).await.unwrap().status(), 200);
    let held = || bench.metric(r#"tidegate_held_requests{rule="default"}"#);
    let (mut other, url) = (sender.clone(), site.url("/held"));
    let waiting = tokio::spawn(async move { ask(&mut other, &url).await.map(drop) });
    until("the request is held", || held() > 0.0).await;
    waiting.abort();
    until("the request has left the queue", || held() == 0.0).await;
    assert_eq!(site.requests.lock().len(), 1);
}

#[tokio::test]
async fn an_intercepted_connect_takes_no_token_and_a_refusal_answers_the_request_inside() {
    let root = Root::new();
    let site = SecureSite::start(&root, Flaw::Expired, BOTH).await;
    let bench = proxy(&root, intercept).await;
    let authority = site.authority();
    let mut sender = h2(&bench, &authority).await;
    assert_eq!(site.connections.load(Ordering::SeqCst), 0, "nobody is dialled for a CONNECT");
    let refused = ask(&mut sender, &site.url("/")).await.unwrap();
    assert_eq!(refused.status(), StatusCode::BAD_GATEWAY);
    assert_eq!(refused.headers()["tidegate-refused"], "tls");
    assert_eq!(bench.metric(r#"tidegate_refused_total{rule="default",reason="tls"}"#), 1.0);
}

#[tokio::test]
async fn requests_inside_stay_on_the_site_of_their_connect() {
    let root = Root::new();
    let site = SecureSite::start(&root, Flaw::None, BOTH).await;
    let bench = proxy(&root, intercept).await;
    let authority = site.authority();
    let close = "Connection: close\r\n\r\n";
    for (status, head) in [
        ("421", "GET / HTTP/1.1\r\nHost: other.example\r\n".to_owned()),
        ("421", format!("GET https://other.example/ HTTP/1.1\r\nHost: {authority}\r\n")),
        ("421", format!("GET http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\n")),
        ("405", format!("CONNECT other.example:443 HTTP/1.1\r\nHost: {authority}\r\n")),
        ("400", format!("GET / HTTP/1.1\r\nHost: {authority}\r\nHost: other.example\r\n")),
        ("200", format!("GET https://{authority}/ HTTP/1.1\r\nHost: {authority}\r\n")),
    ] {
        let answer = exchange(&bench, &authority, &format!("{head}{close}")).await;
        assert_eq!(answer.get(9..12), Some(status), "{head}\n{answer}");
    }
    let mut sender = h2(&bench, &authority).await;
    let astray = ask(&mut sender, "https://other.example/").await.unwrap();
    assert_eq!(astray.status(), StatusCode::MISDIRECTED_REQUEST);
    assert_eq!(site.requests.lock().len(), 1);
}

#[tokio::test]
async fn the_certificate_is_for_the_name_that_the_client_asks_for() {
    let root = Root::new();
    let bench = proxy(&root, intercept).await;
    for name in ["localhost", "www.example.com", "127.0.0.1"] {
        let shown = tls_through(&bench, "127.0.0.1:443", name, &[]).await;
        assert!(shown.is_ok(), "{name}: {:?}", shown.err());
    }
    let other = tls_through(&bench, "localhost:443", "127.0.0.1", &[]).await;
    assert!(other.is_err(), "without a name in the hello, the CONNECT's host is shown");
}

#[tokio::test]
async fn an_upgrade_inside_becomes_a_tunnel() {
    let root = Root::new();
    let site = SecureSite::start(&root, Flaw::None, BOTH).await;
    let bench = proxy(&root, intercept).await;
    let authority = site.authority();
    let mut stream = tls_through(&bench, &authority, "localhost", &["http/1.1"]).await.unwrap();
    let request = format!(
        "GET /ws HTTP/1.1\r\nHost: {authority}\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    assert!(head.starts_with(b"HTTP/1.1 101 "), "{}", head.escape_ascii());
    stream.write_all(b"over and over").await.unwrap();
    let mut echo = [0; 13];
    stream.read_exact(&mut echo).await.unwrap();
    assert_eq!(&echo, b"over and over");
}

#[tokio::test]
async fn plain_http_inside_is_served_as_such() {
    let site = Site::answering("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi").await;
    let root = Root::new();
    let bench = proxy(&root, intercept).await;
    let mut client = connected(&bench, &site.addr.to_string()).await;
    client.send(&format!("GET /plain HTTP/1.1\r\nhost: {}\r\n\r\n", site.addr)).await;
    let answer = client.answer().await;
    assert_eq!((answer.status(), answer.field("tidegate-rule")), (200, Some("default")));
    assert!(site.request(0).await.starts_with("GET /plain HTTP/1.1\r\n"));
}

#[tokio::test]
async fn bytes_that_are_neither_tls_nor_http_are_tunnelled() {
    let site = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let root = Root::new();
    let bench = proxy(&root, intercept).await;
    let mut client = connected(&bench, &site.local_addr().unwrap().to_string()).await;
    client.send("SSH-2.0-test\r\n").await;
    let (mut at_site, _) = site.accept().await.unwrap();
    let mut hello = [0; 14];
    at_site.read_exact(&mut hello).await.unwrap();
    assert_eq!(&hello, b"SSH-2.0-test\r\n");
    at_site.write_all(b"SSH-2.0-site\r\n").await.unwrap();
    assert_eq!(client.read_to("\r\n").await, "SSH-2.0-site\r\n");
}

#[tokio::test]
async fn a_client_that_does_not_trust_the_ca_is_counted_and_others_continue() {
    let root = Root::new();
    let site = SecureSite::start(&root, Flaw::None, BOTH).await;
    let bench = proxy(&root, intercept).await;
    for _ in 0..2 {
        let client = connected(&bench, &site.authority()).await;
        let distrusting = client_config(RootCertStore::empty(), &[]);
        let name = "localhost".try_into().unwrap();
        assert!(distrusting.connect(name, client.stream).await.is_err());
    }
    let rejected = || bench.metric("tidegate_tls_client_rejected_total");
    until("both are counted", || rejected() == 2.0).await;
    let said = bench.cx.events.recent();
    let lines = said.iter().filter(|one| format!("{one:?}").contains("does not accept our"));
    assert_eq!(lines.count(), 1, "said once for a client");
    let mut sender = h2(&bench, &site.authority()).await;
    assert_eq!(ask(&mut sender, &site.url("/")).await.unwrap().status(), 200);
}

#[tokio::test]
async fn curl_is_served_in_both_versions_of_http() {
    let root = Root::new();
    let site = SecureSite::start(&root, Flaw::None, BOTH).await;
    let bench = proxy(&root, intercept).await;
    let ca = bench.cx.ca().unwrap();
    for (version, expected) in [("--http1.1", "1.1 200"), ("--http2", "2 200")] {
        let mut curl = std::process::Command::new("curl");
        curl.args(["-sS", version, "--max-time", "10", "-w", "\n%{http_version} %{http_code}"]);
        curl.arg("--cacert").arg(ca.path()).args(["-x", &format!("http://{}", bench.addr)]);
        curl.args([site.url("/one"), site.url("/two")]).stdin(Stdio::null());
        let run = tokio::task::spawn_blocking(move || curl.output());
        let output = run.await.unwrap().expect("curl is installed");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(text.matches(expected).count(), 2, "{text}");
        assert!(text.contains("You asked for /two"), "{text}");
    }
}
