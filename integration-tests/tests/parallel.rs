//! `parallel`: at most so many requests to a site under way at once, over the fleet.

use std::time::Duration;

use integration_tests::{
    client::{Raw, get, get_with, post_json},
    load::crawl,
    member::{Member, RuleFile},
    news,
    redis::Redis,
    site::{Page, Site},
    wait::wait_until,
};
use serde_json::Value;

const SOON: Duration = Duration::from_secs(15);

/// The requests that a member has under way, and those that it holds.
async fn figures(member: &Member) -> (u64, u64) {
    let scope = member.status().await["scopes"][0].clone();
    let number = |name: &str| scope[name].as_u64().unwrap_or_default();
    (number("under_way"), number("held"))
}

async fn shows(member: &Member, under_way: u64, held: u64) {
    let what = format!("{under_way} are under way and {held} are held");
    wait_until(&what, SOON, async || figures(member).await == (under_way, held)).await;
}

#[tokio::test]
async fn a_site_that_answers_429_to_the_third_never_does() {
    let redis = Redis::start();
    let fleet_rule = RuleFile::one_rule("rate: 500/s, parallel: 2").redis(&redis);
    let alone = RuleFile::one_rule("rate: 500/s, parallel: 2");
    let no_rate = RuleFile::one_rule("parallel: 2, cooldown: off");
    for (file, members) in [(&alone, 1), (&no_rate, 1), (&fleet_rule, 3)] {
        let site = Site::start();
        site.bears_at_once(2);
        site.answer_everything_with(Some(Page::Slow(Duration::from_millis(20))));
        let fleet = Member::fleet(members, file).await;
        let proxies: Vec<_> = fleet.iter().map(Member::proxy).collect();
        let answers = crawl(&proxies, 4, &site.url("/"), 60).await;
        assert!(answers.iter().all(|answer| answer.status == 200), "with {members} members");
        assert_eq!((site.count(), site.crowd()), (60, 2), "with {members} members");
    }
}

#[tokio::test]
async fn a_request_is_under_way_until_its_response_is_over() {
    let site = Site::start();
    let member = Member::start(&RuleFile::one_rule("parallel: 1")).await;
    site.on("/long", Page::Chunked { times: 3_000, pause: Duration::from_millis(10) });
    let mut reader = Raw::connect(member.proxy()).await;
    reader.send(format!("GET {} HTTP/1.1\r\nHost: x\r\n\r\n", site.url("/long"))).await;
    assert!(reader.head().await.starts_with("HTTP/1.1 200 "));
    shows(&member, 1, 0).await;
    let (proxy, url) = (member.proxy(), site.url("/next"));
    let next = tokio::spawn(async move { get(proxy, &url).await });
    shows(&member, 1, 1).await;
    assert_eq!(site.count(), 1, "the next one waits");
    let told = member.events("places_taken").await;
    assert_eq!((told.len(), &told[0]["parallel"], &told[0]["held"]), (1, &1.into(), &1.into()));
    let refused = get_with(member.proxy(), &site.url("/"), "prefer", "wait=0").await;
    assert_eq!((refused.status, refused.refused()), (429, Some("limit")));
    // Who leaves ends it.
    drop(reader);
    assert_eq!(next.await.expect("it ends").status, 200);
    shows(&member, 0, 0).await;
}

#[tokio::test]
async fn a_tunnel_counts_until_the_site_answers() {
    let site = Site::start();
    let member = Member::start(&RuleFile::one_rule("parallel: 1, rate: 500/s")).await;
    site.on("/held", Page::Held);
    let mut tunnel = Raw::connect(member.proxy()).await;
    let to = site.authority();
    tunnel.send(format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n")).await;
    assert!(tunnel.head().await.starts_with("HTTP/1.1 200 "));
    tunnel.send(format!("GET /held HTTP/1.1\r\nHost: {to}\r\n\r\n")).await;
    wait_until("the flight arrives", SOON, async || site.count() == 1).await;
    let (proxy, url) = (member.proxy(), site.url("/next"));
    let next = tokio::spawn(async move { get(proxy, &url).await });
    shows(&member, 1, 1).await;
    assert_eq!(site.count(), 1, "the next one waits");
    site.release();
    assert_eq!(next.await.expect("it ends").status, 200);
    shows(&member, 0, 0).await;
    // An open tunnel that says nothing takes no place, and its next flight waits like a request.
    assert!(tunnel.head().await.starts_with("HTTP/1.1 200 "));
    assert_eq!(get(member.proxy(), &site.url("/")).await.status, 200);
}

#[tokio::test]
async fn a_higher_limit_applies_at_once_and_a_lower_one_interrupts_nothing() {
    let redis = Redis::start();
    let rule = |parallel: u32| {
        RuleFile::one_rule(&format!("parallel: {parallel}, rate: 500/s")).redis(&redis)
    };
    let site = Site::start();
    site.answer_everything_with(Some(Page::Held));
    let member = Member::start(&rule(2)).await;
    let (proxy, url) = (member.proxy(), site.url("/"));
    let requests: Vec<_> = (0..5)
        .map(|_| {
            let url = url.clone();
            tokio::spawn(async move { get(proxy, &url).await.status })
        })
        .collect();
    shows(&member, 2, 3).await;
    member.rewrite(&rule(4));
    shows(&member, 4, 1).await;
    member.rewrite(&rule(1));
    wait_until("it is in force", SOON, async || {
        member.status().await["scopes"][0]["parallel"] == 1
    })
    .await;
    shows(&member, 4, 1).await;
    wait_until("four are at the site", SOON, async || site.count() == 4).await;
    site.release();
    for request in requests {
        assert_eq!(request.await.expect("it ends"), 200);
    }
    assert_eq!(site.crowd(), 4);
}

#[tokio::test]
async fn no_member_keeps_a_slot_during_a_cooldown_because_the_probe_needs_it() {
    let (redis, site) = (Redis::start(), Site::start());
    let keys = "parallel: 1, rate: 500/s, max_wait: 10m, cooldown: {after: 1, for: 5m, max: 5m}";
    let fleet = Member::fleet(3, &RuleFile::one_rule(keys).redis(&redis)).await;
    site.on("/wall", Page::Forbidden);
    assert_eq!(get(fleet[0].proxy(), &site.url("/wall")).await.status, 403);
    let held: Vec<_> = fleet
        .iter()
        .map(|member| {
            let (proxy, url) = (member.proxy(), site.url("/"));
            tokio::spawn(async move { get(proxy, &url).await.status })
        })
        .collect();
    for member in &fleet {
        shows(member, 0, 1).await;
    }
    wait_until("every slot is returned", SOON, async || {
        redis.command(&["HLEN", "tidegate:{default}:p:"]) == ":0\r\n"
    })
    .await;
    assert_eq!(site.count(), 1);
    held.iter().for_each(|request| request.abort());
}

#[tokio::test]
async fn a_limit_that_is_removed_leaves_nothing_reserved_in_the_store() {
    let (redis, site) = (Redis::start(), Site::start());
    let rule = |parallel: &str| {
        RuleFile::one_rule(&format!("{parallel}rate: 500/s, max_wait: 10m")).redis(&redis)
    };
    site.answer_everything_with(Some(Page::Held));
    let member = Member::start(&rule("parallel: 1, ")).await;
    let requests: Vec<_> = (0..3)
        .map(|_| {
            let (proxy, url) = (member.proxy(), site.url("/"));
            tokio::spawn(async move { get(proxy, &url).await.status })
        })
        .collect();
    shows(&member, 1, 2).await;
    let reserved = || redis.command(&["HLEN", "tidegate:{default}:p:"]);
    assert_eq!(reserved(), ":1\r\n", "the member is listed");
    member.rewrite(&rule(""));
    wait_until("all are under way", SOON, async || site.count() == 3).await;
    wait_until("nothing is reserved", SOON, async || reserved() == ":0\r\n").await;
    site.release();
    for request in requests {
        assert_eq!(request.await.expect("it ends"), 200);
    }
}

#[tokio::test]
async fn a_request_from_before_a_limit_frees_no_slot_of_it() {
    let site = Site::start();
    let rule = |parallel: &str| RuleFile::one_rule(&format!("{parallel}rate: 500/s"));
    let member = Member::start(&rule("parallel: 1, ")).await;
    let reload = async |file: RuleFile, times: f64| {
        member.rewrite(&file);
        wait_until("it is reloaded", SOON, async || {
            member.metric("tidegate_config_reloads_total", &[("result", "ok")]).await >= times
        })
        .await;
    };
    site.on("/first", Page::Hang);
    site.on("/other", Page::Held);
    let ask = |path: &str| {
        let (proxy, url) = (member.proxy(), site.url(path));
        tokio::spawn(async move { get(proxy, &url).await.status })
    };
    let first = ask("/first");
    wait_until("it is under way", SOON, async || site.count() == 1).await;
    reload(rule(""), 1.0).await;
    reload(rule("parallel: 1, "), 2.0).await;
    let others = [ask("/other"), ask("/other")];
    shows(&member, 1, 1).await;
    first.abort();
    // The site has seen the first client leave when the next request gets through.
    wait_until("the first has ended", SOON, async || {
        member.metric("tidegate_client_connections", &[]).await <= 2.0
    })
    .await;
    shows(&member, 1, 1).await;
    wait_until("one of the others is at the site", SOON, async || site.count() > 1).await;
    assert_eq!(site.count(), 2, "one of the others waits");
    site.release();
    for other in others {
        assert_eq!(other.await.expect("it ends"), 200);
    }
}

#[tokio::test]
async fn the_slot_of_a_member_that_was_killed_comes_back() {
    let redis = Redis::start();
    let site = Site::start();
    site.answer_everything_with(Some(Page::Held));
    let file = RuleFile::one_rule("parallel: 1").redis(&redis);
    let mut fleet = Member::fleet(3, &file).await;
    news::is_heard_by(3, &redis).await;
    let ask = |member: &Member| {
        let (proxy, url) = (member.proxy(), site.url("/"));
        tokio::spawn(async move { integration_tests::client::try_get(proxy, &url).await })
    };
    let lost = ask(&fleet[0]);
    wait_until("the first is under way", SOON, async || site.count() == 1).await;
    let second = ask(&fleet[1]);
    shows(&fleet[1], 0, 1).await;
    fleet[0].kill();
    assert!(lost.await.expect("it ends").is_err());
    // The lease lasts 20 seconds.
    wait_until("the second is under way", Duration::from_secs(60), async || site.count() == 2)
        .await;
    let third = ask(&fleet[2]);
    shows(&fleet[2], 0, 1).await;
    site.release();
    assert_eq!(second.await.expect("it ends").expect("an answer").status, 200);
    assert_eq!(third.await.expect("it ends").expect("an answer").status, 200);
    assert_eq!(site.crowd(), 1);
}

#[tokio::test]
async fn without_its_store_a_fleet_divides_the_slots() {
    let redis = Redis::start();
    let site = Site::start();
    let file = RuleFile::one_rule("parallel: 5").redis(&redis);
    let fleet = Member::fleet(2, &file).await;
    for member in &fleet {
        member.knows_of(2).await;
    }
    redis.freeze();
    for member in &fleet {
        member.store_is(false).await;
    }
    site.answer_everything_with(Some(Page::Held));
    let requests: Vec<_> = (0..8)
        .map(|n| {
            let (proxy, url) = (fleet[n % 2].proxy(), site.url("/"));
            tokio::spawn(async move { get(proxy, &url).await.status })
        })
        .collect();
    for member in &fleet {
        shows(member, 2, 2).await;
    }
    wait_until("four are at the site", SOON, async || site.count() == 4).await;
    site.release();
    for request in requests {
        assert_eq!(request.await.expect("it ends"), 200);
    }
    assert_eq!(site.crowd(), 4);
    redis.thaw();
}

#[tokio::test]
async fn a_scope_that_is_full_is_foretold_and_says_so_when_it_refuses() {
    let redis = Redis::start();
    for keys in ["parallel: 1", "parallel: 1, rate: 500/s"] {
        let rule = RuleFile::one_rule(keys);
        for (file, members) in [(rule.clone().redis(&redis), 2), (rule, 1)] {
            let site = Site::start();
            site.on("/held", Page::Held);
            let fleet = Member::fleet(members, &file).await;
            let (proxy, url) = (fleet[0].proxy(), site.url("/"));
            let free = get(proxy, &url).await;
            assert_eq!(free.header("tidegate-next"), Some("0"), "its own place is free again");
            let under_way = site.url("/held");
            let under_way = tokio::spawn(async move { get(proxy, &under_way).await });
            shows(&fleet[0], 1, 0).await;
            for member in &fleet {
                wait_until("it says so", SOON, async || {
                    foretold(member, &url).await == (1_000, "parallel".to_owned())
                })
                .await;
                let refused = get_with(member.proxy(), &url, "prefer", "wait=0").await;
                assert_eq!((refused.status, refused.refused()), (429, Some("limit")));
                assert!(refused.text().contains("`parallel`"), "{}", refused.text());
                assert_eq!(refused.header("x-ratelimit-limit"), None, "no token is missing");
                assert_eq!(refused.header("retry-after"), Some("1"));
                assert_eq!(refused.header("tidegate-next"), Some("1.000"));
            }
            let next = tokio::spawn(async move { get(proxy, &url).await });
            shows(&fleet[0], 1, 1).await;
            site.release();
            let before_another = under_way.await.expect("it ends");
            assert_eq!(before_another.header("tidegate-next"), Some("1.000"), "one waits");
            // The store keeps no place for the other member, whose request was refused.
            wait_until("the place goes to who waits", SOON, async || next.is_finished()).await;
            assert_eq!(next.await.expect("it ends").header("tidegate-next"), Some("0"));
            for member in &fleet {
                wait_until("it is free", SOON, async || {
                    foretold(member, &site.url("/")).await == (0, "none".to_owned())
                })
                .await;
            }
        }
    }
}

#[tokio::test]
async fn mode_observe_counts_what_would_have_waited_for_a_place() {
    let redis = Redis::start();
    for keys in ["parallel: 2, mode: observe", "parallel: 2, rate: 500/s, mode: observe"] {
        let rule = RuleFile::one_rule(keys);
        for file in [rule.clone().redis(&redis), rule] {
            let (site, member) = (Site::start(), Member::start(&file).await);
            site.answer_everything_with(Some(Page::Held));
            for under_way in 1..=3 {
                let (proxy, url) = (member.proxy(), site.url("/"));
                tokio::spawn(async move { get(proxy, &url).await });
                shows(&member, under_way, 0).await;
            }
            wait_until("all are sent", SOON, async || site.count() == 3).await;
            let held = member.metric("tidegate_observed_total", &[("action", "hold")]).await;
            assert!((held - 1.0).abs() < 1e-9, "{keys}: {held}");
            site.release();
            shows(&member, 0, 0).await;
        }
    }
}

/// Milliseconds until a request could go, and what it waits for.
async fn foretold(member: &Member, url: &str) -> (u64, String) {
    let body = format!("{{\"url\": \"{url}\"}}");
    let answer = post_json(member.admin(), "/api/v1/when", &body).await;
    let next: Value = serde_json::from_str(&answer.text()).expect("it is JSON");
    let wait = next["in_ms"].as_u64().unwrap_or_else(|| panic!("a wait: {next}"));
    (wait, next["reason"].as_str().unwrap_or("none").to_owned())
}
