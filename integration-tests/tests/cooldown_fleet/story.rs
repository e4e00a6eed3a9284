//! The events of a trip, at each member of the fleet.

use integration_tests::{
    client::get,
    member::{Member, RuleFile},
    news,
    redis::Redis,
    site::{Page, Site},
    wait::wait_until,
};
use serde_json::{Value, json};

use crate::{COOLDOWN, SOON, clear, cools, post, spawn_get};

/// The only event of its kind, once it is there.
pub(crate) async fn the_only(member: &Member, kind: &str) -> Value {
    let mut found = Vec::new();
    wait_until(kind, SOON, async || {
        found = member.events(kind).await;
        !found.is_empty()
    })
    .await;
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

#[tokio::test]
async fn a_trip_is_reported_with_its_blocks_its_response_and_its_probe_at_every_member() {
    let (redis, site) = (Redis::start(), Site::start());
    let file = RuleFile::one_rule("cooldown: {after: 3, for: 2s, ratio: off, ramp: 0s}");
    let fleet = Member::fleet(2, &file.redis(&redis)).await;
    news::is_heard_by(2, &redis).await;
    site.on("/a", Page::Forbidden);
    site.on("/b", Page::Captcha);
    site.on("/c", Page::Captcha);
    for member in &fleet {
        assert_eq!(get(member.proxy(), &site.url("/")).await.status, 200);
    }
    for (member, path) in [(0, "/a"), (1, "/b"), (0, "/c?secret=1")] {
        assert_eq!(get(fleet[member].proxy(), &site.url(path)).await.status, 403);
    }
    let (ours, theirs) =
        (the_only(&fleet[0], "tripped").await, the_only(&fleet[1], "tripped").await);
    for event in [&ours, &theirs] {
        assert_eq!(event["blocks"], json!({"403_forbidden": 1, "captcha": 2}), "{event}");
        assert_eq!(
            (&event["cause"], &event["by"]),
            (&json!("streak"), &json!("captcha")),
            "{event}"
        );
        assert_eq!((&event["streak"], &event["member"]), (&json!(3.0), &ours["member"]), "{event}");
        assert_eq!(event["observe"], false, "{event}");
    }
    assert_eq!((&ours["ours"], &theirs["ours"]), (&json!(true), &json!(false)));
    assert_eq!(ours["length_ms"], 2_000);
    assert_eq!((&ours["status"], &ours["evidence"]["vendor"].is_string()), (&json!(403), &true));
    let url = ours["url"].as_str().expect("where the answer came from");
    assert!(url.ends_with("/c?…"), "{url}");
    let probe = spawn_get(&fleet[1], site.url("/probe"));
    assert_eq!(probe.await.expect("the client lives").status, 200);
    let sent = the_only(&fleet[1], "probe_sent").await;
    assert!(sent["url"].as_str().is_some_and(|url| url.ends_with("/probe")), "{sent}");
    let at = |event: &Value| event["at_ms"].as_u64().expect("a time");
    assert!(at(&sent) >= at(&theirs) + 1_000, "the probe goes after the cooldown");
    assert_eq!(the_only(&fleet[1], "probe").await["result"], "ok");
    for member in &fleet {
        assert_eq!(the_only(member, "cleared").await["by"], "probe");
    }
}

#[tokio::test]
async fn a_manual_trip_and_clear_are_reported_at_every_member() {
    let (redis, site) = (Redis::start(), Site::start());
    let fleet = Member::fleet(2, &RuleFile::one_rule("cooldown: {for: 1m}").redis(&redis)).await;
    news::is_heard_by(2, &redis).await;
    for member in &fleet {
        assert_eq!(get(member.proxy(), &site.url("/")).await.status, 200);
    }
    assert_eq!(post(&fleet[0], COOLDOWN, &json!({"seconds": 60})).await.status, 200);
    cools(&fleet[1], SOON, true).await;
    clear(&fleet[0]).await;
    for member in &fleet {
        let tripped = the_only(member, "tripped").await;
        assert_eq!((&tripped["cause"], &tripped["by"]), (&json!("hand"), &json!("hand")));
        assert_eq!(the_only(member, "cleared").await["by"], "hand");
    }
}

#[tokio::test]
async fn a_member_that_has_sent_nothing_receives_a_trip_too() {
    let (redis, site) = (Redis::start(), Site::start());
    let rule = "- {name: shops, match: \"*\", per: host, cooldown: {for: 1m}}";
    let fleet = Member::fleet(2, &RuleFile::new(rule).redis(&redis)).await;
    assert_eq!(get(fleet[0].proxy(), &site.url("/")).await.status, 200);
    news::is_heard_by(2, &redis).await;
    let path = "/api/v1/scopes/shops/127.0.0.1/cooldown";
    assert_eq!(post(&fleet[0], path, &json!({"seconds": 60})).await.status, 200);
    let tripped = the_only(&fleet[1], "tripped").await;
    assert_eq!((&tripped["rule"], &tripped["key"]), (&json!("shops"), &json!("127.0.0.1")));
    assert_eq!((&tripped["by"], &tripped["ours"]), (&json!("hand"), &json!(false)));
}

#[tokio::test]
async fn a_cooldown_without_a_probe_is_reported_to_end_by_time() {
    let site = Site::start();
    let file = RuleFile::one_rule("cooldown: {ramp: 0s, probe: false}");
    let member = Member::start(&file).await;
    assert_eq!(post(&member, COOLDOWN, &json!({"seconds": 1})).await.status, 200);
    assert_eq!(get(member.proxy(), &site.url("/")).await.status, 200);
    assert_eq!(the_only(&member, "cleared").await["by"], "time");
    assert!(member.events("probe_sent").await.is_empty());
}

#[tokio::test]
async fn a_retry_after_and_a_share_of_blocks_are_reported_as_causes() {
    let site = Site::start();
    let file = RuleFile::one_rule("cooldown: {after: 3, for: 1m, ratio: 50% of 4}");
    let member = Member::start(&file).await;
    site.on("/wall", Page::Forbidden);
    for path in ["/", "/wall", "/", "/wall"] {
        get(member.proxy(), &site.url(path)).await;
    }
    let tripped = the_only(&member, "tripped").await;
    assert_eq!((&tripped["cause"], &tripped["streak"]), (&json!("ratio"), &json!(1.0)));
    assert_eq!(tripped["blocks"], json!({"403_forbidden": 2}));
    let other = Member::start(&file).await;
    site.on("/named", Page::TooManyRequests(Some("9".to_owned())));
    get(other.proxy(), &site.url("/named")).await;
    let tripped = the_only(&other, "tripped").await;
    assert_eq!(
        (&tripped["cause"], &tripped["by"]),
        (&json!("retry_after"), &json!("429_rate_limited"))
    );
    assert_eq!(tripped["length_ms"], 9_000);
}

#[tokio::test]
async fn an_observing_rule_reports_the_cooldowns_that_it_would_have_had() {
    let site = Site::start();
    let file = RuleFile::one_rule(
        "mode: observe, max_wait: 30s, rate: 1/m, burst: 5, learn: false, \
         cooldown: {for: 20s, ratio: off}",
    );
    let member = Member::start(&file).await;
    site.on("/wall", Page::Forbidden);
    for path in ["/wall", "/wall", "/wall", "/", "/"] {
        get(member.proxy(), &site.url(path)).await;
    }
    let tripped = the_only(&member, "tripped").await;
    assert_eq!((&tripped["observe"], &tripped["length_ms"]), (&json!(true), &json!(20_000)));
    let held = the_only(&member, "observed").await;
    assert_eq!((&held["action"], &held["requests"]), (&json!("cooldown"), &json!(1)));
    let wait = held["wait_ms"].as_u64().expect("a wait");
    assert!((5_000..=20_000).contains(&wait), "{held}");
    let count = async |name, action| member.metric(name, &[("action", action)]).await;
    assert!((count("tidegate_observed_total", "cooldown").await - 2.0).abs() < 1e-9);
    let seconds = count("tidegate_observed_seconds_total", "cooldown").await;
    assert!(seconds > 10.0 && seconds <= 40.0, "{seconds} s for two requests");
    clear(&member).await;
    // The bucket starts empty: the next token is a minute away, which is longer than a request may wait.
    for _ in 0..3 {
        get(member.proxy(), &site.url("/")).await;
    }
    wait_until("a refusal is counted", SOON, async || {
        count("tidegate_observed_total", "refuse").await > 0.5
    })
    .await;
    assert!(count("tidegate_observed_seconds_total", "refuse").await > 30.0);
    assert_eq!(site.count(), 8, "nothing was held or refused");
}
