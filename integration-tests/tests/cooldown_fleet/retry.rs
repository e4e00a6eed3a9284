//! A rule's `retry`: the blocked response is not relayed, and the request is sent again after the
//! cooldown.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, header};
use http_body_util::Full;
use integration_tests::{
    client::{Answer, ProxyClient, get_with},
    member::{Member, RuleFile},
    site::{Page, Site},
    wait::wait_until,
};

use crate::{SOON, spawn_get};

const RULE: &str = "cooldown: {for: 1s, ramp: 0s}, \
                    retry: {attempts: 1, on: [429_rate_limited], methods: [GET]}";

fn wall() -> Page {
    Page::TooManyRequests(Some("1".to_owned()))
}

#[tokio::test]
async fn a_blocked_answer_is_asked_for_again_after_the_cooldown() {
    let site = Site::start();
    let member = Member::start(&RuleFile::one_rule(RULE)).await;
    site.answer_everything_with(Some(wall()));
    let answer = spawn_get(&member, site.url("/page"));
    wait_until("the first attempt is blocked", SOON, async || site.count() == 1).await;
    site.answer_everything_with(None);
    let answer = answer.await.expect("the client lives");
    assert_eq!((answer.status, answer.header("tidegate-attempts")), (200, Some("2")));
    let times = site.times();
    assert_eq!(times.len(), 2);
    assert!(times[1] - times[0] >= Duration::from_secs(1), "it waits out the cooldown");
}

#[tokio::test]
async fn the_last_attempt_is_relayed_as_it_is() {
    let site = Site::start();
    let member = Member::start(&RuleFile::one_rule(RULE)).await;
    site.answer_everything_with(Some(wall()));
    let answer = spawn_get(&member, site.url("/page")).await.expect("the client lives");
    assert_eq!((answer.status, answer.header("tidegate-attempts")), (429, Some("2")));
    assert_eq!(site.count(), 2);
}

#[tokio::test]
async fn a_request_with_a_body_or_another_method_or_verdict_is_sent_once() {
    let site = Site::start();
    let member = Member::start(&RuleFile::one_rule(RULE)).await;
    site.on("/page", wall());
    site.on("/refused", Page::Forbidden);
    let refused = spawn_get(&member, site.url("/refused")).await.expect("the client lives");
    assert_eq!((refused.status, refused.header("tidegate-attempts")), (403, None));
    for (method, body) in [("POST", ""), ("GET", "a body")] {
        let request = Request::builder()
            .method(method)
            .uri(site.url("/page"))
            .header(header::HOST, site.address().to_string())
            .body(Full::new(Bytes::from(body)))
            .expect("it is a request");
        let sent = ProxyClient::connect(member.proxy()).await.send(request).await;
        let answer = sent.expect("the proxy answers");
        assert_eq!((answer.status, answer.header("tidegate-attempts")), (429, None), "{method}");
    }
    assert_eq!(site.count(), 3);
}

#[tokio::test]
async fn a_rule_that_only_observes_relays_a_blocked_answer_at_once() {
    let site = Site::start();
    let rule = format!("mode: observe, {RULE}").replace("for: 1s", "for: 1m");
    let member = Member::start(&RuleFile::one_rule(&rule)).await;
    site.answer_everything_with(Some(Page::TooManyRequests(None)));
    for _ in 0..4 {
        let answer = spawn_get(&member, site.url("/page")).await.expect("the client lives");
        assert_eq!((answer.status, answer.header("tidegate-attempts")), (429, None));
        assert!(answer.took < SOON, "{:?}", answer.took);
    }
    assert_eq!(site.count(), 4, "each goes once");
}

#[tokio::test]
async fn a_cooldown_beyond_max_wait_is_not_waited_for() {
    let site = Site::start();
    let member = Member::start(&RuleFile::one_rule(&format!("max_wait: 40s, {RULE}"))).await;
    site.answer_everything_with(Some(Page::TooManyRequests(Some("60".to_owned()))));
    let answer = spawn_get(&member, site.url("/page")).await.expect("the client lives");
    assert_eq!((answer.status, answer.refused()), (429, None), "the answer that there is");
    assert!(answer.took < Duration::from_secs(20), "{:?}", answer.took);
    assert_eq!(site.count(), 1);
}

/// A request of a proxy user in the background.
fn spawn_as(member: &Member, url: String, user: &'static str) -> tokio::task::JoinHandle<Answer> {
    let proxy = member.proxy();
    tokio::spawn(async move { get_with(proxy, &url, "proxy-authorization", user).await })
}

#[tokio::test]
async fn a_retry_goes_back_to_the_head_of_the_queue_before_every_other_client() {
    let site = Site::start();
    let file = RuleFile::one_rule(&format!("rate: 1/s, burst: 1, learn: false, {RULE}"))
        .with("auth: {users: {a: a, b: b, c: c}}");
    let member = Member::start(&file).await;
    site.on("/retried", Page::HeldWall("1".to_owned()));
    let retried = spawn_as(&member, site.url("/retried"), "Basic YTph");
    wait_until("the first attempt is out", SOON, async || site.count() == 1).await;
    let others = [
        spawn_as(&member, site.url("/b"), "Basic Yjpi"),
        spawn_as(&member, site.url("/c"), "Basic Yzpj"),
    ];
    // They wait for the token of the next second, unless the machine is slow; the wall keeps all of them from then on.
    wait_until("the others wait or went", SOON, async || {
        let held = member.metric("tidegate_held_requests", &[]).await;
        held > 0.5 && held + f64::from(u8::try_from(site.count()).expect("a few")) > 2.5
    })
    .await;
    let before = site.count();
    site.release();
    wait_until("it is blocked", SOON, async || {
        member.metric("tidegate_cooldowns_total", &[]).await > 0.5
    })
    .await;
    site.on("/retried", Page::Ok);
    let answer = retried.await.expect("the client lives");
    assert_eq!((answer.status, answer.header("tidegate-attempts")), (200, Some("2")));
    for other in others {
        assert_eq!(other.await.expect("the client lives").status, 200);
    }
    let paths: Vec<_> = site.arrivals().iter().map(|arrival| arrival.path.clone()).collect();
    assert_eq!(paths[before], "/retried", "{paths:?}");
}
