//! A store that has lost a cooldown: the cooldown survives, and epochs keep rising.

use std::time::Duration;

use integration_tests::{
    client::get,
    member::{Member, RuleFile},
    redis::Redis,
    site::{Page, Site},
    wait::wait_until,
};
use serde_json::json;

use crate::{COOLDOWN, SOON, clear, cools, post, spawn_get, three_blocks};

async fn held(member: &Member) -> f64 {
    member.metric("tidegate_held_requests", &[]).await
}

/// The cooldown's key of the rule `default`.
const KEY: &str = "tidegate:{default}:c:";

fn epoch(redis: &Redis) -> u64 {
    let reply = redis.command(&["HGET", KEY, "ep"]);
    reply.lines().nth(1).and_then(|line| line.trim().parse().ok()).unwrap_or(0)
}

async fn closed_again(redis: &Redis) {
    wait_until("the store knows of the cooldown again", SOON, async || {
        let reply = redis.command(&["HGET", KEY, "till"]);
        reply.lines().nth(1).is_some_and(|line| line.trim() != "0")
    })
    .await;
}

#[tokio::test]
async fn a_flush_ends_no_cooldown_for_a_member_that_starts_after_it_either() {
    let (redis, site) = (Redis::start(), Site::start());
    let file = RuleFile::one_rule("cooldown: {for: 8s, ramp: 0s}").redis(&redis);
    let first = Member::start(&file).await;
    three_blocks(&first, &site).await;
    assert!(redis.command(&["FLUSHALL"]).starts_with("+OK"));
    closed_again(&redis).await;
    let second = Member::start(&file).await;
    site.answer_everything_with(Some(Page::Held));
    let waiting: Vec<_> = (0..6)
        .map(|n| spawn_get(if n % 2 == 0 { &first } else { &second }, site.url("/")))
        .collect();
    wait_until("the probe goes", SOON, async || site.count() > 3).await;
    let times = site.times();
    let pause = times[3] - times[2];
    assert!(pause >= Duration::from_millis(7_500), "sent {pause:?} into a cooldown of 8 s");
    wait_until("all others are held", SOON, async || {
        (held(&first).await + held(&second).await - 5.0).abs() < 1e-9
    })
    .await;
    assert_eq!(site.count(), 4, "one probe, although the store forgot: {:?}", site.arrivals());
    site.release();
    for answer in waiting {
        assert_eq!(answer.await.expect("the client lives").status, 200);
    }
}

#[tokio::test]
async fn a_flush_during_a_probe_opens_nothing() {
    let (redis, site) = (Redis::start(), Site::start());
    let file = RuleFile::one_rule("cooldown: {for: 1s, ramp: 0s}").redis(&redis);
    let fleet = Member::fleet(2, &file).await;
    three_blocks(&fleet[0], &site).await;
    site.answer_everything_with(Some(Page::Held));
    let probe = spawn_get(&fleet[0], site.url("/"));
    wait_until("it is the probe", SOON, async || site.count() == 4).await;
    assert!(redis.command(&["FLUSHALL"]).starts_with("+OK"));
    closed_again(&redis).await;
    let waiting: Vec<_> = (0..6).map(|n| spawn_get(&fleet[n % 2], site.url("/"))).collect();
    wait_until("all are held", SOON, async || {
        (held(&fleet[0]).await + held(&fleet[1]).await - 6.0).abs() < 1e-9
    })
    .await;
    assert_eq!(site.count(), 4, "{:?}", site.arrivals());
    site.release();
    for answer in waiting.into_iter().chain([probe]) {
        assert_eq!(answer.await.expect("the client lives").status, 200);
    }
}

#[tokio::test]
async fn a_cooldown_that_expired_in_the_store_is_brought_back_without_any_effect() {
    let (redis, site) = (Redis::start(), Site::start());
    let keys = "rate: 1000/s, burst: 1000, learn: true, cooldown: {for: 1s, ramp: 0s}";
    let fleet = Member::fleet(2, &RuleFile::one_rule(keys).redis(&redis)).await;
    three_blocks(&fleet[0], &site).await;
    assert_eq!(get(fleet[1].proxy(), &site.url("/")).await.status, 200);
    assert_eq!(get(fleet[0].proxy(), &site.url("/")).await.status, 200);
    let rate = fleet[0].metric("tidegate_rate_current", &[]).await;
    let before = epoch(&redis);
    assert!(redis.command(&["DEL", KEY]).starts_with(":1"), "as after ten quiet minutes");
    for n in 0..6 {
        assert_eq!(get(fleet[n % 2].proxy(), &site.url("/")).await.status, 200);
    }
    assert_eq!(epoch(&redis), before, "the epoch is known again");
    let now = fleet[0].metric("tidegate_rate_current", &[]).await;
    assert!(now >= rate, "no trip is learnt from it: {rate} before, {now} now");
    for member in &fleet {
        let trips = member.metric("tidegate_cooldowns_total", &[]).await;
        assert!(trips <= 1.0, "{trips} trips");
    }
}

#[tokio::test]
async fn a_trip_after_the_store_forgot_is_news_to_members_that_remember_an_earlier_one() {
    let (redis, site) = (Redis::start(), Site::start());
    let file = RuleFile::one_rule("cooldown: {for: 20s, ramp: 0s}").redis(&redis);
    let fleet = Member::fleet(2, &file).await;
    for member in &fleet {
        assert_eq!(get(member.proxy(), &site.url("/")).await.status, 200);
    }
    for _ in 0..4 {
        let tripped = post(&fleet[0], COOLDOWN, &json!({"seconds": 60})).await;
        assert_eq!(tripped.status, 200, "{}", tripped.text());
        cools(&fleet[1], SOON, true).await;
        clear(&fleet[0]).await;
        cools(&fleet[1], SOON, false).await;
    }
    assert!(redis.command(&["DEL", KEY]).starts_with(":1"));
    let newcomer = Member::start(&file).await;
    three_blocks(&newcomer, &site).await;
    cools(&fleet[1], SOON, true).await;
}
