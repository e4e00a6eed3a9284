//! Changes of the rule file while the proxy runs: a valid file takes effect without dropping a
//! request, an invalid one changes nothing.

use std::time::Duration;

use integration_tests::{
    client::{get, get_direct},
    member::{Member, RuleFile, run},
    redis::Redis,
    site::{Page, Site},
    wait::wait_until,
};
use rustix::process::Signal;

const SOON: Duration = Duration::from_secs(10);

async fn reloads(member: &Member, result: &str, at_least: f64) {
    wait_until(&format!("a reload counts as {result}"), SOON, async || {
        member.metric("tidegate_config_reloads_total", &[("result", result)]).await >= at_least
    })
    .await;
}

#[test]
fn startup_fails_on_a_bad_file_with_its_line_and_a_fix() {
    let folder = tempfile::tempdir().expect("the folder for temporary files is writable");
    let text = "rules:\n  - name: default\n    match: \"*\"\n    ratte: 3/s\n    burst: many\n";
    std::fs::write(folder.path().join("rules.yaml"), text).expect("it is writable");
    let output = run(folder.path(), &["--config", "rules.yaml"]);
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    for part in ["rules.yaml:4:5", "ratte", "did you mean", "rate", "rules.yaml:5", "burst: many"] {
        assert!(said.contains(part), "`{part}` is missing in:\n{said}");
    }
}

#[tokio::test]
async fn a_good_file_takes_effect_and_no_held_request_is_dropped() {
    let site = Site::start();
    let file = RuleFile::one_rule("rate: 1/h, burst: 1, max_wait: 24h");
    let member = Member::start(&file).await;
    assert_eq!(get(member.proxy(), &site.url("/first")).await.status, 200);
    let (proxy, url) = (member.proxy(), site.url("/held"));
    let held = tokio::spawn(async move { get(proxy, &url).await.status });
    wait_until("it is held", SOON, async || {
        member.metric("tidegate_held_requests", &[]).await > 0.0
    })
    .await;
    member.rewrite(&RuleFile::one_rule("rate: 10/s, burst: 1, max_wait: 24h"));
    reloads(&member, "ok", 1.0).await;
    let limit = member.metric("tidegate_rate_limit", &[("rule", "default")]).await;
    assert!((limit - 10.0).abs() < 1e-9, "{limit} tokens per second");
    let status = tokio::time::timeout(SOON, held).await.expect("it goes at the new rate");
    assert_eq!(status.expect("it ends"), 200);
}

#[tokio::test]
async fn a_cooldown_can_be_removed_and_added_again_after_a_trip() {
    let (redis, site) = (Redis::start(), Site::start());
    site.on("/wall", Page::Forbidden);
    let rule = |cooldown: &str| RuleFile::one_rule(&format!("rate: 50/s, cooldown: {cooldown}"));
    for store in [None, Some(&redis)] {
        let rule =
            |cooldown| store.map_or_else(|| rule(cooldown), |redis| rule(cooldown).redis(redis));
        let on = "{after: 1, for: 1s, ramp: 0s}";
        let member = Member::start(&rule(on)).await;
        assert_eq!(get(member.proxy(), &site.url("/wall")).await.status, 403);
        assert_eq!(get(member.proxy(), &site.url("/probe")).await.status, 200);
        for (reloads, cooldown) in ["off", on, "off"].into_iter().enumerate() {
            member.rewrite(&rule(cooldown));
            self::reloads(&member, "ok", (reloads + 1) as f64).await;
            let answer = get(member.proxy(), &site.url("/")).await;
            assert_eq!(answer.status, 200, "{cooldown}: {}", answer.text());
        }
    }
}

#[tokio::test]
async fn a_bad_file_changes_nothing_and_is_shown() {
    let site = Site::start();
    let member = Member::start(&RuleFile::one_rule("rate: 7/s, burst: 3")).await;
    member.rewrite_with("rules:\n  - {name: default, match: \"*\", rate: 9/fortnight}\n");
    reloads(&member, "error", 1.0).await;
    let limit = member.metric("tidegate_rate_limit", &[("rule", "default")]).await;
    assert!((limit - 7.0).abs() < 1e-9, "still the old rate, not {limit}");
    assert_eq!(get(member.proxy(), &site.url("/")).await.status, 200);
    assert!(member.log().contains("fortnight"), "the log shows the line");
    let status = get_direct(member.admin(), "/api/v1/status").await.text();
    assert!(status.contains("fortnight"), "the status shows it: {status}");
    member.rewrite(&RuleFile::one_rule("rate: 8/s, burst: 3"));
    reloads(&member, "ok", 1.0).await;
    let status = get_direct(member.admin(), "/api/v1/status").await.text();
    assert!(!status.contains("fortnight"), "and no more once it is mended: {status}");
}

#[tokio::test]
async fn an_atomic_rename_is_noticed_too() {
    let member = Member::start(&RuleFile::one_rule("rate: 7/s, burst: 3")).await;
    let file = RuleFile::one_rule("rate: 8/s, burst: 3");
    let text = file.render(member.proxy(), member.admin(), member.folder());
    let other = member.folder().join("tidegate.yaml.new");
    std::fs::write(&other, text).expect("the folder is writable");
    std::fs::rename(&other, member.rule_file()).expect("the folder is writable");
    reloads(&member, "ok", 1.0).await;
    let limit = member.metric("tidegate_rate_limit", &[]).await;
    assert!((limit - 8.0).abs() < 1e-9, "{limit} tokens per second");
}

#[tokio::test]
async fn a_sighup_reloads() {
    let member = Member::start(&RuleFile::one_rule("rate: 7/s, burst: 3")).await;
    member.signal(Signal::HUP);
    reloads(&member, "ok", 1.0).await;
}

#[tokio::test]
async fn changes_that_need_a_restart_are_reported() {
    let member = Member::start(&RuleFile::one_rule("rate: 7/s, burst: 3")).await;
    let text = RuleFile::one_rule("rate: 8/s, burst: 3").render(
        "127.0.0.1:1".parse().expect("an address"),
        member.admin(),
        member.folder(),
    );
    member.rewrite_with(&text);
    wait_until("it is said", SOON, async || {
        let log = member.log();
        log.contains("restart") && log.contains("listen")
    })
    .await;
}

#[tokio::test]
async fn the_log_takes_another_level_and_a_restart_that_is_due_stays_due() {
    let site = Site::start();
    site.on("/wall", Page::Captcha);
    let file = RuleFile::one_rule("rate: 50/s, burst: 5");
    let member = Member::start(&file.clone().with("log: {level: error}")).await;
    get(member.proxy(), &site.url("/wall")).await;
    member.rewrite(&file.clone().with("log: {level: debug, format: json}"));
    reloads(&member, "ok", 1.0).await;
    get(member.proxy(), &site.url("/wall")).await;
    wait_until("the block is logged", SOON, async || member.log().contains("blocked")).await;
    assert_eq!(member.log().matches("blocked").count(), 1, "the first was not: {}", member.log());
    member.rewrite(&file.with("log: {level: warn, format: json}"));
    reloads(&member, "ok", 2.0).await;
    let status = member.status().await;
    assert_eq!(status["config"]["needs_restart"], serde_json::json!(["log.format"]), "{status}");
}
