//! CONNECT: valid targets, the time of the response, the bytes that pass, and the end of each side.

use std::{net::SocketAddr, time::Duration};

use integration_tests::{
    member::{Member, RuleFile},
    ports::free_address,
    wait::wait_until,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use crate::{
    bench::{Client, FOLLOWING, SOON, addressed, check, each, exchange, member, statuses},
    origin::{OK, Origin},
};

/// A listener with this handler for its connections.
async fn listening<F: Future<Output = ()> + Send + 'static>(
    handle: impl Fn(TcpStream) -> F + Send + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback binds");
    let address = listener.local_addr().expect("a bound socket has an address");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(handle(stream));
        }
    });
    address
}

/// Sends every byte back.
async fn echo() -> SocketAddr {
    listening(|mut stream| async move {
        let (mut from, mut to) = stream.split();
        drop(tokio::io::copy(&mut from, &mut to).await);
    })
    .await
}

fn connect(to: impl std::fmt::Display) -> String {
    format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n")
}

/// An open tunnel.
async fn tunnel(member: &Member, to: SocketAddr) -> Client {
    let mut client = Client::connect(member.proxy()).await;
    client.send(connect(to)).await;
    let head = client.head().await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    let lower = head.to_lowercase();
    assert!(!lower.contains("content-length") && !lower.contains("transfer-encoding"), "{head}");
    client
}

#[tokio::test]
async fn a_connect_that_names_no_host_and_port_is_refused() {
    let member = member().await;
    let proxy = member.proxy();
    let rows = [
        "site.example",
        "site.example:",
        "site.example:0",
        "site.example:65536",
        "site.example:-1",
        "site.example:+443",
        "site.example:0x50",
        "site.example:443:443",
        "site.example:http",
        "http://site.example:443",
        "http://site.example/",
        "site.example:443/",
        "site.example:443/x",
        "site.example:443?x",
        "site.example:443#x",
        "//site.example:443",
        "/",
        "[::1",
        "[::1]",
        "[::1]443",
        "::1:443",
        "[site.example]:443",
        "[fe80::1%25lo]:443",
        "user@site.example:443",
        "user:secret@site.example:443",
        "@site.example:443",
        "*",
        "*:443",
        ":443",
        ":",
        "site..example:443",
        ".site.example:443",
        "-:443/..",
        "a b:443",
        "site.example:4 43",
        "127.1:443",
        "0x7f.0.0.1:443",
        "2130706433:443",
        "site.example%00:443",
        "%73ite.example:443",
        "site.example\\:443",
        "s\u{ef}te.example:443",
    ];
    each(rows.map(|target| (target, target)), move |target| async move {
        let site = Origin::answering(OK).await;
        let bytes = format!("CONNECT {target} HTTP/1.1\r\nHost: site.example\r\n\r\n{FOLLOWING}");
        let answer = exchange(proxy, addressed(bytes.as_bytes(), site.address())).await;
        check(statuses(&answer) == [400], || answer.clone())?;
        check(answer.to_lowercase().contains("connection: close"), || answer.clone())?;
        check(site.received().is_empty(), || site.received())
    })
    .await;
}

#[tokio::test]
async fn a_refused_connect_always_ends_its_connection() {
    let open = member().await;
    let locked =
        Member::start(&RuleFile::one_rule("cooldown: off").with("auth: {users: {a: b}}")).await;
    let slow = Member::start(&RuleFile::one_rule("rate: 1/h, burst: 1, max_wait: 0s")).await;
    let narrow =
        RuleFile::one_rule("cooldown: off").egress("{allow: [loopback], connect_ports: [443]}");
    let narrow = Member::start(&narrow).await;
    let site = echo().await;
    drop(tunnel(&slow, site).await);
    let rows = [
        ("no such port", (open.proxy(), connect(free_address()), 502)),
        ("no such host", (open.proxy(), connect("nowhere.invalid:443"), 502)),
        ("the port for mail", (open.proxy(), connect("127.0.0.1:25"), 403)),
        ("the proxy itself", (open.proxy(), connect(open.proxy()), 403)),
        (
            "the proxy by name",
            (open.proxy(), connect(format!("localhost:{}", open.proxy().port())), 403),
        ),
        ("its admin port", (open.proxy(), connect(open.admin()), 403)),
        ("a port that is not listed", (narrow.proxy(), connect(site), 403)),
        ("no credentials", (locked.proxy(), connect(site), 407)),
        ("no token", (slow.proxy(), connect(site), 429)),
        (
            "a body",
            (
                open.proxy(),
                connect(site).replace("\r\n\r\n", "\r\nContent-Length: 5\r\n\r\nhello"),
                400,
            ),
        ),
        (
            "chunks",
            (
                open.proxy(),
                connect(site)
                    .replace("\r\n\r\n", "\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
                400,
            ),
        ),
        (
            "two Hosts",
            (open.proxy(), connect(site).replace("\r\n\r\n", "\r\nHost: x\r\n\r\n"), 400),
        ),
    ];
    each(rows, move |(proxy, request, status)| async move {
        let site = Origin::answering(OK).await;
        let bytes = addressed(format!("{request}{FOLLOWING}").as_bytes(), site.address());
        let answer = exchange(proxy, bytes).await;
        check(statuses(&answer) == [status], || answer.clone())?;
        let lower = answer.to_lowercase();
        check(lower.contains("connection: close") && lower.contains("proxy-status"), || {
            answer.clone()
        })?;
        check(site.received().is_empty(), || site.received())
    })
    .await;
}

#[tokio::test]
async fn a_connect_reaches_its_target_in_either_version_and_after_a_request() {
    let member = member().await;
    let (site, plain) = (echo().await, Origin::answering(OK).await);
    for head in [
        format!("CONNECT {site} HTTP/1.1\r\nHost: other.example:1\r\n\r\n"),
        format!("CONNECT {site} HTTP/1.0\r\n\r\n"),
        format!("CONNECT {site} HTTP/1.1\r\nHost: {site}\r\nContent-Length: 0\r\n\r\n"),
        format!(
            "CONNECT {site} HTTP/1.1\r\nHost: {site}\r\nConnection: keep-alive\r\nProxy-Connection: keep-alive\r\n\r\n"
        ),
    ] {
        let mut client = Client::connect(member.proxy()).await;
        let before = "GET http://SITE/x HTTP/1.1\r\nHost: SITE\r\n\r\n";
        let bytes = addressed(before.as_bytes(), plain.address());
        client.send([bytes, head.clone().into(), b"early".to_vec()].concat()).await;
        assert_eq!(client.answer().await.status(), 200);
        assert!(client.head().await.starts_with("HTTP/1."), "{head}");
        client.send(" late").await;
        assert_eq!(client.exactly(10).await, b"early late", "{head}");
    }
}

#[tokio::test]
async fn a_site_that_sends_first_is_relayed() {
    let member = member().await;
    let site = listening(|mut stream| async move {
        drop(stream.write_all(b"220 hello\r\n").await);
        drop(stream.read_u8().await);
    })
    .await;
    let mut client = tunnel(&member, site).await;
    assert_eq!(client.exactly(11).await, b"220 hello\r\n");
}

#[tokio::test]
async fn many_tunnels_carry_their_own_bytes_both_ways_at_once() {
    const SIZE: usize = 256 << 10;
    let member = member().await;
    let site = echo().await;
    let rows = (0..60_usize).map(|n| ("a tunnel", (n, if n == 0 { 16 * SIZE } else { SIZE })));
    let proxy = member.proxy();
    each(rows, move |(n, size)| async move {
        let mut client = Client::connect(proxy).await;
        let sent: Vec<u8> = (0..size).map(|at| (at * 31 + n * 7 + at / 251) as u8).collect();
        client.send(connect(site)).await;
        let head = client.head().await;
        check(head.starts_with("HTTP/1.1 200 "), || head.clone())?;
        let (mut from, mut to) = client.stream.into_split();
        let sending = tokio::spawn({
            let sent = sent.clone();
            async move { to.write_all(&sent).await.map(|()| to) }
        });
        let mut received = vec![0; size];
        let reading = from.read_exact(&mut received);
        tokio::time::timeout(SOON * 2, reading)
            .await
            .map_err(|_| "not in time")?
            .map_err(|e| e.to_string())?;
        drop(sending.await);
        check(received == sent, || "other bytes".to_owned())
    })
    .await;
}

#[tokio::test]
async fn a_client_that_closes_its_sending_side_gets_the_whole_response() {
    let member = member().await;
    let site = listening(|mut stream| async move {
        let mut all = Vec::new();
        drop(stream.read_to_end(&mut all).await);
        // Longer than anything that closes with the first end would wait.
        tokio::time::sleep(Duration::from_millis(500)).await;
        let answer = format!("{} bytes", all.len());
        drop(stream.write_all(answer.as_bytes()).await);
    })
    .await;
    let mut client = tunnel(&member, site).await;
    client.send(vec![b'x'; 100_000]).await;
    client.stream.shutdown().await.expect("the tunnel is open");
    assert_eq!(client.rest().await, "100000 bytes");
}

#[tokio::test]
async fn the_last_bytes_of_a_closing_site_are_relayed() {
    const SIZE: usize = 2 << 20;
    let member = member().await;
    let site = listening(|mut stream| async move {
        drop(stream.write_all(&vec![b'y'; SIZE]).await);
    })
    .await;
    let mut client = tunnel(&member, site).await;
    // A peer that does not read immediately must not lose bytes in flight.
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(client.rest().await.len(), SIZE);
    wait_until("the tunnel is gone", SOON, async || {
        member.metric("tidegate_tunnels", &[]).await.abs() < 1e-9
    })
    .await;
}

#[tokio::test]
async fn tunnels_are_limited_as_configured_and_each_slot_is_returned() {
    let file = RuleFile::one_rule("cooldown: off").with("limits: {tunnels: 3}");
    let member = Member::start(&file).await;
    let site = echo().await;
    let mut open = Vec::new();
    for _ in 0..3 {
        open.push(tunnel(&member, site).await);
    }
    let refused = exchange(member.proxy(), connect(site)).await;
    assert_eq!(statuses(&refused), [503], "{refused}");
    assert!(refused.to_lowercase().contains("retry-after: 1"), "{refused}");
    let reached = member.metric("tidegate_limit_hits_total", &[("limit", "tunnels")]).await;
    assert!((reached - 1.0).abs() < 1e-9, "{reached} are counted");
    drop(open);
    let none = async || member.metric("tidegate_tunnels", &[]).await.abs() < 1e-9;
    wait_until("all places are free", SOON, none).await;
    for n in 0..200 {
        let mut client = Client::connect(member.proxy()).await;
        client.send(connect(site)).await;
        if n % 2 == 0 {
            // Every second client disconnects before its response.
            client.head().await;
        }
        drop(client);
        if n % 3 == 2 {
            wait_until("places are free", SOON, none).await;
        }
    }
    wait_until("all places are free again", SOON, none).await;
    drop(tunnel(&member, site).await);
}

#[tokio::test]
async fn a_tunnel_in_which_nothing_moves_ends_on_both_sides() {
    let file = RuleFile::one_rule("cooldown: off").with("timeouts: {idle: 1s}");
    let member = Member::start(&file).await;
    let (tell, mut ended) = tokio::sync::mpsc::unbounded_channel();
    let site = listening(move |mut stream| {
        let tell = tell.clone();
        async move {
            while matches!(stream.read(&mut [0; 64]).await, Ok(read) if read > 0) {
                drop(stream.write_all(b".").await);
            }
            tell.send(()).expect("the test listens");
        }
    })
    .await;
    let mut client = tunnel(&member, site).await;
    for _ in 0..6 {
        tokio::time::sleep(Duration::from_millis(300)).await;
        client.send("x").await;
        client.exactly(1).await;
    }
    assert_eq!(client.rest().await, "");
    tokio::time::timeout(SOON, ended.recv()).await.expect("the site's side ends too");
    wait_until("it is counted", SOON, async || {
        member.metric("tidegate_limit_hits_total", &[("limit", "idle_tunnel")]).await >= 1.0
    })
    .await;
}
