//! Kept-alive connections to sites: bounded, counted, closed in time.

use std::sync::atomic::Ordering;

use super::bench::{Bench, Site, rule, settings, until};

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-type: image/png\r\ncontent-length: 2\r\n\r\nhi";

fn open(bench: &Bench) -> f64 {
    bench.metric("tidegate_upstream_connections")
}

#[tokio::test]
async fn the_number_of_kept_connections_per_site_is_limited() {
    let site = Site::answering(OK).await;
    let mut settings = settings();
    settings.limits.idle_per_host = 2;
    let bench = Bench::with(settings, vec![rule()]).await;
    let url = site.url("/");
    tokio::join!(bench.get(&url), bench.get(&url), bench.get(&url), bench.get(&url));
    until("two are left", || open(&bench) <= 2.0).await;
    let before = site.connections.load(Ordering::SeqCst);
    assert_eq!(bench.get(&url).await.status(), 200);
    assert_eq!(site.connections.load(Ordering::SeqCst), before, "a kept one is used");
}

#[tokio::test]
async fn the_total_number_of_kept_connections_is_limited() {
    let mut settings = settings();
    settings.limits.idle_total = 4;
    let bench = Bench::with(settings, vec![rule()]).await;
    let mut sites = Vec::new();
    for _ in 0..12 {
        let site = Site::answering(OK).await;
        assert_eq!(bench.get(&site.url("/")).await.status(), 200);
        sites.push(site);
    }
    until("four are left", || open(&bench) <= 4.0).await;
    let last = sites.last().unwrap();
    assert_eq!(bench.get(&last.url("/")).await.status(), 200);
    assert_eq!(last.connections.load(Ordering::SeqCst), 1, "the latest are kept");
}

#[tokio::test]
async fn a_limit_of_zero_keeps_no_connection() {
    let site = Site::answering(OK).await;
    let mut settings = settings();
    settings.limits.idle_per_host = 0;
    let bench = Bench::with(settings, vec![rule()]).await;
    for connections in 1..3 {
        assert_eq!(bench.get(&site.url("/")).await.status(), 200);
        until("it is closed", || open(&bench) == 0.0).await;
        assert_eq!(site.connections.load(Ordering::SeqCst), connections);
    }
}

#[tokio::test]
async fn a_site_that_closes_an_idle_connection_is_not_asked_on_it() {
    let site = Site::scripted(|_, _| (OK.to_owned(), true)).await;
    let bench = Bench::start().await;
    for connections in 1..4 {
        assert_eq!(bench.get(&site.url("/")).await.status(), 200);
        until("its end is noticed", || open(&bench) == 0.0).await;
        assert_eq!(site.connections.load(Ordering::SeqCst), connections);
    }
    assert_eq!(bench.metric("tidegate_upstream_retries_total"), 0.0);
}

#[tokio::test]
async fn reloaded_settings_count_from_the_next_request_on() {
    let site = Site::answering(OK).await;
    let bench = Bench::start().await;
    assert!(bench.get(&site.url("/")).await.field("server-timing").is_some());
    let mut changed = settings();
    changed.annotate = false;
    bench.cx.reload(changed.clone());
    assert_eq!(bench.get(&site.url("/")).await.field("server-timing"), None);
    changed.egress.allow.clear();
    bench.cx.reload(changed);
    let denied = bench.get(&site.url("/")).await;
    assert_eq!((denied.status(), denied.field("tidegate-refused")), (403, Some("egress")));
    assert_eq!(denied.field("proxy-status"), Some("tidegate; error=destination_ip_prohibited"));
}
