//! Limits that a site announces: they lower the rate of the fleet, pause it when nothing is left,
//! and never raise it.

use std::time::Duration;

use http::{Method, Request, header};
use http_body_util::Full;
use integration_tests::{
    client::{ProxyClient, get, get_direct, get_with},
    load::crawl,
    member::{Member, RuleFile},
    news,
    redis::Redis,
    site::{Page, Site},
    wait::wait_until,
};
use serde_json::Value;

const SOON: Duration = Duration::from_secs(15);
const RULE: &str = "rate: 50/s, burst: 2, max_wait: 10m, cooldown: {for: 100ms-200ms, ramp: 0s}";

fn says(fields: &[(&'static str, &str)]) -> Page {
    Page::Says(fields.iter().map(|(name, value)| (*name, (*value).to_owned())).collect())
}

async fn scope(member: &Member) -> Value {
    member.status().await["scopes"][0].clone()
}

fn is(value: &Value, wanted: f64) -> bool {
    value.as_f64().is_some_and(|value| (value - wanted).abs() < 1e-9)
}

#[tokio::test]
async fn an_exhausted_limit_pauses_the_fleet_until_the_reset_and_changes_no_rate() {
    let (redis, site) = (Redis::start(), Site::start());
    let fleet = Member::fleet(2, &RuleFile::one_rule(RULE).redis(&redis)).await;
    news::is_heard_by(2, &redis).await;
    let spent =
        [("x-ratelimit-limit", "60"), ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "300")];
    site.answer_everything_with(Some(says(&spent)));
    assert_eq!(get(fleet[0].proxy(), &site.url("/")).await.status, 200, "the answer is a page");
    for member in &fleet {
        wait_until("every member knows that nothing is left", SOON, async || {
            member.events("tripped").await.len() == 1
        })
        .await;
    }
    let left = scope(&fleet[0]).await["remaining_ms"].as_u64().expect("a number");
    assert!((200_000..=300_000).contains(&left), "{left} ms are left of five minutes");
    for member in &fleet {
        let trips = member.events("tripped").await;
        assert_eq!(
            (trips.len(), &trips[0]["cause"], &trips[0]["by"]),
            (1, &"site_limit".into(), &"site_limit".into())
        );
        assert!(
            member.metrics().await.sum("tidegate_cooldowns_total", &[]) < 1.0,
            "no block tripped it"
        );
    }
    site.answer_everything_with(None);
    let url = site.url("/");
    let held = crawl_one(&fleet[1], &url);
    let resumed = async {
        wait_until("a request is held", SOON, async || {
            fleet[1].metric("tidegate_held_requests", &[]).await >= 1.0
        })
        .await;
        assert_eq!(site.count(), 1, "nothing was sent meanwhile");
        let request = Request::builder()
            .method(Method::DELETE)
            .uri("/api/v1/scopes/default/cooldown")
            .header(header::HOST, fleet[0].admin().to_string())
            .body(Full::default())
            .expect("it is a request");
        let mut admin = ProxyClient::connect(fleet[0].admin()).await;
        assert_eq!(admin.send(request).await.expect("the port answers").status, 200);
    };
    let (statuses, ()) = tokio::join!(held, resumed);
    assert_eq!(statuses, 200);
    let learned = scope(&fleet[1]).await["learned"].clone();
    assert!(is(&learned["rate"], 50.0), "{learned}");
}

async fn crawl_one(member: &Member, url: &str) -> u16 {
    get(member.proxy(), url).await.status
}

#[tokio::test]
async fn a_pause_requested_by_the_site_ends_by_itself() {
    let site = Site::start();
    let member = Member::start(&RuleFile::one_rule(RULE)).await;
    site.on("/last", says(&[("ratelimit", "limit=1, remaining=0, reset=1")]));
    get(member.proxy(), &site.url("/last")).await;
    assert_eq!(get(member.proxy(), &site.url("/")).await.status, 200);
    let cleared = member.events("cleared").await;
    assert_eq!((cleared.len(), &cleared[0]["by"]), (1, &"time".into()));
    assert!(member.events("probe_sent").await.is_empty(), "it needs no probe");
}

#[tokio::test]
async fn a_rate_that_the_site_names_is_the_fleets() {
    let (redis, site) = (Redis::start(), Site::start());
    let fleet = Member::fleet(2, &RuleFile::one_rule(RULE).redis(&redis)).await;
    let policy = [("ratelimit-policy", "\"a\";q=120;w=60"), ("ratelimit", "\"a\";r=119;t=59")];
    site.answer_everything_with(Some(says(&policy)));
    get(fleet[0].proxy(), &site.url("/")).await;
    wait_until("the store knows the rate", SOON, async || {
        let fleet = get_direct(fleet[1].admin(), "/api/v1/fleet?fresh=1").await;
        let fleet: Value = serde_json::from_str(&fleet.text()).expect("JSON");
        let scope = &fleet["scopes"][0];
        is(&scope["site_rate"], 2.0) && is(&scope["rate_current"], 2.0)
    })
    .await;
    assert_eq!(fleet[0].events("site_limit").await.len(), 1);
    let proxies = [fleet[1].proxy()];
    crawl(&proxies, 4, &site.url("/"), 8).await;
    let times = site.times();
    let took = times[times.len() - 1] - times[1];
    // Two at once, then two per second.
    assert!(took >= Duration::from_millis(2_400), "seven requests took {took:?}");
}

#[tokio::test]
async fn no_site_makes_the_crawl_faster_than_the_rule_file() {
    let site = Site::start();
    let member = Member::start(&RuleFile::one_rule("rate: 4/s, burst: 1, learn: false")).await;
    let much = [
        ("x-ratelimit-remaining", "999999999"),
        ("x-ratelimit-reset", "1"),
        ("x-ratelimit-limit", "1e300"),
    ];
    site.answer_everything_with(Some(says(&much)));
    crawl(&[member.proxy()], 4, &site.url("/"), 5).await;
    let times = site.times();
    assert!(times[4] - times[0] >= Duration::from_millis(950), "{:?}", times[4] - times[0]);
    assert!(is(&scope(&member).await["rate_current"], 4.0));
}

#[tokio::test]
async fn a_rule_may_ignore_site_limits() {
    let site = Site::start();
    let member = Member::start(&RuleFile::one_rule(&format!("{RULE}, site_limits: ignore"))).await;
    let spent = [("x-rl", "0"), ("x-ttl", "300"), ("ratelimit-policy", "1;w=600")];
    site.answer_everything_with(Some(says(&spent)));
    for _ in 0..3 {
        assert_eq!(get(member.proxy(), &site.url("/")).await.status, 200);
    }
    let scope = scope(&member).await;
    assert_eq!((&scope["state"], &scope["site_rate"]), (&"open".into(), &Value::Null));
}

#[tokio::test]
async fn a_crawl_delay_that_a_client_fetches_is_a_ceiling_for_all() {
    let (redis, site) = (Redis::start(), Site::start());
    let fleet = Member::fleet(2, &RuleFile::one_rule(RULE).redis(&redis)).await;
    news::is_heard_by(2, &redis).await;
    let file = "User-agent: *\nCrawl-delay: 0.5\n\nUser-agent: slow-bot\nCrawl-delay: 3600\n";
    site.on("/robots.txt", Page::Text(file.to_owned()));
    let robots = site.url("/robots.txt");
    let rate = async |member: &Member| {
        let fleet = get_direct(member.admin(), "/api/v1/fleet?fresh=1").await;
        let fleet: Value = serde_json::from_str(&fleet.text()).expect("JSON");
        fleet["scopes"][0]["site_rate"].clone()
    };
    let answer = get(fleet[0].proxy(), &robots).await;
    assert_eq!(answer.text(), file, "the client gets the file as it is");
    wait_until("the delay for all clients counts", SOON, async || is(&rate(&fleet[1]).await, 2.0))
        .await;
    get_with(fleet[0].proxy(), &robots, "user-agent", "Slow-Bot/1.0").await;
    wait_until("no delay is longer than a minute", SOON, async || {
        is(&rate(&fleet[1]).await, 1.0 / 60.0)
    })
    .await;
    assert_eq!(site.count(), 2, "the proxy fetches nothing by itself");
}
