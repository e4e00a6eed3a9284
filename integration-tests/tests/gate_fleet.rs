//! Several real processes on one real Redis: the bound holds whatever happens.

use std::{net::SocketAddr, time::Duration};

use integration_tests::{
    client::{get, get_direct, try_get},
    load::{crawl, statuses},
    member::{Member, RuleFile},
    redis::Redis,
    site::{Page, Site},
    wait::wait_until,
};

/// How far a site may see more than the bound although no grant exceeded it: requests that were in
/// flight for 100 ms longer than others, on a busy machine.
fn jitter(rate: f64) -> f64 {
    1.0 + rate * 0.1
}

const SOON: Duration = Duration::from_secs(20);

fn rule(rate: f64, burst: u32, redis: &Redis) -> RuleFile {
    RuleFile::one_rule(&format!("rate: {rate}/s, burst: {burst}, cooldown: off")).redis(redis)
}

fn proxies(fleet: &[Member]) -> Vec<SocketAddr> {
    fleet.iter().map(Member::proxy).collect()
}

#[tokio::test]
async fn a_flush_of_everything_refills_no_bucket() {
    let (redis, site) = (Redis::start(), Site::start());
    let fleet = Member::fleet(3, &rule(20.0, 20, &redis)).await;
    let load = tokio::spawn({
        let (proxies, url) = (proxies(&fleet), site.url("/"));
        async move { crawl(&proxies, 8, &url, 140).await }
    });
    for seen in [40, 70, 100] {
        wait_until("the load runs", SOON, async || site.count() > seen).await;
        assert!(redis.command(&["SCRIPT", "FLUSH"]).starts_with("+OK"));
        assert!(redis.command(&["FLUSHALL"]).starts_with("+OK"));
    }
    assert_eq!(statuses(&load.await.expect("the load ends")), [(200, 140)].into());
    let excess = site.excess(20.0, 20.0);
    assert!(excess <= jitter(20.0), "the worst window has {excess:.2} requests too many");
}

/// Three members whose wall clocks are an hour slow, right, and an hour fast, and run at different
/// speeds.
#[tokio::test]
async fn clocks_that_are_hours_apart_change_nothing() {
    let (redis, site) = (Redis::start(), Site::start());
    let rule = "rate: 20/s, burst: 5, cooldown: {after: 1, for: 1s, probe: false, ramp: 0s}";
    let file = RuleFile::one_rule(rule).redis(&redis);
    let mut fleet = Vec::new();
    for clock in ["-1h x0.9", "+0", "+1h x1.1"] {
        let preload = "export LD_PRELOAD=$(echo /usr/lib/*/faketime/libfaketime.so.1)";
        let wall = format!("{preload} FAKETIME='{clock}' FAKETIME_DONT_FAKE_MONOTONIC=1");
        fleet.push(Member::start_after(&wall, &file).await);
    }
    let mut dates = Vec::new();
    for member in &fleet {
        let date = get_direct(member.admin(), "/healthz").await.header("date").map(str::to_owned);
        dates.push(httpdate::parse_http_date(&date.expect("a date")).expect("a date"));
    }
    let apart = dates[2].duration_since(dates[0]).expect("the last is ahead");
    assert!(apart > Duration::from_secs(7_000), "the clocks are set: {apart:?} apart");
    let answers = crawl(&proxies(&fleet), 8, &site.url("/"), 60).await;
    assert_eq!(statuses(&answers), [(200, 60)].into());
    let excess = site.excess(20.0, 5.0);
    assert!(excess <= jitter(20.0), "the worst window has {excess:.2} requests too many");
    site.on("/wall", Page::Forbidden);
    for member in &fleet {
        assert_eq!(get(member.proxy(), &site.url("/wall")).await.status, 403);
        for held in &fleet {
            assert_eq!(get(held.proxy(), &site.url("/")).await.status, 200);
        }
        let times = site.times();
        let pause = times[times.len() - 3] - times[times.len() - 4];
        assert!(pause >= Duration::from_secs(1), "a cooldown of 1 s lasts {pause:?}");
    }
}

#[tokio::test]
async fn hundreds_of_disconnecting_clients_take_no_token() {
    let (redis, site) = (Redis::start(), Site::start());
    let fleet = Member::fleet(2, &rule(20.0, 1, &redis)).await;
    let url = site.url("/");
    for round in 0..3 {
        let mut leaving = tokio::task::JoinSet::new();
        for _ in 0..150 {
            let (url, proxy) = (url.clone(), fleet[round % 2].proxy());
            leaving.spawn(async move { try_get(proxy, &url).await.is_ok() });
        }
        let before = site.count();
        wait_until("some of them have had their turn", SOON, async || site.count() > before + 5)
            .await;
        leaving.shutdown().await;
    }
    let before = site.count();
    let start = std::time::Instant::now();
    crawl(&proxies(&fleet), 5, &url, 40).await;
    let took = start.elapsed().as_secs_f64();
    // The cancelled requests would have used up another twenty seconds.
    assert!(took <= 5.0, "{took:.2} s for 40 requests at 20/s: tokens were lost to those who left");
    assert!(site.count() >= before + 40);
    let excess = site.excess(20.0, 1.0);
    assert!(excess <= jitter(20.0), "the worst window has {excess:.2} requests too many");
}

#[tokio::test]
async fn a_reload_that_changes_the_rate_refills_nothing() {
    let (redis, site) = (Redis::start(), Site::start());
    let fleet = Member::fleet(3, &rule(20.0, 10, &redis)).await;
    let load = tokio::spawn({
        let (proxies, url) = (proxies(&fleet), site.url("/"));
        async move { crawl(&proxies, 8, &url, 200).await }
    });
    wait_until("the load runs", SOON, async || site.count() > 50).await;
    let before = site.times();
    for member in &fleet {
        member.rewrite(&rule(40.0, 10, &redis));
    }
    assert_eq!(statuses(&load.await.expect("the load ends")), [(200, 200)].into());
    let excess = site.excess_of(&before, 20.0, 10.0);
    assert!(excess <= jitter(20.0), "before: {excess:.2} requests too many");
    let after = &site.times()[before.len()..];
    let excess = site.excess_of(after, 40.0, 1.0);
    assert!(excess <= jitter(40.0), "the bucket was empty at the reload: {excess:.2} too many");
    let took = (after[after.len() - 1] - after[0]).as_secs_f64();
    let before = after.len() as f64 / 20.0;
    assert!(took < before - 1.0, "{took:.2} s for {} requests at 40/s", after.len());
}

#[tokio::test]
async fn a_reload_that_changes_the_rate_costs_a_quota_nothing() {
    let (redis, site) = (Redis::start(), Site::start());
    let rule = |rate: u32| {
        let keys = format!("rate: {rate}/s, burst: 1, quota: 30/h, learn: false, max_wait: 30s");
        RuleFile::one_rule(&keys).redis(&redis)
    };
    let member = Member::start(&rule(20)).await;
    let proxies = [member.proxy(); 30];
    let url = site.url("/");
    let load = tokio::spawn(async move { statuses(&crawl(&proxies, 1, &url, 30).await) });
    for (reloads, rate) in (21..24).enumerate() {
        let sent = site.count();
        wait_until("more are sent", SOON, async || site.count() > sent).await;
        member.rewrite(&rule(rate));
        wait_until("it is reloaded", SOON, async || {
            let done = member.metric("tidegate_config_reloads_total", &[("result", "ok")]).await;
            done > reloads as f64
        })
        .await;
    }
    assert_eq!(load.await.expect("the load ends"), [(200, 30)].into());
}

#[tokio::test]
async fn members_come_and_go_under_load_at_a_high_rate() {
    let (redis, site) = (Redis::start(), Site::start());
    let file = rule(500.0, 10, &redis);
    let mut fleet = Member::fleet(2, &file).await;
    let (survivor, url) = (fleet[0].proxy(), site.url("/"));
    let load = tokio::spawn({
        let url = url.clone();
        async move { crawl(&[survivor], 50, &url, 1_500).await }
    });
    for _ in 0..50 {
        let (url, proxy) = (url.clone(), fleet[1].proxy());
        // Some of these fail with their member, which this test ignores.
        tokio::spawn(async move { try_get(proxy, &url).await.is_ok() });
    }
    wait_until("the load runs", SOON, async || site.count() > 100).await;
    fleet[1].kill();
    let late = Member::start(&file).await;
    crawl(&[late.proxy()], 5, &url, 100).await;
    assert_eq!(statuses(&load.await.expect("the load ends")), [(200, 1_500)].into());
    let excess = site.excess(500.0, 10.0);
    assert!(excess <= jitter(500.0), "the worst window has {excess:.2} requests too many");
}

#[tokio::test]
async fn a_rate_of_one_in_five_seconds_is_kept_by_two_members() {
    let (redis, site) = (Redis::start(), Site::start());
    let fleet = Member::fleet(2, &rule(0.2, 1, &redis)).await;
    let answers = crawl(&proxies(&fleet), 2, &site.url("/"), 4).await;
    assert_eq!(statuses(&answers), [(200, 4)].into());
    let times = site.times();
    let took = (times[3] - times[0]).as_secs_f64();
    assert!(took > 14.0, "{took:.2} s for three more at 0.2/s");
    // How late one request may arrive, in tokens: a second.
    let excess = site.excess_of(&times, 0.2, 1.0);
    assert!(excess <= 0.2, "the worst window has {excess:.2} requests too many");
}
