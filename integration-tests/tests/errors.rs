//! `errors`: a limit on 4xx responses for the whole fleet, for walls that ban clients for their
//! 404s.

use std::time::Duration;

use integration_tests::{
    client::{get, get_direct},
    load::crawl,
    member::{Member, RuleFile},
    news,
    redis::Redis,
    site::{Page, Site},
    wait::wait_until,
};

const SOON: Duration = Duration::from_secs(15);
const RULE: &str = "rate: 500/s, max_wait: 0s, errors: 4/h, cooldown: {for: 100ms-200ms}";

#[tokio::test]
async fn the_fleet_shares_a_budget_of_errors_and_pauses_when_it_is_used_up() {
    let (redis, site) = (Redis::start(), Site::start());
    let fleet = Member::fleet(2, &RuleFile::one_rule(RULE).redis(&redis)).await;
    news::is_heard_by(2, &redis).await;
    site.on("/gone", Page::NotFound);
    for member in [&fleet[0], &fleet[1], &fleet[0]] {
        assert_eq!(get(member.proxy(), &site.url("/gone")).await.status, 404);
        assert_eq!(get(member.proxy(), &site.url("/")).await.status, 200, "there is room");
    }
    assert_eq!(get(fleet[1].proxy(), &site.url("/gone")).await.status, 404);
    for member in &fleet {
        wait_until("every member knows of the pause", SOON, async || {
            member.events("tripped").await.len() == 1
        })
        .await;
        let trip = member.events("tripped").await.remove(0);
        assert_eq!((&trip["cause"], &trip["by"]), (&"errors".into(), &"errors".into()));
        let refused = get(member.proxy(), &site.url("/")).await;
        assert_eq!(refused.header("tidegate-refused"), Some("cooldown"), "good pages wait too");
        let learned = member.status().await["scopes"][0]["learned"].clone();
        assert_eq!(learned["rate"], 500.0, "it teaches nothing");
        let trips = member.metrics().await.sum("tidegate_cooldowns_total", &[]);
        assert!(trips < 1.0, "no block tripped it");
    }
    assert_eq!(site.count(), 7, "nothing was sent meanwhile");
}

#[tokio::test]
async fn a_crawl_of_missing_pages_keeps_to_the_error_limit_and_continues() {
    let site = Site::start();
    let rule = "rate: 500/s, errors: 4/s, cooldown: {for: 100ms-200ms}";
    let member = Member::start(&RuleFile::one_rule(rule)).await;
    site.answer_everything_with(Some(Page::NotFound));
    crawl(&[member.proxy()], 1, &site.url("/"), 13).await;
    let times = site.times();
    // Each error is counted a little after its request came.
    for pair in times.windows(5) {
        assert!(pair[4] - pair[0] >= Duration::from_millis(900), "five in {:?}", pair[4] - pair[0]);
    }
    assert!(member.events("probe_sent").await.is_empty(), "it needs no probe");
}

#[tokio::test]
async fn a_scope_is_shown_as_open_once_its_pause_is_over() {
    let (redis, site) = (Redis::start(), Site::start());
    let rule = "rate: 500/s, max_wait: 0s, errors: 1/s, cooldown: {for: 100ms-200ms}";
    let member = Member::start(&RuleFile::one_rule(rule).redis(&redis)).await;
    site.on("/gone", Page::NotFound);
    assert_eq!(get(member.proxy(), &site.url("/gone")).await.status, 404);
    wait_until("the pause begins", SOON, async || !member.events("tripped").await.is_empty()).await;
    // Both views: the member's own, and the store's.
    for path in ["/api/v1/status", "/api/v1/fleet"] {
        wait_until("the pause is over without a request", SOON, async || {
            let answer = get_direct(member.admin(), path).await;
            let view: serde_json::Value = serde_json::from_slice(&answer.body).expect("JSON");
            view["scopes"][0]["state"] == "open"
        })
        .await;
    }
    assert_eq!(site.count(), 1);
}

#[tokio::test]
async fn blocks_and_good_pages_do_not_count_as_errors() {
    let site = Site::start();
    let rule =
        "rate: 500/s, errors: 1/h, cooldown: {after: 9, on: [403_forbidden, 410], for: 1s-2s}";
    let member = Member::start(&RuleFile::one_rule(rule)).await;
    for page in [Page::Forbidden, Page::Status(410), Page::Status(500), Page::Ok] {
        site.answer_everything_with(Some(page));
        get(member.proxy(), &site.url("/")).await;
    }
    assert_eq!(member.status().await["scopes"][0]["state"], "open");
}
