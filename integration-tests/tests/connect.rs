//! CONNECT: tunnels, their tokens, and requests that are refused before anything is sent.

use std::time::{Duration, Instant};

use integration_tests::{
    client::{Raw, get},
    member::{Member, RuleFile},
    ports::free_address,
    site::{Page, Site},
    wait::wait_until,
};

const SOON: Duration = Duration::from_secs(5);

/// Opens a tunnel and returns it with the head of the proxy's response.
async fn connect(member: &Member, to: &str) -> (Raw, String) {
    let mut client = Raw::connect(member.proxy()).await;
    client.send(format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n")).await;
    let head = client.head().await;
    (client, head)
}

#[tokio::test]
async fn a_tunnel_carries_bytes_both_ways_until_one_side_ends_it() {
    let site = Site::start();
    let member = Member::start(&RuleFile::one_rule("rate: 100/s")).await;
    let (mut tunnel, head) = connect(&member, &site.address().to_string()).await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    let lower = head.to_lowercase();
    assert!(!lower.contains("content-length") && !lower.contains("transfer-encoding"), "{head}");
    wait_until("the tunnel is shown", SOON, async || {
        (member.metric("tidegate_tunnels", &[("rule", "default")]).await - 1.0).abs() < 1e-9
    })
    .await;
    tunnel.send("GET /inside HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
    let answer = String::from_utf8_lossy(&tunnel.rest(SOON).await).into_owned();
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("harbour"), "{answer}");
    assert_eq!(site.arrivals()[0].path, "/inside");
    // The site has ended its side; the tunnel lives until the client ends its own.
    drop(tunnel);
    wait_until("the tunnel is gone", SOON, async || {
        member.metric("tidegate_tunnels", &[]).await.abs() < 1e-9
    })
    .await;
}

#[tokio::test]
async fn bytes_that_come_with_the_connect_are_not_lost() {
    let site = Site::start();
    let member = Member::start(&RuleFile::one_rule("rate: 100/s")).await;
    let mut client = Raw::connect(member.proxy()).await;
    let to = site.address();
    client
        .send(format!(
            "CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\nGET /early HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        ))
        .await;
    assert!(client.head().await.starts_with("HTTP/1.1 200 "));
    let answer = String::from_utf8_lossy(&client.rest(SOON).await).into_owned();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[tokio::test]
async fn a_connect_waits_for_its_token() {
    let site = Site::start();
    let member = Member::start(&RuleFile::one_rule("rate: 1/s, burst: 1, tunnel: connect")).await;
    let start = Instant::now();
    let to = site.address().to_string();
    let (_first, head) = connect(&member, &to).await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    let (_second, head) = connect(&member, &to).await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(990), "the second tunnel opened after {took:?}");
    let granted = member.metric("tidegate_tokens_granted_total", &[]).await;
    assert!((granted - 2.0).abs() < 1e-9, "{granted} tokens for two tunnels");
}

#[tokio::test]
async fn a_cooldown_holds_a_connect_too() {
    let site = Site::start();
    let file = RuleFile::one_rule("cooldown: {after: 1, for: 1s, probe: false, ramp: 0s}");
    let member = Member::start(&file).await;
    site.on("/wall", Page::Forbidden);
    get(member.proxy(), &site.url("/wall")).await;
    wait_until("it trips", SOON, async || {
        member.metric("tidegate_cooldowns_total", &[]).await > 0.0
    })
    .await;
    let tripped = site.times()[0];
    let (_tunnel, head) = connect(&member, &site.address().to_string()).await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    let pause = tripped.elapsed();
    assert!(pause >= Duration::from_secs(1), "the tunnel opened {pause:?} after the trip");
}

#[tokio::test]
async fn a_refused_connection_is_a_502_and_a_connection_error() {
    let member = Member::start(&RuleFile::one_rule("rate: 100/s")).await;
    let (_, head) = connect(&member, &free_address().to_string()).await;
    assert!(head.starts_with("HTTP/1.1 502 "), "{head}");
    assert!(head.to_lowercase().contains("tidegate-refused: connect"), "{head}");
    assert!(head.contains("connection_refused"), "{head}");
    wait_until("it is counted", SOON, async || {
        let labels = [("verdict", "connection_error")];
        member.metric("tidegate_requests_total", &labels).await > 0.0
    })
    .await;
}
