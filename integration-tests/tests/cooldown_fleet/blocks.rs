//! Which responses are blocks, their weights, the waits that they request, and which responses mean
//! nothing.

use std::{process::Command, time::Duration};

use integration_tests::{
    client::get,
    member::{Member, RuleFile},
    site::{Page, Site},
};

use crate::{SOON, cools, streak};

/// The length of the pause after the first response.
async fn pause_after(first: Page) -> Duration {
    let site = Site::start();
    let file = RuleFile::one_rule("cooldown: {after: 3, for: 60s, ramp: 0s}");
    let member = Member::start(&file).await;
    site.answer_everything_with(Some(first));
    assert_eq!(get(member.proxy(), &site.url("/")).await.status, 429);
    site.answer_everything_with(None);
    assert_eq!(get(member.proxy(), &site.url("/")).await.status, 200);
    let times = site.times();
    times[1] - times[0]
}

#[tokio::test]
async fn one_block_with_a_retry_after_in_seconds_trips_for_exactly_that_long() {
    let pause = pause_after(Page::TooManyRequests(Some("2".to_owned()))).await;
    assert!(pause >= Duration::from_secs(2) && pause < Duration::from_secs(4), "{pause:?}");
}

#[tokio::test]
async fn one_block_with_a_retry_after_as_a_date_trips_until_then() {
    let words = ["-u", "-d", "+3 seconds", "+%a, %d %b %Y %H:%M:%S GMT"];
    let date = Command::new("date").env("LC_ALL", "C").args(words).output();
    let date = String::from_utf8(date.expect("`date` runs").stdout).expect("ASCII");
    let pause = pause_after(Page::TooManyRequests(Some(date.trim().to_owned()))).await;
    // Dates have whole seconds, and the member had to start.
    assert!(pause > Duration::from_millis(500) && pause < Duration::from_secs(5), "{pause:?}");
}

#[tokio::test]
async fn an_absurd_retry_after_is_capped() {
    let site = Site::start();
    let member = Member::start(&RuleFile::one_rule("cooldown: {for: 1s, max: 20s}")).await;
    site.answer_everything_with(Some(Page::TooManyRequests(Some("99999999999".to_owned()))));
    assert_eq!(get(member.proxy(), &site.url("/")).await.status, 429);
    cools(&member, SOON, true).await;
    let left = member.metric("tidegate_cooldown_remaining_seconds", &[]).await;
    assert!(left > 5.0 && left <= 20.0, "{left} s of at most 20");
}

#[tokio::test]
async fn a_wall_of_one_site_neither_stops_another_nor_is_hidden_by_it() {
    let site = Site::start();
    let file = RuleFile::one_rule(
        "rate: 200/s, burst: 50, per: all, cooldown: {per: domain, after: 3, for: 3s, ratio: off, ramp: 0s}",
    );
    let member = Member::start(&file).await;
    let walled = |path: &str| format!("http://localhost:{}{path}", site.address().port());
    site.on("/wall", Page::Forbidden);
    for _ in 0..3 {
        assert_eq!(get(member.proxy(), &walled("/wall")).await.status, 403);
        assert_eq!(get(member.proxy(), &site.url("/")).await.status, 200, "of the other site");
    }
    cools(&member, SOON, true).await;
    let other = get(member.proxy(), &site.url("/")).await;
    assert!(other.status == 200 && other.took < Duration::from_secs(2), "{:?}", other.took);
    assert_eq!(get(member.proxy(), &walled("/")).await.status, 200);
    let arrivals = site.arrivals();
    let walls: Vec<_> = arrivals.iter().filter(|arrival| arrival.path == "/wall").collect();
    let pause = arrivals.last().expect("they came").at - walls[2].at;
    assert!(pause >= Duration::from_secs(3), "the walled site waited {pause:?} of 3 s");
}

#[tokio::test]
async fn images_and_robots_txt_have_no_effect() {
    let site = Site::start();
    let file = RuleFile::one_rule("cooldown: {after: 3, for: 1m, ratio: off}");
    let member = Member::start(&file).await;
    site.on("/wall", Page::Forbidden);
    site.on("/robots.txt", Page::Forbidden);
    site.on("/favicon.ico", Page::Forbidden);
    site.on("/image.png", Page::Image);
    let paths = ["/wall", "/image.png", "/robots.txt", "/wall", "/favicon.ico", "/image.png"];
    for path in paths {
        get(member.proxy(), &site.url(path)).await;
    }
    streak(&member, 2).await;
    get(member.proxy(), &site.url("/wall")).await;
    cools(&member, SOON, true).await;
}

/// Whether `times` responses like this trip under this `on`.
async fn trips(on: &str, page: Page, times: usize) {
    let site = Site::start();
    let file = RuleFile::one_rule(&format!("cooldown: {{after: 3, for: 1m, on: {on}}}"))
        .with("timeouts: {response: 500ms}");
    let member = Member::start(&file).await;
    site.answer_everything_with(Some(page));
    for n in 1..=times {
        let active = member.metric("tidegate_cooldown_active", &[]).await;
        assert!(active.abs() < 1e-9, "{on}: not before answer {n}");
        get(member.proxy(), &site.url("/")).await;
    }
    cools(&member, SOON, true).await;
}

#[tokio::test]
async fn weights_and_statuses_of_the_rule_count() {
    trips("{captcha: 3, 403_forbidden: 1}", Page::Captcha, 1).await;
    trips("{captcha: 3, 403_forbidden: 1.5}", Page::Forbidden, 2).await;
    trips("[5xx]", Page::Status(503), 3).await;
    trips("[404]", Page::NotFound, 3).await;
}

#[tokio::test]
async fn broken_connections_and_missing_responses_are_blocks_if_the_rule_lists_them() {
    trips("[connection_error]", Page::Reset, 3).await;
    trips("[timeout]", Page::Hang, 3).await;
    trips("{connection_error: 1, timeout: 2}", Page::Hang, 2).await;
}

#[tokio::test]
async fn an_unreachable_site_trips_by_its_connection_errors() {
    let gone = integration_tests::ports::free_address();
    let file = RuleFile::one_rule("cooldown: {after: 3, for: 1m, on: [connection_error]}");
    let member = Member::start(&file).await;
    for _ in 0..3 {
        let answer = get(member.proxy(), &format!("http://{gone}/")).await;
        assert_eq!((answer.status, answer.refused()), (502, Some("connect")));
    }
    cools(&member, SOON, true).await;
}

#[tokio::test]
async fn broken_connections_and_missing_responses_are_not_blocks_by_default() {
    let site = Site::start();
    let file =
        RuleFile::one_rule("cooldown: {after: 1, for: 1m}").with("timeouts: {response: 300ms}");
    let member = Member::start(&file).await;
    for page in [Page::Reset, Page::Hang, Page::Status(503)] {
        site.answer_everything_with(Some(page));
        get(member.proxy(), &site.url("/")).await;
    }
    assert!(member.metric("tidegate_cooldown_active", &[]).await.abs() < 1e-9);
    let blocks = member.metric("tidegate_blocks_total", &[]).await;
    assert!(blocks.abs() < 1e-9, "{blocks} blocks");
}
