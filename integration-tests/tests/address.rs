//! `per: address`: hosts on one server share a scope, whatever their names. Here `localhost` and
//! `127.0.0.1` are two hosts of one server.

use std::{path::Path, time::Duration};

use integration_tests::{
    client::{Answer, Raw, get, post_json},
    member::{Member, RuleFile},
    redis::Redis,
    secure::{Flaw, Root},
    site::{Page, Site},
    tools::run_through,
    wait::wait_until,
};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(15);

/// The URLs of a path at the two hosts of a site.
fn urls(site: &Site, path: &str) -> [String; 2] {
    let port = site.address().port();
    ["localhost", "127.0.0.1"].map(|host| format!("http://{host}:{port}{path}"))
}

async fn post(member: &Member, path: &str, body: &Value) -> Answer {
    post_json(member.admin(), path, &body.to_string()).await
}

async fn when(member: &Member, url: &str) -> Value {
    let answer = post(member, "/api/v1/when", &json!({"url": url})).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    serde_json::from_str(&answer.text()).expect("it is JSON")
}

async fn granted(member: &Member) -> f64 {
    member.metric("tidegate_tokens_granted_total", &[]).await
}

#[tokio::test]
async fn the_hosts_of_a_server_share_one_scope_over_the_fleet_and_other_servers_have_their_own() {
    let redis = Redis::start();
    let keys = "per: address, quota: 3/h, max_wait: 5s";
    let fleet = Member::fleet(2, &RuleFile::one_rule(keys).redis(&redis)).await;
    let alone = Member::fleet(1, &RuleFile::one_rule(keys)).await;
    for members in [&fleet, &alone] {
        let site = Site::start();
        let [name, literal] = urls(&site, "/");
        let last = &members[members.len() - 1];
        for (member, url) in [(&members[0], &name), (last, &literal), (last, &name)] {
            let answer = get(member.proxy(), url).await;
            assert_eq!(answer.status, 200, "{url}: {}", answer.text());
        }
        for url in [&name, &literal] {
            let refused = get(members[0].proxy(), url).await;
            assert_eq!((refused.status, refused.refused()), (429, Some("limit")), "{url}");
            let next = when(last, url).await;
            assert_eq!(next["scope"], "default/127.0.0.1", "{next}");
            assert_eq!(next["reason"], "quota", "{next}");
        }
        let other = when(last, "http://127.0.0.2/").await;
        assert_eq!(other["scope"], "default/127.0.0.2", "{other}");
        assert_eq!(other["in_ms"], 0, "{other}");
        assert_eq!(site.count(), 3);
        assert_eq!(last.status().await["scopes"][0]["key"], "127.0.0.1");
    }
}

#[tokio::test]
async fn hosts_in_an_excepted_network_keep_a_scope_each() {
    let keys = "per: address, address_except: [\"127.0.0.0/8\"], quota: 1/h, max_wait: 5s";
    let (site, member) = (Site::start(), Member::start(&RuleFile::one_rule(keys)).await);
    for url in urls(&site, "/") {
        assert_eq!(get(member.proxy(), &url).await.status, 200, "{url}");
        assert_eq!(get(member.proxy(), &url).await.status, 429, "{url}");
    }
    let next = when(&member, &urls(&site, "/")[0]).await;
    assert_eq!(next["scope"], "default/localhost", "{next}");
}

#[tokio::test]
async fn a_wall_at_one_host_holds_its_neighbours_unless_cooldowns_are_split_by_host() {
    let cooldown = "after: 1, for: 90s-90s, respect_retry_after: false";
    for (per, neighbour) in [("", 503), (", per: host", 200)] {
        let keys = format!("per: address, max_wait: 1s, cooldown: {{{cooldown}{per}}}");
        let (site, member) = (Site::start(), Member::start(&RuleFile::one_rule(&keys)).await);
        site.on("/wall", Page::Captcha);
        let [name, literal] = urls(&site, "/");
        assert_eq!(get(member.proxy(), &literal).await.status, 200);
        let wall = get(member.proxy(), &urls(&site, "/wall")[0]).await;
        assert_eq!(wall.verdict(), Some("captcha"));
        assert_eq!(get(member.proxy(), &name).await.status, 503, "the host itself{per}");
        assert_eq!(get(member.proxy(), &literal).await.status, neighbour, "its neighbour{per}");
    }
}

#[tokio::test]
async fn a_name_that_cannot_be_looked_up_or_is_denied_takes_no_token() {
    let rule = RuleFile::one_rule("per: address, quota: 1/h, max_wait: 5s");
    let (site, member) = (Site::start(), Member::start(&rule).await);
    let unknown = get(member.proxy(), "http://nowhere.invalid/").await;
    assert_eq!(unknown.refused(), Some("dns"), "{}", unknown.text());
    let failed = member.metrics().await.sum("tidegate_requests_total", &[("rule", "default")]);
    assert!((failed - 1.0).abs() < 1e-9, "it is counted: {failed}");
    for path in ["/api/v1/when", "/api/v1/acquire"] {
        let answer = post(&member, path, &json!({"url": "http://nowhere.invalid/"})).await;
        assert!([502, 504].contains(&answer.status), "{path}: {}", answer.text());
        assert!(answer.text().contains("\"reason\":\"dns\""), "{}", answer.text());
    }
    let many = json!({"urls": ["http://nowhere.invalid/", urls(&site, "/")[0]]});
    let many = post(&member, "/api/v1/when", &many).await.text();
    let many: Value = serde_json::from_str(&many).expect("it is JSON");
    assert!(many["results"][0]["error"].is_string(), "{many}");
    assert_eq!(many["results"][1]["scope"], "default/127.0.0.1", "{many}");
    assert!(granted(&member).await < 1e-9);
    assert_eq!(get(member.proxy(), &urls(&site, "/")[0]).await.status, 200, "the token is left");

    let strict = Member::start(&rule.egress("{allow: []}")).await;
    let denied = get(strict.proxy(), &urls(&site, "/")[0]).await;
    assert_eq!((denied.status, denied.refused()), (403, Some("egress")), "{}", denied.text());
    let denied = post(&strict, "/api/v1/when", &json!({"url": urls(&site, "/")[0]})).await;
    assert_eq!(denied.status, 403, "{}", denied.text());
    assert!(granted(&strict).await < 1e-9);
    assert_eq!(site.count(), 1);
}

#[tokio::test]
async fn tunnels_to_the_hosts_of_a_server_share_its_scope() {
    let rule = RuleFile::one_rule("per: address, quota: 2/h, max_wait: 5s");
    let (site, member) = (Site::start(), Member::start(&rule).await);
    let port = site.address().port();
    let mut statuses = Vec::new();
    for to in ["localhost", "127.0.0.1", "localhost"] {
        let mut client = Raw::connect(member.proxy()).await;
        client.send(format!("CONNECT {to}:{port} HTTP/1.1\r\nHost: {to}:{port}\r\n\r\n")).await;
        statuses.push(client.head().await[9..12].to_owned());
    }
    assert_eq!(statuses, ["200", "200", "429"]);
}

#[tokio::test]
async fn an_intercepted_request_counts_for_the_server_too() {
    let root = Root::new();
    let site = Site::secure(root.server(Flaw::None));
    let member = root.member("per: address, intercept: true, quota: 2/h, max_wait: 5s").await;
    let port = site.address().port();
    let mut statuses = Vec::new();
    for host in ["localhost", "127.0.0.1", "localhost"] {
        let url = format!("https://{host}:{port}/");
        let ca = member.ca_file().display().to_string();
        let arguments = ["-s", "-o", "/dev/null", "-w", "%{http_code}", "--cacert", &ca, &url];
        let output = run_through(&member.proxy_url(), Path::new("curl"), &arguments).await;
        statuses.push(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    assert_eq!(statuses, ["200", "200", "429"]);
    assert_eq!(site.count(), 2);
}

#[tokio::test]
async fn tokens_and_reports_of_the_api_count_for_the_server() {
    let keys = "per: address, quota: 2/h, max_wait: 1s, cooldown: {after: 1, for: 90s-90s}";
    let (site, member) = (Site::start(), Member::start(&RuleFile::one_rule(keys)).await);
    let [name, literal] = urls(&site, "/");
    let taken = post(&member, "/api/v1/acquire", &json!({"url": name})).await;
    assert_eq!(taken.status, 200, "{}", taken.text());
    assert_eq!(get(member.proxy(), &literal).await.status, 200);
    assert_eq!(get(member.proxy(), &literal).await.refused(), Some("limit"));
    let reported = json!({"url": name, "verdict": "captcha"});
    assert_eq!(post(&member, "/api/v1/report", &reported).await.status, 202);
    assert_eq!(get(member.proxy(), &literal).await.refused(), Some("cooldown"));
}

#[tokio::test]
async fn an_operator_pauses_and_resumes_a_server_by_its_address() {
    let rule = RuleFile::one_rule("per: address, max_wait: 1s")
        .egress("{allow: [loopback, \"2001:db8::/32\"]}");
    let (site, member) = (Site::start(), Member::start(&rule).await);
    let length = json!({"seconds": 90});
    for (scope, url) in [
        ("127.0.0.1", urls(&site, "/")[0].clone()),
        ("2001:db8:1:2::/64", "http://[2001:db8:1:2::7]/".to_owned()),
    ] {
        let path = format!("/api/v1/scopes/default/{scope}/cooldown");
        let tripped = post(&member, &path, &length).await;
        assert_eq!(tripped.status, 200, "{}", tripped.text());
        let next = when(&member, &url).await;
        assert_eq!(next["scope"], format!("default/{scope}"), "{next}");
        assert_eq!(next["reason"], "cooldown", "{next}");
    }
    for wrong in ["default/2001:db8::/32", "default/no host"] {
        let wrong = wrong.replace(' ', "%20");
        let tripped = post(&member, &format!("/api/v1/scopes/{wrong}/cooldown"), &length).await;
        assert_eq!(tripped.status, 404, "{wrong}: {}", tripped.text());
    }
    assert_eq!(get(member.proxy(), &urls(&site, "/")[1]).await.refused(), Some("cooldown"));
}

#[tokio::test]
async fn held_requests_continue_after_a_reload_to_addresses() {
    let rule = |keys: &str| RuleFile::one_rule(&format!("{keys}, burst: 1, learn: false"));
    let (site, member) = (Site::start(), Member::start(&rule("per: host, rate: 1/m")).await);
    let [name, literal] = urls(&site, "/");
    assert_eq!(get(member.proxy(), &name).await.status, 200);
    let (proxy, url) = (member.proxy(), name.clone());
    let held = tokio::spawn(async move { get(proxy, &url).await.status });
    wait_until("it is held", SOON, async || {
        member.metric("tidegate_held_requests", &[]).await >= 1.0
    })
    .await;
    member.rewrite(&rule("per: address, rate: 100/s"));
    wait_until("the address names the scope", SOON, async || {
        when(&member, &name).await["scope"] == "default/127.0.0.1"
    })
    .await;
    assert_eq!(held.await.expect("it ends"), 200);
    assert_eq!(get(member.proxy(), &literal).await.status, 200);
}

#[tokio::test]
async fn a_servers_cooldown_stays_while_the_store_is_away() {
    let mut redis = Redis::start();
    let keys = "per: address, max_wait: 1s, cooldown: {after: 1, for: 90s-90s}";
    let (site, member) =
        (Site::start(), Member::start(&RuleFile::one_rule(keys).redis(&redis)).await);
    site.on("/wall", Page::Captcha);
    assert_eq!(get(member.proxy(), &urls(&site, "/wall")[0]).await.verdict(), Some("captcha"));
    redis.kill();
    member.store_is(false).await;
    for url in urls(&site, "/") {
        assert_eq!(get(member.proxy(), &url).await.refused(), Some("cooldown"), "{url}");
    }
    assert_eq!(site.count(), 1);
}
