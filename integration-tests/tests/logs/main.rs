//! The log: by default only events that matter to operators, optionally one line per request, and
//! both with the crawler's own trace id.

mod requests;

use std::time::Duration;

use integration_tests::{
    client::{get, get_with},
    member::{Member, RuleFile},
    site::{Page, Site},
    wait::wait_until,
};
use serde_json::Value;

const SOON: Duration = Duration::from_secs(10);
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

fn traceparent() -> String {
    format!("00-{TRACE}-{PARENT}-01")
}

async fn logs(member: &Member, words: &str) {
    wait_until(&format!("the log says `{words}`"), SOON, async || member.log().contains(words))
        .await;
}

/// The lines of a JSON log with this message.
fn lines(member: &Member, message: &str) -> Vec<Value> {
    let log = member.log();
    let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).expect("it is JSON"));
    lines.filter(|line| line["message"] == message).collect()
}

#[tokio::test]
async fn an_ordinary_request_has_no_line() {
    let site = Site::start();
    site.on("/wall", Page::Captcha);
    let member = Member::start(&RuleFile::one_rule("rate: 100/s, burst: 50")).await;
    for _ in 0..20 {
        get(member.proxy(), &site.url("/")).await;
    }
    get(member.proxy(), &site.url("/wall")).await;
    logs(&member, "blocked").await;
    let log = member.log();
    let lines: Vec<&str> = log.lines().filter(|line| !line.contains("rate changed")).collect();
    assert_eq!(lines.len(), 2, "ready, blocked and nothing else: {log}");
}

#[tokio::test]
async fn the_access_log_has_verdict_hold_and_rule_of_each_request() {
    let site = Site::start();
    site.on("/wall", Page::Captcha);
    let file = RuleFile::one_rule("rate: 1/s, burst: 1, learn: false");
    let member = Member::start(&file.with("log: {format: json, access: true}")).await;
    for path in ["/", "/?secret=hunter2", "/wall"] {
        get(member.proxy(), &site.url(path)).await;
    }
    wait_until("three lines are there", SOON, async || lines(&member, "request").len() == 3).await;
    let lines = lines(&member, "request");
    let verdicts: Vec<&Value> = lines.iter().map(|line| &line["verdict"]).collect();
    assert_eq!(verdicts, ["ok", "ok", "captcha"]);
    for line in &lines {
        assert_eq!((&line["rule"], &line["method"]), (&"default".into(), &"GET".into()), "{line}");
        assert_eq!(line["client"], "127.0.0.1", "{line}");
        assert!(line["upstream_ms"].is_u64() && line["status"].is_u64(), "{line}");
        assert!(line.get("trace_id").is_none(), "no trace was named: {line}");
    }
    assert!(lines[1]["held_ms"].as_u64() > Some(0), "the second was held: {}", lines[1]);
    assert!(!member.log().contains("hunter2"), "queries may hold secrets");
}

#[tokio::test]
async fn a_trace_is_passed_to_the_site_and_is_in_every_line_of_its_request() {
    let site = Site::start();
    site.on("/wall", Page::Captcha);
    let file = RuleFile::one_rule("rate: 50/s, burst: 5");
    let member = Member::start(&file.with("log: {format: json, access: true}")).await;
    let url = site.url("/wall");
    get_with(member.proxy(), &url, "traceparent", &traceparent()).await;
    get_with(member.proxy(), &url, "traceparent", "00-nonsense").await;
    wait_until("both are logged", SOON, async || lines(&member, "request").len() == 2).await;
    let arrivals = site.arrivals();
    assert_eq!(arrivals[0].header("traceparent"), Some(&*traceparent()));
    assert_eq!(arrivals[1].header("traceparent"), Some("00-nonsense"), "it is not ours to judge");
    for message in ["request", "blocked"] {
        let lines = lines(&member, message);
        assert_eq!(lines.len(), 2, "{message}: {}", member.log());
        assert_eq!(lines[0]["trace_id"], TRACE, "{}", lines[0]);
        assert_eq!(lines[0]["parent_id"], PARENT, "{}", lines[0]);
        assert!(lines[1].get("trace_id").is_none(), "{}", lines[1]);
    }
}

#[tokio::test]
async fn a_trace_is_in_the_text_log_too() {
    let site = Site::start();
    site.on("/wall", Page::Captcha);
    let file = RuleFile::one_rule("rate: 50/s, burst: 5");
    let member = Member::start(&file.with("log: {level: info}")).await;
    get_with(member.proxy(), &site.url("/wall"), "traceparent", &traceparent()).await;
    logs(&member, "blocked").await;
    let log = member.log();
    let line = log.lines().find(|line| line.contains("blocked")).expect("it is there");
    assert!(line.contains(TRACE) && line.contains(PARENT), "{line}");
}
