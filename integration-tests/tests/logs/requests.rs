//! The access log shows why a request was slow or refused: one line for every request, whatever its
//! result.

use std::collections::BTreeMap;

use integration_tests::client::Raw;
use rustix::process::Signal;

use super::*;

const LOG: &str = "log: {format: json, access: true}";

/// The access log's only line with these values, once it is there.
async fn line_with(member: &Member, wanted: &[(&str, &str)]) -> Value {
    let is_it = |line: &Value| wanted.iter().all(|(key, value)| line[*key] == **value);
    let find = || lines(member, "request").into_iter().filter(|line| is_it(line)).collect();
    let mut found: Vec<Value> = Vec::new();
    wait_until(&format!("a line with {wanted:?}"), SOON, async || {
        found = find();
        !found.is_empty()
    })
    .await;
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

#[tokio::test]
async fn a_request_that_may_not_use_the_proxy_has_a_line() {
    let site = Site::start();
    let file = RuleFile::one_rule("rate: 50/s").with("auth: {users: {crawler: secret}}").with(LOG);
    let member = Member::start(&file).await;
    let url = site.url("/?token=hunter2").replace("http://", "http://me:hunter2@");
    get(member.proxy(), &url).await;
    get(member.proxy(), &site.url("/")).await;
    let line = line_with(&member, &[("reason", "auth")]).await;
    assert_eq!((&line["status"], &line["outcome"]), (&407.into(), &"refused".into()), "{line}");
    assert!(!member.log().contains("hunter2"), "neither queries nor logins: {}", member.log());
}

#[tokio::test]
async fn a_refusal_has_its_rule_its_scope_and_the_cause_of_its_wait() {
    let site = Site::start();
    let rules = "- {name: slow, match: {paths: [\"/slow*\"]}, rate: 1/m, burst: 1, max_wait: 1s}\n\
         - {name: few, match: {paths: [\"/few*\"]}, rate: 100/s, quota: 1/h, max_wait: 1s}\n\
         - {name: rest, match: \"*\", per: host}\n";
    let member = Member::start(&RuleFile::new(rules).with(LOG)).await;
    for path in ["/slow", "/slow", "/few", "/few"] {
        get(member.proxy(), &site.url(path)).await;
    }
    for (rule, cause) in [("slow", "rate"), ("few", "quota")] {
        let line = line_with(&member, &[("rule", rule), ("outcome", "refused")]).await;
        assert_eq!((&line["reason"], &line["held_by"]), (&"limit".into(), &cause.into()), "{line}");
        assert_eq!((&line["scope"], &line["status"]), (&rule.into(), &429.into()), "{line}");
    }
    get(member.proxy(), &site.url("/")).await;
    let line = line_with(&member, &[("rule", "rest")]).await;
    assert_eq!((&line["scope"], &line["scheme"]), (&"rest/127.0.0.1".into(), &"http".into()));
    assert_eq!(line["outcome"], "relayed");
    assert!(line["bytes_down"].as_u64() > Some(0), "{line}");
}

#[tokio::test]
async fn a_hold_has_its_cause_also_if_the_client_disconnects() {
    let site = Site::start();
    let rule = "rate: 1/s, burst: 1, learn: false, cooldown: {after: 1, for: 1h, max: 1h}, \
                max_wait: 2h";
    let member = Member::start(&RuleFile::one_rule(rule).with(LOG)).await;
    site.on("/wall", Page::Captcha);
    get(member.proxy(), &site.url("/free")).await;
    get(member.proxy(), &site.url("/held")).await;
    let line = line_with(&member, &[("url", &format!("{}/held", site.authority()))]).await;
    assert_eq!(line["held_by"], "rate", "{line}");
    assert!(line["held_ms"].as_u64() > Some(0), "{line}");
    get(member.proxy(), &site.url("/wall")).await;
    let mut client = Raw::connect(member.proxy()).await;
    let url = site.url("/gone");
    client.send(format!("GET {url} HTTP/1.1\r\nHost: {}\r\n\r\n", site.authority())).await;
    wait_until("it is held", SOON, async || {
        member.metric("tidegate_oldest_held_seconds", &[]).await > 0.0
    })
    .await;
    drop(client);
    let line = line_with(&member, &[("outcome", "abandoned")]).await;
    assert_eq!((&line["scope"], &line["held_by"]), (&"default".into(), &"cooldown".into()));
    assert!(line.get("status").is_none(), "it had no answer: {line}");
}

#[tokio::test]
async fn a_tunnel_has_its_line_at_its_end() {
    let site = Site::start();
    let member = Member::start(&RuleFile::one_rule("rate: 50/s, burst: 50").with(LOG)).await;
    let mut client = Raw::connect(member.proxy()).await;
    let authority = site.authority();
    client.send(format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n")).await;
    assert!(client.head().await.starts_with("HTTP/1.1 200"));
    let request = format!("GET / HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n\r\n");
    client.send(&request).await;
    let answer = client.head().await;
    assert!(lines(&member, "request").is_empty(), "it is open: {}", member.log());
    client.rest(SOON).await;
    drop(client);
    let line = line_with(&member, &[("outcome", "tunnelled")]).await;
    assert_eq!((&line["method"], &line["scheme"]), (&"CONNECT".into(), &"tunnel".into()), "{line}");
    assert_eq!(line["bytes_up"].as_u64(), Some(request.len() as u64), "{line}");
    assert!(line["bytes_down"].as_u64() >= Some(answer.len() as u64), "{line}");
    assert_eq!((&line["flights"], &line["status"]), (&1.into(), &200.into()), "{line}");
    let bytes = member.metric("tidegate_bytes_total", &[("direction", "up")]).await;
    assert!((bytes - request.len() as f64).abs() < 0.5, "{bytes}");
}

#[tokio::test]
async fn a_clients_request_id_is_returned_to_it_and_not_sent_to_the_site() {
    let site = Site::start();
    let member = Member::start(&RuleFile::one_rule("rate: 50/s, burst: 50").with(LOG)).await;
    let url = site.url("/");
    let answer = get_with(member.proxy(), &url, "x-request-id", "job-17").await;
    assert_eq!(answer.header("tidegate-request-id"), Some("job-17"));
    line_with(&member, &[("request_id", "job-17")]).await;
    let answer = get_with(member.proxy(), &url, "traceparent", &traceparent()).await;
    assert_eq!(answer.header("tidegate-request-id"), Some(TRACE));
    let answer = get_with(member.proxy(), &url, "x-request-id", "two words").await;
    let made = answer.header("tidegate-request-id").expect("one was made").to_owned();
    line_with(&member, &[("request_id", &made)]).await;
    let named = |arrival: &integration_tests::site::Arrival| {
        arrival.header("x-request-id").is_some() || arrival.header("tidegate-request-id").is_some()
    };
    assert!(!site.arrivals().iter().any(named), "it is between the client and the proxy");
}

/// The pairs of a line of logfmt, read strictly.
fn logfmt(line: &str) -> BTreeMap<String, String> {
    let mut pairs = BTreeMap::new();
    let mut rest = line;
    while !rest.is_empty() {
        let (key, after) = rest.split_once('=').unwrap_or_else(|| panic!("no value: {line}"));
        assert!(key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'), "{key}: {line}");
        let (value, after) = if after.starts_with('"') {
            let mut values = serde_json::Deserializer::from_str(after).into_iter::<String>();
            let value = values.next().expect("a value").expect("it is quoted as Go does");
            (value, &after[values.byte_offset()..])
        } else {
            let end = after.find(' ').unwrap_or(after.len());
            assert!(!after[..end].contains(['"', '=']), "{line}");
            (after[..end].to_owned(), &after[end..])
        };
        assert!(pairs.insert(key.to_owned(), value).is_none(), "{key} twice: {line}");
        rest = after.strip_prefix(' ').unwrap_or(after);
    }
    pairs
}

#[tokio::test]
async fn a_request_that_cannot_be_read_has_a_line_too() {
    let member = Member::start(&RuleFile::one_rule("rate: 50/s").with(LOG)).await;
    let mut client = Raw::connect(member.proxy()).await;
    client.send("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n").await;
    assert!(client.head().await.starts_with("HTTP/1.1 400"));
    let line = line_with(&member, &[("reason", "malformed")]).await;
    assert_eq!((&line["status"], &line["outcome"]), (&400.into(), &"refused".into()), "{line}");
    assert_eq!(line["client"], "127.0.0.1", "{line}");
    assert!(line["detail"].as_str().is_some_and(|text| text.contains("Host")), "{line}");
}

#[tokio::test]
async fn a_connection_beyond_the_limit_has_a_line_too() {
    let file = RuleFile::one_rule("rate: 50/s").with(LOG).with("limits: {per_client: 1}");
    let member = Member::start(&file).await;
    let (site, mut first, mut refusals) = (Site::start(), None, 1);
    // The connection that found the member up may still be counted.
    wait_until("one is let in", SOON, async || {
        let mut client = Raw::connect(member.proxy()).await;
        let to = site.authority();
        client.send(format!("GET {} HTTP/1.1\r\nHost: {to}\r\n\r\n", site.url("/"))).await;
        let is_in = client.head().await.starts_with("HTTP/1.1 200");
        refusals += usize::from(!is_in);
        first = Some(client);
        is_in
    })
    .await;
    let mut second = Raw::connect(member.proxy()).await;
    assert!(second.head().await.starts_with("HTTP/1.1 503"), "one connection is allowed");
    let mut refused = Vec::new();
    wait_until("each refusal has its line", SOON, async || {
        refused = lines(&member, "request");
        refused.retain(|line| line["reason"] == "queue");
        refused.len() >= refusals
    })
    .await;
    assert_eq!(refused.len(), refusals, "{refused:?}");
    for line in refused {
        assert!(line["detail"].as_str().is_some_and(|text| text.contains("`limits`")), "{line}");
    }
    drop(first);
}

#[tokio::test]
async fn text_is_logfmt_with_the_fields_of_json() {
    let site = Site::start();
    let keys_in = async |format: &str, read: fn(&str) -> Vec<String>| {
        let log = format!("log: {{format: {format}, access: true}}");
        let file = RuleFile::one_rule("rate: 50/s, burst: 50").with(&log);
        let member = Member::start(&file).await;
        get(member.proxy(), &site.url("/a%20\"b=c")).await;
        logs(&member, "outcome").await;
        let log = member.log();
        log.lines().for_each(|line| drop(read(line)));
        let line = log.lines().find(|line| line.contains("outcome")).expect("it is there");
        read(line)
    };
    let text = keys_in("text", |line| logfmt(line).into_keys().collect()).await;
    let json = keys_in("json", |line| {
        let value: BTreeMap<String, Value> = serde_json::from_str(line).expect("it is JSON");
        value.into_keys().collect()
    })
    .await;
    assert_eq!(text, json);
    assert!(text.len() > 15, "{text:?}");
}

#[tokio::test]
async fn a_file_of_its_own_is_opened_again_by_a_hangup() {
    let site = Site::start();
    let file = RuleFile::one_rule("rate: 50/s, burst: 50");
    let member = Member::start(&file.with("log: {access_file: access.log}")).await;
    let path = member.folder().join("access.log");
    let in_file = |path: &std::path::Path| {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.lines().filter(|line| line.contains("message=request")).count()
    };
    get(member.proxy(), &site.url("/")).await;
    wait_until("the line is in the file", SOON, async || in_file(&path) == 1).await;
    assert!(!member.log().contains("message=request"), "nowhere else: {}", member.log());
    let rotated = member.folder().join("access.log.1");
    std::fs::rename(&path, &rotated).expect("a rotation");
    member.signal(Signal::HUP);
    wait_until("the file is made again", SOON, async || path.exists()).await;
    get(member.proxy(), &site.url("/")).await;
    wait_until("the next line is in the new file", SOON, async || in_file(&path) == 1).await;
    assert_eq!(in_file(&rotated), 1);
}

#[tokio::test]
async fn a_warning_of_the_start_is_one_line() {
    let file = RuleFile::one_rule("rate: 50/s").with("auth: {users: {crawler: secret}}");
    let member = Member::start_after("umask 022; chmod 644 tidegate.yaml", &file).await;
    let log = member.log();
    let warning: Vec<&str> = log.lines().filter(|line| line.contains("WARN")).collect();
    assert_eq!(warning.len(), 1, "{log}");
    assert!(warning[0].contains("chmod 600") && !log.contains("\\n"), "{log}");
}
