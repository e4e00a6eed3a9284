//! CONNECT and other tunnels.

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use std::time::Duration;

use super::bench::{Bench, Site, rule, settings, until};

/// A site that returns its input in capitals until the end.
async fn echo() -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut buffer = [0; 1024];
                while let Ok(size @ 1..) = stream.read(&mut buffer).await {
                    buffer[..size].make_ascii_uppercase();
                    stream.write_all(&buffer[..size]).await.unwrap();
                }
                stream.write_all(b"the end").await.unwrap();
            });
        }
    });
    addr
}

#[tokio::test]
async fn a_connect_opens_a_tunnel_and_early_bytes_go_through() {
    let site = echo().await;
    let bench = Bench::start().await;
    let mut client = bench.connect().await;
    client.send(&format!("CONNECT {site} HTTP/1.1\r\nhost: {site}\r\n\r\nearly")).await;
    let answer = client.head().await;
    assert_eq!(answer.status(), 200);
    assert_eq!((answer.field("content-length"), answer.field("transfer-encoding")), (None, None));
    client.read_to("EARLY").await;
    client.send(" late").await;
    client.read_to(" LATE").await;
    assert_eq!(bench.metric(r#"tidegate_tunnels{rule="default"}"#), 1.0);
    client.stream.shutdown().await.unwrap();
    assert_eq!(client.rest().await, "the end", "a half-closed tunnel still answers");
    until("the tunnel is gone", || bench.cx.tunnels.is_empty()).await;
}

fn connect(target: impl std::fmt::Display) -> String {
    format!("CONNECT {target} HTTP/1.1\r\nhost: {target}\r\n\r\n")
}

#[tokio::test]
async fn a_refused_connect_closes_and_the_bytes_after_it_are_not_served() {
    let site = Site::answering("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi").await;
    let bench = Bench::start().await;
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let cases = [
        (bench.addr.to_string(), 403, "egress"),
        ("127.0.0.1:25".to_owned(), 403, "egress"),
        (closed.to_string(), 502, "connect"),
        ("nowhere.invalid:443".to_owned(), 502, "dns"),
    ];
    for (target, status, reason) in cases {
        let mut client = bench.connect().await;
        let behind = format!("GET {} HTTP/1.1\r\nhost: x\r\n\r\n", site.url("/"));
        client.send(&(connect(&target) + &behind)).await;
        let answer = client.answer().await;
        assert_eq!((answer.status(), answer.field("tidegate-refused")), (status, Some(reason)));
        assert_eq!(answer.field("connection"), Some("close"));
        assert_eq!(client.rest().await, "", "{target}");
    }
    assert_eq!(site.count(), 0);
}

#[tokio::test]
async fn tunnels_are_limited_and_each_end_frees_a_slot() {
    let site = echo().await;
    let mut settings = settings();
    settings.limits.tunnels = 2;
    let bench = Bench::with(settings, vec![rule()]).await;
    for _ in 0..3 {
        let mut open = Vec::new();
        for _ in 0..2 {
            let mut client = bench.connect().await;
            client.send(&connect(site)).await;
            assert_eq!(client.head().await.status(), 200);
            open.push(client);
        }
        let answer = bench.ask(&connect(site)).await;
        assert_eq!((answer.status(), answer.field("retry-after")), (503, Some("1")));
        drop(open);
        until("the tunnels are gone", || bench.cx.tunnels.is_empty()).await;
    }
    assert_eq!(bench.metric(r#"tidegate_tunnels{rule="default"}"#), 0.0);
}

#[tokio::test]
async fn a_tunnel_in_which_nothing_moves_ends() {
    let site = echo().await;
    let mut settings = settings();
    settings.timeouts.idle = Duration::from_millis(100);
    let bench = Bench::with(settings, vec![rule()]).await;
    let mut client = bench.connect().await;
    client.send(&connect(site)).await;
    assert_eq!(client.head().await.status(), 200);
    for _ in 0..8 {
        tokio::time::sleep(Duration::from_millis(25)).await; // twice the idle time in all
        client.send("x").await;
        client.read_to("X").await;
    }
    client.rest().await;
    until("the tunnel is gone", || bench.cx.tunnels.is_empty()).await;
}

#[tokio::test]
async fn a_tunnel_ends_soon_after_its_site_has() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let site = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"goodbye").await.unwrap();
    });
    let bench = Bench::start().await;
    let mut client = bench.connect().await;
    client.send(&connect(site)).await;
    assert_eq!(client.head().await.status(), 200);
    assert_eq!(client.rest().await, "goodbye");
    until("the tunnel is gone, though its client stays", || bench.cx.tunnels.is_empty()).await;
}

#[tokio::test]
async fn megabytes_pass_both_ways_at_once() {
    const SIZE: usize = 4 << 20;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let site = listener.local_addr().unwrap();
    let at_site = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        exchange(stream, b's', SIZE).await
    });
    let bench = Bench::start().await;
    let mut client = bench.connect().await;
    client.send(&connect(site)).await;
    assert_eq!(client.head().await.status(), 200);
    let got = exchange(client.stream, b'c', SIZE).await;
    assert!(got.len() == SIZE && got.iter().all(|byte| *byte == b's'));
    let got = at_site.await.unwrap();
    assert!(got.len() == SIZE && got.iter().all(|byte| *byte == b'c'));
}

/// Writes `size` times `byte`, ends its side, and reads to the end.
async fn exchange(stream: tokio::net::TcpStream, byte: u8, size: usize) -> Vec<u8> {
    let (mut read, mut write) = stream.into_split();
    let writing = tokio::spawn(async move {
        write.write_all(&vec![byte; size]).await.unwrap();
        write.shutdown().await.unwrap();
    });
    let mut got = Vec::new();
    read.read_to_end(&mut got).await.unwrap();
    writing.await.unwrap();
    got
}

const HANDSHAKE: &str = "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\
                         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
                         Sec-WebSocket-Extensions: permessage-deflate\r\n";

fn upgrade(site: impl std::fmt::Display) -> String {
    format!("GET http://{site}/chat HTTP/1.1\r\nHost: {site}\r\n{HANDSHAKE}\r\n")
}

#[tokio::test]
async fn a_websocket_passes_with_the_frames_behind_its_handshake() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let site = listener.local_addr().unwrap();
    let at_site = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = vec![0; 4096];
        let size = stream.read(&mut head).await.unwrap();
        let answer = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\
                      Connection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\nfirst frame";
        stream.write_all(answer.as_bytes()).await.unwrap();
        let mut frame = [0; 5];
        stream.read_exact(&mut frame).await.unwrap();
        (String::from_utf8_lossy(&head[..size]).into_owned(), frame)
    });
    let bench = Bench::start().await;
    let mut client = bench.connect().await;
    client.send(&upgrade(site)).await;
    let answer = client.head().await;
    assert_eq!(answer.status(), 101);
    assert_eq!(answer.field("upgrade"), Some("websocket"));
    assert_eq!(answer.field("connection"), Some("upgrade"));
    assert_eq!(answer.field("sec-websocket-accept"), Some("x"));
    client.read_to("first frame").await;
    client.send("hello").await;
    let (seen, frame) = at_site.await.unwrap();
    assert_eq!(&frame, b"hello");
    assert!(seen.contains("Connection: upgrade\r\n"), "{seen}");
    assert!(seen.contains("Upgrade: websocket\r\n"), "{seen}");
    assert!(seen.contains("Sec-WebSocket-Extensions: permessage-deflate\r\n"), "{seen}");
    assert_eq!(client.rest().await, "", "the site's end is the client's end");
}

#[tokio::test]
async fn a_refused_upgrade_is_a_request_like_any_other() {
    let site = Site::answering("HTTP/1.1 400 Bad Request\r\ncontent-length: 2\r\n\r\nno").await;
    let bench = Bench::start().await;
    let mut client = bench.connect().await;
    for number in 0..2 {
        client.send(&upgrade(site.addr)).await;
        let answer = client.answer().await;
        assert_eq!((answer.status(), answer.body()), (400, "no"));
        site.request(number).await;
    }
}
