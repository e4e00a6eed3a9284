//! Requests that do not go through the proxy: `/api/v1/report` and `/api/v1/acquire`.

use std::time::{Duration, Instant};

use integration_tests::{
    client::get,
    member::{Member, RuleFile},
    redis::Redis,
    site::Site,
    wait::wait_until,
};
use serde_json::{Value, json};

use crate::{COOLDOWN, SOON, clear, cools, post, spawn_get, streak};

async fn report(member: &Member, body: &Value) {
    let answer = post(member, "/api/v1/report", body).await;
    assert_eq!(answer.status, 202, "{}", answer.text());
}

#[tokio::test]
async fn reports_count_like_answers_that_were_seen_also_at_a_member_that_never_asked() {
    let (redis, site) = (Redis::start(), Site::start());
    let file = RuleFile::one_rule("cooldown: {for: 1m, ratio: off}").redis(&redis);
    let first = Member::start(&file).await;
    assert_eq!(get(first.proxy(), &site.url("/")).await.status, 200);
    assert_eq!(post(&first, COOLDOWN, &json!({"seconds": 60})).await.status, 200);
    clear(&first).await;
    let later = Member::start(&file).await;
    let host = site.address().to_string();
    report(&later, &json!({"host": host, "verdict": "captcha", "status": 403})).await;
    streak(&first, 1).await;
    report(&first, &json!({"url": site.url("/"), "verdict": "ok"})).await;
    streak(&first, 0).await;
    for n in 0..3 {
        let member = [&later, &first][n % 2];
        report(member, &json!({"url": site.url("/"), "verdict": "captcha"})).await;
        if n < 2 {
            cools(&first, SOON, false).await;
        }
    }
    cools(&later, SOON, true).await;
    cools(&first, SOON, true).await;
    assert_eq!(site.count(), 1);
}

#[tokio::test]
async fn a_report_names_its_site_once_and_its_verdict_well() {
    let member = Member::start(&RuleFile::one_rule("cooldown: {for: 1m}")).await;
    let wrong = [
        json!({"verdict": "ok"}),
        json!({"url": "http://a.example/", "host": "a.example", "verdict": "ok"}),
        json!({"host": "a.example/b c", "verdict": "ok"}),
        json!({"host": "a.example", "verdict": "wall"}),
        json!({"host": "a.example", "verdict": "ok", "status": 99}),
    ];
    for body in wrong {
        let answer = post(&member, "/api/v1/report", &body).await;
        assert_eq!(answer.status, 400, "{body}: {}", answer.text());
    }
}

#[tokio::test]
async fn an_acquired_token_is_used_up() {
    let site = Site::start();
    let member = Member::start(&RuleFile::one_rule("rate: 4/s, burst: 1, learn: false")).await;
    let start = Instant::now();
    let sent: Vec<_> = (0..6).map(|_| spawn_get(&member, site.url("/"))).collect();
    let mut times = Vec::new();
    for _ in 0..6 {
        let body = json!({"url": site.url("/"), "client": "browser"});
        let answer = post(&member, "/api/v1/acquire", &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        times.push(Instant::now());
    }
    for one in sent {
        assert_eq!(one.await.expect("the client lives").status, 200);
    }
    times.extend(site.times());
    assert_eq!(times.len(), 12);
    let excess = site.excess_of(&times, 4.0, 1.0);
    assert!(excess <= 1.0, "{excess:.2} too many over {:?}", start.elapsed());
}

#[tokio::test]
async fn an_acquired_probe_is_in_flight_until_its_verdict_is_reported() {
    let (redis, site) = (Redis::start(), Site::start());
    let file = RuleFile::one_rule("cooldown: {ramp: 0s}").redis(&redis);
    let member = Member::start(&file).await;
    assert_eq!(post(&member, COOLDOWN, &json!({"seconds": 1})).await.status, 200);
    let body = json!({"url": site.url("/")});
    let acquired = post(&member, "/api/v1/acquire", &body).await;
    assert_eq!(acquired.status, 200, "{}", acquired.text());
    let held = spawn_get(&member, site.url("/"));
    wait_until("the next is held", SOON, async || {
        member.metric("tidegate_held_requests", &[]).await > 0.0
    })
    .await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(site.count(), 0, "the probe is in flight, outside of the proxy");
    report(&member, &json!({"url": site.url("/"), "verdict": "ok"})).await;
    assert_eq!(held.await.expect("the client lives").status, 200);
    let probes = member.metric("tidegate_probes_total", &[("result", "ok")]).await;
    assert!((probes - 1.0).abs() < 1e-9, "{probes} probes");
}
