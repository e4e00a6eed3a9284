//! Limits on size, number and time: each is enforced, counted by its name, and affects no other
//! client.

use std::{net::SocketAddr, time::Duration};

use integration_tests::{
    client::get_direct,
    member::{Member, RuleFile},
    wait::wait_until,
};
use tokio::net::TcpSocket;

use crate::{
    bench::{Client, SOON, addressed, ask, check, each, exchange, member, statuses},
    origin::{OK, Origin, Reply},
};

const GET: &str = "GET http://SITE/x HTTP/1.1\r\nHost: SITE\r\n\r\n";
const MIB: u64 = 1 << 20;

async fn with(lines: &str) -> Member {
    Member::start(&RuleFile::one_rule("cooldown: off").with(lines)).await
}

/// Waits until this bound was reached so often.
async fn reached(member: &Member, limit: &str, times: f64) {
    wait_until(&format!("{limit} is counted"), SOON, async || {
        member.metric("tidegate_limit_hits_total", &[("limit", limit)]).await >= times
    })
    .await;
}

#[tokio::test]
async fn missing_heads_cost_one_connection_each_and_affect_no_other_client() {
    const MANY: usize = 200;
    let member = with("timeouts: {header: 2s}").await;
    let site = Origin::answering(OK).await;
    let mut trickling = Vec::new();
    for n in 0..MANY {
        let proxy = member.proxy();
        trickling.push(tokio::spawn(async move {
            let mut client = Client::connect(proxy).await;
            let pieces: &[u8] =
                if n % 2 == 0 { b"" } else { b"GET http://a.example/ HTTP/1.1\r\nX-A: " };
            for byte in pieces.iter().chain(std::iter::repeat_n(&b'a', 40)).take(pieces.len() * 2) {
                client.send([*byte]).await;
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            client.rest().await
        }));
    }
    wait_until("all of them are in", SOON, async || {
        member.metric("tidegate_client_connections", &[]).await >= MANY as f64
    })
    .await;
    let answer = ask(member.proxy(), addressed(GET.as_bytes(), site.address())).await;
    assert_eq!(answer.status(), 200, "among {MANY} that trickle or say nothing");
    for client in trickling {
        let answer = client.await.expect("it ends");
        assert!(matches!(statuses(&answer)[..], [] | [408]), "{answer}");
    }
    reached(&member, "header_time", MANY as f64).await;
    assert_eq!(site.requests().len(), 1);
}

#[tokio::test]
async fn idle_connections_are_closed_and_counted() {
    let member = with("timeouts: {idle: 1s}").await;
    let site = Origin::answering(OK).await;
    let post = "POST http://SITE/x HTTP/1.1\r\nHost: SITE\r\nContent-Length: 100\r\n\r\nhello";
    let answer = exchange(member.proxy(), addressed(post.as_bytes(), site.address())).await;
    assert_eq!(statuses(&answer), [408], "{answer}");
    reached(&member, "idle_request", 1.0).await;
    wait_until("the site's connection ends", SOON, async || site.ended() == 1).await;
    assert!(site.requests().is_empty());
    let answer = exchange(member.proxy(), addressed(GET.as_bytes(), site.address())).await;
    assert_eq!(statuses(&answer), [200], "a kept connection that nobody uses ends: {answer}");
    reached(&member, "idle_connection", 1.0).await;
    let large = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: image/png\r\nContent-Length: {}\r\n\r\n",
        64 * MIB
    );
    let site = Origin::answering([large.into_bytes(), vec![0; 64 << 20]].concat()).await;
    let mut client = Client::connect(member.proxy()).await;
    client.send(addressed(GET.as_bytes(), site.address())).await;
    reached(&member, "idle_answer", 1.0).await;
    wait_until("a writer for nobody is let go", SOON, async || site.ended() == 1).await;
    drop(client);
}

#[tokio::test]
async fn oversized_parts_are_refused_by_name_and_never_kept() {
    let member = member().await;
    let proxy = member.proxy();
    let site = Origin::answering(OK).await;
    let large = get_with(&format!("X-A: {}\r\n", "a".repeat(60_000)));
    let answer = ask(proxy, addressed(large.as_bytes(), site.address())).await;
    assert_eq!(answer.status(), 200, "60 kB are fine");
    assert!(site.received().contains(&"a".repeat(60_000)), "and arrive whole");
    let before = member.resident_bytes();
    let rows = vec![
        (
            "a field of 2 MiB",
            (get_with(&format!("X-A: {}\r\n", "a".repeat(2 << 20))), 431, "header_bytes"),
        ),
        (
            "2 MiB of fields",
            (
                get_with(&format!("X-A: {}\r\n", "a".repeat(1000)).repeat(2 << 10)),
                431,
                "header_bytes",
            ),
        ),
        ("5000 fields", (get_with(&"X-A: b\r\n".repeat(5000)), 431, "headers")),
        ("101 fields", (get_with(&"X-A: b\r\n".repeat(100)), 431, "headers")),
        (
            "a target of 200 kB",
            (GET.replace("/x", &format!("/{}", "x".repeat(200_000))), 414, "header_bytes"),
        ),
        ("a line without end", ("a".repeat(2 << 20), 414, "header_bytes")),
        (
            "a name without end",
            (GET.replace("\r\n\r\n", &format!("\r\n{}", "a".repeat(2 << 20))), 431, "header_bytes"),
        ),
    ];
    let rows_len = rows.len();
    each(rows, move |(bytes, status, _)| async move {
        let site = Origin::answering(OK).await;
        let answer = exchange(proxy, addressed(bytes.as_bytes(), site.address())).await;
        check(statuses(&answer) == [status], || answer.clone())?;
        check(site.received().is_empty(), || site.received())
    })
    .await;
    let growth = member.resident_bytes().saturating_sub(before);
    assert!(growth < 4 * MIB, "{growth} bytes more");
    reached(&member, "headers", 2.0).await;
    reached(&member, "header_bytes", rows_len as f64 - 2.0).await;
}

fn get_with(fields: &str) -> String {
    GET.replace("\r\n\r\n", &format!("\r\n{fields}\r\n"))
}

#[tokio::test]
async fn heads_of_sites_are_bounded_too() {
    let member = member().await;
    let head = format!("HTTP/1.1 200 OK\r\nX-A: {}\r\n\r\n", "a".repeat(1 << 20));
    let site = Origin::scripted(move |_, _| Reply::last(head.clone())).await;
    let answer = ask(member.proxy(), addressed(GET.as_bytes(), site.address())).await;
    assert_eq!(answer.status(), 502);
    let status = answer.field("proxy-status").unwrap_or_default();
    assert!(status.contains("http_response_header_section_size"), "{status}");
    reached(&member, "header_bytes", 1.0).await;
}

#[tokio::test]
async fn an_answer_without_end_is_relayed_and_not_kept() {
    let member = member().await;
    let piece = vec![b'x'; 1 << 20];
    let head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n".to_vec();
    let site = Origin::scripted(move |_, _| Reply {
        pieces: std::iter::once(head.clone())
            .chain(std::iter::repeat_n(piece.clone(), 64))
            .collect(),
        pause: Duration::ZERO,
        close: true,
    })
    .await;
    let before = member.resident_bytes();
    let mut client = Client::connect(member.proxy()).await;
    client.send(addressed(GET.replace("1.1\r\n", "1.0\r\n").as_bytes(), site.address())).await;
    client.head().await;
    for _ in 0..64 {
        client.exactly(1 << 20).await;
    }
    let growth = member.resident_bytes().saturating_sub(before);
    assert!(growth < 32 * MIB, "{} MiB more", growth / MIB);
}

#[tokio::test]
async fn a_client_that_disconnects_ends_its_connection_to_the_site() {
    let member = member().await;
    let head = "HTTP/1.1 200 OK\r\nContent-Type: image/png\r\nContent-Length: 10\r\n\r\nhello";
    for begun in ["", head] {
        let site = Origin::answering(begun).await;
        let mut client = Client::connect(member.proxy()).await;
        client.send(addressed(GET.as_bytes(), site.address())).await;
        wait_until("the site has the request", SOON, async || site.requests().len() == 1).await;
        drop(client);
        wait_until("the site's connection ends", SOON, async || site.ended() == 1).await;
    }
    wait_until("nothing is left", SOON, async || {
        let metrics = member.metrics().await;
        metrics.sum("tidegate_client_connections", &[])
            + metrics.sum("tidegate_upstream_connections", &[])
            < 0.5
    })
    .await;
}

/// A connection from another address of this machine.
async fn from(address: &str, proxy: SocketAddr) -> Client {
    let socket = TcpSocket::new_v4().expect("a socket");
    let own = format!("{address}:0").parse().expect("an address");
    socket.bind(own).expect("all of 127/8 is this machine");
    Client::over(socket.connect(proxy).await.expect("the proxy listens"))
}

#[tokio::test]
async fn a_full_proxy_refuses_with_a_reason_and_one_client_cannot_take_all_connections() {
    let member = with("limits: {connections: 6, per_client: 4}").await;
    let site = Origin::answering(OK).await;
    let get = addressed(GET.as_bytes(), site.address());
    let busy = async |client: &mut Client| {
        let answer = client.answer().await;
        assert_eq!(
            (answer.status(), answer.field("retry-after")),
            (503, Some("1")),
            "{}",
            answer.head
        );
        assert!(
            answer.field("proxy-status").is_some_and(|s| s.contains("connection_limit_reached"))
        );
    };
    // Connections of the readiness check may still be open.
    let mut inside = Vec::new();
    wait_until("four of one client are in", SOON, async || {
        inside.clear();
        for _ in 0..4 {
            let mut client = Client::connect(member.proxy()).await;
            client.send(&get).await;
            if client.answer().await.status() == 200 {
                inside.push(client);
            }
        }
        inside.len() == 4
    })
    .await;
    let before = member.metric("tidegate_limit_hits_total", &[("limit", "per_client")]).await;
    let mut fifth = Client::connect(member.proxy()).await;
    busy(&mut fifth).await;
    reached(&member, "per_client", before + 1.0).await;
    for address in ["127.0.0.2", "127.0.0.3"] {
        let mut other = from(address, member.proxy()).await;
        other.send(&get).await;
        assert_eq!(other.answer().await.status(), 200, "{address} has its own places");
        inside.push(other);
    }
    let mut seventh = from("127.0.0.4", member.proxy()).await;
    busy(&mut seventh).await;
    reached(&member, "connections", 1.0).await;
    assert_eq!(
        get_direct(member.admin(), "/healthz").await.status,
        200,
        "the admin port has its own"
    );
    inside.pop();
    wait_until("a place is free again", SOON, async || {
        let mut client = from("127.0.0.4", member.proxy()).await;
        client.send(&get).await;
        client.answer().await.status() == 200
    })
    .await;
}
