//! The status page in a real Chromium, used like an operator does. `make test-clients` runs it.

use std::time::Duration;

use integration_tests::{
    client::{get, get_direct, post_json},
    member::{Member, RuleFile},
    redis::Redis,
    site::{Page, Site},
    tools::{fleet_page, status_page},
    wait::wait_until,
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
    let exit = Member::start(&RuleFile::one_rule("cooldown: off")).await;
    let keys = format!("each_user: {{rate: 2/s, quota: 9/h}}, via: \"{}\"}}", exit.proxy_url());
    let rule = format!("{}, parallel: 7, {keys}", RULE.strip_suffix('}').expect("a mapping"));
    let member = Member::start(&RuleFile::new(&rule)).await;
    prepare(&site, &member).await;
    let seen = status_page(&member, "", &member, &site.url("/wall")).await;
    judge(&seen);
    assert_eq!(seen["members"], 1, "there is nobody else");
    let facts = seen["facts"].as_str().expect("it is text").to_lowercase();
    let through = exit.proxy_url();
    for (name, value) in [
        ("each user", "2/s, 9 per 1 h"),
        ("through", through.trim_end_matches('/')),
        ("under way", "0 of 7"),
    ] {
        let fact = facts.split_once(name).map(|(_, rest)| rest.trim_start());
        assert!(fact.is_some_and(|fact| fact.starts_with(value)), "{name}: {value} in {facts}");
    }
}

#[tokio::test]
async fn an_operator_enters_the_token_once_and_sees_a_trip_of_another_member() {
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

#[tokio::test]
async fn the_page_shows_ten_thousand_scopes_at_once_and_says_in_red_that_the_store_is_away() {
    const SOON: Duration = Duration::from_secs(20);
    let (site, mut redis) = (Site::start(), Redis::start());
    let rules = "- {name: shops, match: \"*\", per: host, rate: 50/s, burst: 20}";
    let fleet = Member::fleet(3, &RuleFile::new(rules).redis(&redis)).await;
    for member in &fleet {
        member.store_is(true).await;
        assert_eq!(get(member.proxy(), &site.url("/")).await.status, 200);
    }
    let fill = "for i = 1, 9999 do redis.call('HSET', string.format('tidegate:{shops}:b:shop-%05d.example', i), \
                'at', 1) end return 1";
    assert_eq!(redis.command(&["EVAL", fill, "0"]), ":1\r\n");
    let path = "/api/v1/scopes/shops/127.0.0.1/cooldown";
    let pause = post_json(fleet[1].admin(), path, "{\"seconds\": 600, \"who\": \"anna\"}").await;
    assert_eq!(pause.status, 200, "{}", pause.text());
    wait_until("all are seen", SOON, async || {
        let text = get_direct(fleet[0].admin(), "/api/v1/fleet?fresh=1&limit=1").await.text();
        text.contains("\"scopes\":10000") && text.contains("\"members_up\":3")
    })
    .await;
    let seen = fleet_page(&fleet[0], 50, "warn", "many-scopes").await;
    // A coarse limit: this is a debug build, and the machine may be busy.
    assert!(seen["loaded_ms"].as_u64().is_some_and(|ms| ms < 3_000), "{seen}");
    assert_eq!(seen["title"], "1 cooling · Tidegate", "{seen}");
    assert!(
        seen["first"].as_str().is_some_and(|row| row.starts_with("shops/127.0.0.1paused")),
        "{seen}"
    );
    assert_eq!(seen["range"], "1 to 50 of 10,000", "{seen}");
    assert_eq!(seen["second"], "51 to 100 of 10,000", "{seen}");
    redis.kill();
    fleet[0].store_is(false).await;
    let away = fleet_page(&fleet[0], 1, "bad", "store-away").await;
    assert_eq!(away["title"], "store away · Tidegate", "{away}");
    let notices = away["notices"].as_str().expect("it is text");
    for part in ["is away (unreachable)", "Check the address", "33 % of each limit"] {
        assert!(notices.contains(part), "`{part}` is missing: {notices}");
    }
}
