//! Limits on number and time, and the end of the proxy.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use super::bench::{Bench, PATIENCE, Site, rule, settings, until};
use crate::rules::settings::Settings;

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi";

async fn bench(change: impl FnOnce(&mut Settings)) -> Bench {
    let mut settings = settings();
    change(&mut settings);
    Bench::with(settings, vec![rule()]).await
}

#[tokio::test]
async fn a_head_that_trickles_is_cut_off() {
    let bench = bench(|settings| settings.timeouts.header = Duration::from_millis(60)).await;
    let mut client = bench.connect().await;
    let (mut read, mut write) = client.stream.split();
    let trickle = async {
        for byte in b"GET http://a.example/ HTTP/1.1\r\n".iter().cycle() {
            tokio::time::sleep(Duration::from_millis(20)).await;
            if write.write_all(&[*byte]).await.is_err() {
                return;
            }
        }
    };
    let mut rest = Vec::new();
    tokio::select! {
        () = trickle => {}
        read = tokio::time::timeout(PATIENCE, read.read_to_end(&mut rest)) => {
            drop(read.expect("the connection ends in time"));
        }
    }
    let timeouts = r#"tidegate_refused_total{rule="",reason="timeout"}"#;
    until("the cut is counted", || bench.metric(timeouts) == 1.0).await;
}

#[tokio::test]
async fn a_silent_connection_ends_but_one_between_requests_may_wait() {
    let site = Site::answering(OK).await;
    let bench = bench(|settings| settings.timeouts.header = Duration::from_millis(50)).await;
    let mut silent = bench.connect().await;
    let mut waiting = bench.connect().await;
    let request = format!("GET {} HTTP/1.1\r\nhost: x\r\n\r\n", site.url("/"));
    waiting.send(&request).await;
    assert_eq!(waiting.answer().await.status(), 200);
    assert_eq!(silent.rest().await, "");
    tokio::time::sleep(Duration::from_millis(100)).await; // twice the time for a head
    waiting.send(&request).await;
    assert_eq!(waiting.answer().await.status(), 200);
}

#[tokio::test]
async fn a_kept_connection_that_is_not_used_ends() {
    let site = Site::answering(OK).await;
    let bench = bench(|settings| settings.timeouts.idle = Duration::from_millis(50)).await;
    let mut client = bench.connect().await;
    client.send(&format!("GET {} HTTP/1.1\r\nhost: x\r\n\r\n", site.url("/"))).await;
    assert_eq!(client.answer().await.status(), 200);
    assert_eq!(client.rest().await, "");
}

#[tokio::test]
async fn an_upload_that_stops_is_cut_off() {
    let site = Site::answering(OK).await;
    let bench = bench(|settings| settings.timeouts.idle = Duration::from_millis(50)).await;
    let mut client = bench.connect().await;
    let head = format!("POST {} HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n", site.url("/"));
    client.send(&(head + "abc")).await;
    let answer = client.answer().await;
    assert_eq!((answer.status(), answer.field("tidegate-refused")), (408, Some("timeout")));
    assert_eq!(site.count(), 0, "the site never had a whole request");
}

#[tokio::test]
async fn a_head_beyond_the_bounds_is_refused() {
    let bench = bench(|settings| {
        settings.limits.header_bytes = 8 << 10;
        settings.limits.headers = 20;
    })
    .await;
    let long = format!("GET http://a.example/ HTTP/1.1\r\nx: {}\r\n\r\n", "a".repeat(9 << 10));
    assert_eq!(bench.ask(&long).await.status(), 431);
    let many = format!("GET http://a.example/ HTTP/1.1\r\n{}\r\n", "x: 1\r\n".repeat(21));
    assert_eq!(bench.ask(&many).await.status(), 431);
}

#[tokio::test]
async fn a_full_proxy_refuses_with_a_reason() {
    for (total, per_client) in [(2, 9), (9, 2)] {
        let site = Site::answering(OK).await;
        let bench = bench(|settings| {
            settings.limits.connections = total;
            settings.limits.per_client = per_client;
        })
        .await;
        let first = bench.connect().await;
        let _second = bench.connect().await;
        until("both are in", || bench.metric("tidegate_client_connections") == 2.0).await;
        let answer = bench.get(&site.url("/")).await;
        assert_eq!((answer.status(), answer.field("tidegate-refused")), (503, Some("queue")));
        assert_eq!(answer.field("retry-after"), Some("1"));
        assert_eq!(answer.field("proxy-status"), Some("tidegate; error=connection_limit_reached"));
        drop(first);
        until("one left", || bench.metric("tidegate_client_connections") == 1.0).await;
        assert_eq!(bench.get(&site.url("/")).await.status(), 200);
    }
}

/// A site with an endless response; returns the number of bytes that it could write.
async fn endless() -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = stream.read(&mut [0; 1024]).await.unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: video/x\r\n\r\n").await.unwrap();
        while stream.write_all(&[b'x'; 64 << 10]).await.is_ok() {}
    });
    addr
}

#[tokio::test]
async fn a_client_that_stops_reading_does_not_hold_its_site_for_ever() {
    let site = endless().await;
    let bench = bench(|settings| settings.timeouts.idle = Duration::from_millis(100)).await;
    let mut client = bench.connect().await;
    client.send(&format!("GET http://{site}/ HTTP/1.1\r\nhost: x\r\n\r\n")).await;
    assert_eq!(client.head().await.status(), 200);
    until("both connections are closed", || {
        bench.metric("tidegate_upstream_connections") == 0.0
            && bench.metric("tidegate_client_connections") == 0.0
    })
    .await;
}

#[tokio::test]
async fn a_client_that_disconnects_ends_its_site_connection() {
    for holds in [false, true] {
        let site = if holds {
            Site::scripted(|_, _| (String::new(), false)).await.addr_for_good()
        } else {
            endless().await
        };
        let bench = Bench::start().await;
        let mut client = bench.connect().await;
        client.send(&format!("GET http://{site}/ HTTP/1.1\r\nhost: x\r\n\r\n")).await;
        until("the site is reached", || bench.metric("tidegate_upstream_connections") == 1.0).await;
        drop(client);
        until("all is closed", || {
            bench.metric("tidegate_upstream_connections") == 0.0
                && bench.metric("tidegate_client_connections") == 0.0
        })
        .await;
    }
}

#[tokio::test]
async fn stopping_finishes_requests_in_flight_only() {
    let (release, released) = tokio::sync::watch::channel(false);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let site = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = stream.read(&mut [0; 1024]).await.unwrap();
        let mut released = released;
        released.wait_for(|go| *go).await.unwrap();
        stream.write_all(OK.as_bytes()).await.unwrap();
    });
    let mut bench = Bench::start().await;
    let mut idle = bench.connect().await;
    let mut busy = bench.connect().await;
    busy.send(&format!("GET http://{site}/ HTTP/1.1\r\nhost: x\r\n\r\n")).await;
    until("the site is reached", || bench.metric("tidegate_upstream_connections") == 1.0).await;
    bench.stop.cancel();
    assert_eq!(idle.rest().await, "", "an idle connection closes at once");
    assert!(TcpStream::connect(bench.addr).await.is_err(), "the listener is closed");
    release.send(true).unwrap();
    let answer = busy.answer().await;
    assert_eq!((answer.status(), answer.field("connection")), (200, Some("close")));
    tokio::time::timeout(PATIENCE, &mut bench.served).await.expect("the end").unwrap();
}

#[tokio::test]
async fn connections_that_outlast_the_drain_are_closed() {
    let site = Site::scripted(|_, _| (String::new(), false)).await;
    let mut bench = bench(|settings| settings.timeouts.drain = Duration::from_millis(50)).await;
    let mut stuck = bench.connect().await;
    stuck.send(&format!("GET {} HTTP/1.1\r\nhost: x\r\n\r\n", site.url("/"))).await;
    let mut tunnel = bench.connect().await;
    tunnel.send(&format!("CONNECT {0} HTTP/1.1\r\nhost: {0}\r\n\r\n", site.addr)).await;
    assert_eq!(tunnel.head().await.status(), 200);
    site.request(0).await;
    bench.stop.cancel();
    let cut = tokio::time::timeout(PATIENCE, &mut bench.served).await.expect("the end").unwrap();
    assert_eq!(cut, 2, "the connection and the tunnel");
    assert_eq!((stuck.rest().await, tunnel.rest().await), (String::new(), String::new()));
}
