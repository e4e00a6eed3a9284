//! How the gate treats requests and tunnels.

use std::time::Duration;

use super::bench::{Bench, Site, rule, settings, until};
use crate::{
    classify::verdict::Verdict,
    limiter::policy::{CooldownPolicy, Split, Weights},
    rules::{Action, HostPattern, Matcher, Retry, Rule, TunnelCount},
};

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 2\r\n\r\nhi";
const BLOCK: &str = "HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\n\r\n";

/// One request at once, then `rate` per second.
fn limited(rate: f64) -> Rule {
    let mut rule = rule();
    rule.limits.rate = Some(rate);
    rule.limits.burst = 1;
    rule
}

/// Trips on the first block, for `length`.
fn cooling(length: Duration) -> Rule {
    let mut rule = rule();
    rule.cooldown = Some(CooldownPolicy {
        per: Split::All,
        after: 1.0,
        ratio: None,
        silence: None,
        on: Weights { verdicts: vec![(Verdict::RateLimited, 1.0)], statuses: Vec::new() },
        length: (length, length),
        forget_after: Duration::from_secs(60),
        probe: true,
        grow: 1.0,
        max: length,
        respect_retry_after: false,
        ramp: Duration::ZERO,
    });
    rule
}

async fn bench(rule: Rule) -> Bench {
    Bench::with(settings(), vec![rule]).await
}

const HELD: &str = r#"tidegate_held_requests{rule="default"}"#;

#[tokio::test]
async fn the_body_of_a_held_request_stays_with_its_client() {
    let site = Site::answering(OK).await;
    let bench = bench(limited(2.0)).await;
    assert_eq!(bench.get(&site.url("/")).await.status(), 200);
    let mut client = bench.connect().await;
    let put = "host: x\r\nexpect: 100-continue\r\ncontent-length: 3";
    client.send(&format!("PUT {} HTTP/1.1\r\n{put}\r\n\r\n", site.url("/"))).await;
    until("the request is held", || bench.metric(HELD) == 1.0).await;
    let early = tokio::time::timeout(Duration::from_millis(100), client.head()).await;
    assert!(early.is_err(), "{early:?} while the request was held");
    assert_eq!(client.head().await.status(), 100);
    client.send("abc").await;
    let answer = client.answer().await;
    assert_eq!(answer.status(), 200);
    let timing = answer.field("server-timing").unwrap().to_owned();
    assert!(timing.starts_with("hold;dur=") && !timing.starts_with("hold;dur=0.0"), "{timing}");
}

#[tokio::test]
async fn a_client_that_disconnects_while_held_costs_nothing() {
    let site = Site::answering(OK).await;
    let mut rule = limited(0.5);
    rule.max_wait = Duration::from_secs(60);
    let bench = bench(rule).await;
    assert_eq!(bench.get(&site.url("/")).await.status(), 200);
    let connections = site.connections.load(std::sync::atomic::Ordering::SeqCst);
    for line in [format!("GET {}", site.url("/")), format!("CONNECT {}", site.addr)] {
        let mut client = bench.connect().await;
        client.send(&format!("{line} HTTP/1.1\r\nhost: {}\r\n\r\n", site.addr)).await;
        until("it is held", || bench.metric(HELD) == 1.0).await;
        drop(client);
        until("it has left", || bench.metric(HELD) == 0.0).await;
    }
    let gone = r#"tidegate_held_gone_total{rule="default"}"#;
    until("both are counted", || bench.metric(gone) == 2.0).await;
    assert_eq!(site.connections.load(std::sync::atomic::Ordering::SeqCst), connections);
}

#[tokio::test]
async fn a_hopeless_wait_is_refused_at_once() {
    let site = Site::answering(OK).await;
    let bench = bench(limited(0.01)).await;
    assert_eq!(bench.get(&site.url("/")).await.status(), 200);
    for line in [format!("GET {}", site.url("/")), format!("CONNECT {}", site.addr)] {
        let answer = bench.ask(&format!("{line} HTTP/1.1\r\nhost: x\r\n\r\n")).await;
        assert_eq!((answer.status(), answer.field("tidegate-refused")), (429, Some("limit")));
    }
}

#[tokio::test]
async fn a_client_may_shorten_its_hold() {
    let site = Site::answering(OK).await;
    let bench = bench(limited(0.2)).await;
    assert_eq!(bench.get(&site.url("/")).await.status(), 200);
    let request = format!("GET {} HTTP/1.1\r\nhost: x\r\nprefer: wait=1\r\n\r\n", site.url("/"));
    let answer = bench.ask(&request).await;
    assert_eq!((answer.status(), answer.field("tidegate-refused")), (429, Some("limit")));
    assert_eq!(answer.field("proxy-status"), Some("tidegate; error=http_request_denied"));
    assert_eq!(answer.field("cache-control"), Some("no-store"));
    assert_eq!(answer.field("content-type"), Some("application/problem+json"));
    let wait: u64 = answer.field("retry-after").unwrap().parse().unwrap();
    assert!((1..=5).contains(&wait), "{wait}");
    assert_eq!(answer.field("x-ratelimit-limit"), Some("1"));
    assert_eq!(answer.field("x-ratelimit-remaining"), Some("0"));
    assert_eq!(answer.field("x-ratelimit-reset"), answer.field("retry-after"));
    assert_eq!(site.count(), 1);
}

#[tokio::test]
async fn a_denied_request_is_never_sent_and_a_bypassed_one_is_not_judged() {
    let site = Site::answering(BLOCK).await;
    let mut deny = rule();
    deny.name = "deny".into();
    deny.action = Action::Deny;
    deny.matcher = Matcher { paths: vec!["/secret*".into()], ..Matcher::default() };
    let mut bypass = cooling(Duration::from_secs(60));
    bypass.name = "bypass".into();
    bypass.action = Action::Bypass;
    bypass.matcher.hosts = vec![HostPattern::Ip([127, 0, 0, 1].into())];
    let bench = Bench::with(settings(), vec![deny, bypass]).await;
    let denied = bench.get(&site.url("/secret/1")).await;
    assert_eq!((denied.status(), denied.field("tidegate-refused")), (403, Some("denied")));
    for _ in 0..2 {
        let answer = bench.get(&site.url("/")).await;
        assert_eq!((answer.status(), answer.field("tidegate-verdict")), (429, None));
    }
    assert_eq!(site.count(), 2);
    let unruled = bench.get("http://127.0.0.2:9/").await;
    assert_eq!((unruled.status(), unruled.field("tidegate-refused")), (403, Some("denied")));
}

#[tokio::test]
async fn a_blocked_answer_is_asked_for_again_after_the_cooldown() {
    let site =
        Site::scripted(|number, _| ((if number == 0 { BLOCK } else { OK }).to_owned(), false))
            .await;
    let mut rule = cooling(Duration::from_millis(200));
    rule.retry =
        Retry { attempts: 2, on: vec![Verdict::RateLimited], methods: vec![http::Method::GET] };
    let bench = bench(rule).await;
    let answer = bench.get(&site.url("/")).await;
    assert_eq!((answer.status(), answer.field("tidegate-attempts")), (200, Some("2")));
    assert_eq!(answer.field("tidegate-verdict"), Some("ok"));
    assert_eq!(site.request(0).await, site.request(1).await);
}

#[tokio::test]
async fn a_blocked_response_is_relayed_if_there_is_no_time_for_a_retry() {
    let site = Site::answering(BLOCK).await;
    let mut rule = cooling(Duration::from_secs(60));
    rule.retry =
        Retry { attempts: 2, on: vec![Verdict::RateLimited], methods: vec![http::Method::GET] };
    let bench = bench(rule).await;
    let answer = bench.get(&site.url("/")).await;
    assert_eq!(answer.status(), 429);
    assert_eq!(answer.field("tidegate-verdict"), Some("429_rate_limited"));
    assert_eq!((answer.field("tidegate-refused"), answer.field("retry-after")), (None, None));
    let refused = bench.get(&site.url("/")).await;
    assert_eq!((refused.status(), refused.field("tidegate-refused")), (503, Some("cooldown")));
    assert_eq!(refused.field("proxy-status"), Some("tidegate; error=destination_unavailable"));
    assert_eq!(site.count(), 1);
}

/// A site that echoes the bytes of a tunnel one by one.
async fn echo() -> std::net::SocketAddr {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut byte = [0];
                while let Ok(1) = stream.read(&mut byte).await {
                    stream.write_all(&byte).await.unwrap();
                }
            });
        }
    });
    addr
}

#[tokio::test]
async fn each_flight_of_a_tunnel_takes_a_token_if_the_rule_counts_flights() {
    const TOKENS: &str = r#"tidegate_tokens_granted_total{rule="default"}"#;
    let site = echo().await;
    for (count, tokens) in [(TunnelCount::Flights, 3.0), (TunnelCount::Connect, 1.0)] {
        let mut rule = limited(100.0);
        rule.limits.burst = 100;
        rule.tunnel = count;
        let bench = bench(rule).await;
        let mut client = bench.connect().await;
        client.send(&format!("CONNECT {site} HTTP/1.1\r\nhost: {site}\r\n\r\n")).await;
        assert_eq!(client.head().await.status(), 200);
        for flight in ["a", "b", "c"] {
            client.send(flight).await;
            client.read_to(flight).await;
        }
        let verdicts = r#"tidegate_requests_total{rule="default",verdict="ok"}"#;
        until("each is counted", || bench.metric(verdicts) == tokens).await;
        assert!(bench.metric(TOKENS) >= tokens);
    }
}

#[tokio::test]
async fn a_cooldown_holds_the_bytes_of_a_tunnel() {
    let tunnelled = echo().await;
    let site = Site::answering(BLOCK).await;
    let length = Duration::from_millis(400);
    for count in [TunnelCount::Flights, TunnelCount::Connect] {
        let mut rule = cooling(length);
        rule.tunnel = count;
        let bench = bench(rule).await;
        let mut client = bench.connect().await;
        client.send(&format!("CONNECT {tunnelled} HTTP/1.1\r\nhost: x\r\n\r\n")).await;
        assert_eq!(client.head().await.status(), 200);
        client.send("a").await;
        client.read_to("a").await;
        let tripped = crate::runtime::clock::now();
        assert_eq!(bench.get(&site.url("/")).await.status(), 429);
        client.send("b").await;
        client.read_to("b").await;
        let waited = tripped.elapsed();
        assert!(waited >= length - Duration::from_millis(20), "{count:?}: only {waited:?}");
    }
}

#[tokio::test]
async fn a_cooldown_holds_the_next_request_until_its_end() {
    let blocked = Site::answering(BLOCK).await;
    let site = Site::answering(OK).await;
    let length = Duration::from_millis(400);
    let bench = bench(cooling(length)).await;
    let tripped = crate::runtime::clock::now();
    assert_eq!(bench.get(&blocked.url("/")).await.status(), 429);
    assert_eq!(bench.get(&site.url("/")).await.status(), 200);
    assert!(tripped.elapsed() >= length - Duration::from_millis(20));
}

#[tokio::test]
async fn a_stopping_gate_refuses_held_requests() {
    let site = Site::answering(OK).await;
    let mut rule = limited(0.2);
    rule.max_wait = Duration::from_secs(60);
    let bench = bench(rule).await;
    assert_eq!(bench.get(&site.url("/")).await.status(), 200);
    let mut client = bench.connect().await;
    client.send(&format!("GET {} HTTP/1.1\r\nhost: x\r\n\r\n", site.url("/"))).await;
    until("it is held", || bench.metric(HELD) == 1.0).await;
    bench.cx.gate.stop();
    let answer = client.answer().await;
    assert_eq!((answer.status(), answer.field("retry-after")), (503, Some("1")));
}
