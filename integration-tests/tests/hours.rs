//! `hours`: outside of them, requests are held, or refused with the time of the next opening.

use std::time::Duration;

use integration_tests::{
    client::{Answer, get, get_direct, get_with, post_json},
    member::{Member, RuleFile},
    redis::Redis,
    site::Site,
    wait::wait_until,
};
use serde_json::{Value, json};
use tidegate::runtime::clock;
use tokio::task::JoinHandle;

const SOON: Duration = Duration::from_secs(20);

/// `hours` that begin in this many seconds and last an hour.
fn hours_from(seconds: u64) -> String {
    let now = clock::unix_ms() / 1_000;
    let time = |seconds: u64| {
        let second = seconds % 86_400;
        format!("{:02}:{:02}:{:02}", second / 3_600, second / 60 % 60, second % 60)
    };
    format!("hours: \"{}-{} UTC\"", time(now + seconds), time(now + seconds + 3_600))
}

fn rules(keys: &str) -> RuleFile {
    RuleFile::one_rule(&format!("rate: 100/s, {keys}"))
}

fn begin(member: &Member, site: &Site) -> JoinHandle<Answer> {
    let (proxy, url) = (member.proxy(), site.url("/"));
    tokio::spawn(async move { get(proxy, &url).await })
}

async fn holds(member: &Member, requests: f64) {
    wait_until("the requests are held", SOON, async || {
        member.metric("tidegate_held_requests", &[]).await >= requests
    })
    .await;
}

#[tokio::test]
async fn outside_of_the_hours_a_request_is_refused_until_the_next_opening() {
    let site = Site::start();
    let member = Member::start(&rules(&hours_from(7_200))).await;
    let answer = get(member.proxy(), &site.url("/")).await;
    assert_eq!(answer.status, 503, "{}", answer.text());
    assert_eq!(answer.header("tidegate-refused"), Some("hours"));
    let seconds: u64 = answer.header("retry-after").and_then(|s| s.parse().ok()).expect("a wait");
    assert!(seconds > 7_000 && seconds <= 7_200, "{seconds}");
    assert_eq!(site.count(), 0, "nothing was sent");
    let refused = member.metric("tidegate_refused_total", &[("reason", "hours")]).await;
    assert_eq!(refused, 1.0);
    let asked = json!({"url": site.url("/")}).to_string();
    let next = post_json(member.admin(), "/api/v1/when", &asked).await;
    let next: Value = serde_json::from_str(&next.text()).expect("it is JSON");
    assert_eq!(next["reason"], "hours", "{next}");
    assert!(next["in_ms"].as_u64().is_some_and(|wait| wait > 7_000_000), "{next}");
    assert_eq!(member.status().await["scopes"][0]["state"], "outside_hours");
    assert_eq!(get(member.proxy(), &site.url("/")).await.refused(), Some("hours"));
    let events = member.events("outside_hours").await;
    assert_eq!((events.len(), &events[0]["rule"]), (1, &"default".into()), "once an hour");
    assert!(events[0]["wait_ms"].as_u64().is_some_and(|wait| wait > 7_000_000), "{events:?}");
    let fleet = get_direct(member.admin(), "/api/v1/fleet?fresh=1").await.text();
    assert!(fleet.contains("outside_hours"), "{fleet}");
}

#[tokio::test]
async fn the_hours_are_kept_while_the_store_is_away() {
    for (on_failure, hours) in [("local", hours_from(7_200)), ("open", hours_from(7_200))] {
        let (redis, site) = (Redis::start(), Site::start());
        let store = format!("{{url: \"{}\", on_failure: {on_failure}}}", redis.url());
        let member = Member::start(&rules(&hours).store(&store)).await;
        redis.freeze();
        member.store_is(false).await;
        let answer = get(member.proxy(), &site.url("/")).await;
        assert_eq!((answer.status, answer.refused()), (503, Some("hours")), "{}", answer.text());
        assert_eq!(site.count(), 0, "{on_failure}: nothing was sent");
        redis.thaw();
    }
}

#[tokio::test]
async fn held_requests_are_sent_when_the_hours_begin() {
    let site = Site::start();
    // A start takes a second or two.
    let member = Member::start(&rules(&hours_from(10))).await;
    let held: Vec<_> = (0..5).map(|_| begin(&member, &site)).collect();
    for answer in held {
        assert_eq!(answer.await.expect("it is answered").status, 200);
    }
    assert_eq!(site.count(), 5);
    let waited = member.metric("tidegate_hold_seconds_sum", &[]).await;
    assert!(waited > 1.0, "they were held: {waited} s in all");
}

#[tokio::test]
async fn a_reload_that_starts_or_ends_the_hours_applies_to_held_requests() {
    let site = Site::start();
    let later = format!("{}, max_wait: 24h", hours_from(7_200));
    let member = Member::start(&rules(&later)).await;
    let held = begin(&member, &site);
    holds(&member, 1.0).await;
    member.rewrite(&rules("max_wait: 24h"));
    assert_eq!(held.await.expect("it is answered").status, 200);
    // In the opposite case, requests that wait for a token wait for the opening.
    member.rewrite(&rules(&later));
    wait_until("the hours are in force", SOON, async || {
        member.status().await["scopes"][0]["state"] == "outside_hours"
    })
    .await;
    let held = begin(&member, &site);
    holds(&member, 1.0).await;
    member.rewrite(&rules(&format!("{}, max_wait: 1s", hours_from(7_200))));
    wait_until("a shorter max_wait is in force", SOON, async || {
        member.metric("tidegate_config_reloads_total", &[("result", "ok")]).await > 2.5
    })
    .await;
    let refused = get(member.proxy(), &site.url("/")).await;
    assert_eq!(refused.header("tidegate-refused"), Some("hours"), "{}", refused.text());
    assert_eq!(site.count(), 1, "nothing else was sent");
    held.abort();
}

#[tokio::test]
async fn the_most_urgent_go_first_after_a_reload_also_while_the_store_is_away() {
    for is_away in [false, true] {
        let (redis, site) = (Redis::start(), Site::start());
        // Slow enough that no request overtakes another one in flight.
        let slow = |keys: &str| {
            RuleFile::one_rule(&format!("rate: 2/s, burst: 1, max_wait: 24h{keys}")).redis(&redis)
        };
        let member = Member::start(&slow(&format!(", {}", hours_from(7_200)))).await;
        member.store_is(true).await;
        if is_away {
            redis.freeze();
            member.store_is(false).await;
        }
        let mut waiting = Vec::new();
        for (priority, number) in [("u=7", 1.0), ("u=3", 2.0), ("u=0", 3.0), ("u=1", 4.0)] {
            let (proxy, url) = (member.proxy(), site.url(&format!("/{priority}")));
            waiting.push(tokio::spawn(async move {
                get_with(proxy, &url, "priority", priority).await.status
            }));
            holds(&member, number).await;
        }
        member.rewrite(&slow(""));
        for request in waiting {
            assert_eq!(request.await.expect("it is answered"), 200);
        }
        let paths: Vec<_> = site.arrivals().into_iter().map(|arrival| arrival.path).collect();
        assert_eq!(paths, ["/u=0", "/u=1", "/u=3", "/u=7"], "store away: {is_away}");
        redis.thaw();
    }
}

#[tokio::test]
async fn an_observing_rule_sends_and_reports_its_decisions() {
    let site = Site::start();
    let member = Member::start(&rules(&format!("mode: observe, {}", hours_from(7_200)))).await;
    assert_eq!(get(member.proxy(), &site.url("/")).await.status, 200);
    let observed = member.metric("tidegate_observed_total", &[("action", "refuse")]).await;
    assert_eq!(observed, 1.0);
}
