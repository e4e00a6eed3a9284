//! `each_user`: limits for each proxy user, on top of the rule's.

use std::{net::SocketAddr, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use integration_tests::{
    client::{Answer, get_with, post_json},
    member::{Member, RuleFile},
    redis::Redis,
    site::Site,
    wait::wait_until,
};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(15);

fn rule(keys: &str) -> RuleFile {
    RuleFile::one_rule(keys).with("auth: {users: {alice: secret, bob: secret}}")
}

/// Requests of a user that a member has relayed.
async fn granted(member: &Member, user: &str) -> f64 {
    let labels = [("user", user), ("result", "relayed")];
    member.metric("tidegate_user_requests_total", &labels).await
}

async fn get(proxy: SocketAddr, user: &str, url: &str) -> Answer {
    let login = format!("Basic {}", STANDARD.encode(format!("{user}:secret")));
    get_with(proxy, url, "proxy-authorization", &login).await
}

#[tokio::test]
async fn each_user_has_a_quota_over_the_fleet_and_the_others_have_theirs() {
    let redis = Redis::start();
    let keys = "rate: 500/s, each_user: {quota: 3/h}, max_wait: 5s";
    let fleet = Member::fleet(2, &rule(keys).redis(&redis)).await;
    let alone = Member::fleet(1, &rule(keys)).await;
    for members in [&fleet, &alone] {
        let site = Site::start();
        for user in ["alice", "bob"] {
            for n in 0..3 {
                let answer = get(members[n % members.len()].proxy(), user, &site.url("/")).await;
                assert_eq!(answer.status, 200, "{user}, request {n}: {}", answer.text());
            }
            for member in members {
                let refused = get(member.proxy(), user, &site.url("/")).await;
                assert_eq!((refused.status, refused.refused()), (429, Some("limit")), "{user}");
                let wait: u64 =
                    refused.header("retry-after").unwrap_or("").parse().expect("a wait");
                assert!((3_500..=3_600).contains(&wait), "{wait} s");
            }
        }
        assert_eq!(site.count(), 6);
    }
    assert!((granted(&alone[0], "alice").await - 3.0).abs() < 1e-9);
    let events = alone[0].events("user_over").await;
    let users: Vec<_> = events.iter().map(|event| &event["user"]).collect();
    assert_eq!(users, ["alice", "bob"], "each is told once");
    assert!(events[0]["wait_ms"].as_u64().is_some_and(|wait| wait > 3_500_000), "{events:?}");
    let limits = &alone[0].status().await["scopes"][0]["each_user"];
    assert_eq!(*limits, json!({"rate": null, "quotas": [{"tokens": 3, "seconds": 3_600}]}));
    let of_fleet = granted(&fleet[0], "bob").await + granted(&fleet[1], "bob").await;
    assert!((of_fleet - 3.0).abs() < 1e-9);
}

#[tokio::test]
async fn a_user_who_exceeds_its_limit_does_not_delay_the_others() {
    let redis = Redis::start();
    let keys = "rate: 500/s, each_user: {rate: 1/s, burst: 2}, order: fifo";
    for file in [rule(keys), rule(keys).redis(&redis)] {
        let (site, member) = (Site::start(), Member::start(&file).await);
        let (proxy, url) = (member.proxy(), site.url("/alice"));
        let many: Vec<_> = (0..6)
            .map(|_| {
                let url = url.clone();
                tokio::spawn(async move { get(proxy, "alice", &url).await.status })
            })
            .collect();
        wait_until("alice is over her limit", SOON, async || {
            member.status().await["scopes"][0]["held"] == 4
        })
        .await;
        for _ in 0..2 {
            assert_eq!(get(proxy, "bob", &site.url("/bob")).await.status, 200);
        }
        assert!(many.iter().any(|request| !request.is_finished()), "alice still waits");
        for request in many {
            assert_eq!(request.await.expect("it ends"), 200);
        }
        let times: Vec<_> = site
            .arrivals()
            .into_iter()
            .filter(|one| one.path == "/alice")
            .map(|one| one.at)
            .collect();
        let took = *times.last().expect("six") - times[0];
        assert!(took >= Duration::from_millis(3_900), "four wait for a token each: {took:?}");
    }
}

#[tokio::test]
async fn without_its_store_each_member_has_its_share_of_each_users_limit() {
    let redis = Redis::start();
    let site = Site::start();
    let file = rule("rate: 500/s, each_user: {quota: 4/h}, max_wait: 20s").redis(&redis);
    let fleet = Member::fleet(2, &file).await;
    for member in &fleet {
        member.knows_of(2).await;
    }
    redis.freeze();
    for member in &fleet {
        member.store_is(false).await;
        for user in ["alice", "bob"] {
            for n in 0..2 {
                let answer = get(member.proxy(), user, &site.url("/")).await;
                assert_eq!(answer.status, 200, "{user}, request {n}: {}", answer.text());
            }
            let refused = get(member.proxy(), user, &site.url("/")).await;
            assert_eq!((refused.status, refused.refused()), (429, Some("limit")), "{user}");
        }
    }
    assert_eq!(site.count(), 8, "what the limits allow in total");
    redis.thaw();
}

#[tokio::test]
async fn a_reload_releases_users_who_exceeded_the_old_limit() {
    let redis = Redis::start();
    let limit =
        |each_user: &str| rule(&format!("rate: 500/s, each_user: {each_user}")).redis(&redis);
    let (site, member) = (Site::start(), Member::start(&limit("{rate: 1/m, burst: 1}")).await);
    let (proxy, url) = (member.proxy(), site.url("/"));
    assert_eq!(get(proxy, "alice", &url).await.status, 200);
    let held = tokio::spawn(async move { get(proxy, "alice", &url).await.status });
    wait_until("it is held", SOON, async || member.status().await["scopes"][0]["held"] == 1).await;
    member.rewrite(&limit("{rate: 500/s, burst: 500}"));
    wait_until("it goes", SOON, async || held.is_finished()).await;
    assert_eq!(held.await.expect("it ends"), 200);
}

#[tokio::test]
async fn a_reload_that_adds_a_limit_for_each_user_limits_held_requests_in_any_order() {
    for order in ["fair", "fifo"] {
        let redis = Redis::start();
        let old = rule(&format!("rate: 1/m, burst: 1, max_wait: 10m, order: {order}"));
        let new = rule(&format!("rate: 500/s, each_user: {{quota: 2/h}}, order: {order}"));
        for (old, new) in [(old.clone(), new.clone()), (old.redis(&redis), new.redis(&redis))] {
            let (site, member) = (Site::start(), Member::start(&old).await);
            let (proxy, url) = (member.proxy(), site.url("/"));
            assert_eq!(get(proxy, "bob", &url).await.status, 200);
            let held = ["alice", "alice", "bob", "alice", "alice"].map(|user| {
                let url = url.clone();
                tokio::spawn(async move { (user, get(proxy, user, &url).await.status) })
            });
            wait_until("they are held", SOON, async || {
                member.status().await["scopes"][0]["held"] == 5
            })
            .await;
            member.rewrite(&new);
            let mut ends = Vec::new();
            for request in held {
                ends.push(request.await.expect("it ends"));
            }
            ends.sort_unstable();
            let alice = [200, 200, 429, 429].map(|status| ("alice", status));
            assert_eq!((&ends[..4], ends[4]), (&alice[..], ("bob", 200)), "{order}");
        }
    }
}

#[tokio::test]
async fn a_reply_under_the_old_limits_does_not_hold_anyone_after_a_reload() {
    let redis = Redis::start();
    let store = format!("{{url: \"{}\", timeout: 10s}}", redis.url());
    for (old, new) in [
        ("rate: 500/s, each_user: {rate: 1/m, burst: 1}", "rate: 500/s, each_user: {rate: 500/s}"),
        ("rate: 1/m, burst: 1", "rate: 500/s"),
        ("rate: 500/s, quota: 1/h", "rate: 500/s"),
    ] {
        let (old, new) = (rule(old).store(&store), rule(new).store(&store));
        let (site, member) = (Site::start(), Member::start(&old).await);
        let (proxy, url) = (member.proxy(), site.url("/"));
        assert_eq!(get(proxy, "alice", &url).await.status, 200);
        redis.freeze();
        let held = tokio::spawn(async move { get(proxy, "alice", &url).await.status });
        wait_until("it is held", SOON, async || member.status().await["scopes"][0]["held"] == 1)
            .await;
        let reloads = ("tidegate_config_reloads_total", [("result", "ok")]);
        let before = member.metric(reloads.0, &reloads.1).await;
        member.rewrite(&new);
        wait_until("it is reloaded", SOON, async || {
            member.metric(reloads.0, &reloads.1).await > before
        })
        .await;
        redis.thaw();
        wait_until("it goes", SOON, async || held.is_finished()).await;
        assert_eq!(held.await.expect("it ends"), 200);
    }
}

#[tokio::test]
async fn a_user_who_cannot_wait_for_its_limit_is_refused_at_once() {
    let keys = "rate: 500/s, each_user: {rate: 1/m, burst: 1}, max_wait: 30s";
    let (site, member) = (Site::start(), Member::start(&rule(keys)).await);
    assert_eq!(get(member.proxy(), "alice", &site.url("/")).await.status, 200);
    for _ in 0..2 {
        let refused = get(member.proxy(), "alice", &site.url("/")).await;
        assert_eq!((refused.status, refused.refused()), (429, Some("limit")));
        assert!(refused.took < Duration::from_secs(20), "not after waiting: {:?}", refused.took);
    }
    assert_eq!(get(member.proxy(), "bob", &site.url("/")).await.status, 200);
}

#[tokio::test]
async fn mode_observe_counts_what_would_have_been_over_a_users_limit() {
    let redis = Redis::start();
    let keys = "rate: 500/s, each_user: {quota: 2/h}, mode: observe";
    for file in [rule(keys), rule(keys).redis(&redis)] {
        let (site, member) = (Site::start(), Member::start(&file).await);
        for (user, requests) in [("alice", 5), ("bob", 2)] {
            for _ in 0..requests {
                assert_eq!(get(member.proxy(), user, &site.url("/")).await.status, 200);
            }
        }
        let refused = member.metric("tidegate_observed_total", &[("action", "refuse")]).await;
        assert!((refused - 3.0).abs() < 1e-9, "three of alice, none of bob: {refused}");
    }
}

#[tokio::test]
async fn a_users_own_limit_is_foretold_and_named_in_its_refusal() {
    let redis = Redis::start();
    for own in ["quota: 1/h", "rate: 1/h, burst: 1"] {
        let keys = format!("rate: 500/s, burst: 7, each_user: {{{own}}}, max_wait: 1s");
        for (file, members) in [(rule(&keys).redis(&redis), 2), (rule(&keys), 1)] {
            let (site, fleet) = (Site::start(), Member::fleet(members, &file).await);
            let url = site.url("/");
            let last = get(fleet[0].proxy(), "alice", &url).await;
            if own.starts_with("rate") {
                assert!(seconds(&last, "tidegate-next") > 3_000.0, "{:?}", last.headers);
            }
            for member in &fleet {
                for (user, reason) in
                    [(Some("alice"), "user"), (Some("bob"), "none"), (None, "none")]
                {
                    let (wait, why) = foretold(member, &url, user).await;
                    assert_eq!(why, reason, "{user:?}");
                    assert_eq!(wait > 3_000_000, reason == "user", "{user:?}: {wait} ms");
                }
                for _ in 0..2 {
                    let refused = get(member.proxy(), "alice", &url).await;
                    assert!(refused.text().contains("`each_user`"), "{}", refused.text());
                    assert!(seconds(&refused, "tidegate-next") > 3_000.0, "{:?}", refused.headers);
                    assert_eq!(refused.header("x-ratelimit-limit"), Some("1"), "not the rule's");
                }
            }
            let other = get(fleet[0].proxy(), "bob", &url).await;
            assert_eq!(other.status, 200, "{}", other.text());
        }
    }
}

#[tokio::test]
async fn without_the_store_the_forecast_knows_the_share_of_a_users_limit() {
    let redis = Redis::start();
    let keys = "rate: 500/s, each_user: {rate: 1/h, burst: 1}, max_wait: 20s";
    let (site, fleet) = (Site::start(), Member::fleet(2, &rule(keys).redis(&redis)).await);
    let (member, url) = (&fleet[0], site.url("/"));
    for one in &fleet {
        one.knows_of(2).await;
    }
    drop(redis);
    member.store_is(false).await;
    let answer = get(member.proxy(), "alice", &url).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let refused = get(member.proxy(), "alice", &url).await;
    assert!(seconds(&refused, "retry-after") > 3_600.0, "half of the rate: {:?}", refused.headers);
    let (wait, why) = foretold(member, &url, Some("alice")).await;
    assert!(why == "user" && wait > 3_600_000, "as the refusal says: {wait} ms, {why}");
    for user in [Some("bob"), None] {
        let (wait, why) = foretold(member, &url, user).await;
        assert!(why != "user" && wait < 60_000, "{user:?}: {wait} ms, {why}");
    }
}

fn seconds(answer: &Answer, name: &str) -> f64 {
    let value = answer.header(name).unwrap_or_else(|| panic!("{name}: {:?}", answer.headers));
    value.parse().expect("a number")
}

/// Milliseconds until a request of a user could go, and what it waits for.
async fn foretold(member: &Member, url: &str, user: Option<&str>) -> (u64, String) {
    let body = json!({"url": url, "user": user});
    let answer = post_json(member.admin(), "/api/v1/when", &body.to_string()).await;
    let next: Value = serde_json::from_str(&answer.text()).expect("it is JSON");
    let wait = next["in_ms"].as_u64().unwrap_or_else(|| panic!("a wait: {next}"));
    (wait, next["reason"].as_str().unwrap_or("none").to_owned())
}
