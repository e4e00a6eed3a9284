//! The status page in a real Chromium, as an operator uses it. `make test-clients` runs it.

use std::time::Duration;

use integration_tests::{
    client::get,
    member::{Member, RuleFile},
    redis::Redis,
    site::{Page, Site},
    tools::status_page,
};
use serde_json::Value;

const RULE: &str =
    "- {name: shop, match: \"*\", rate: 50/s, burst: 20, cooldown: {after: 3, for: 60s-60s}}";

/// A wall, and some traffic, so that the scope is there when the page comes.
async fn prepare(site: &Site, member: &Member) {
    site.on("/wall", Page::Captcha);
    for _ in 0..5 {
        assert_eq!(get(member.proxy(), &site.url("/")).await.status, 200);
    }
}

fn list<'v>(seen: &'v Value, key: &str) -> &'v [Value] {
    seen[key].as_array().unwrap_or_else(|| panic!("{key} is a list: {seen}"))
}

fn judge(seen: &Value) {
    assert!(list(seen, "problems").is_empty(), "the console says: {}", seen["problems"]);
    assert!(list(seen, "outside").is_empty(), "requests to elsewhere: {}", seen["outside"]);
    let shown = Duration::from_millis(seen["shown_ms"].as_u64().expect("a number"));
    assert!(shown < Duration::from_secs(3), "the cooldown is shown after {shown:?}");
    let seconds: Vec<u64> =
        list(seen, "countdown").iter().map(|value| value.as_u64().expect("seconds")).collect();
    assert!(seconds.windows(2).all(|pair| pair[1] < pair[0]), "it runs down: {seconds:?}");
    assert!((60..=90).contains(&seconds[0]), "it begins at the whole: {seconds:?}");
    let five_minutes = seen["five_minutes"].as_u64().expect("seconds");
    assert!((270..=300).contains(&five_minutes), "{five_minutes} s");
    assert!(seen["tabs"].is_u64(), "the Tab key never reaches the button");
    assert_eq!(seen["focus_shown"], true, "nobody sees where the focus is");
    let blocked = seen["blocked"].as_str().expect("a row");
    assert!(blocked.contains("captcha") && blocked.contains("/wall"), "{blocked}");
    let rows = |key: &str| seen[key].as_u64().expect("a number");
    assert_eq!(rows("rows_of_blocks"), 1, "{seen}");
    assert!(rows("rows") > 4, "trips and clears are told: {seen}");
    let looks = list(seen, "looks");
    assert_eq!(looks.len(), 12);
    for look in looks {
        assert_eq!(look["overflow"], 0, "it scrolls sideways: {look}");
        assert!(list(look, "violations").is_empty(), "{look:#}");
    }
    assert_eq!(
        (&seen["calm_title"], &seen["title"]),
        (&"Tidegate".into(), &"1 cooling · Tidegate".into())
    );
    assert!(seen["icon"].as_str().is_some_and(|icon| icon.contains("circle")), "the icon says it");
    let why = seen["why"].as_str().expect("a sentence");
    assert!(why.contains("Paused by anna"), "{why}");
    assert_eq!(
        (&seen["after_cancel"], &seen["not_found"]),
        (&"cooling".into(), &"No scope matches.".into())
    );
    assert_ne!(looks[0]["ground"], looks[3]["ground"], "dark is not light");
}

#[tokio::test]
async fn an_operator_sees_a_cooldown_and_ends_it() {
    let site = Site::start();
    let member = Member::start(&RuleFile::new(RULE)).await;
    prepare(&site, &member).await;
    let seen = status_page(&member, "", &member, &site.url("/wall")).await;
    judge(&seen);
    assert_eq!(seen["members"], 1, "there is nobody else");
}

#[tokio::test]
async fn an_operator_of_a_fleet_gives_the_token_once_and_sees_what_another_member_trips() {
    let (site, redis) = (Site::start(), Redis::start());
    let file = RuleFile::new(RULE).redis(&redis).token("open-sesame");
    let fleet = Member::fleet(2, &file).await;
    for member in &fleet {
        prepare(&site, member).await;
    }
    let seen = status_page(&fleet[0], "open-sesame", &fleet[1], &site.url("/wall")).await;
    judge(&seen);
    assert_eq!(seen["members"], 2, "both are shown");
}
