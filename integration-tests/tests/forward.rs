//! Plain HTTP through the proxy: requests at the site, responses at the client, and streaming
//! bodies.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, header};
use http_body_util::{BodyExt as _, Full};
use integration_tests::{
    client::{ProxyClient, Raw, TIMEOUT, get, get_request, try_get},
    member::{Member, RuleFile},
    site::{Page, Site},
    wait::wait_until,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::timeout,
};

const SOON: Duration = Duration::from_secs(5);
/// A body far larger than all buffers between the site and the client together.
const LARGE: u64 = 200;
const MIB: u64 = 1 << 20;
/// How much the proxy's memory may grow while a body is held up or streams: socket buffers and a
/// few chunks.
const GROWTH: u64 = 32 * MIB;

async fn start() -> (Site, Member) {
    let site = Site::start();
    let member = Member::start(&RuleFile::one_rule("cooldown: {after: 100}")).await;
    (site, member)
}

#[tokio::test]
async fn a_request_in_absolute_form_reaches_the_site_in_origin_form() {
    let (site, member) = start().await;
    let answer = get(member.proxy(), &site.url("/path?query=1")).await;
    assert_eq!(answer.status, 200);
    assert!(answer.text().contains("harbour"));
    let arrivals = site.arrivals();
    assert_eq!(arrivals[0].path, "/path?query=1");
    assert_eq!(arrivals[0].header("host"), Some(site.address().to_string().as_str()));
}

#[tokio::test]
async fn relayed_responses_contain_verdict_rule_and_times() {
    let (site, member) = start().await;
    let answer = get(member.proxy(), &site.url("/")).await;
    assert_eq!(answer.verdict(), Some("ok"));
    assert_eq!(answer.header("tidegate-rule"), Some("default"));
    let timing = answer.header("server-timing").expect("a Server-Timing");
    assert!(timing.contains("hold;dur=") && timing.contains("upstream;dur="), "{timing}");
    assert_eq!(answer.refused(), None);
}

#[tokio::test]
async fn annotations_can_be_switched_off() {
    let site = Site::start();
    let member = Member::start(&RuleFile::one_rule("rate: 100/s").with("annotate: false")).await;
    let answer = get(member.proxy(), &site.url("/")).await;
    assert_eq!((answer.status, answer.verdict()), (200, None));
    assert_eq!(answer.header("server-timing"), None);
    assert_eq!(answer.header("tidegate-rule"), None);
}

#[tokio::test]
async fn nothing_of_the_hop_between_client_and_proxy_reaches_the_site() {
    let (site, member) = start().await;
    site.on("/echo", Page::Echo);
    let mut request = get_request(&site.url("/echo"));
    for (name, value) in [
        ("proxy-authorization", "Basic eDp5"),
        ("proxy-connection", "keep-alive"),
        ("connection", "keep-alive, x-mine"),
        ("x-mine", "for the proxy only"),
        ("prefer", "wait=10"),
        ("te", "trailers"),
        ("user-agent", "crawler/1.0"),
        ("accept-encoding", "gzip, br"),
    ] {
        request.headers_mut().insert(name, value.parse().expect("clean values"));
    }
    let echo = ProxyClient::connect(member.proxy()).await.send(request).await.expect("an answer");
    let seen = &site.arrivals()[0];
    for hidden in
        ["proxy-authorization", "proxy-connection", "x-mine", "x-forwarded-for", "forwarded"]
    {
        assert_eq!(seen.header(hidden), None, "{hidden} reached the site:\n{}", echo.text());
    }
    assert_eq!(seen.header("user-agent"), Some("crawler/1.0"), "unchanged");
    assert_eq!(seen.header("accept-encoding"), Some("gzip, br"), "unchanged");
}

#[tokio::test]
async fn http_1_0_clients_are_served_and_the_connection_ends() {
    let (site, member) = start().await;
    let mut client = Raw::connect(member.proxy()).await;
    client.send(format!("GET {} HTTP/1.0\r\n\r\n", site.url("/old"))).await;
    let answer = String::from_utf8_lossy(&client.rest(SOON).await).into_owned();
    let status = answer.lines().next().expect("a status line");
    assert!(status.starts_with("HTTP/1.") && status.contains(" 200 "), "{status}");
    assert!(answer.contains("harbour"));
    assert!(!answer.to_lowercase().contains("transfer-encoding"), "1.0 knows no chunks:\n{answer}");
}

#[tokio::test]
async fn connections_to_sites_are_kept_and_used_again() {
    let (site, member) = start().await;
    for n in 0..10 {
        // Each request has its own client connection; the connection to the site is reused.
        assert_eq!(get(member.proxy(), &site.url(&format!("/{n}"))).await.status, 200);
    }
    assert!(site.connections() <= 2, "{} connections for ten requests", site.connections());
}

#[tokio::test]
async fn a_request_body_reaches_the_site_whole() {
    let (site, member) = start().await;
    site.on("/upload", Page::Upload);
    for size in [0_usize, 1, 70_000, 5_000_000] {
        let uri = site.url("/upload");
        let request = Request::post(uri)
            .header(header::HOST, site.address().to_string())
            .body(Full::new(Bytes::from(vec![7; size])))
            .expect("good parts");
        let mut client = ProxyClient::connect(member.proxy()).await;
        let answer = client.send(request).await.expect("an answer");
        assert_eq!(answer.text(), size.to_string());
    }
}

#[tokio::test]
async fn a_chunked_request_body_reaches_the_site_whole() {
    let (site, member) = start().await;
    site.on("/upload", Page::Upload);
    let mut client = Raw::connect(member.proxy()).await;
    let (url, host) = (site.url("/upload"), site.address());
    client
        .send(format!("POST {url} HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n"))
        .await;
    client.send("5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n").await;
    assert!(client.head().await.starts_with("HTTP/1.1 200 "));
    assert_eq!(client.exactly(2).await, b"11");
}

#[tokio::test]
async fn a_chunked_answer_comes_chunk_by_chunk() {
    let (site, member) = start().await;
    site.on("/slow", Page::Chunked { times: 60, pause: Duration::from_millis(100) });
    let mut client = ProxyClient::connect(member.proxy()).await;
    let response = client.stream(get_request(&site.url("/slow"))).await.expect("an answer");
    let mut body = response.into_body();
    let start = std::time::Instant::now();
    let first = timeout(TIMEOUT, body.frame()).await.expect("in time").expect("a chunk");
    let after = start.elapsed();
    assert!(after < Duration::from_secs(5), "the first chunk came after {after:?} of 6 s");
    let mut received = first.expect("a chunk").into_data().expect("data").len();
    while let Some(frame) = timeout(TIMEOUT, body.frame()).await.expect("in time") {
        received += frame.expect("whole").into_data().expect("data").len();
    }
    assert_eq!(received, 60 * 4096);
}

#[tokio::test]
async fn a_head_request_gets_the_head_alone() {
    let (site, member) = start().await;
    let mut request = get_request(&site.url("/"));
    *request.method_mut() = http::Method::HEAD;
    let mut client = ProxyClient::connect(member.proxy()).await;
    let answer = client.send(request).await.expect("an answer");
    assert_eq!((answer.status, answer.body.len(), answer.verdict()), (200, 0, Some("ok")));
    assert_eq!(client.get(&site.url("/")).await.status, 200, "the connection is still in step");
}

#[tokio::test]
async fn a_body_that_breaks_off_never_looks_whole() {
    let (site, member) = start().await;
    // While the proxy inspects the prefix, it can send an error itself. Later the body is cut off.
    site.on("/early", Page::CutOff(1));
    site.on("/late", Page::CutOff(1024));
    if let Ok(answer) = try_get(member.proxy(), &site.url("/early")).await {
        assert_eq!((answer.status, answer.refused()), (502, Some("connect")), "{}", answer.text());
    }
    assert!(try_get(member.proxy(), &site.url("/late")).await.is_err(), "not a whole answer");
    wait_until("what was cut off before its verdict is counted", SOON, async || {
        let labels = [("verdict", "connection_error")];
        member.metric("tidegate_requests_total", &labels).await >= 1.0
    })
    .await;
}

#[tokio::test]
async fn memory_stays_flat_while_a_large_answer_passes_and_waits() {
    let (site, member) = start().await;
    site.on("/large", Page::Mebibytes(LARGE));
    get(member.proxy(), &site.url("/")).await;
    let before = member.resident_bytes();
    let mut client = ProxyClient::connect(member.proxy()).await;
    let response = client.stream(get_request(&site.url("/large"))).await.expect("an answer");
    let mut body = response.into_body();
    let (mut received, mut most) = (0, 0);
    while let Some(frame) = timeout(TIMEOUT, body.frame()).await.expect("in time") {
        let before = received / (20 * MIB);
        received += frame.expect("whole").into_data().expect("data").len() as u64;
        if received / (20 * MIB) > before {
            // A reader slower than the site: the unread rest must wait at the site.
            tokio::time::sleep(Duration::from_millis(50)).await;
            most = most.max(member.resident_bytes());
        }
    }
    assert_eq!(received, LARGE * MIB);
    let growth = most.saturating_sub(before);
    assert!(growth < GROWTH, "memory grew by {} MiB", growth / MIB);
}

#[tokio::test]
async fn memory_stays_flat_while_a_site_does_not_take_a_large_upload() {
    let (site, member) = start().await;
    site.on("/held", Page::Held);
    get(member.proxy(), &site.url("/")).await;
    let before = member.resident_bytes();
    let mut stream = Raw::connect(member.proxy()).await.into_stream();
    let (length, host) = (LARGE * MIB, site.address());
    let head = format!(
        "POST {} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\n\r\n",
        site.url("/held")
    );
    stream.write_all(head.as_bytes()).await.expect("the head is taken");
    let chunk = vec![0; 1 << 20];
    let mut sent = 0;
    // Until reading stops: a second without progress is the back-pressure that this test expects.
    while let Ok(taken) = timeout(Duration::from_secs(1), stream.write(&chunk)).await {
        sent += taken.expect("the connection is open") as u64;
        assert!(sent < length, "everything was taken although the site reads nothing");
    }
    let growth = member.resident_bytes().saturating_sub(before);
    assert!(growth < GROWTH, "memory grew by {} MiB", growth / MIB);
    site.release();
    let (mut reader, mut writer) = stream.into_split();
    let rest = tokio::spawn(async move {
        while sent < length {
            let n = chunk.len().min(usize::try_from(length - sent).expect("it fits"));
            writer.write_all(&chunk[..n]).await.expect("the site reads now");
            sent += n as u64;
        }
        writer
    });
    let mut status = [0; 12];
    timeout(TIMEOUT, reader.read_exact(&mut status)).await.expect("in time").expect("an answer");
    assert_eq!(&status, b"HTTP/1.1 200");
    rest.await.expect("all of it was taken");
}

#[tokio::test]
async fn a_websocket_passes_after_the_gate() {
    let (site, member) = start().await;
    site.on("/ws", Page::Upgrade);
    let mut client = Raw::connect(member.proxy()).await;
    client
        .send(format!(
            "GET {} HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
            site.url("/ws"),
            site.address()
        ))
        .await;
    let head = client.head().await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    assert!(head.to_lowercase().contains("upgrade: websocket"), "{head}");
    for word in ["first", "second"] {
        client.send(word).await;
        assert_eq!(client.exactly(word.len()).await, word.as_bytes());
    }
    let counted = member.metric("tidegate_requests_total", &[("rule", "default")]).await;
    assert!((counted - 1.0).abs() < 1e-9, "one request, however much passes after it");
}
