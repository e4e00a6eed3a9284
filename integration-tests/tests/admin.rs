//! The admin port: access control, responses and changes.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, header};
use http_body_util::Full;
use integration_tests::{
    client::{Answer, ProxyClient, Raw, get, get_direct, post_json},
    member::{Member, RuleFile},
    redis::Redis,
    site::{Page, Site},
    wait::wait_until,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

const SOON: Duration = Duration::from_secs(10);
const COOLDOWN: &str = "/api/v1/scopes/default/cooldown";

/// Header fields of a request.
type Fields<'a> = &'a [(&'a str, &'a str)];

async fn member() -> Member {
    Member::start(&RuleFile::one_rule("rate: 50/s, burst: 20, cooldown: {for: 60s-60s}")).await
}

/// A request with these header fields; the first one, `host`, may be replaced.
async fn ask(
    member: &Member,
    method: Method,
    path: &str,
    fields: Fields<'_>,
    body: &str,
) -> Answer {
    let mut request = Request::builder().method(method).uri(path);
    if !fields.iter().any(|(name, _)| *name == "host") {
        request = request.header(header::HOST, member.admin().to_string());
    }
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(Bytes::from(body.to_owned()))).expect("it is a request");
    ProxyClient::connect(member.admin()).await.send(request).await.expect("the port answers")
}

async fn post(member: &Member, path: &str, body: &Value) -> Answer {
    post_json(member.admin(), path, &body.to_string()).await
}

async fn state(member: &Member) -> String {
    member.status().await["scopes"][0]["state"].as_str().unwrap_or("no scope").to_owned()
}

fn parsed(answer: &Answer) -> Value {
    serde_json::from_str(&answer.text()).unwrap_or_else(|_| panic!("no JSON: {}", answer.text()))
}

#[tokio::test]
async fn a_rebound_name_gets_nothing() {
    let member = member().await;
    for host in ["evil.example", "evil.example:9128", "localhost.evil.example"] {
        let answer = ask(&member, Method::GET, "/api/v1/status", &[("host", host)], "").await;
        assert_eq!(answer.status, 421, "{host}");
    }
    for host in ["localhost", "localhost:1", "127.0.0.1", "[::1]:9128"] {
        let answer = ask(&member, Method::GET, "/api/v1/status", &[("host", host)], "").await;
        assert_eq!(answer.status, 200, "{host}");
    }
}

#[tokio::test]
async fn a_client_that_takes_the_port_for_the_proxy_does_not_get_the_status_page() {
    let member = member().await;
    for url in ["http://127.0.0.1:8000/", "http://shop.example/"] {
        let answer = ask(&member, Method::GET, url, &[], "").await;
        assert_eq!(answer.status, 421, "{url}: {}", answer.text());
        assert!(answer.text().contains("not the proxy"), "{}", answer.text());
    }
}

#[tokio::test]
async fn no_page_of_another_origin_and_no_form_changes_anything() {
    let member = member().await;
    let json = ("content-type", "application/json");
    let refused: [(Method, Fields<'_>, u16); 6] = [
        (Method::GET, &[], 405),
        (Method::POST, &[], 415),
        (Method::POST, &[("content-type", "application/x-www-form-urlencoded")], 415),
        (Method::POST, &[json, ("origin", "http://evil.example")], 403),
        (Method::POST, &[json, ("sec-fetch-site", "cross-site")], 403),
        (Method::DELETE, &[("origin", "null")], 403),
    ];
    for (method, fields, status) in refused {
        let answer = ask(&member, method.clone(), COOLDOWN, fields, "{}").await;
        assert_eq!(answer.status, status, "{method} with {fields:?}: {}", answer.text());
        assert!(answer.header("access-control-allow-origin").is_none());
    }
    assert_ne!(state(&member).await, "cooling");
    let own = format!("http://{}", member.admin());
    let fields = [json, ("origin", own.as_str()), ("sec-fetch-site", "same-origin")];
    let answer = ask(&member, Method::POST, COOLDOWN, &fields, "{}").await;
    assert_eq!(answer.status, 200, "our own page may: {}", answer.text());
    assert_eq!(state(&member).await, "cooling");
}

#[tokio::test]
async fn a_manual_cooldown_holds_requests_until_it_is_cleared() {
    let site = Site::start();
    let member = member().await;
    assert_eq!(post(&member, COOLDOWN, &json!({"seconds": 300})).await.status, 200);
    let (proxy, url) = (member.proxy(), site.url("/"));
    // 300 s are longer than the default `max_wait`, so the request is refused at once.
    assert_eq!(get(proxy, &url).await.status, 503);
    assert_eq!(ask(&member, Method::DELETE, COOLDOWN, &[], "").await.status, 200);
    assert_eq!(get(proxy, &url).await.status, 200);
    let events = parsed(&get_direct(member.admin(), "/api/v1/events").await);
    let kinds: Vec<&str> = events["events"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|e| e["event"].as_str())
        .collect();
    assert_eq!(kinds, ["started", "tripped", "cleared"]);
}

#[tokio::test]
async fn nonsense_is_refused_with_its_reason() {
    let member = member().await;
    let report = "/api/v1/report";
    let judge = "/api/v1/judge";
    let url = "http://shop.example/";
    for (path, body, status, word) in [
        (report, json!({"url": url, "verdict": "captcha", "extra": 1}), 400, "extra"),
        (report, json!({"url": 5, "verdict": "captcha"}), 400, "string"),
        (report, json!({"url": "shop", "verdict": "captcha"}), 400, "url"),
        (report, json!({"url": url, "verdict": "nonsense"}), 400, "cloudflare_challenge"),
        (report, json!({"url": url, "verdict": "ok", "status": 99}), 400, "status"),
        (judge, json!({"url": url, "status": 99}), 400, "status"),
        (judge, json!({"url": url, "status": 200, "method": "G E T"}), 400, "method"),
        (judge, json!({"url": url, "status": 200, "headers": {"a b": "c"}}), 400, "a b"),
        (judge, json!({"url": url, "status": 200, "headers": {"a": "b\r\nc"}}), 400, "headers"),
        (judge, json!({"url": url, "status": 200, "body_base64": "%"}), 400, "body_base64"),
        (judge, json!({"url": url, "status": 200, "body": "", "body_base64": ""}), 400, "either"),
        (COOLDOWN, json!({"seconds": -1}), 400, "seconds"),
        (COOLDOWN, json!({"seconds": 1e9}), 400, "seconds"),
        ("/api/v1/scopes/nobody/cooldown", json!({}), 404, "default"),
        ("/api/v1/scopes/default", json!({}), 404, "cooldown"),
        ("/api/v1/nothing", json!({}), 404, "nothing"),
        ("/api/v1/../../etc/passwd", json!({}), 404, "nothing"),
    ] {
        let answer = post(&member, path, &body).await;
        assert_eq!(answer.status, status, "{path} {body}: {}", answer.text());
        assert!(answer.text().contains(word), "`{word}` is missing: {}", answer.text());
    }
    let large = json!({"url": url, "verdict": "x".repeat(70_000)});
    assert_eq!(post(&member, report, &large).await.status, 413);
}

#[tokio::test]
async fn a_split_scope_is_changed_under_its_own_name_or_not_at_all() {
    let rules = "\
- {name: hosts, match: '*.shop.example', per: host, rate: 50/s}
- {name: rest, match: '*', per: domain, rate: 50/s}
";
    let member = Member::start(&RuleFile::new(rules)).await;
    for (scope, status, part) in [
        ("rest/WWW.Other.Example", 200, "\"rest/other.example\""),
        ("hosts/WWW.shop.example", 200, "\"hosts/www.shop.example\""),
        ("rest", 404, "write `rest/KEY`"),
        ("hosts", 404, "write `hosts/KEY`"),
        ("hosts/www.other.example", 404, "can match"),
        ("rest/b%C3%BCcher.example", 404, "xn--"),
        ("nobody/x", 404, "hosts, rest"),
    ] {
        let answer = post(&member, &format!("/api/v1/scopes/{scope}/cooldown"), &json!({})).await;
        assert_eq!(answer.status, status, "{scope}: {}", answer.text());
        assert!(answer.text().contains(part), "`{part}` is missing: {}", answer.text());
    }
}

#[tokio::test]
async fn reported_blocks_trip_the_cooldown_like_our_own() {
    let member = member().await;
    for _ in 0..3 {
        let body = json!({"url": "https://shop.example/", "verdict": "captcha", "status": 200});
        assert_eq!(post(&member, "/api/v1/report", &body).await.status, 202);
    }
    wait_until("it cools down", SOON, async || state(&member).await == "cooling").await;
    let blocks = member.metric("tidegate_blocks_total", &[("type", "captcha")]).await;
    assert!((blocks - 3.0).abs() < 1e-9, "{blocks} blocks");
}

#[tokio::test]
async fn a_response_is_judged_by_the_rule_in_force_and_counts_only_on_request() {
    let keys = "per: domain, rate: 50/s, cooldown: {after: 2, for: 60s-60s}, \
                detect: [{name: shop-check, verdict: captcha, title: Robot Check}]";
    let member = Member::start(&RuleFile::one_rule(keys)).await;
    let url = "https://www.shop.example/item?id=1";
    let page = "<html><title>Robot Check</title><p>Are you human?</p></html>";
    let mut body = json!({"url": url, "status": 200, "body": page,
        "headers": {"content-type": "text/html", "Set-Cookie": ["a=1", "b=2"]}});
    let judged = parsed(&post(&member, "/api/v1/judge", &body).await);
    assert_eq!(judged["verdict"], "captcha", "{judged}");
    assert_eq!(judged["rule"], "default");
    assert_eq!(judged["scope"], "default/shop.example");
    assert_eq!(judged["evidence"]["signature"], "shop-check");
    assert_eq!(judged["reported"], false);
    body["report"] = json!(true);
    for _ in 0..2 {
        assert_eq!(parsed(&post(&member, "/api/v1/judge", &body).await)["reported"], true);
    }
    wait_until("it cools down", SOON, async || state(&member).await == "cooling").await;
    let scope = &member.status().await["scopes"][0];
    assert_eq!((&scope["rule"], &scope["key"]), (&json!("default"), &json!("shop.example")));
    let blocks = member.metric("tidegate_blocks_total", &[("type", "captcha")]).await;
    assert!((blocks - 2.0).abs() < 1e-9, "{blocks} blocks");
}

#[tokio::test]
async fn a_reported_retry_after_trips_at_once_and_a_picture_counts_for_nothing() {
    let member = member().await;
    let judge = async |body: &Value| parsed(&post(&member, "/api/v1/judge", body).await);
    let url = "https://shop.example/";
    let picture = json!({"url": url, "status": 200, "headers": {"content-type": "image/png"},
        "body_base64": "iVBORw0KGgo=", "report": true});
    assert_eq!(judge(&picture).await["neutral"], true);
    let start = json!({"url": url, "status": 200, "headers": {"content-type": "text/html"},
        "body": "<html>", "complete": false});
    assert_eq!(judge(&start).await["verdict"], "ok", "only the start of a page was sent");
    let limited =
        json!({"url": url, "status": 429, "headers": {"retry-after": "20"}, "report": true});
    let judged = judge(&limited).await;
    assert_eq!(judged["verdict"], "429_rate_limited");
    assert_eq!(judged["retry_after"], 20.0);
    wait_until("it cools down", SOON, async || state(&member).await == "cooling").await;
    let left = member.status().await["scopes"][0]["remaining_ms"].as_u64().unwrap_or(0);
    assert!((1..=20_000).contains(&left), "as the site asked, not the rule's minute: {left} ms");
}

#[tokio::test]
async fn as_much_of_a_response_is_judged_as_the_proxy_itself_would_look_at() {
    let member = member().await;
    // `inspect.error_bytes`, plus a third for base64. Only the end of the page shows that it is a
    // wall.
    let title = "<title>Just a moment...</title><script>window._cf_chl_opt={};</script>";
    let page = format!("<html>{}{title}</html>", "<!-- -->".repeat(15_000));
    let body = json!({"url": "https://shop.example/", "status": 403, "body": page,
        "headers": {"content-type": "text/html"}});
    let answer = post(&member, "/api/v1/judge", &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(parsed(&answer)["verdict"], "cloudflare_challenge");
    let more = json!({"url": "https://shop.example/", "status": 403, "body": "x".repeat(2 << 20)});
    assert_eq!(post(&member, "/api/v1/judge", &more).await.status, 413);
}

#[tokio::test]
async fn a_request_whose_body_never_comes_is_answered() {
    let member = member().await;
    let judge = "/api/v1/judge";
    let mut streams = Vec::new();
    for (method, path) in [("POST", COOLDOWN), ("DELETE", COOLDOWN), ("POST", judge)] {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Content-Length: 9\r\n\r\n"
        );
        let mut stream = TcpStream::connect(member.admin()).await.expect("it accepts");
        stream.write_all(head.as_bytes()).await.expect("it reads");
        streams.push(stream);
    }
    for stream in &mut streams {
        let mut answer = [0; 12];
        let read = tokio::time::timeout(6 * SOON, stream.read_exact(&mut answer)).await;
        read.expect("it answers").expect("a whole answer");
        assert_eq!(String::from_utf8_lossy(&answer), "HTTP/1.1 408");
    }
}

#[tokio::test]
async fn a_token_for_another_way_comes_from_the_same_bucket() {
    let file = RuleFile::one_rule("rate: 1/h, burst: 2, max_wait: 1s");
    let member = Member::start(&file).await;
    let body = json!({"url": "https://shop.example/", "client": "browser-1"});
    for _ in 0..2 {
        let answer = post(&member, "/api/v1/acquire", &body).await;
        assert_eq!(parsed(&answer)["granted"], true, "{}", answer.text());
    }
    let answer = post(&member, "/api/v1/acquire", &body).await;
    assert_eq!((answer.status, &parsed(&answer)["reason"]), (429, &json!("limit")));
    assert!(answer.header("retry-after").is_some());
}

#[tokio::test]
async fn no_token_is_granted_under_a_denying_rule() {
    let file = RuleFile::new(
        "- {name: private, match: {hosts: [shop.example], paths: [\"/admin*\"]}, action: deny}\n\
         - {name: default, match: \"*\", rate: 50/s, burst: 20}",
    );
    let member = Member::start(&file).await;
    for (path, granted) in [("/", true), ("/admin", false), ("/%61dmin/1", false)] {
        let body = json!({"url": format!("https://shop.example{path}")});
        let answer = post(&member, "/api/v1/acquire", &body).await;
        if granted {
            assert_eq!(parsed(&answer)["granted"], true, "{path}: {}", answer.text());
        } else {
            let said = parsed(&answer);
            assert_eq!((answer.status, &said["reason"]), (403, &json!("denied")), "{path}");
            assert_eq!(said["detail"], "rule `private` denies this URL");
        }
    }
}

#[tokio::test]
async fn with_a_token_only_health_and_the_page_are_open() {
    // Any address but loopback needs one; on loopback it may be set too.
    let file = RuleFile::one_rule("rate: 50/s, burst: 5").token("open-sesame");
    let member = Member::start(&file).await;
    for (path, status) in [("/healthz", 200), ("/readyz", 200), ("/", 200), ("/ca.pem", 404)] {
        assert_eq!(get_direct(member.admin(), path).await.status, status, "{path}");
    }
    for path in ["/metrics", "/api/v1/status", "/api/v1/events", "/api/v1/config"] {
        assert_eq!(get_direct(member.admin(), path).await.status, 401, "{path}");
        let wrong = [("authorization", "Bearer open-sesam")];
        assert_eq!(ask(&member, Method::GET, path, &wrong, "").await.status, 401, "{path}");
        let right = [("authorization", "Bearer open-sesame"), ("host", "proxy.example")];
        let answer = ask(&member, Method::GET, path, &right, "").await;
        assert_eq!(answer.status, 200, "{path}");
        assert!(!answer.text().contains("sesame"), "{path} shows the token");
    }
}

#[tokio::test]
async fn the_settings_in_force_are_shown_without_secrets() {
    let file = RuleFile::one_rule("rate: 7/s, burst: 5").with("auth: {users: {a: hunter2}}");
    let member = Member::start(&file).await;
    let answer = get_direct(member.admin(), "/api/v1/config").await;
    let config = parsed(&answer);
    assert_eq!(config["values"]["rules.default.rate"], "7/s", "{config}");
    assert!(!answer.text().contains("hunter2") && answer.text().contains("***"), "{config}");
}

#[tokio::test]
async fn a_block_is_reported_with_its_evidence_and_without_its_query() {
    let site = Site::start();
    site.on("/wall", Page::Captcha);
    let member = member().await;
    get(member.proxy(), &site.url("/wall?token=hunter2")).await;
    let events = parsed(&get_direct(member.admin(), "/api/v1/events").await);
    let blocked = events["events"].as_array().and_then(|list| list.last()).expect("one event");
    assert_eq!(blocked["event"], "blocked", "{events}");
    assert_eq!((&blocked["verdict"], &blocked["rule"]), (&json!("captcha"), &json!("default")));
    assert!(blocked["evidence"]["signature"].is_string(), "{blocked}");
    assert!(blocked["url"].as_str().is_some_and(|url| url.contains("/wall")), "{blocked}");
    wait_until("the log tells of it", SOON, async || member.log().contains("blocked")).await;
    let log = member.log();
    assert!(!log.contains("hunter2"), "{log}");
    assert!(!events.to_string().contains("hunter2"));
}

#[tokio::test]
async fn the_stream_reports_a_trip_within_a_second() {
    let member = member().await;
    let mut stream = Raw::connect(member.admin()).await;
    let head = format!(
        "GET /api/v1/events HTTP/1.1\r\nHost: {}\r\nAccept: text/event-stream\r\n\r\n",
        member.admin()
    );
    stream.send(head).await;
    assert!(stream.head().await.contains("text/event-stream"));
    post(&member, COOLDOWN, &json!({"seconds": 30})).await;
    let tripped = std::time::Instant::now();
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains("event: tripped") {
        seen.extend(stream.exactly(1).await);
        assert!(tripped.elapsed() < SOON, "it never comes: {}", String::from_utf8_lossy(&seen));
    }
    assert!(tripped.elapsed() < Duration::from_secs(3), "{:?}", tripped.elapsed());
}

#[tokio::test]
async fn the_page_needs_nothing_but_this_port_and_may_not_be_framed() {
    let member = member().await;
    let page = get_direct(member.admin(), "/").await;
    let policy = page.header("content-security-policy").expect("a policy").to_owned();
    for part in ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"] {
        assert!(policy.contains(part), "{policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
    for path in ["/", "/style.css", "/script.js"] {
        let text = get_direct(member.admin(), path).await.text();
        assert!(text.len() > 1_000, "{path} is there");
        let elsewhere =
            ["src=\"http", "href=\"http", "url(http", "@import", "fetch(\"http", "//cdn"];
        for outside in elsewhere {
            assert!(!text.contains(outside), "{path} has {outside}");
        }
        for markup in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write"] {
            assert!(!text.contains(markup), "{path} writes markup from data: {markup}");
        }
    }
}

#[tokio::test]
async fn idle_connections_to_the_admin_port_do_not_touch_the_proxy() {
    let site = Site::start();
    let member = member().await;
    let mut idle = Vec::new();
    for _ in 0..200 {
        let mut raw = Raw::connect(member.admin()).await;
        raw.send("GET / HTTP/1.1\r\nHo").await;
        idle.push(raw);
    }
    assert_eq!(get(member.proxy(), &site.url("/")).await.status, 200);
}

#[tokio::test]
async fn slow_clients_of_the_proxy_do_not_touch_the_admin_port() {
    let file = RuleFile::one_rule("rate: 50/s, burst: 20")
        .with("limits: {connections: 50, per_client: 50}");
    let member = Member::start(&file).await;
    let mut slow = Vec::new();
    for _ in 0..60 {
        let mut raw = Raw::connect(member.proxy()).await;
        raw.send("GET http://site.example/ HTTP/1.1\r\nHo").await;
        slow.push(raw);
    }
    for path in ["/healthz", "/readyz", "/metrics", "/api/v1/status"] {
        assert_eq!(get_direct(member.admin(), path).await.status, 200, "{path}");
    }
}

#[tokio::test]
async fn health_and_readiness_report_a_store_that_is_away() {
    for (on_failure, ready) in [("local", 200), ("closed", 503)] {
        let mut redis = Redis::start();
        let store = format!("{{url: \"{}\", on_failure: {on_failure}}}", redis.url());
        let member = Member::start(&RuleFile::one_rule("rate: 50/s").store(&store)).await;
        let health = async || parsed(&get_direct(member.admin(), "/healthz").await);
        wait_until("the store is there", SOON, async || health().await["degraded"] == false).await;
        redis.kill();
        wait_until("it is away", SOON, async || health().await["degraded"] == true).await;
        assert_eq!(get_direct(member.admin(), "/healthz").await.status, 200);
        assert_eq!(get_direct(member.admin(), "/readyz").await.status, ready, "{on_failure}");
    }
}

#[tokio::test]
async fn a_draining_proxy_is_alive_but_not_ready() {
    let site = Site::start();
    site.on("/slow", Page::Held);
    let mut member = member().await;
    let (proxy, slow) = (member.proxy(), site.url("/slow"));
    let in_flight = tokio::spawn(async move { get(proxy, &slow).await.status });
    wait_until("it is in flight", SOON, async || site.count() == 1).await;
    assert_eq!(get_direct(member.admin(), "/readyz").await.status, 200);
    member.terminate();
    wait_until("it is not ready", SOON, async || {
        get_direct(member.admin(), "/readyz").await.status == 503
    })
    .await;
    assert_eq!(get_direct(member.admin(), "/healthz").await.status, 200);
    site.release();
    assert_eq!(in_flight.await.expect("it ends"), 200);
    assert_eq!(member.exit_code(SOON).await, 0);
}

#[tokio::test]
async fn clients_that_never_read_do_not_silence_health() {
    let member = member().await;
    let asks = "GET /script.js HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(500);
    let mut silent = Vec::new();
    for _ in 0..200 {
        let mut stream = TcpStream::connect(member.admin()).await.expect("it accepts");
        // More than the buffers hold, so the rest stays unsent.
        let asking = stream.write_all(asks.as_bytes());
        drop(tokio::time::timeout(Duration::from_millis(5), asking).await);
        silent.push(stream);
    }
    for path in ["/healthz", "/readyz", "/metrics"] {
        let answer = tokio::time::timeout(SOON, get_direct(member.admin(), path)).await;
        assert_eq!(answer.expect("others are served").status, 200, "{path}");
    }
    drop(silent);
}
