//! `POST /api/v1/when`: the earliest time at which a request could be sent; asking takes no token.

use std::time::Duration;

use integration_tests::{
    client::{Answer, get, post_json},
    member::{Member, RuleFile},
    ports::free_address,
    redis::Redis,
    site::{Page, Site},
    wait::wait_until,
};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(20);

async fn when(member: &Member, body: &Value) -> Value {
    let answer = post_json(member.admin(), "/api/v1/when", &body.to_string()).await;
    assert_eq!(answer.status, 200, "{body}: {}", answer.text());
    serde_json::from_str(&answer.text()).expect("it is JSON")
}

async fn one(member: &Member, url: &str) -> Value {
    when(member, &json!({"url": url})).await
}

/// Wait in milliseconds and reason.
fn wait_of(next: &Value) -> (u64, &str) {
    let wait = next["in_ms"].as_u64().unwrap_or_else(|| panic!("a wait: {next}"));
    (wait, next["reason"].as_str().unwrap_or("none"))
}

/// Calls of one script that Redis has served.
async fn calls(member: &Member, command: &str) -> f64 {
    member.metric("tidegate_store_seconds_count", &[("command", command)]).await
}

#[tokio::test]
async fn asking_takes_nothing_and_each_reason_has_its_word() {
    let site = Site::start();
    site.on("/wall", Page::Captcha);
    let rules = "- {name: ads, match: {paths: [\"/ads*\"]}, action: deny}\n\
                 - {name: free, match: {paths: [\"/free*\"]}, action: bypass}\n\
                 - {name: slow, match: {paths: [\"/slow*\"]}, rate: 1/m, burst: 2}\n\
                 - {name: day, match: {paths: [\"/day*\"]}, quota: 1/d}\n\
                 - {name: wall, match: {paths: [\"/wall*\"]}, cooldown: {after: 1, for: 90s-90s}}\n\
                 - {name: rest, match: {hosts: [\"127.0.0.1\"]}, per: host, rate: 100/s}";
    let member = Member::start(&RuleFile::new(rules)).await;
    for _ in 0..5 {
        assert_eq!(wait_of(&one(&member, &site.url("/slow")).await), (0, "none"));
    }
    for (path, status) in [("/slow", 200), ("/slow", 200), ("/day", 200), ("/wall", 403)] {
        assert_eq!(get(member.proxy(), &site.url(path)).await.status, status, "{path}");
    }
    let urls: Vec<_> =
        ["/slow?1", "/day", "/wall", "/free", "/ads", "/"].map(|p| site.url(p)).into();
    let mut urls: Vec<_> = urls.into_iter().map(Value::from).collect();
    urls.extend([json!("http://other.example/"), json!("no url")]);
    let answer = when(&member, &json!({"urls": urls})).await;
    let results = answer["results"].as_array().expect("a list");
    let words: Vec<_> = results.iter().map(|r| r["reason"].as_str().unwrap_or("none")).collect();
    let expected = ["rate", "quota", "cooldown", "none", "denied", "none", "denied", "none"];
    assert_eq!(words, expected, "{answer:#}");
    for (at, seconds) in [(0, 60), (1, 86_400), (2, 90)] {
        let (wait, _) = wait_of(&results[at]);
        assert!(wait <= seconds * 1_000 && wait > (seconds - 30) * 1_000, "{}", results[at]);
        let at_ms = results[at]["at_ms"].as_u64().expect("a moment");
        assert!(at_ms > wait, "{}", results[at]);
    }
    assert_eq!(results[5]["scope"], "rest/127.0.0.1");
    assert_eq!((&results[6]["rule"], &results[6]["in_ms"]), (&Value::Null, &Value::Null));
    assert!(results[7]["error"].as_str().is_some_and(|e| e.starts_with("url: ")), "{answer:#}");
}

#[tokio::test]
async fn wrong_requests_get_an_error_that_names_the_mistake() {
    let member = Member::start(&RuleFile::one_rule("rate: 1/s")).await;
    let many: Vec<_> = (0..1_001).map(|n| format!("http://h{n}.example/")).collect();
    for (body, sentence) in [
        (json!({}), "`url` or `urls`"),
        (json!({"url": "http://h.example/", "urls": []}), "`url` or `urls`"),
        (json!({"urls": many}), "at most 1000"),
        (json!({"url": "h"}), "url: "),
        (json!({"uri": "http://h.example/"}), "unknown field"),
    ] {
        let answer = post_json(member.admin(), "/api/v1/when", &body.to_string()).await;
        assert_eq!(answer.status, 400, "{}", answer.text());
        assert!(answer.text().contains(sentence), "{sentence}: {}", answer.text());
    }
    assert_eq!(when(&member, &json!({"urls": []})).await, json!({"results": []}));
}

#[tokio::test]
async fn a_thousand_sites_of_a_fleet_cost_ten_calls_that_go_out_together() {
    let (site, redis) = (Site::start(), Redis::start());
    let rules = "- {name: sites, match: \"*\", per: host, rate: 1/m, burst: 1, \
                 cooldown: {after: 3, for: 60s-60s}}";
    let members = Member::fleet(2, &RuleFile::new(rules).redis(&redis)).await;
    members[1].store_is(true).await;
    let mut urls: Vec<_> = (0..999).map(|n| format!("http://h{n}.example/")).collect();
    urls.push(site.url("/"));
    let ask = json!({"urls": urls});
    let asked = when(&members[1], &ask).await;
    assert!(asked["results"].as_array().is_some_and(|all| all.iter().all(|r| wait_of(r).0 == 0)));
    assert_eq!(calls(&members[1], "when").await, 10.0);
    assert_eq!(get(members[0].proxy(), &site.url("/")).await.status, 200);
    let asked = when(&members[1], &ask).await;
    let last = &asked["results"][999];
    assert!(wait_of(last).0 > 30_000, "another member took the token: {last}");
    assert_eq!(wait_of(last).1, "rate");
    assert_eq!(wait_of(&asked["results"][0]), (0, "none"));
    assert_eq!(members[1].status().await["scopes_total"], 0, "a look makes no scope");
    assert_eq!(calls(&members[1], "take").await, 0.0);
}

#[tokio::test]
async fn held_requests_go_before_new_ones() {
    let (site, redis) = (Site::start(), Redis::start());
    let file = RuleFile::one_rule("rate: 6/m, burst: 1, max_wait: 5m").redis(&redis);
    let member = Member::start(&file).await;
    member.store_is(true).await;
    let (proxy, url) = (member.proxy(), site.url("/"));
    assert_eq!(get(proxy, &url).await.status, 200);
    let held: Vec<_> = (0..3)
        .map(|_| {
            let url = url.clone();
            tokio::spawn(async move { get(proxy, &url).await })
        })
        .collect();
    wait_until("three are held", SOON, async || {
        member.metric("tidegate_held_requests", &[]).await > 2.5
    })
    .await;
    let next = one(&member, &url).await;
    let (wait, reason) = wait_of(&next);
    assert_eq!(reason, "queue");
    // Ten seconds for each of the three, after the next ticket, minus the elapsed time.
    assert!(wait > 25_000 && wait <= 40_000, "{next}");
    held.into_iter().for_each(|task| task.abort());
}

#[tokio::test]
async fn a_store_that_is_away_is_named() {
    let redis = Redis::start();
    let store = |on_failure: &str| {
        format!("{{url: \"{}\", timeout: 2s, on_failure: {on_failure}}}", redis.url())
    };
    let rule = RuleFile::one_rule("rate: 1/m, burst: 1");
    let closed = Member::start(&rule.clone().store(&store("closed"))).await;
    let local = Member::start(&rule.clone().store(&store("local"))).await;
    let open = Member::start(&rule.store(&store("open"))).await;
    let slots = RuleFile::one_rule("parallel: 3");
    let few = Member::start(&slots.clone().store(&store("local"))).await;
    let none = Member::start(&slots.store(&store("closed"))).await;
    for member in [&closed, &local, &open, &few, &none] {
        member.knows_of(5).await;
    }
    drop(redis);
    for member in [&closed, &local, &open, &few, &none] {
        member.store_is(false).await;
    }
    let url = "http://h.example/";
    let next = one(&closed, url).await;
    assert_eq!((&next["in_ms"], &next["reason"]), (&Value::Null, &"store".into()), "{next}");
    let next = one(&local, url).await;
    assert_eq!(wait_of(&next), (300_000, "store"), "a fifth of the rate, from an empty bucket");
    assert_eq!(wait_of(&one(&open, url).await), (0, "none"));
    let next = one(&few, url).await;
    assert_eq!(wait_of(&next), (1_000, "parallel"), "five members have three places");
    let next = one(&none, url).await;
    assert_eq!((&next["in_ms"], &next["reason"]), (&Value::Null, &"store".into()), "{next}");
}

/// Seconds of `Tidegate-Next`.
fn next_of(answer: &Answer) -> f64 {
    let value = answer.header("tidegate-next").unwrap_or_else(|| panic!("{:?}", answer.headers));
    value.parse().unwrap_or_else(|_| panic!("{value} is no number"))
}

#[tokio::test]
async fn each_response_has_the_time_of_the_next_request() {
    let site = Site::start();
    site.on("/wall", Page::Captcha);
    let rules = "- {name: slow, match: {paths: [\"/slow*\"]}, rate: 1/m, burst: 2, max_wait: 1s}\n\
                 - {name: serial, match: {paths: [\"/serial*\"]}, rate: 20/s, burst: 1}\n\
                 - {name: wall, match: {paths: [\"/wall*\"]}, max_wait: 1s, cooldown: {after: 1, for: 90s-90s}}\n\
                 - {name: free, match: {paths: [\"/free*\"]}, action: bypass}\n\
                 - {name: watched, match: {paths: [\"/watched*\"]}, rate: 1/m, mode: observe}\n\
                 - {name: rest, match: \"*\", rate: 1/m, burst: 1}";
    let member = Member::start(&RuleFile::new(rules)).await;
    let ask = async |path: &str| get(member.proxy(), &site.url(path)).await;
    assert_eq!(ask("/slow").await.header("tidegate-next"), Some("0"), "a token is left");
    let next = next_of(&ask("/slow").await);
    assert!(next > 30.0 && next <= 60.0, "{next}");
    let refused = ask("/slow").await;
    assert_eq!(refused.refused(), Some("limit"));
    assert!(next_of(&refused) > 30.0 && next_of(&refused) <= next, "{:?}", refused.headers);
    let tripped = next_of(&ask("/wall").await);
    assert!(tripped > 60.0 && tripped <= 90.0, "the answer that tripped says so: {tripped}");
    let refused = ask("/wall").await;
    assert_eq!(refused.refused(), Some("cooldown"));
    assert!(next_of(&refused) > 60.0, "{:?}", refused.headers);
    // A client that waits for the announced time is hardly held.
    for _ in 0..5 {
        let next = next_of(&ask("/serial").await);
        assert!(next <= 0.05, "{next}");
    }
    for path in ["/free", "/watched"] {
        assert_eq!(ask(path).await.header("tidegate-next"), None, "{path}");
    }
    let away = get(member.proxy(), &format!("http://{}/", free_address())).await;
    assert_eq!(away.refused(), Some("connect"), "{:?}", away.headers);
    assert!(next_of(&away) > 30.0, "it took the token all the same");
}

#[tokio::test]
async fn without_annotations_there_is_no_time_of_the_next_request() {
    let site = Site::start();
    let file = RuleFile::one_rule("rate: 1/m, burst: 1, max_wait: 1s").with("annotate: false");
    let member = Member::start(&file).await;
    for status in [200, 429] {
        let answer = get(member.proxy(), &site.url("/")).await;
        assert_eq!((answer.status, answer.header("tidegate-next")), (status, None));
    }
}
