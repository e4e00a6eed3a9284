//! Real clients through interception: every request inside is paced and judged.

use http::Version;
use integration_tests::site::Page;

use crate::{Crawler, LINKS, secure_site};

/// Runs a crawl in which one page is a wall, and checks the results of the client and the proxy.
async fn crawls(client: Crawler) {
    let (site, root) = secure_site();
    site.on("/item/3", Page::Forbidden);
    let member = root.member("intercept: true, rate: 1000/s, burst: 50").await;
    let (statuses, verdicts) = client.crawl(&member, &member.ca_file(), &site).await;
    let count = |wanted: u16| statuses.iter().filter(|status| **status == wanted).count();
    assert_eq!((count(200), count(403)), (LINKS, 1), "{client:?}: {statuses:?}");
    let judged = |wanted: &str| verdicts.iter().filter(|verdict| *verdict == wanted).count();
    assert_eq!((judged("ok"), judged("403_forbidden")), (LINKS, 1), "{client:?}: {verdicts:?}");
    let granted = member.metric("tidegate_tokens_granted_total", &[]).await;
    let wanted = f64::from(u32::try_from(site.count()).expect("few"));
    assert!((granted - wanted).abs() < 1e-9, "{granted} tokens for {wanted} requests");
    assert!(site.arrivals().iter().all(|arrival| arrival.version == Version::HTTP_2));
}

#[tokio::test]
async fn curl_crawls_in_http1() {
    crawls(Crawler::Curl { http2: false }).await;
}

#[tokio::test]
async fn curl_crawls_in_http2() {
    crawls(Crawler::Curl { http2: true }).await;
}

#[tokio::test]
async fn requests_crawls() {
    crawls(Crawler::http1("crawl_requests.py")).await;
}

#[tokio::test]
async fn httpx_crawls_in_http1() {
    crawls(Crawler::http1("crawl_httpx.py")).await;
}

#[tokio::test]
async fn httpx_crawls_in_http2() {
    crawls(Crawler::http2("crawl_httpx.py")).await;
}

#[tokio::test]
async fn aiohttp_crawls() {
    crawls(Crawler::http1("crawl_aiohttp.py")).await;
}

#[tokio::test]
async fn scrapy_crawls() {
    crawls(Crawler::http1("spider.py")).await;
}
