//! Manual trips and clears, and a rule that only observes.

use std::time::{Duration, Instant};

use integration_tests::{
    client::get,
    member::{Member, RuleFile, run},
    redis::Redis,
    site::{Page, Site},
};

use crate::{SOON, cools, spawn_get};

#[tokio::test]
async fn the_command_line_trips_and_clears_the_whole_fleet() {
    let (redis, site) = (Redis::start(), Site::start());
    let file = RuleFile::one_rule("cooldown: {ramp: 0s}").redis(&redis);
    let fleet = Member::fleet(2, &file).await;
    for member in &fleet {
        assert_eq!(get(member.proxy(), &site.url("/")).await.status, 200);
    }
    let admin = fleet[0].admin().to_string();
    let folder = fleet[0].folder();
    let trip = ["--admin", &admin, "cooldown", "trip", "default", "--for", "5m"];
    let tripped = run(folder, &trip);
    assert!(tripped.status.success(), "{}", String::from_utf8_lossy(&tripped.stderr));
    cools(&fleet[1], SOON, true).await;
    let left = fleet[1].metric("tidegate_cooldown_remaining_seconds", &[]).await;
    assert!((280.0..=300.0).contains(&left), "{left} s of five minutes");
    let held = spawn_get(&fleet[1], site.url("/held"));
    let held_too = get(fleet[0].proxy(), &site.url("/refused")).await;
    assert_eq!((held_too.status, held_too.refused()), (503, Some("cooldown")));
    let clear = ["--admin", &admin, "cooldown", "clear", "default"];
    let cleared = run(folder, &clear);
    assert!(cleared.status.success(), "{}", String::from_utf8_lossy(&cleared.stderr));
    cools(&fleet[1], SOON, false).await;
    let refused = held.await.expect("the client lives");
    assert_eq!(refused.status, 503, "longer than `max_wait`: refused at once");
    assert_eq!(get(fleet[1].proxy(), &site.url("/")).await.status, 200);
}

#[tokio::test]
async fn held_requests_are_sent_when_the_cooldown_is_cleared() {
    let (redis, site) = (Redis::start(), Site::start());
    let file = RuleFile::one_rule("max_wait: 10m, cooldown: {ramp: 0s}").redis(&redis);
    let fleet = Member::fleet(2, &file).await;
    let admin = fleet[0].admin().to_string();
    let trip = ["--admin", &admin, "cooldown", "trip", "default", "--for", "5m"];
    assert!(run(fleet[0].folder(), &trip).status.success());
    let held = spawn_get(&fleet[1], site.url("/held"));
    cools(&fleet[1], SOON, true).await;
    assert_eq!(site.count(), 0);
    let clear = ["--admin", &admin, "cooldown", "clear", "default"];
    assert!(run(fleet[0].folder(), &clear).status.success());
    assert_eq!(held.await.expect("the client lives").status, 200);
}

#[tokio::test]
async fn a_rule_that_observes_counts_everything_and_holds_nothing() {
    let site = Site::start();
    let file = RuleFile::one_rule("mode: observe, rate: 1/m, burst: 4, cooldown: {for: 1m}");
    let member = Member::start(&file).await;
    site.answer_everything_with(Some(Page::Forbidden));
    let start = Instant::now();
    for _ in 0..3 {
        assert_eq!(get(member.proxy(), &site.url("/")).await.status, 403);
    }
    cools(&member, SOON, true).await;
    for _ in 0..5 {
        assert_eq!(get(member.proxy(), &site.url("/")).await.status, 403, "let through");
    }
    assert!(start.elapsed() < Duration::from_secs(20), "nothing is held");
    assert_eq!(site.count(), 8);
    let would = member.metric("tidegate_observed_total", &[("action", "cooldown")]).await;
    assert!((would - 5.0).abs() < 1e-9, "{would} would have been held");
    let trips = member.metric("tidegate_cooldowns_total", &[("type", "403_forbidden")]).await;
    assert!((trips - 1.0).abs() < 1e-9, "{trips} trips");
    let scope = &member.status().await["scopes"][0];
    assert_eq!((&scope["observe"], &scope["state"]), (&true.into(), &"cooling".into()));
    assert!(scope["remaining_ms"].as_u64().is_some_and(|ms| ms > 30_000), "{scope}");
}

#[tokio::test]
async fn an_observing_rule_counts_the_requests_that_its_rate_would_have_held() {
    let site = Site::start();
    let member = Member::start(&RuleFile::one_rule("mode: observe, rate: 1/m, burst: 2")).await;
    for _ in 0..6 {
        assert_eq!(get(member.proxy(), &site.url("/")).await.status, 200);
    }
    let would = member.metric("tidegate_observed_total", &[("action", "hold")]).await;
    assert!((would - 4.0).abs() < 1e-9, "{would} would have been held");
}
