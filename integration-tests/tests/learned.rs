//! The learned rate of a fleet: changed manually, lowered by walls, kept over restarts and outages.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, header};
use http_body_util::Full;
use integration_tests::{
    client::{Answer, ProxyClient, get, get_direct},
    load::{crawl, statuses},
    member::{Member, RuleFile, binary_path},
    news,
    redis::Redis,
    site::{Page, Site},
    wait::wait_until,
};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(15);
const RULE: &str = "rate: 50/s, burst: 2, cooldown: {after: 3, for: 100ms-200ms, ramp: 0s}";

async fn change(member: &Member, method: Method, scope: &str, body: Value) -> Answer {
    let request = Request::builder()
        .method(method)
        .uri(format!("/api/v1/scopes/{scope}/rate"))
        .header(header::HOST, member.admin().to_string())
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(body.to_string())))
        .expect("it is a request");
    ProxyClient::connect(member.admin()).await.send(request).await.expect("the port answers")
}

async fn set(member: &Member, body: Value) {
    let answer = change(member, Method::POST, "default", body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
}

/// A member's view of the learned rate.
async fn learned(member: &Member) -> Value {
    member.status().await["scopes"][0]["learned"].clone()
}

fn is(value: &Value, wanted: f64) -> bool {
    value.as_f64().is_some_and(|value| (value - wanted).abs() < 1e-9)
}

/// The reasons of all changes that a member has reported.
async fn reasons(member: &Member) -> Vec<String> {
    let changes = member.events("rate_learned").await.into_iter();
    changes.map(|event| event["why"].as_str().expect("a word").to_owned()).collect()
}

/// Three responses like `page`, then the cooldown, and one good page after it.
async fn trip(site: &Site, member: &Member, page: Page) {
    site.answer_everything_with(Some(page));
    for _ in 0..3 {
        get(member.proxy(), &site.url("/")).await;
    }
    site.answer_everything_with(None);
    wait_until("pages come again and the rate is known", SOON, async || {
        let good = get(member.proxy(), &site.url("/")).await.status == 200;
        let why = &learned(member).await["why"];
        good && (why == "sure_trip" || why == "doubtful_trip")
    })
    .await;
}

#[tokio::test]
async fn a_manual_rate_applies_to_the_whole_fleet_at_once() {
    let (redis, site) = (Redis::start(), Site::start());
    let fleet = Member::fleet(2, &RuleFile::one_rule(RULE).redis(&redis)).await;
    news::is_heard_by(2, &redis).await;
    let url = site.url("/");
    get(fleet[1].proxy(), &url).await;
    set(&fleet[0], json!({"rate": 0.5})).await;
    let proxies = [fleet[1].proxy()];
    let held = crawl(&proxies, 4, &url, 40);
    let faster = async {
        // Three may be held at the old rate, until this member has the news of the new one.
        wait_until("requests are held at the slow rate", SOON, async || {
            let knows = is(&learned(&fleet[1]).await["rate"], 0.5);
            knows && fleet[1].metric("tidegate_held_requests", &[]).await >= 3.0
        })
        .await;
        let current = fleet[1].metric("tidegate_rate_current", &[]).await;
        assert!((current - 0.5).abs() < 1e-9, "{current}");
        set(&fleet[0], json!({"rate": 50.0})).await;
    };
    // At the slow rate they would take more than a minute.
    let both = async { tokio::join!(held, faster) };
    let (answers, ()) =
        tokio::time::timeout(SOON, both).await.expect("the held requests get the new rate");
    assert_eq!(statuses(&answers), [(200, 40)].into());
    assert!(is(&learned(&fleet[1]).await["rate"], 50.0));
    assert_eq!(reasons(&fleet[0]).await, ["hand", "hand"]);
    assert_eq!(reasons(&fleet[1]).await, ["hand", "hand"]);
}

#[tokio::test]
async fn a_frozen_rate_outlasts_a_wall_and_a_forgotten_one_starts_again() {
    let site = Site::start();
    let member = Member::start(&RuleFile::one_rule(RULE)).await;
    set(&member, json!({"rate": 20, "frozen": true})).await;
    site.answer_everything_with(Some(Page::Captcha));
    for _ in 0..3 {
        get(member.proxy(), &site.url("/")).await;
    }
    site.answer_everything_with(None);
    wait_until("pages come again", SOON, async || {
        get(member.proxy(), &site.url("/")).await.status == 200
    })
    .await;
    let frozen = learned(&member).await;
    assert!(is(&frozen["rate"], 20.0) && frozen["frozen"] == true, "{frozen}");
    set(&member, json!({"frozen": false})).await;
    trip(&site, &member, Page::Captcha).await;
    let tripped = learned(&member).await;
    assert!(tripped["rate"].as_f64() < Some(20.0) && tripped["frozen"] == false, "{tripped}");
    assert_eq!(change(&member, Method::DELETE, "default", Value::Null).await.status, 200);
    let forgotten = learned(&member).await;
    assert!(is(&forgotten["rate"], 50.0) && forgotten["mark"].is_null(), "{forgotten}");
    assert_eq!(reasons(&member).await, ["hand", "hand", "sure_trip", "forgotten"]);
}

#[tokio::test]
async fn an_invalid_manual_change_is_rejected_with_the_reason() {
    let rules = format!(
        "- {{name: default, match: '*.example', {RULE}}}\n\
         - {{name: fixed, match: '*', rate: 5/s, learn: false}}\n"
    );
    let member = Member::start(&RuleFile::new(&rules)).await;
    for (scope, body, status, word) in [
        ("default", json!({"rate": 51}), 400, "50"),
        ("default", json!({"rate": 0}), 400, "0.5"),
        ("default", json!({"rate": "fast"}), 400, "fast"),
        ("default", json!({}), 400, "frozen"),
        ("default", json!({"speed": 1}), 400, "speed"),
        ("fixed", json!({"rate": 1}), 409, "fixed"),
        ("nobody", json!({"rate": 1}), 404, "default"),
    ] {
        let answer = change(&member, Method::POST, scope, body.clone()).await;
        assert_eq!(answer.status, status, "{scope} {body}: {}", answer.text());
        assert!(answer.text().contains(word), "`{word}` is missing: {}", answer.text());
    }
}

#[tokio::test]
async fn a_sure_sign_costs_more_than_plain_refusals() {
    let site = Site::start();
    let mut marks = Vec::new();
    for (page, why) in [
        (Page::Captcha, "sure_trip"),
        (Page::TooManyRequests(None), "sure_trip"),
        (Page::Forbidden, "doubtful_trip"),
    ] {
        let member = Member::start(&RuleFile::one_rule(RULE)).await;
        // The scope is new, so without these requests it would only know the rate of its first
        // second.
        set(&member, json!({"rate": 20})).await;
        trip(&site, &member, page).await;
        let learned = learned(&member).await;
        assert_eq!(learned["why"], why);
        marks.push(learned["mark"].as_f64().expect("a limit has been met"));
    }
    assert!(marks[2] > marks[0].max(marks[1]), "{marks:?}");
}

/// Scattered 503s start a test at half the rate, and trip nothing.
#[tokio::test]
async fn scattered_503s_are_tested_at_half_the_rate() {
    let site = Site::start();
    site.on("/busy", Page::Status(503));
    let member = Member::start(&RuleFile::one_rule(RULE)).await;
    let (page, busy) = (site.url("/"), site.url("/busy"));
    wait_until("it is known that the rate is not the reason", SOON, async || {
        for at in 0..10 {
            get(member.proxy(), if at % 5 == 4 { &busy } else { &page }).await;
        }
        reasons(&member).await.contains(&"no_wall".to_owned())
    })
    .await;
    assert!(member.metric("tidegate_cooldowns_total", &[]).await.abs() < 0.5);
    assert!(is(&learned(&member).await["rate"], 50.0), "{}", learned(&member).await);
}

/// Pages that are always refused do not slow the crawl down, and a later wall still trips.
#[tokio::test]
async fn pages_that_are_always_refused_do_not_slow_the_others() {
    let (redis, site) = (Redis::start(), Site::start());
    site.on("/members", Page::Forbidden);
    let fleet = Member::fleet(2, &RuleFile::one_rule(RULE).redis(&redis)).await;
    let (page, members_only) = (site.url("/"), site.url("/members"));
    let crawl = async |pages: u32| {
        for at in 0..pages {
            let url = if at % 5 == 4 { &members_only } else { &page };
            get(fleet[at as usize % 2].proxy(), url).await;
        }
    };
    wait_until("it is known that the pages are refused at any rate", SOON, async || {
        crawl(10).await;
        reasons(&fleet[0]).await.contains(&"no_wall".to_owned())
    })
    .await;
    assert!(is(&learned(&fleet[0]).await["rate"], 50.0), "{}", learned(&fleet[0]).await);
    crawl(50).await;
    let trips = async || {
        let trips =
            [&fleet[0], &fleet[1]].map(|member| member.metric("tidegate_cooldowns_total", &[]));
        let [one, other] = trips;
        one.await + other.await
    };
    assert!(trips().await.abs() < 0.5, "chance explains every block so far");
    site.answer_everything_with(Some(Page::Forbidden));
    wait_until("a wall trips all the same", SOON, async || {
        get(fleet[0].proxy(), &page).await;
        trips().await > 0.5
    })
    .await;
}

#[tokio::test]
async fn a_learned_rate_survives_its_members_an_idle_night_and_an_outage() {
    let (mut redis, site) = (Redis::start(), Site::start());
    let file = RuleFile::one_rule(RULE).redis(&redis);
    let first = Member::start(&file).await;
    trip(&site, &first, Page::Captcha).await;
    let rate = learned(&first).await["rate"].as_f64().expect("a rate");
    assert!(rate < 50.0, "{rate}");
    drop(first);
    let ttl = redis.command(&["PTTL", "tidegate:{default}:b:"]);
    let ttl: f64 = ttl.trim_start_matches(':').trim().parse().expect("a number");
    assert!(ttl > 3.0 * 86_400_000.0, "it is kept for more than a night: {ttl} ms");
    let second = Member::start(&file).await;
    let page = async || get(second.proxy(), &site.url("/")).await.status;
    let known = async || learned(&second).await;
    assert_eq!(page().await, 200);
    assert!(is(&known().await["rate"], rate), "after a restart: {}", known().await);
    redis.kill();
    assert_eq!(page().await, 200);
    assert!(is(&known().await["rate"], rate), "without the store: {}", known().await);
    redis.restart();
    wait_until("the store knows again what the member knows", SOON, async || {
        page().await == 200 && known().await["why"] == "recalled"
    })
    .await;
    assert!(is(&known().await["rate"], rate), "{}", known().await);
}

/// What `tidegate status` prints.
fn status(member: &Member) -> String {
    let admin = member.admin().to_string();
    let mut command = std::process::Command::new(binary_path());
    let output = command.args(["status", "--admin", &admin]).output().expect("it runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The limit that a long ban shows has a name on every surface, until an operator sets the rate.
#[tokio::test]
async fn a_wall_with_a_long_ban_is_named_until_an_operator_sets_the_rate() {
    let (redis, site) = (Redis::start(), Site::start());
    let member = Member::start(&RuleFile::one_rule(RULE).redis(&redis)).await;
    for _ in 0..40 {
        get(member.proxy(), &site.url("/")).await;
    }
    site.answer_everything_with(Some(Page::Captcha));
    for _ in 0..3 {
        get(member.proxy(), &site.url("/")).await;
    }
    // The last block was ten minutes ago.
    let earlier = "local now, changed = redis.call('TIME')[1] - 600, 0 \
                   for _, key in ipairs(redis.call('KEYS', '*')) do \
                     if redis.call('TYPE', key).ok == 'hash' and redis.call('HEXISTS', key, 'kinds') == 1 then \
                       redis.call('HSET', key, 'last', now .. '000000') changed = changed + 1 \
                     end \
                   end return changed";
    assert_eq!(redis.command(&["EVAL", earlier, "0"]), ":1\r\n");
    site.answer_everything_with(None);
    let wall = async || learned(&member).await["wall"].clone();
    wait_until("the wall has a name", SOON, async || {
        get(member.proxy(), &site.url("/")).await;
        !wall().await.is_null()
    })
    .await;
    let named = wall().await;
    let ban = named["ban_ms"].as_u64().expect("a number");
    assert!((599_000..660_000).contains(&ban) && named["trips"] == 1, "{named}");
    assert!(named["window_ms"].as_u64() > Some(0), "{named}");
    assert!(named["requests"].as_f64() > Some(10.0), "{named}");
    let events = member.events("wall_named").await;
    assert_eq!((events.len(), &events[0]["wall"]), (1, &named));
    let answer = get_direct(member.admin(), "/api/v1/fleet?fresh=1").await;
    let fleet: Value = serde_json::from_slice(&answer.body).expect("JSON");
    assert_eq!(fleet["scopes"][0]["learned"]["wall"], named);
    let text = status(&member);
    assert!(text.contains("default: learned: ") && text.contains(", ban of 1"), "{text}");
    set(&member, json!({"rate": 50.0})).await;
    assert!(wall().await.is_null() && !status(&member).contains("learned: "));
    assert_eq!(member.events("wall_dropped").await.len(), 1);
}
