//! `overload: ease`: a site that can only give so many pages per second is not buried under the rest.

use std::time::Duration;

use integration_tests::{
    client::get,
    load::Crawl,
    member::{Member, RuleFile},
    overloaded::{Overloaded, crawl},
    site::{Page, Site},
    wait::wait_until,
};

const SOON: Duration = Duration::from_secs(60);
const KEYS: &str = "rate: 60/s, burst: 1, overload: ease, cooldown: {for: 100ms-200ms}";

/// The reasons of all changes of the rate that a member has told.
async fn reasons(member: &Member) -> Vec<String> {
    let told = member.events("rate_learned").await.into_iter();
    told.map(|event| event["why"].as_str().expect("a word").to_owned()).collect()
}

#[test]
fn ten_minutes_at_twice_and_five_times_the_capacity_fetch_nearly_all_of_it() {
    for (rate, times, seed) in [(4.0, 2.0, 1), (4.0, 5.0, 2), (1.5, 5.0, 3)] {
        let keys = format!("rate: {}/s, overload: ease", rate * times);
        let [haul] = crawl(rate, &keys, [600], seed);
        assert!(haul.pages >= 85.0, "{times} times {rate}/s: {haul:?}");
        assert!(haul.queue <= 5.0, "{times} times {rate}/s: {haul:?}");
        assert!(!haul.tripped, "{times} times {rate}/s: {haul:?}");
    }
}

#[tokio::test]
async fn a_real_site_that_answers_late_is_asked_less_until_it_has_caught_up() {
    let site = Site::start();
    let member = Member::start(&RuleFile::one_rule(KEYS)).await;
    site.overload(Overloaded::new(12.0, 1));
    let crawl = Crawl::start(&[member.proxy()], 100, &site.url("/"));
    wait_until("the rate is lowered", SOON, async || {
        reasons(&member).await.contains(&"overload".to_owned())
    })
    .await;
    wait_until("the site has caught up", SOON, async || {
        reasons(&member).await.contains(&"relieved".to_owned())
    })
    .await;
    let learned = member.status().await["scopes"][0]["learned"].clone();
    assert!(learned["rate"].as_f64().expect("a rate") < 30.0, "{learned}");
    assert!(member.metric("tidegate_strain_answers_total", &[("kind", "late")]).await > 0.0);
    assert!(member.events("tripped").await.is_empty());
    crawl.end().await;
}

#[tokio::test]
async fn a_503_for_every_page_lowers_the_rate_and_trips_nothing() {
    let site = Site::start();
    let member = Member::start(&RuleFile::one_rule(KEYS)).await;
    get(member.proxy(), &site.url("/")).await;
    site.answer_everything_with(Some(Page::Status(503)));
    let mut page = 0;
    wait_until("the rate is lowered", SOON, async || {
        page += 1;
        get(member.proxy(), &site.url(&format!("/{page}"))).await;
        reasons(&member).await.contains(&"overload".to_owned())
    })
    .await;
    assert!(member.events("tripped").await.is_empty());
    assert!(member.metric("tidegate_strain_answers_total", &[("kind", "failed")]).await > 5.0);
}

#[tokio::test]
async fn a_status_that_the_cooldown_lists_trips_all_the_same() {
    let site = Site::start();
    let listed = "rate: 60/s, overload: ease, cooldown: {after: 3, on: [503], for: 1h-2h, max: 2h}";
    let member = Member::start(&RuleFile::one_rule(listed)).await;
    site.answer_everything_with(Some(Page::Status(503)));
    for page in 0..3 {
        get(member.proxy(), &site.url(&format!("/{page}"))).await;
    }
    assert_eq!(member.events("tripped").await.len(), 1);
}
