//! WebSocket over HTTP/2: an extended CONNECT in an intercepted connection.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode, Version};
use http_body_util::{BodyExt as _, Empty};
use hyper::{body::Incoming, client::conn::http2::SendRequest, ext::Protocol};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{
    bench::until,
    intercept::{ask, h2, intercept},
    secure::{Flaw, Root, SecureSite, proxy, proxy_with},
};

const BOTH: &[&str] = &["h2", "http/1.1"];

/// Requests a protocol over a stream, on a connection whose SETTINGS have arrived.
async fn connect(
    sender: &mut SendRequest<Empty<Bytes>>,
    url: &str,
    protocol: &'static str,
) -> Result<Response<Incoming>, hyper::Error> {
    let request = Request::connect(url)
        .version(Version::HTTP_2)
        .extension(Protocol::from_static(protocol))
        .header("sec-websocket-version", "13")
        .header("sec-websocket-protocol", "chat")
        .header("origin", "https://a.example");
    sender.send_request(request.body(Empty::new()).unwrap()).await
}

#[tokio::test]
async fn its_handshake_is_one_of_http1_for_the_site_and_then_bytes_flow() {
    let root = Root::new();
    let site = SecureSite::start(&root, Flaw::None, BOTH).await;
    let bench = proxy(&root, |rule| {
        intercept(rule);
        rule.limits.rate = Some(1000.0);
    })
    .await;
    let mut sender = h2(&bench, &site.authority()).await;
    assert_eq!(ask(&mut sender, &site.url("/")).await.unwrap().status(), 200);
    let answer = connect(&mut sender, &site.url("/ws"), "websocket").await.unwrap();
    assert_eq!(answer.status(), 200);
    for name in ["sec-websocket-accept", "upgrade", "connection"] {
        assert!(!answer.headers().contains_key(name), "{answer:?}");
    }
    let seen = site.requests.lock()[1].clone();
    assert_eq!((seen.version, &seen.authority), (Version::HTTP_11, &site.authority()));
    for (name, value) in [
        ("connection", "upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-protocol", "chat"),
        ("origin", "https://a.example"),
    ] {
        assert_eq!(seen.fields[name], value);
    }
    assert_eq!(seen.fields["sec-websocket-key"].len(), 24, "sixteen bytes in Base64");
    let stream = TokioIo::new(hyper::upgrade::on(answer).await.unwrap());
    let (mut from, mut to) = tokio::io::split(stream);
    let sent: Vec<u8> = (0..1_u32 << 20).map(|n| (n % 251) as u8).collect();
    let expected = sent.clone();
    let writing = tokio::spawn(async move {
        to.write_all(&sent).await.unwrap();
        to
    });
    let mut echo = vec![0; expected.len()];
    from.read_exact(&mut echo).await.unwrap();
    assert!(echo == expected);
    assert_eq!(bench.metric(r#"tidegate_tunnels{rule="default"}"#), 2.0, "the CONNECT is one");
    assert_eq!(bench.metric(r#"tidegate_tokens_granted_total{rule="default"}"#), 2.0);
    assert_eq!(ask(&mut sender, &site.url("/beside")).await.unwrap().status(), 200);
    writing.await.unwrap().shutdown().await.unwrap();
    assert_eq!(from.read(&mut echo).await.unwrap(), 0, "the client's end is the site's");
    let open = || bench.metric(r#"tidegate_tunnels{rule="default"}"#);
    until("only the connection is left", || open() == 1.0).await;
}

#[tokio::test]
async fn a_websocket_that_does_not_open_is_not_a_success() {
    let root = Root::new();
    let site = SecureSite::start(&root, Flaw::None, BOTH).await;
    let bench = proxy(&root, intercept).await;
    let mut sender = h2(&bench, &site.authority()).await;
    assert_eq!(ask(&mut sender, &site.url("/")).await.unwrap().status(), 200);
    let other = connect(&mut sender, &site.url("/ws"), "connect-udp").await.unwrap();
    assert_eq!(other.status(), StatusCode::NOT_IMPLEMENTED);
    let local = connect(&mut sender, "https://elsewhere.example/ws", "websocket").await.unwrap();
    assert_eq!(local.status(), StatusCode::MISDIRECTED_REQUEST);
    assert_eq!(site.requests.lock().len(), 1, "neither reached the site");
    let foreign = connect(&mut sender, &site.url("/ws/of-another"), "websocket").await.unwrap();
    assert_eq!(foreign.status(), StatusCode::BAD_GATEWAY);
    assert_eq!(foreign.headers()["proxy-status"], "tidegate; error=http_upgrade_failed");
    let page = connect(&mut sender, &site.url("/page"), "websocket").await.unwrap();
    assert_eq!(page.status(), StatusCode::BAD_GATEWAY);
    let said = "tidegate; error=http_upgrade_failed; received-status=200";
    assert_eq!(page.headers()["proxy-status"], said);
    assert_eq!(page.headers()["tidegate-verdict"], "ok", "the site's answer is judged");
    let body = page.into_body().collect().await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&body).contains("You asked for /page"));
    assert_eq!(ask(&mut sender, &site.url("/after")).await.unwrap().status(), 200);
}

#[tokio::test]
async fn each_websocket_takes_a_tunnel_slot() {
    let root = Root::new();
    let site = SecureSite::start(&root, Flaw::None, BOTH).await;
    let bench = proxy_with(&root, intercept, |settings| settings.limits.tunnels = 2).await;
    let mut sender = h2(&bench, &site.authority()).await;
    assert_eq!(ask(&mut sender, &site.url("/")).await.unwrap().status(), 200);
    for _ in 0..2 {
        let open = connect(&mut sender, &site.url("/ws"), "websocket").await.unwrap();
        assert_eq!(open.status(), 200);
        let refused = connect(&mut sender, &site.url("/ws"), "websocket").await.unwrap();
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(refused.headers()["tidegate-refused"], "queue");
        drop(hyper::upgrade::on(open).await.unwrap());
        until("its place is free", || bench.cx.tunnels.len() == 1).await;
    }
}

#[tokio::test]
async fn a_connection_with_an_open_one_is_not_idle() {
    const IDLE: Duration = Duration::from_millis(1500);
    let root = Root::new();
    let site = SecureSite::start(&root, Flaw::None, BOTH).await;
    let bench = proxy_with(&root, intercept, |settings| settings.timeouts.idle = IDLE).await;
    let mut sender = h2(&bench, &site.authority()).await;
    assert_eq!(ask(&mut sender, &site.url("/")).await.unwrap().status(), 200);
    let open = connect(&mut sender, &site.url("/ws"), "websocket").await.unwrap();
    let mut stream = TokioIo::new(hyper::upgrade::on(open).await.unwrap());
    for _ in 0..25 {
        tokio::time::sleep(IDLE / 10).await;
        stream.write_all(b"frame").await.unwrap();
        let mut echo = [0; 5];
        stream.read_exact(&mut echo).await.unwrap();
    }
    assert_eq!(ask(&mut sender, &site.url("/after")).await.unwrap().status(), 200);
    let mut rest = Vec::new();
    // A broken connection is as good as an orderly end: no bytes move any more.
    drop(stream.read_to_end(&mut rest).await);
    until("the quiet one has ended", || bench.cx.tunnels.len() <= 1).await;
}
