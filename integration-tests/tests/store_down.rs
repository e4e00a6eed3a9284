//! Redis dies, stalls and returns: the promises of each `on_failure`.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use integration_tests::{
    client::{get, get_with},
    load::{crawl, statuses},
    member::{Member, RuleFile},
    redis::Redis,
    site::{Page, Site},
    wait::wait_until,
};

const SOON: Duration = Duration::from_secs(10);

fn rules(keys: &str, redis: &Redis, on_failure: &str) -> RuleFile {
    let url = redis.url();
    let store = format!("{{url: \"{url}\", timeout: 500ms, on_failure: {on_failure}}}");
    RuleFile::one_rule(keys).store(&store)
}

async fn status(proxy: SocketAddr, url: String) -> u16 {
    get(proxy, &url).await.status
}

#[tokio::test]
async fn local_keeps_going_within_the_rate_and_returns_to_redis() {
    let (mut redis, site) = (Redis::start(), Site::start());
    let member = Member::start(&rules("rate: 20/s, burst: 5", &redis, "local")).await;
    member.store_is(true).await;
    let answers = crawl(&[member.proxy()], 5, &site.url("/"), 20).await;
    assert_eq!(statuses(&answers), [(200, 20)].into());
    redis.kill();
    let answers = crawl(&[member.proxy()], 5, &site.url("/"), 30).await;
    assert_eq!(statuses(&answers), [(200, 30)].into(), "nobody notices");
    member.store_is(false).await;
    let decided = member.metric("tidegate_store_fallback_total", &[("mode", "local")]).await;
    assert!(decided > 0.0, "decisions without the store are counted");
    redis.restart();
    member.store_is(true).await;
    let answers = crawl(&[member.proxy()], 5, &site.url("/"), 20).await;
    assert_eq!(statuses(&answers), [(200, 20)].into());
    let keys = redis.command(&["DBSIZE"]);
    assert_ne!(keys, ":0\r\n", "the member takes its tokens from Redis again");
    let excess = site.excess(20.0, 5.0);
    assert!(excess <= 2.0, "{excess:.2} requests too many, over death and return of the store");
}

#[tokio::test]
async fn local_shares_add_up_to_the_rate_of_the_fleet() {
    let (mut redis, site) = (Redis::start(), Site::start());
    // At this rate a busy machine has to stop a member for a sixth of a second before two arrive late enough to
    // look like two too many.
    let fleet = Member::fleet(3, &rules("rate: 12/s, burst: 3", &redis, "local")).await;
    for member in &fleet {
        member.knows_of(3).await;
    }
    redis.kill();
    let proxies: Vec<_> = fleet.iter().map(Member::proxy).collect();
    let answers = crawl(&proxies, 5, &site.url("/"), 36).await;
    assert_eq!(statuses(&answers), [(200, 36)].into());
    let excess = site.excess(12.0, 3.0);
    assert!(excess <= 2.0, "{excess:.2} requests too many without the store");
    // From the first request that is sent. Before it all members pause, because others may still
    // use the store.
    let times = site.times();
    let took = (times[times.len() - 1] - times[0]).as_secs_f64();
    assert!(took < 6.0, "{took:.2} s: the shares are far below a third of the rate");
}

#[tokio::test]
async fn hosts_that_share_a_bucket_share_one_part_of_it_without_the_store() {
    let (mut redis, site) = (Redis::start(), Site::of_many_hosts());
    let keys =
        "rate: 10/s, burst: 1, quota: 40/h, learn: false, max_wait: 10s, cooldown: {per: host}";
    let fleet = Member::fleet(2, &rules(keys, &redis, "local")).await;
    for member in &fleet {
        member.knows_of(2).await;
        // A member that knows no window of the quota takes nothing from it.
        assert_eq!(get(member.proxy(), &site.url("/")).await.status, 200);
    }
    redis.kill();
    let asked: Vec<_> = (1..=60)
        .map(|host| {
            let (proxy, url) = (fleet[usize::from(host) % 2].proxy(), site.url_of(host, "/"));
            tokio::spawn(async move { get(proxy, &url).await.status })
        })
        .collect();
    for answer in asked {
        let status = answer.await.expect("it ends");
        assert!([200, 429].contains(&status), "{status}");
    }
    let sent = site.count();
    assert!((10..=40).contains(&sent), "{sent} requests of a quota of 40");
    let excess = site.excess(10.0, 1.0);
    assert!(excess <= 2.0, "{excess:.2} requests too many without the store");
}

#[tokio::test]
async fn tickets_of_the_old_rate_are_void_if_the_store_returns_after_a_reload() {
    let (mut redis, site) = (Redis::start(), Site::start());
    let rule = |rate: &str, redis: &Redis| {
        rules(&format!("rate: {rate}, burst: 1, learn: false, max_wait: 2h"), redis, "local")
    };
    let (old, new) = (rule("1/h", &redis), rule("20/s", &redis));
    let member = Member::start(&old).await;
    let (proxy, url) = (member.proxy(), site.url("/"));
    assert_eq!(get(proxy, &url).await.status, 200);
    let at = |redis: &Redis| redis.command(&["HGET", "tidegate:{default}:b:", "at"]);
    let before = at(&redis);
    let held = tokio::spawn(status(proxy, url.clone()));
    wait_until("it has a ticket in an hour", SOON, async || at(&redis) != before).await;
    assert_eq!(redis.command(&["SAVE"]), "+OK\r\n");
    redis.kill();
    member.store_is(false).await;
    member.rewrite(&new);
    wait_until("it goes without the store", SOON, async || held.is_finished()).await;
    redis.restart();
    assert_ne!(at(&redis), "$-1\r\n", "it still has the ticket of the old rate");
    member.store_is(true).await;
    for n in 0..3 {
        let next = tokio::spawn(status(proxy, url.clone()));
        wait_until("it goes at the new rate", SOON, async || next.is_finished()).await;
        assert_eq!(next.await.expect("it ends"), 200, "request {n}");
    }
}

#[tokio::test]
async fn a_cooldown_that_has_ended_does_not_come_back_with_an_old_snapshot() {
    let (mut redis, site) = (Redis::start(), Site::start());
    let keys = "rate: 100/s, burst: 10, cooldown: {after: 1, for: 1s, ramp: 0s}";
    let fleet = Member::fleet(2, &rules(keys, &redis, "local")).await;
    for member in &fleet {
        member.knows_of(2).await;
    }
    let till = |redis: &Redis| redis.command(&["HGET", "tidegate:{default}:c:", "till"]);
    site.on("/wall", Page::Forbidden);
    get(fleet[0].proxy(), &site.url("/wall")).await;
    assert_eq!(redis.command(&["SAVE"]), "+OK\r\n");
    let before = till(&redis);
    for member in &fleet {
        assert_eq!(get(member.proxy(), &site.url("/")).await.status, 200);
    }
    redis.kill();
    for member in &fleet {
        member.store_is(false).await;
    }
    redis.restart();
    assert_eq!(till(&redis), before, "it has the old state");
    for member in &fleet {
        member.store_is(true).await;
    }
    for member in &fleet {
        assert_eq!(get(member.proxy(), &site.url("/")).await.status, 200);
    }
    assert_eq!(till(&redis), "$1\r\n0\r\n", "it is open again");
}

#[tokio::test]
async fn open_mode_sends_requests() {
    let (mut redis, site) = (Redis::start(), Site::start());
    let member = Member::start(&rules("rate: 30/m, burst: 1", &redis, "open")).await;
    member.store_is(true).await;
    redis.kill();
    let start = Instant::now();
    let answers = crawl(&[member.proxy()], 2, &site.url("/"), 20).await;
    assert_eq!(statuses(&answers), [(200, 20)].into());
    let took = start.elapsed();
    assert!(took < Duration::from_secs(10), "{took:?} for what the rate allows in 38 s");
    assert!(member.metric("tidegate_store_fallback_total", &[("mode", "open")]).await > 0.0);
}

#[tokio::test]
async fn closed_refuses_until_it_is_back() {
    let (mut redis, site) = (Redis::start(), Site::start());
    let member = Member::start(&rules("rate: 100/s, burst: 10", &redis, "closed")).await;
    member.store_is(true).await;
    redis.kill();
    let answer = get(member.proxy(), &site.url("/")).await;
    assert_eq!((answer.status, answer.refused()), (503, Some("store")));
    assert!(answer.header("proxy-status").expect("one").contains("destination_unavailable"));
    assert_eq!(site.count(), 0);
    redis.restart();
    member.store_is(true).await;
    assert_eq!(get(member.proxy(), &site.url("/")).await.status, 200);
}

#[tokio::test]
async fn closed_refuses_also_those_that_wait_behind_a_ticket_and_a_reload_voids_that_ticket() {
    let (redis, site) = (Redis::start(), Site::start());
    let rule = |rate: &str| {
        rules(&format!("rate: {rate}, burst: 1, learn: false, max_wait: 2h"), &redis, "closed")
    };
    let (old, new) = (rule("1/h"), rule("20/s"));
    let member = Member::start(&old).await;
    member.store_is(true).await;
    let (proxy, url) = (member.proxy(), site.url("/"));
    assert_eq!(get(proxy, &url).await.status, 200);
    let at = || redis.command(&["HGET", "tidegate:{default}:b:", "at"]);
    let before = at();
    let held = tokio::spawn(status(proxy, url.clone()));
    wait_until("it has a ticket in an hour", SOON, async || at() != before).await;
    redis.freeze();
    member.store_is(false).await;
    let behind = tokio::spawn(status(proxy, url.clone()));
    wait_until("it is refused", SOON, async || behind.is_finished()).await;
    assert_eq!(behind.await.expect("it ends"), 503);
    assert_eq!(held.await.expect("it ends"), 503);
    redis.thaw();
    member.store_is(true).await;
    member.rewrite(&new);
    wait_until("the new rate is in force", SOON, async || {
        (member.metric("tidegate_rate_limit", &[]).await - 20.0).abs() < 1e-9
    })
    .await;
    for n in 0..3 {
        let next = tokio::spawn(status(proxy, url.clone()));
        wait_until("it goes at the new rate", SOON, async || next.is_finished()).await;
        assert_eq!(next.await.expect("it ends"), 200, "request {n}");
    }
}

#[tokio::test]
async fn a_cooldown_in_force_stays_in_force_and_returns_to_a_redis_that_forgot_it() {
    let (mut redis, site) = (Redis::start(), Site::start());
    let keys = "rate: 100/s, burst: 10, cooldown: {after: 1, for: 4s, probe: false, ramp: 0s}";
    let member = Member::start(&rules(keys, &redis, "open")).await;
    member.store_is(true).await;
    site.on("/wall", Page::Forbidden);
    get(member.proxy(), &site.url("/wall")).await;
    wait_until("it trips", SOON, async || {
        member.metric("tidegate_cooldown_active", &[]).await > 0.0
    })
    .await;
    redis.kill();
    let answer = {
        let (proxy, url) = (member.proxy(), site.url("/held"));
        let held = tokio::spawn(async move { get(proxy, &url).await });
        member.store_is(false).await;
        redis.restart();
        member.store_is(true).await;
        held.await.expect("it ends")
    };
    assert_eq!(answer.status, 200);
    let times = site.times();
    let pause = times[1] - times[0];
    assert!(pause >= Duration::from_secs(4), "only {pause:?} of a cooldown of 4 s");
}

#[tokio::test]
async fn members_that_start_without_redis_hold_until_they_have_reached_it() {
    let (mut redis, site) = (Redis::start(), Site::start());
    redis.kill();
    let keys = "rate: 20/s, burst: 10, cooldown: off";
    let fleet = Member::fleet(3, &rules(keys, &redis, "local")).await;
    let held: Vec<_> = fleet
        .iter()
        .flat_map(|member| [member.proxy(); 10])
        .map(|proxy| {
            let url = site.url("/");
            tokio::spawn(async move { get(proxy, &url).await.status })
        })
        .collect();
    for member in &fleet {
        wait_until("the requests are held", SOON, async || {
            (member.metric("tidegate_held_requests", &[]).await - 10.0).abs() < 1e-9
        })
        .await;
        member.store_is(false).await;
    }
    // A client that cannot wait gets the reason.
    let answer = get_with(fleet[0].proxy(), &site.url("/"), "prefer", "wait=1").await;
    assert_eq!((answer.status, answer.refused()), (503, Some("store")), "{}", answer.text());
    assert_eq!(site.count(), 0, "nobody knows a share");
    redis.restart();
    for one in held {
        assert_eq!(one.await.expect("it ends"), 200);
    }
    let excess = site.excess(20.0, 10.0);
    assert!(excess <= 2.0, "{excess:.2} requests too many");
}

#[tokio::test]
async fn a_member_that_starts_without_redis_sends_at_its_local_share() {
    let (mut redis, site) = (Redis::start(), Site::start());
    redis.kill();
    let store = format!("{{url: \"{}\", timeout: 500ms, local_share: 50%}}", redis.url());
    let rules = RuleFile::one_rule("rate: 8/s, burst: 4, cooldown: off").store(&store);
    let member = Member::start(&rules).await;
    let answers = crawl(&[member.proxy()], 3, &site.url("/"), 12).await;
    assert_eq!(statuses(&answers), [(200, 12)].into());
    // At this rate only a machine that stalls for half a second looks like two too many.
    let excess = site.excess(4.0, 2.0);
    assert!(excess <= 2.0, "{excess:.2} requests above half of the rate");
    redis.restart();
    member.store_is(true).await;
    assert_eq!(get(member.proxy(), &site.url("/")).await.status, 200);
}

#[tokio::test]
async fn a_redis_that_hangs_delays_nobody_for_longer_than_its_timeout() {
    let (redis, site) = (Redis::start(), Site::start());
    let store = format!("{{url: \"{}\", timeout: 4s, on_failure: open}}", redis.url());
    let file = RuleFile::one_rule("rate: 1000/s, burst: 100").store(&store);
    let member = Member::start(&file).await;
    member.store_is(true).await;
    redis.freeze();
    for n in 0..5 {
        let answer = get(member.proxy(), &site.url("/")).await;
        assert_eq!(answer.status, 200);
        assert!(answer.took < Duration::from_secs(12), "request {n} took {:?}", answer.took);
    }
    member.store_is(false).await;
    let answer = get(member.proxy(), &site.url("/")).await;
    assert!(answer.took < Duration::from_secs(4), "nobody waits for it: {:?}", answer.took);
    redis.thaw();
    member.store_is(true).await;
}

#[tokio::test]
async fn forgotten_scripts_are_loaded_again_and_no_request_fails() {
    let (redis, site) = (Redis::start(), Site::start());
    let member = Member::start(&rules("rate: 1000/s, burst: 100", &redis, "closed")).await;
    member.store_is(true).await;
    for _ in 0..5 {
        assert_eq!(redis.command(&["SCRIPT", "FLUSH"]), "+OK\r\n");
        assert_eq!(get(member.proxy(), &site.url("/")).await.status, 200);
    }
}

#[tokio::test]
async fn a_quota_holds_while_the_store_is_away_and_when_it_returns_empty() {
    const QUOTA: usize = 60;
    let (mut redis, site) = (Redis::start(), Site::start());
    let keys = "rate: 10/s, burst: 5, quota: 60/h, max_wait: 2s, cooldown: off";
    let fleet = Member::fleet(3, &rules(keys, &redis, "local")).await;
    for member in &fleet {
        member.knows_of(3).await;
    }
    let proxies: Vec<_> = fleet.iter().map(Member::proxy).collect();
    let answers = crawl(&proxies, 2, &site.url("/"), 12).await;
    assert_eq!(statuses(&answers), [(200, 12)].into());
    redis.kill();
    for member in &fleet {
        member.store_is(false).await;
    }
    let answers = crawl(&proxies, 2, &site.url("/"), 60).await;
    let alone = statuses(&answers).get(&200).copied().unwrap_or_default();
    // A third of the rest for each, and no new window.
    assert!(alone <= QUOTA - 12, "{alone} without the store");
    redis.restart();
    for member in &fleet {
        member.store_is(true).await;
    }
    // Refused are those that would wait for the next hour; before that, those that come while others are not back yet.
    wait_until("the rest of the quota is used", SOON, async || {
        let answers = crawl(&proxies, 2, &site.url("/"), 12).await;
        site.count() + 6 >= QUOTA && !statuses(&answers).contains_key(&200)
    })
    .await;
    assert!(site.count() <= QUOTA, "{} of {QUOTA} in one hour", site.count());
}

#[tokio::test]
async fn every_key_in_redis_has_a_time_to_live() {
    let (redis, site) = (Redis::start(), Site::start());
    let keys = "rate: 100/s, burst: 10, quota: 1000/h, cooldown: {after: 3, for: 1s}";
    let member = Member::start(&rules(keys, &redis, "closed")).await;
    member.store_is(true).await;
    site.on("/wall", Page::Forbidden);
    for path in ["/", "/wall", "/wall", "/"] {
        get(member.proxy(), &site.url(path)).await;
    }
    let keys = redis.command(&["KEYS", "*"]);
    let names: Vec<_> = keys.split("\r\n").filter(|line| line.contains("tidegate")).collect();
    assert!(!names.is_empty(), "the scope is in Redis: {keys}");
    for name in names {
        let ttl = redis.command(&["PTTL", name]);
        assert!(!ttl.starts_with(":-1"), "{name} lives forever");
    }
}
