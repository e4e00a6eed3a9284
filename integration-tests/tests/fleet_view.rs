//! `GET /api/v1/fleet` and `tidegate status`: every member shows every member and every scope.

use std::time::Duration;

use integration_tests::{
    client::{get, get_direct, post_json},
    member::{Member, RuleFile, run},
    redis::{Redis, resp},
    site::{Page, Site},
    wait::wait_until,
};
use serde_json::Value;

const SOON: Duration = Duration::from_secs(20);
const RULES: &str = "- {name: shops, match: \"*\", per: host, rate: 50/s, burst: 50, \
                     cooldown: {after: 3, for: 60s-60s}}";

async fn ask(member: &Member, path: &str) -> Value {
    let answer = get_direct(member.admin(), path).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    serde_json::from_str(&answer.text()).expect("it is JSON")
}

async fn fleet(member: &Member) -> Value {
    ask(member, "/api/v1/fleet?fresh=1").await
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap_or_else(|| panic!("a list: {value}"))
}

#[tokio::test]
async fn any_member_shows_the_whole_fleet_and_status_fails_while_a_scope_cools() {
    let (site, redis) = (Site::start(), Redis::start());
    site.on("/wall", Page::Captcha);
    let members = Member::fleet(3, &RuleFile::new(RULES).redis(&redis)).await;
    let calm = || run(members[0].folder(), &["status", "--config", "tidegate.yaml"]);
    wait_until("three members are up", SOON, async || {
        fleet(&members[0]).await["summary"]["members_up"] == 3
    })
    .await;
    assert_eq!(calm().status.code(), Some(0));
    for _ in 0..3 {
        get(members[2].proxy(), &site.url("/wall")).await;
    }
    wait_until("a member that never used the scope shows why it cools", SOON, async || {
        let seen = fleet(&members[0]).await;
        let scope = &seen["scopes"][0];
        scope["state"] == "cooling" && scope["trip"]["url"].as_str().is_some()
    })
    .await;
    let seen = fleet(&members[0]).await;
    let scope = &seen["scopes"][0];
    assert_eq!((&scope["rule"], &scope["key"]), (&"shops".into(), &"127.0.0.1".into()));
    assert_eq!(scope["trip"]["by"], "captcha", "{scope}");
    let url = scope["trip"]["url"].as_str().expect("it is there");
    assert!(url.ends_with("/wall"), "{url}");
    assert!(scope["trip"]["evidence"].as_str().is_some_and(|text| !text.is_empty()), "{scope}");
    assert_eq!((&seen["whole"], &seen["summary"]["cooling"]), (&true.into(), &1.into()));
    let reporter = ask(&members[2], "/api/v1/status").await["member"].clone();
    assert_eq!(scope["trip"]["member"], reporter);
    for member in list(&seen["members"]) {
        for part in ["address", "version", "up", "heard_ms", "requests_per_s", "store_up"] {
            assert!(!member[part].is_null(), "`{part}` is missing: {member}");
        }
    }
    let addresses: Vec<_> = list(&seen["members"]).iter().map(|m| m["address"].clone()).collect();
    for member in &members {
        assert!(addresses.contains(&member.proxy().to_string().into()), "{addresses:?}");
    }
    let cooling = calm();
    assert_eq!(cooling.status.code(), Some(1));
    let text = String::from_utf8_lossy(&cooling.stdout).into_owned();
    for part in ["1 cooling", "members 3", "shops/127.0.0.1", &members[1].proxy().to_string()] {
        assert!(text.contains(part), "`{part}` is missing:\n{text}");
    }
    let own = run(members[0].folder(), &["status", "--member", "--config", "tidegate.yaml"]);
    let own = String::from_utf8_lossy(&own.stdout).into_owned();
    assert!(own.contains("on 127.0.0.1") && !own.contains("requests/s"), "one member: {own}");
}

#[tokio::test]
async fn a_member_that_alone_is_blocked_is_named() {
    let (site, redis) = (Site::start(), Redis::start());
    site.on("/wall", Page::Captcha);
    let rules = "- {name: shops, match: \"*\", per: host, rate: 50/s, burst: 50, \
                 cooldown: {after: 100, ratio: \"off\"}}";
    let members = Member::fleet(2, &RuleFile::new(rules).redis(&redis)).await;
    for _ in 0..20 {
        get(members[0].proxy(), &site.url("/")).await;
    }
    let named = async || fleet(&members[0]).await["scopes"][0]["blocked_member"].clone();
    assert!(named().await.is_null(), "one member says nothing about another");
    for _ in 0..6 {
        get(members[1].proxy(), &site.url("/wall")).await;
    }
    wait_until("the second member is named", SOON, async || !named().await.is_null()).await;
    let (blocked, second) = (named().await, ask(&members[1], "/api/v1/status").await);
    assert_eq!(blocked["name"], second["member"], "{blocked}");
    let status = run(members[0].folder(), &["status", "--config", "tidegate.yaml"]);
    let text = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(text.contains("% blocks, the others 0 %; is its exit blocked?"), "{text}");
}

#[tokio::test]
async fn every_member_shows_who_paused_a_scope() {
    let (site, redis) = (Site::start(), Redis::start());
    let members = Member::fleet(2, &RuleFile::new(RULES).redis(&redis)).await;
    assert_eq!(get(members[1].proxy(), &site.url("/")).await.status, 200);
    let path = "/api/v1/scopes/shops/127.0.0.1/cooldown";
    let pause = post_json(members[1].admin(), path, "{\"seconds\": 90, \"who\": \"anna\"}").await;
    assert_eq!(pause.status, 200, "{}", pause.text());
    wait_until("it is shown who did it", SOON, async || {
        let seen = fleet(&members[0]).await;
        seen["scopes"][0]["trip"]["who"] == "anna" && seen["scopes"][0]["state"] == "cooling"
    })
    .await;
    assert!(members[1].log().contains("who=anna"), "{}", members[1].log());
    let detail = ask(&members[1], "/api/v1/scopes/shops/127.0.0.1").await;
    assert_eq!(detail["events"][0]["who"], "anna", "{detail}");
}

#[tokio::test]
async fn every_member_shows_who_set_a_learned_rate() {
    let (site, redis) = (Site::start(), Redis::start());
    let rules = "- {name: shops, match: \"*\", per: host, rate: auto, burst: 5}\n";
    let members = Member::fleet(2, &RuleFile::new(rules).redis(&redis)).await;
    assert_eq!(get(members[1].proxy(), &site.url("/")).await.status, 200);
    let path = "/api/v1/scopes/shops/127.0.0.1/rate";
    let set = post_json(members[1].admin(), path, "{\"rate\": 2, \"who\": \"anna\"}").await;
    assert_eq!(set.status, 200, "{}", set.text());
    wait_until("it is shown who did it", SOON, async || {
        let seen = fleet(&members[0]).await;
        let learned = &seen["scopes"][0]["learned"];
        learned["who"] == "anna" && learned["rate"] == 2.0
    })
    .await;
    let seen = fleet(&members[0]).await;
    assert_eq!(seen["scopes"][0]["rate_auto"], true, "{seen}");
    assert!(members[1].log().contains("who=anna"), "{}", members[1].log());
    let detail = ask(&members[1], "/api/v1/scopes/shops/127.0.0.1").await;
    assert_eq!(detail["events"][0]["who"], "anna", "{detail}");
    let admin = members[0].admin().to_string();
    let status = run(members[0].folder(), &["status", "--admin", &admin]);
    let text = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(text.contains(" auto ") && !text.contains("1000"), "{text}");
}

#[tokio::test]
async fn a_dead_member_is_shown_as_silent_and_a_stopped_one_disappears() {
    let redis = Redis::start();
    let mut members = Member::fleet(3, &RuleFile::new(RULES).redis(&redis)).await;
    let up = async |first: &Member| fleet(first).await["summary"]["members_up"].as_u64();
    wait_until("three are up", SOON, async || up(&members[0]).await == Some(3)).await;
    drop(members.pop().expect("there are three"));
    wait_until("two are up", SOON, async || up(&members[0]).await == Some(2)).await;
    assert_eq!(list(&fleet(&members[0]).await["members"]).len(), 3, "the dead one is still shown");
}

#[tokio::test]
async fn a_member_without_its_store_shows_its_own_knowledge_and_the_reason() {
    let (site, mut redis) = (Site::start(), Redis::start());
    let member = Member::start(&RuleFile::new(RULES).redis(&redis)).await;
    assert_eq!(get(member.proxy(), &site.url("/")).await.status, 200);
    redis.kill();
    member.store_is(false).await;
    let seen = fleet(&member).await;
    assert_eq!((&seen["whole"], &seen["store"]["up"]), (&false.into(), &false.into()), "{seen}");
    assert_eq!(seen["store"]["trouble"]["kind"], "unreachable", "{seen}");
    assert_eq!(list(&seen["scopes"]).len(), 1, "{seen}");
    let status = run(member.folder(), &["status", "--config", "tidegate.yaml"]);
    assert_eq!(status.status.code(), Some(1));
    let text = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(text.contains("is away (unreachable)") && text.contains("meanwhile"), "{text}");
}

#[tokio::test]
async fn ten_thousand_scopes_are_searched_sorted_and_paged() {
    let redis = Redis::start();
    let member = Member::start(&RuleFile::new(RULES).redis(&redis)).await;
    member.store_is(true).await;
    // The state of a fleet that has crawled many sites.
    let fill = "for i = 1, 10000 do redis.call('HSET', 'tidegate:{shops}:b:site-' .. i .. \
                '.example', 'at', 1) end return 1";
    assert_eq!(redis.command(&["EVAL", fill, "0"]), ":1\r\n", "{}", resp(&["EVAL"]));
    wait_until("all are seen", SOON, async || fleet(&member).await["summary"]["scopes"] == 10_000)
        .await;
    let first = ask(&member, "/api/v1/fleet?limit=50").await;
    assert_eq!(list(&first["scopes"]).len(), 50);
    assert_eq!(first["scopes_total"], 10_000);
    let found = ask(&member, "/api/v1/fleet?q=site-123.&limit=50").await;
    assert_eq!(
        (&found["scopes_total"], &found["scopes"][0]["key"]),
        (&1.into(), &"site-123.example".into())
    );
    let last = ask(&member, "/api/v1/fleet?sort=name&offset=9999&limit=50").await;
    assert_eq!(last["scopes"][0]["key"], "site-9999.example", "{last}");
    let none = ask(&member, "/api/v1/fleet?state=closed").await;
    assert_eq!(none["scopes_total"], 0);
    assert_eq!(get_direct(member.admin(), "/api/v1/fleet?sort=nonsense").await.status, 400);
}
