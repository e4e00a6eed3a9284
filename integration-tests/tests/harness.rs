//! Tests of the harness itself.

use std::time::Duration;

use integration_tests::{
    client::{ProxyClient, Raw, get, get_direct, try_get_direct},
    redis::Redis,
    site::{Page, Site},
    wait::wait_until,
    walls::{Kind, Wall},
};
use tokio::task::JoinSet;

#[tokio::test]
async fn a_site_follows_its_script_and_records_requests() {
    let site = Site::start();
    site.on("/wall", Page::CloudflareChallenge);
    site.on("/fast", Page::TooManyRequests(Some("7".to_owned())));
    site.on("/item/*", Page::Blank);
    assert!(get_direct(site.address(), "/").await.text().contains("harbour"));
    let wall = get_direct(site.address(), "/wall?page=2").await;
    assert_eq!((wall.status, wall.header("cf-mitigated")), (403, Some("challenge")));
    let fast = get_direct(site.address(), "/fast").await;
    assert_eq!((fast.status, fast.header("retry-after")), (429, Some("7")));
    assert!(!get_direct(site.address(), "/item/3").await.text().contains("harbour"));
    let paths: Vec<_> = site.arrivals().into_iter().map(|a| (a.path, a.status)).collect();
    let expected = [("/", 200), ("/wall?page=2", 403), ("/fast", 429), ("/item/3", 200)];
    assert_eq!(paths, expected.map(|(path, status)| (path.to_owned(), status)));
}

#[tokio::test]
async fn a_site_can_be_switched_to_blocking_and_back() {
    let site = Site::start();
    let mut client = ProxyClient::connect(site.address()).await;
    site.answer_everything_with(Some(Page::Forbidden));
    assert_eq!(client.get(&site.url("/a")).await.status, 403);
    site.answer_everything_with(None);
    assert_eq!(client.get(&site.url("/a")).await.status, 200);
    assert_eq!(site.connections(), 1, "kept alive");
}

#[tokio::test]
async fn a_wall_in_front_of_a_site_blocks_excess_requests_and_bans() {
    let site = Site::start();
    site.guard(Wall::new(Kind::Window, 7), 1);
    let (address, url) = (site.address(), site.url("/"));
    let mut asking = JoinSet::new();
    // More than any window allows: 60 s of 4.3 requests.
    for _ in 0..300 {
        let url = url.clone();
        asking.spawn(async move { get(address, &url).await.status });
    }
    let statuses = asking.join_all().await;
    let good = statuses.iter().filter(|status| **status == 200).count();
    assert!((20..=258).contains(&good), "{good} pages");
    let banned = get(address, &url).await;
    assert_eq!((banned.status, banned.header("cf-mitigated")), (403, Some("challenge")));
}

#[tokio::test]
async fn a_site_can_break_off_before_and_inside_a_response() {
    let site = Site::start();
    site.on("/reset", Page::Reset);
    site.on("/cut", Page::CutOff(1));
    assert!(try_get_direct(site.address(), "/reset").await.is_err());
    assert!(try_get_direct(site.address(), "/cut").await.is_err());
    assert_eq!(site.count(), 2);
}

#[tokio::test]
async fn a_held_page_waits_for_its_release() {
    let site = Site::start();
    site.on("/held", Page::Held);
    let address = site.address();
    let waiting = tokio::spawn(async move { get_direct(address, "/held").await.status });
    wait_until("it arrives", Duration::from_secs(5), async || site.count() == 1).await;
    assert!(!waiting.is_finished());
    site.release();
    assert_eq!(waiting.await.expect("it ends"), 200);
}

#[tokio::test]
async fn bodies_come_whole_chunked_and_large() {
    let site = Site::start();
    site.on("/chunks", Page::Chunked { times: 5, pause: Duration::from_millis(1) });
    site.on("/large", Page::Mebibytes(3));
    let chunks = get_direct(site.address(), "/chunks").await;
    assert_eq!(chunks.header("transfer-encoding"), Some("chunked"));
    assert_eq!(chunks.body.len(), 5 * 4096);
    let large = get_direct(site.address(), "/large").await;
    assert_eq!(large.header("content-length"), Some("3145728"));
    assert_eq!(large.body.len(), 3 << 20);
}

#[tokio::test]
async fn an_upgraded_connection_echoes() {
    let site = Site::start();
    site.on("/ws", Page::Upgrade);
    let mut raw = Raw::connect(site.address()).await;
    raw.send("GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        .await;
    assert!(raw.head().await.starts_with("HTTP/1.1 101 "));
    raw.send("hello").await;
    assert_eq!(raw.exactly(5).await, b"hello");
}

#[test]
fn redis_dies_comes_back_empty_and_can_be_frozen() {
    let mut redis = Redis::start();
    assert_eq!(redis.command(&["SET", "a", "1"]), "+OK\r\n");
    redis.kill();
    redis.restart();
    assert_eq!(redis.command(&["GET", "a"]), "$-1\r\n");
    redis.freeze();
    redis.thaw();
    assert_eq!(redis.command(&["PING"]), "+PONG\r\n");
}
