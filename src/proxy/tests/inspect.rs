//! Inspection of responses without delaying them.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    sync::watch,
};

use super::bench::{Bench, Site, rule, settings, until};

const WALL: &str = "<html><head><title>Attention Required! | Cloudflare</title></head><body>\
                    <h1>Sorry, you have been blocked</h1></body></html>";

/// A site that sends `first` at once and `then` on a signal.
async fn halting(first: String, then: &'static str) -> (std::net::SocketAddr, watch::Sender<bool>) {
    let (release, released) = watch::channel(false);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = stream.read(&mut [0; 1024]).await.unwrap();
        stream.write_all(first.as_bytes()).await.unwrap();
        let mut released = released;
        if released.wait_for(|go| *go).await.is_ok() {
            stream.write_all(then.as_bytes()).await.unwrap();
        }
    });
    (addr, release)
}

fn verdict(word: &str) -> String {
    format!(r#"tidegate_requests_total{{rule="default",verdict="{word}"}}"#)
}

async fn patient() -> Bench {
    let mut settings = settings();
    settings.inspect.delay = Duration::from_secs(60);
    Bench::with(settings, vec![rule()]).await
}

#[tokio::test]
async fn a_wall_is_named_to_the_client_and_passed_on_untouched() {
    let answer: &'static str =
        format!("HTTP/1.1 403 Forbidden\r\nserver: cloudflare\r\ncontent-type: text/html\r\ncontent-length: {}\r\n\r\n{WALL}", WALL.len()).leak();
    let site = Site::answering(answer).await;
    let bench = patient().await;
    let answer = bench.get(&site.url("/")).await;
    assert_eq!((answer.status(), answer.body()), (403, WALL));
    assert_eq!(answer.field("tidegate-verdict"), Some("403_forbidden"));
}

#[tokio::test]
async fn a_stream_is_never_delayed() {
    for kind in ["text/event-stream", "video/mp4", "application/octet-stream"] {
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n5\r\ndata:\r\n"
        );
        let (site, release) = halting(head, "2\r\nhi\r\n0\r\n\r\n").await;
        let bench = patient().await;
        let mut client = bench.connect().await;
        client.send(&format!("GET http://{site}/ HTTP/1.1\r\nhost: x\r\n\r\n")).await;
        client.read_to("data:").await;
        release.send(true).unwrap();
        client.read_to("0\r\n\r\n").await;
        until("it is judged in the end", || bench.metric(&verdict("ok")) == 1.0).await;
    }
}

#[tokio::test]
async fn a_slow_page_is_held_back_for_the_delay_and_judged_in_passing() {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ntransfer-encoding: chunked\r\n\r\n6\r\n<html>\r\n";
    let (site, release) = halting(head.to_owned(), "2\r\nhi\r\n0\r\n\r\n").await;
    let mut settings = settings();
    settings.inspect.delay = Duration::from_millis(50);
    let bench = Bench::with(settings, vec![rule()]).await;
    let mut client = bench.connect().await;
    client.send(&format!("GET http://{site}/ HTTP/1.1\r\nhost: x\r\n\r\n")).await;
    let answer = client.head().await;
    assert_eq!((answer.status(), answer.field("tidegate-verdict")), (200, None));
    client.read_to("<html>").await;
    release.send(true).unwrap();
    client.read_to("0\r\n\r\n").await;
    let judged = |word| bench.metric(&verdict(word));
    until("it is judged", || judged("ok") + judged("blank_page") == 1.0).await;
}

#[tokio::test]
async fn a_wall_counts_even_if_its_client_has_disconnected() {
    let head = format!(
        "HTTP/1.1 403 Forbidden\r\nserver: cloudflare\r\ncontent-type: text/html\r\ncontent-length: {}\r\n\r\n<html>",
        WALL.len()
    );
    let (site, release) = halting(head, WALL.strip_prefix("<html>").unwrap()).await;
    let bench = patient().await;
    let mut client = bench.connect().await;
    client.send(&format!("GET http://{site}/ HTTP/1.1\r\nhost: x\r\n\r\n")).await;
    let upstream = r#"tidegate_upstream_seconds_count{rule="default"}"#;
    until("the head is there", || bench.metric(upstream) == 1.0).await;
    drop(client);
    until("the client is gone", || bench.metric("tidegate_client_connections") == 0.0).await;
    release.send(true).unwrap();
    until("the verdict is counted", || bench.metric(&verdict("403_forbidden")) == 1.0).await;
}

#[tokio::test]
async fn a_dead_site_is_a_verdict_too() {
    let site = Site::scripted(|_, _| (String::new(), true)).await;
    let bench = Bench::start().await;
    assert_eq!(bench.get(&site.url("/")).await.status(), 502);
    assert_eq!(bench.metric(&verdict("connection_error")), 1.0);
}
