//! A site that answered before and now drops every connection has banned us.

use integration_tests::{
    client::get,
    member::{Member, RuleFile},
    redis::Redis,
    site::{Page, Site},
    wait::wait_until,
};
use serde_json::json;

use crate::{SOON, cools, story::the_only};

const RULE: &str = "per: host, rate: 1000/s, max_wait: 0s, cooldown: {for: 60s, ramp: 0s}";

/// Sends `count` requests, one after the other, and returns how many the cooldown let pass.
async fn reached(member: &Member, site: &Site, path: &str, count: usize) -> usize {
    let mut reached = 0;
    for _ in 0..count {
        let status = get(member.proxy(), &site.url(path)).await.status;
        assert!(matches!(status, 200 | 502 | 503), "{status}");
        reached += usize::from(status != 503);
    }
    reached
}

#[tokio::test]
async fn a_site_that_falls_silent_is_left_alone_after_five_connections() {
    let site = Site::start();
    let member = Member::start(&RuleFile::one_rule(RULE)).await;
    assert_eq!(get(member.proxy(), &site.url("/")).await.status, 200);
    site.answer_everything_with(Some(Page::Reset));
    let sent = reached(&member, &site, "/", 30).await;
    assert_eq!(sent, 5);
    // The first of them went on a kept connection, and once more on a new one.
    assert!(site.count() <= 7, "{} requests arrived", site.count());
    let trip = the_only(&member, "tripped").await;
    assert_eq!((&trip["cause"], &trip["by"]), (&json!("silence"), &json!("connection_error")));
    assert_eq!(trip["blocks"], json!({"connection_error": 5}));
}

#[tokio::test]
async fn the_fleet_counts_the_silence_together_and_one_answer_ends_it() {
    let (redis, site) = (Redis::start(), Site::start());
    let fleet = Member::fleet(2, &RuleFile::one_rule(RULE).redis(&redis)).await;
    for member in &fleet {
        assert_eq!(get(member.proxy(), &site.url("/")).await.status, 200);
    }
    site.on("/reset", Page::Reset);
    assert_eq!(reached(&fleet[0], &site, "/reset", 4).await, 4);
    assert_eq!(reached(&fleet[0], &site, "/", 1).await, 1);
    assert_eq!(reached(&fleet[0], &site, "/reset", 3).await, 3);
    cools(&fleet[0], SOON, false).await;
    assert_eq!(reached(&fleet[1], &site, "/reset", 2).await, 2);
    for member in &fleet {
        cools(member, SOON, true).await;
    }
}

#[tokio::test]
async fn sites_that_fall_silent_together_are_a_network_that_is_down() {
    let (one, other) = (Site::start(), Site::start());
    // Loopback has many addresses and one name; a host does not include the port.
    let other_url = |path: &str| format!("http://localhost:{}{path}", other.address().port());
    let member = Member::start(&RuleFile::one_rule(RULE)).await;
    assert_eq!(get(member.proxy(), &one.url("/")).await.status, 200);
    assert_eq!(get(member.proxy(), &other_url("/")).await.status, 200);
    one.answer_everything_with(Some(Page::Reset));
    other.answer_everything_with(Some(Page::Reset));
    for _ in 0..20 {
        assert_eq!(get(member.proxy(), &one.url("/")).await.status, 502);
        assert_eq!(get(member.proxy(), &other_url("/")).await.status, 502);
    }
    // The other one responds again: only the first is silent.
    other.answer_everything_with(None);
    assert_eq!(get(member.proxy(), &other_url("/")).await.status, 200);
    reached(&member, &one, "/", 10).await;
    wait_until("one scope cools down", SOON, async || {
        (member.metric("tidegate_cooldown_active", &[]).await - 1.0).abs() < 1e-9
    })
    .await;
    assert_eq!(get(member.proxy(), &other_url("/")).await.status, 200);
}

#[tokio::test]
async fn silence_can_be_switched_off_by_a_reload() {
    let site = Site::start();
    let file = RuleFile::one_rule(
        "rate: 1000/s, max_wait: 0s, cooldown: {silence: off, for: 60s, ramp: 0s}",
    );
    let member = Member::start(&file).await;
    assert_eq!(get(member.proxy(), &site.url("/")).await.status, 200);
    site.answer_everything_with(Some(Page::Reset));
    assert_eq!(reached(&member, &site, "/", 12).await, 12);
    site.answer_everything_with(None);
    assert_eq!(get(member.proxy(), &site.url("/")).await.status, 200);
    let file = RuleFile::one_rule(
        "rate: 1000/s, max_wait: 0s, cooldown: {silence: 3, for: 60s, ramp: 0s}",
    );
    member.rewrite(&file);
    wait_until("the reload counts", SOON, async || {
        member.metric("tidegate_config_reloads_total", &[("result", "ok")]).await > 0.0
    })
    .await;
    site.answer_everything_with(Some(Page::Reset));
    assert_eq!(reached(&member, &site, "/", 12).await, 3);
}
