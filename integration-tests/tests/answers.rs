//! The proxy's own responses: every refusal has the same parts, so that people and programs know
//! its source and reason.

use std::time::Duration;

use integration_tests::{
    client::{Answer, Raw, get, get_with},
    member::{Member, RuleFile},
    ports::free_address,
    site::{Page, Site},
};

/// The parts that section 7 of the contract requires of every refusal.
fn is_own_answer(answer: &Answer, status: u16, refused: &str, error: &str) {
    let what = format!("{refused}: {:?} {}", answer.headers, answer.text());
    assert_eq!(answer.status, status, "{what}");
    assert_eq!(answer.refused(), Some(refused), "{what}");
    let proxy_status = answer.header("proxy-status").unwrap_or_else(|| panic!("{what}"));
    assert!(proxy_status.starts_with("tidegate"), "{what}");
    assert!(proxy_status.contains(&format!("error={error}")), "{what}");
    assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{what}");
    let problem: serde_json::Value = serde_json::from_slice(&answer.body).expect("JSON");
    assert_eq!(problem["status"], status, "{what}");
    let sentence = problem["detail"].as_str().unwrap_or_else(|| panic!("{what}"));
    assert!(sentence.split_whitespace().count() >= 4, "a sentence a person understands: {what}");
    assert_eq!(answer.verdict(), None, "the site said nothing: {what}");
}

fn seconds(answer: &Answer, name: &str) -> u64 {
    let value = answer.header(name).unwrap_or_else(|| panic!("{name}: {:?}", answer.headers));
    value.parse().unwrap_or_else(|_| panic!("{name}: {value} is no number of seconds"))
}

#[tokio::test]
async fn a_limit_says_when_to_come_back() {
    let site = Site::start();
    let member = Member::start(&RuleFile::one_rule("rate: 2/m, burst: 1, max_wait: 1s")).await;
    get(member.proxy(), &site.url("/")).await;
    let answer = get(member.proxy(), &site.url("/")).await;
    is_own_answer(&answer, 429, "limit", "http_request_denied");
    assert!((25..=30).contains(&seconds(&answer, "retry-after")));
    assert!((1..=30).contains(&seconds(&answer, "x-ratelimit-reset")));
    assert_eq!(answer.header("x-ratelimit-remaining"), Some("0"));
    assert!(answer.header("x-ratelimit-limit").is_some());
}

#[tokio::test]
async fn a_cooldown_says_when_to_come_back() {
    let site = Site::start();
    let file = RuleFile::one_rule("max_wait: 1s, cooldown: {after: 1, for: 30s}");
    let member = Member::start(&file).await;
    site.answer_everything_with(Some(Page::Forbidden));
    get(member.proxy(), &site.url("/")).await;
    integration_tests::wait::wait_until("it trips", Duration::from_secs(5), async || {
        member.metric("tidegate_cooldown_active", &[]).await > 0.0
    })
    .await;
    let answer = get(member.proxy(), &site.url("/")).await;
    is_own_answer(&answer, 503, "cooldown", "destination_unavailable");
    assert!((25..=30).contains(&seconds(&answer, "retry-after")));
}

#[tokio::test]
async fn statuses_of_refusals_can_be_chosen() {
    let site = Site::start();
    let file = RuleFile::one_rule("rate: 1/m, burst: 1, max_wait: 1s").with("refuse: {limit: 503}");
    let member = Member::start(&file).await;
    get(member.proxy(), &site.url("/")).await;
    let answer = get(member.proxy(), &site.url("/")).await;
    is_own_answer(&answer, 503, "limit", "http_request_denied");
}

#[tokio::test]
async fn a_full_queue_says_so() {
    let site = Site::start();
    let file = RuleFile::one_rule("rate: 1/m, burst: 1, max_wait: 1h, queue: 0");
    let member = Member::start(&file).await;
    get(member.proxy(), &site.url("/")).await;
    let answer = get(member.proxy(), &site.url("/")).await;
    is_own_answer(&answer, 503, "queue", "connection_limit_reached");
}

#[tokio::test]
async fn a_denying_rule_is_named_and_a_bypassing_one_adds_no_fields() {
    let site = Site::start();
    let rules = "- {name: no, match: {paths: [\"/no*\"]}, action: deny}\n\
                 - {name: past, match: {paths: [\"/past*\"]}, action: bypass}\n\
                 - {name: default, match: \"*\", rate: 100/s}";
    let member = Member::start(&RuleFile::new(rules)).await;
    let answer = get(member.proxy(), &site.url("/no/entry")).await;
    is_own_answer(&answer, 403, "denied", "http_request_denied");
    assert_eq!(site.count(), 0);
    site.on("/past", Page::Forbidden);
    let answer = get(member.proxy(), &site.url("/past")).await;
    assert_eq!((answer.status, answer.verdict()), (403, None));
}

#[tokio::test]
async fn an_address_that_is_not_allowed_says_so() {
    let site = Site::start();
    let member = Member::start(&RuleFile::one_rule("rate: 100/s").egress("{}")).await;
    let answer = get(member.proxy(), &site.url("/")).await;
    is_own_answer(&answer, 403, "egress", "destination_ip_prohibited");
}

#[tokio::test]
async fn a_missing_password_says_so() {
    let file = RuleFile::one_rule("rate: 100/s").with("auth: {users: {a: b}}");
    let member = Member::start(&file).await;
    let answer = get(member.proxy(), "http://site.example/").await;
    is_own_answer(&answer, 407, "auth", "http_request_denied");
}

#[tokio::test]
async fn each_way_of_not_reaching_a_site_has_its_word() {
    let site = Site::start();
    let file = RuleFile::one_rule("rate: 100/s, cooldown: off").with("timeouts: {response: 300ms}");
    let member = Member::start(&file).await;
    site.on("/hang", Page::Hang);
    site.on("/reset", Page::Reset);
    let cases = [
        ("http://no-such-host.invalid/".to_owned(), 502, "dns", "dns_error"),
        (format!("http://{}/", free_address()), 502, "connect", "connection_refused"),
        (format!("https://{}/", site.address()), 502, "tls", "tls_"),
        (site.url("/reset"), 502, "connect", "connection_terminated"),
        (site.url("/hang"), 504, "timeout", "http_response_timeout"),
    ];
    for (url, status, refused, error) in cases {
        let answer = get(member.proxy(), &url).await;
        is_own_answer(&answer, status, refused, error);
        let counted = member.metric("tidegate_refused_total", &[("reason", refused)]).await;
        assert!(counted > 0.0, "{refused} is counted");
    }
}

#[tokio::test]
async fn a_request_that_was_here_before_is_a_loop() {
    let site = Site::start();
    let member = Member::start(&RuleFile::one_rule("rate: 100/s")).await;
    let url = site.url("/");
    get(member.proxy(), &url).await;
    let arrivals = site.arrivals();
    let via = arrivals[0].header("via").expect("the proxy names itself").to_owned();
    let answer = get_with(member.proxy(), &url, "via", &format!("1.1 other, {via}")).await;
    is_own_answer(&answer, 508, "loop", "proxy_loop_detected");
    assert_eq!(site.count(), 1);
    let other = get_with(member.proxy(), &url, "via", "1.1 other").await;
    assert_eq!(other.status, 200, "another proxy's name is no loop");
}

#[tokio::test]
async fn the_proxys_own_ports_cannot_be_reached_through_it() {
    let member = Member::start(&RuleFile::one_rule("rate: 100/s")).await;
    for own in [member.proxy(), member.admin()] {
        let answer = get(member.proxy(), &format!("http://{own}/metrics")).await;
        is_own_answer(&answer, 403, "egress", "destination_ip_prohibited");
    }
}

#[tokio::test]
async fn a_request_that_is_not_for_a_proxy_is_malformed() {
    let member = Member::start(&RuleFile::one_rule("rate: 100/s")).await;
    let host = free_address();
    let cases = [
        ("origin form", "GET / HTTP/1.1\r\nHost: site.example\r\n\r\n".to_owned(), "400"),
        (
            "no scheme we speak",
            format!("GET ftp://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n"),
            "400",
        ),
        (
            "CONNECT without a port",
            format!("CONNECT site.example HTTP/1.1\r\nHost: {host}\r\n\r\n"),
            "400",
        ),
        (
            "two ways to tell the length",
            format!(
                "POST http://{host}/ HTTP/1.1\r\nHost: {host}\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
            ),
            "400",
        ),
        ("no HTTP at all", "\x16\x03\x01\x02\x00\r\n\r\n".to_owned(), "400"),
        (
            "a head too large",
            format!(
                "GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\nX-Large: {}\r\n\r\n",
                "a".repeat(100_000)
            ),
            "431",
        ),
    ];
    for (what, request, status) in cases {
        let mut client = Raw::connect(member.proxy()).await;
        client.send(&request).await;
        let head = client.head().await;
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{what}: {head}");
        assert!(head.to_lowercase().contains("tidegate-refused: malformed"), "{what}: {head}");
        assert!(head.to_lowercase().contains("proxy-status: tidegate"), "{what}: {head}");
    }
}
