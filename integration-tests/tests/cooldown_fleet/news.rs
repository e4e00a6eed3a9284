//! News: a member that was cut off, or starts later, has the current state within a second.

use std::time::{Duration, Instant};

use integration_tests::{
    client::get,
    member::{Member, RuleFile},
    news::Listener,
    redis::Redis,
    relay::{Fault, Relay},
    site::{Page, Site},
    wait::wait_until,
};
use serde_json::json;

use crate::{COOLDOWN, SOON, clear, cools, post, spawn_get, streak, three_blocks};

/// The promise is a second; the rest is for a busy machine.
const A_SECOND: Duration = Duration::from_millis(1_000 + 500);

#[tokio::test]
async fn a_member_whose_subscription_was_cut_knows_of_a_trip_within_a_second() {
    let (redis, site) = (Redis::start(), Site::start());
    let file = RuleFile::one_rule("cooldown: {for: 1m}").redis(&redis);
    let fleet = Member::fleet(2, &file).await;
    for member in &fleet {
        assert_eq!(get(member.proxy(), &site.url("/")).await.status, 200);
    }
    for _ in 0..3 {
        let killed = redis.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        assert!(killed.starts_with(':'), "{killed}");
        let tripped = post(&fleet[0], COOLDOWN, &json!({"seconds": 60})).await;
        assert_eq!(tripped.status, 200, "{}", tripped.text());
        cools(&fleet[1], A_SECOND, true).await;
        clear(&fleet[0]).await;
        cools(&fleet[1], A_SECOND, false).await;
    }
}

/// As after a firewall has forgotten the connection: neither end notices, and TCP keep-alive
/// packets are still accepted.
#[tokio::test]
async fn a_member_whose_subscription_hears_nothing_more_notices_and_knows_of_a_trip() {
    let (redis, site) = (Redis::start(), Site::start());
    let relay = Relay::before(redis.address());
    let rule = RuleFile::one_rule("cooldown: {for: 10m}");
    let first = Member::start(&rule.clone().redis(&redis)).await;
    let store = format!("{{url: \"{}\", timeout: 1s}}", relay.url());
    let behind = Member::start(&rule.store(&store)).await;
    for member in [&first, &behind] {
        assert_eq!(get(member.proxy(), &site.url("/")).await.status, 200);
    }
    clear(&first).await;
    relay.set(Fault::Deaf);
    let tripped = post(&first, COOLDOWN, &json!({"seconds": 600})).await;
    assert_eq!(tripped.status, 200, "{}", tripped.text());
    cools(&behind, SOON * 3, true).await;
}

/// A member that does not read while news pile up: the server gives its subscription up.
#[tokio::test]
async fn a_member_whose_subscription_overflowed_knows_of_a_trip_once_it_reads_again() {
    let (redis, site) = (Redis::start(), Site::start());
    let file = RuleFile::one_rule("cooldown: {for: 10m}").redis(&redis);
    let fleet = Member::fleet(2, &file).await;
    for member in &fleet {
        assert_eq!(get(member.proxy(), &site.url("/")).await.status, 200);
    }
    redis.command(&["CONFIG", "SET", "client-output-buffer-limit", "pubsub 1mb 1mb 1"]);
    let heard_by = || redis.command(&["PUBLISH", "tidegate:news", &"x".repeat(400_000)]);
    fleet[1].freeze();
    wait_until("its subscription is given up", SOON, async || heard_by() == ":1\r\n").await;
    let tripped = post(&fleet[0], COOLDOWN, &json!({"seconds": 600})).await;
    assert_eq!(tripped.status, 200, "{}", tripped.text());
    fleet[1].thaw();
    for member in &fleet {
        cools(member, SOON * 3, true).await;
    }
}

/// A forged message can close a scope until the store is read again, but can never open one.
#[tokio::test]
async fn forged_news_are_refuted_by_the_store() {
    let (redis, site) = (Redis::start(), Site::start());
    let file = RuleFile::one_rule("cooldown: {for: 10m}, max_wait: 20s").redis(&redis);
    let fleet = Member::fleet(2, &file).await;
    let forge = |epoch: &str, what: &str| {
        let parts = ["default", "", epoch, what, "600000000", "0", "nobody", "hand", "0", ""];
        redis.command(&["PUBLISH", "tidegate:news", &parts.join("\u{1f}")]);
    };
    for member in &fleet {
        assert_eq!(get(member.proxy(), &site.url("/")).await.status, 200);
    }
    for epoch in ["7", "9007199254740991", "18446744073709551615"] {
        forge(epoch, "cooling");
        for member in &fleet {
            assert_eq!(get(member.proxy(), &site.url("/")).await.status, 200, "{epoch}");
        }
    }
    let before = site.count();
    let tripped = post(&fleet[0], COOLDOWN, &json!({"seconds": 600})).await;
    assert_eq!(tripped.status, 200, "{}", tripped.text());
    cools(&fleet[1], SOON, true).await;
    for epoch in ["7", "18446744073709551615"] {
        for what in ["open", "clear", "due", "streak"] {
            forge(epoch, what);
        }
    }
    for member in &fleet {
        let refused = get(member.proxy(), &site.url("/")).await;
        assert_eq!((refused.status, refused.refused()), (503, Some("cooldown")));
    }
    assert_eq!(site.count(), before, "nothing went");
    clear(&fleet[0]).await;
    for member in &fleet {
        cools(member, SOON, false).await;
        assert_eq!(get(member.proxy(), &site.url("/")).await.status, 200);
    }
}

#[tokio::test]
async fn a_streak_is_known_to_all_and_an_ok_at_any_member_resets_it() {
    let (redis, site) = (Redis::start(), Site::start());
    let file = RuleFile::one_rule("cooldown: {after: 3, for: 1m, ratio: off}").redis(&redis);
    let fleet = Member::fleet(2, &file).await;
    site.on("/wall", Page::Forbidden);
    let streaks = async |blocks| {
        for member in &fleet {
            streak(member, blocks).await;
        }
    };
    for member in &fleet {
        assert_eq!(get(member.proxy(), &site.url("/")).await.status, 200);
    }
    assert_eq!(get(fleet[0].proxy(), &site.url("/wall")).await.status, 403);
    streaks(1).await;
    assert_eq!(get(fleet[0].proxy(), &site.url("/wall")).await.status, 403);
    streak(&fleet[0], 2).await;
    assert_eq!(get(fleet[1].proxy(), &site.url("/")).await.status, 200);
    streaks(0).await;
    assert_eq!(get(fleet[0].proxy(), &site.url("/wall")).await.status, 403);
    streaks(1).await;
    cools(&fleet[0], SOON, false).await;
}

#[tokio::test]
async fn an_isolated_block_is_published_once_and_a_longer_streak_when_it_begins_and_ends() {
    let (redis, site) = (Redis::start(), Site::start());
    let file = RuleFile::one_rule("cooldown: {after: 4, for: 1m, ratio: off}").redis(&redis);
    let fleet = Member::fleet(2, &file).await;
    site.on("/wall", Page::Forbidden);
    let listener = Listener::start(&redis);
    let published = || listener.messages().iter().filter(|item| item.phase == "streak").count();
    for n in 1..=3 {
        assert_eq!(get(fleet[0].proxy(), &site.url("/wall")).await.status, 403);
        wait_until("its news come", SOON, async || published() == n).await;
        assert_eq!(get(fleet[0].proxy(), &site.url("/")).await.status, 200);
        streak(&fleet[0], 0).await;
    }
    for blocks in 1..=3 {
        assert_eq!(get(fleet[0].proxy(), &site.url("/wall")).await.status, 403);
        streak(&fleet[0], blocks).await;
    }
    assert_eq!(get(fleet[1].proxy(), &site.url("/")).await.status, 200);
    for member in &fleet {
        streak(member, 0).await;
    }
    assert_eq!(published(), 5, "three isolated blocks, and the two ends of a streak");
    cools(&fleet[0], SOON, false).await;
}

/// A user that may not subscribe, as after a mistake in an ACL.
#[tokio::test]
async fn a_member_that_may_not_subscribe_reports_it_and_asks_before_it_sends() {
    let user = ["--user", "mute", "on", ">s3cret", "~*", "&*", "+@all", "-subscribe"];
    let (redis, site) = (Redis::start_with(&user), Site::start());
    let rule = RuleFile::one_rule("cooldown: {for: 10m}, max_wait: 5s");
    let first = Member::start(&rule.clone().redis(&redis)).await;
    let store = format!("{{url: \"redis://mute:s3cret@{}\", timeout: 2s}}", redis.address());
    let deaf = Member::start(&rule.store(&store)).await;
    let subscribed = async |wanted: bool| {
        wait_until(&format!("subscribed: {wanted}"), SOON * 3, async || {
            (deaf.metric("tidegate_store_subscribed", &[]).await > 0.5) == wanted
        })
        .await;
    };
    deaf.store_is(true).await;
    wait_until("it says so", SOON, async || deaf.log().contains("does not receive the fleet"))
        .await;
    subscribed(false).await;
    for member in [&first, &deaf] {
        assert_eq!(get(member.proxy(), &site.url("/")).await.status, 200);
    }
    let tripped = post(&first, COOLDOWN, &json!({"seconds": 600})).await;
    assert_eq!(tripped.status, 200, "{}", tripped.text());
    // The member uses the store's replies.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let answer = get(deaf.proxy(), &site.url("/")).await;
    assert_eq!((answer.status, answer.refused()), (503, Some("cooldown")));
    assert_eq!(site.count(), 2, "nothing was sent into the cooldown");
    redis.command(&["ACL", "SETUSER", "mute", "+subscribe"]);
    subscribed(true).await;
    clear(&first).await;
    cools(&deaf, SOON, false).await;
}

#[tokio::test]
async fn a_member_that_starts_during_a_cooldown_sends_nothing() {
    let (redis, site) = (Redis::start(), Site::start());
    let length = Duration::from_secs(4);
    let file = RuleFile::one_rule("cooldown: {for: 4s, ramp: 0s}").redis(&redis);
    let first = Member::start(&file).await;
    let start = Instant::now();
    three_blocks(&first, &site).await;
    let later = Member::start(&file).await;
    let held = spawn_get(&later, site.url("/later"));
    cools(&later, SOON, true).await;
    assert!(start.elapsed() < length, "the machine is too slow for this test");
    assert_eq!(held.await.expect("the client lives").status, 200);
    let times = site.times();
    assert_eq!(times.len(), 4);
    let pause = times[3] - times[2];
    assert!(pause >= length, "only {pause:?} of the cooldown of {length:?}");
}
