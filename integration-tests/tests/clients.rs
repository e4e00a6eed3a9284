//! Real clients crawl a small site through `HTTP_PROXY`: one page passes, one is blocked, some are
//! held. These are the fast clients; `real_clients.rs` has all of them.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use integration_tests::{
    member::{Member, RuleFile},
    site::{Page, Site},
    tools::{crawl, run_through},
};

const RATE: f64 = 10.0;

/// An index with links to six pages, the third of which is a wall.
async fn small_site() -> (Site, Member) {
    let site = Site::start();
    site.on("/", Page::Index(6));
    site.on("/item/3", Page::Forbidden);
    let member =
        Member::start(&RuleFile::one_rule("rate: 10/s, burst: 1, cooldown: {after: 2}")).await;
    (site, member)
}

/// Crawls the small site with a Python client, and checks its results and the site's.
async fn python_client_crawls(name: &str) {
    let (site, member) = small_site().await;
    let report = crawl(&member.proxy_url(), name, &site.url("/"), &[]).await;
    assert_eq!(report.error, None, "{name}: {report:?}");
    assert_eq!((report.count(200), report.count(403)), (6, 1), "{name}: {report:?}");
    assert_eq!(report.judged("ok"), 6, "{name}: {report:?}");
    assert_eq!(report.judged("403_forbidden"), 1, "{name}: {report:?}");
    assert_eq!(site.count(), 7, "{name}: nothing went twice, nothing past the proxy");
    let excess = site.excess(RATE, 1.0);
    assert!(excess <= 1.0, "{name}: {excess:.2} requests too many");
}

#[tokio::test]
async fn requests_crawls_a_site() {
    python_client_crawls("crawl_requests.py").await;
}

#[tokio::test]
async fn httpx_crawls_a_site() {
    python_client_crawls("crawl_httpx.py").await;
}

#[tokio::test]
async fn aiohttp_crawls_a_site() {
    python_client_crawls("crawl_aiohttp.py").await;
}

#[tokio::test]
async fn a_scrapy_spider_crawls_a_site() {
    python_client_crawls("spider.py").await;
}

#[tokio::test]
async fn curl_crawls_a_site() {
    let (site, member) = small_site().await;
    let urls = [site.url("/item/1"), site.url("/item/3"), site.url("/item/2")];
    let mut arguments = vec!["--silent", "--show-error", "--write-out", "%{http_code}\n"];
    for url in &urls {
        arguments.extend(["--output", "/dev/null", url]);
    }
    let start = Instant::now();
    let output = run_through(&member.proxy_url(), Path::new("curl"), &arguments).await;
    assert_eq!(String::from_utf8_lossy(&output.stdout), "200\n403\n200\n");
    assert!(start.elapsed() >= Duration::from_millis(200), "two of three were held");
    assert_eq!(site.count(), 3);
}

#[tokio::test]
async fn curl_reads_why_it_was_refused() {
    let site = Site::start();
    let member = Member::start(&RuleFile::one_rule("rate: 1/m, burst: 1, max_wait: 1s")).await;
    let url = site.url("/");
    let arguments = ["--silent", "--include", &url];
    run_through(&member.proxy_url(), Path::new("curl"), &arguments).await;
    let output = run_through(&member.proxy_url(), Path::new("curl"), &arguments).await;
    let answer = String::from_utf8_lossy(&output.stdout).to_lowercase();
    assert!(answer.starts_with("http/1.1 429 "), "{answer}");
    assert!(
        answer.contains("tidegate-refused: limit") && answer.contains("retry-after: "),
        "{answer}"
    );
}

#[tokio::test]
async fn curl_opens_a_tunnel() {
    let (site, member) = small_site().await;
    let url = site.url("/item/1");
    let arguments = ["--silent", "--show-error", "--fail", "--proxytunnel", &url];
    let output = run_through(&member.proxy_url(), Path::new("curl"), &arguments).await;
    assert!(String::from_utf8_lossy(&output.stdout).contains("harbour"));
    assert_eq!(site.count(), 1);
}
