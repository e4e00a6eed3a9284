//! Who may use the proxy, and where it may connect to.

use std::time::Duration;

use integration_tests::{
    client::{Raw, get, get_direct, get_with},
    member::{Member, RuleFile, run},
    ports::free_address,
    redis::Redis,
    site::Site,
    wait::wait_until,
};

const SOON: Duration = Duration::from_secs(20);

/// Starts a member that must fail, and returns its exit code and output.
fn refused_start(text: &str) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().expect("the folder for temporary files is writable");
    std::fs::write(folder.path().join("rules.yaml"), text).expect("it is writable");
    let output = run(folder.path(), &["--config", "rules.yaml"]);
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn an_open_proxy_is_rejected_unless_the_file_asks_for_it() {
    let text =
        "listen: 0.0.0.0:3128\nadmin: off\nrules:\n  - {name: default, match: \"*\", rate: 3/s}\n";
    let (code, said) = refused_start(text);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("rules.yaml:1") && said.contains("listen"), "names the place: {said}");
    assert!(said.contains("auth: none"), "names the way out: {said}");
}

#[tokio::test]
async fn sites_on_loopback_are_denied_unless_allowed() {
    let site = Site::start();
    let member = Member::start(&RuleFile::one_rule("rate: 100/s").egress("{}")).await;
    let port = site.address().port();
    let names =
        ["127.0.0.1", "localhost", "[::1]", "127.1", "2130706433", "0.0.0.0", "[::ffff:127.0.0.1]"];
    for host in names {
        let url = format!("http://{host}:{port}/");
        let answer = get(member.proxy(), &url).await;
        assert!(
            answer.status == 403 && answer.refused() == Some("egress")
                || answer.status == 400 && answer.refused() == Some("malformed"),
            "{url}: {} {:?}",
            answer.status,
            answer.refused()
        );
        let mut client = Raw::connect(member.proxy()).await;
        client.send(format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n")).await;
        let head = client.head().await;
        assert!(head.starts_with("HTTP/1.1 40"), "CONNECT {host}:{port}: {head}");
    }
    assert_eq!(site.connections(), 0, "nothing reached the site");
    let refused = member.metric("tidegate_refused_total", &[("reason", "egress")]).await;
    assert!(refused >= 4.0, "{refused} refusals are counted");
}

#[tokio::test]
async fn deny_beats_allow() {
    let site = Site::start();
    let file =
        RuleFile::one_rule("rate: 100/s").egress("{allow: [loopback], deny: [\"127.0.0.0/8\"]}");
    let member = Member::start(&file).await;
    let answer = get(member.proxy(), &site.url("/")).await;
    assert_eq!((answer.status, answer.refused()), (403, Some("egress")));
    assert!(answer.header("proxy-status").expect("one").contains("destination_ip_prohibited"));
    assert_eq!(site.connections(), 0);
}

#[tokio::test]
async fn a_client_without_the_password_gets_a_407_and_nothing_is_sent() {
    let site = Site::start();
    let file = RuleFile::one_rule("rate: 100/s").with("auth: {users: {crawler: secret}}");
    let member = Member::start(&file).await;
    let url = site.url("/");
    // base64 of `crawler:wrong` and of `nobody:secret`, and a text that is not base64.
    for wrong in [
        None,
        Some("Basic Y3Jhd2xlcjp3cm9uZw=="),
        Some("Basic bm9ib2R5OnNlY3JldA=="),
        Some("Basic %%"),
        Some("Bearer x"),
    ] {
        let answer = match wrong {
            None => get(member.proxy(), &url).await,
            Some(value) => get_with(member.proxy(), &url, "proxy-authorization", value).await,
        };
        assert_eq!((answer.status, answer.refused()), (407, Some("auth")), "{wrong:?}");
        let challenge = answer.header("proxy-authenticate").expect("a challenge");
        assert!(challenge.starts_with("Basic realm="), "{challenge}");
    }
    let mut client = Raw::connect(member.proxy()).await;
    let to = site.address();
    client.send(format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n")).await;
    assert!(client.head().await.starts_with("HTTP/1.1 407 "));
    assert_eq!(site.connections(), 0);
    let counted = member.metric("tidegate_refused_total", &[("reason", "auth")]).await;
    assert!((counted - 6.0).abs() < 1e-9, "{counted} refusals are counted");
}

#[tokio::test]
async fn a_client_with_the_password_or_in_a_network_is_served() {
    let site = Site::start();
    let file = RuleFile::one_rule("rate: 100/s").with("auth: {users: {crawler: open-sesame}}");
    let member = Member::start(&file).await;
    // base64 of `crawler:open-sesame`
    let right = "Basic Y3Jhd2xlcjpvcGVuLXNlc2FtZQ==";
    let answer = get_with(member.proxy(), &site.url("/"), "proxy-authorization", right).await;
    assert_eq!(answer.status, 200);
    assert_eq!(site.arrivals()[0].header("proxy-authorization"), None, "not the site's business");
    assert!(!member.log().contains("open-sesame"), "secrets stay out of the log");
    let file = RuleFile::one_rule("rate: 100/s")
        .with("auth: {users: {crawler: open-sesame}, networks: [\"127.0.0.0/8\"]}");
    let member = Member::start(&file).await;
    assert_eq!(get(member.proxy(), &site.url("/")).await.status, 200);
}

#[tokio::test]
async fn a_proxy_with_auth_may_listen_anywhere() {
    let port = free_address().port();
    let folder = tempfile::tempdir().expect("the folder for temporary files is writable");
    let text = format!(
        "listen: 0.0.0.0:{port}\nadmin: off\nauth: {{users: {{a: b}}}}\nrules:\n  - {{name: default, match: \"*\", rate: 3/s}}\n"
    );
    std::fs::write(folder.path().join("rules.yaml"), text).expect("it is writable");
    let output = run(folder.path(), &["check", "rules.yaml"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
}

/// The first bytes that a refused client reads on a new connection.
async fn first_line(member: &Member, request: String) -> String {
    let mut client = Raw::connect(member.proxy()).await;
    client.send(request).await;
    client.head().await.lines().next().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn one_policy_applies_on_every_path_out() {
    let site = Site::start();
    let rules = "- {name: inside, match: {hosts: [\"127.0.0.1\"]}, rate: 100/s, intercept: true}\n\
                 - {name: default, match: \"*\", rate: 100/s}";
    let member = Member::start(&RuleFile::new(rules).egress("{}")).await;
    let port = site.address().port();
    for (what, request) in [
        ("absolute form", format!("GET http://localhost:{port}/ HTTP/1.1\r\nHost: h\r\n\r\n")),
        ("https", format!("GET https://localhost:{port}/ HTTP/1.1\r\nHost: h\r\n\r\n")),
        ("CONNECT", format!("CONNECT localhost:{port} HTTP/1.1\r\nHost: h\r\n\r\n")),
        (
            "upgrade",
            format!(
                "GET http://localhost:{port}/ HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\n\
                 Upgrade: websocket\r\n\r\n"
            ),
        ),
    ] {
        let line = first_line(&member, request).await;
        assert!(line.starts_with("HTTP/1.1 403 "), "{what}: {line}");
    }
    let mut client = Raw::connect(member.proxy()).await;
    let to = site.address();
    client.send(format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n")).await;
    assert!(client.head().await.starts_with("HTTP/1.1 200 "), "an intercepted CONNECT opens");
    client.send(format!("GET / HTTP/1.1\r\nHost: {to}\r\n\r\n")).await;
    let inside = client.head().await;
    assert!(inside.starts_with("HTTP/1.1 403 "), "the request inside: {inside}");
    assert_eq!(site.connections(), 0, "nothing reached the site");
}

#[tokio::test]
async fn a_reload_changes_the_allowed_destinations_for_that_port_only() {
    let (site, other) = (Site::start(), Site::start());
    let file = |egress: &str| RuleFile::one_rule("rate: 100/s").egress(egress);
    let member = Member::start(&file("{}")).await;
    let status = async |site: &Site| get(member.proxy(), &site.url("/")).await.status;
    assert_eq!(status(&site).await, 403);
    let becomes = async |egress: &str, wanted: u16| {
        member.rewrite(&file(egress));
        wait_until(&format!("`{egress}` is in force"), SOON, async || {
            status(&site).await == wanted
        })
        .await;
    };
    becomes(&format!("{{allow: [\"127.0.0.1/32:{}\"]}}", site.address().port()), 200).await;
    assert_eq!(status(&other).await, 403, "another port is another entry");
    let denied =
        format!("{{allow: [loopback], deny: [\"127.0.0.1/32:{}\"]}}", site.address().port());
    becomes(&denied, 403).await;
    assert_eq!(status(&other).await, 200);
}

#[tokio::test]
async fn the_store_is_not_reachable_through_the_proxy() {
    let redis = Redis::start();
    let member = Member::start(&RuleFile::one_rule("rate: 100/s").redis(&redis)).await;
    let port = redis.address().port();
    for host in ["127.0.0.1", "localhost", "0.0.0.0", "127.0.0.2", "[::1]", "[::ffff:127.0.0.1]"] {
        let answer = get(member.proxy(), &format!("http://{host}:{port}/")).await;
        assert_eq!((answer.status, answer.refused()), (403, Some("egress")), "{host}");
        let to = format!("{host}:{port}");
        let line =
            first_line(&member, format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n")).await;
        assert!(line.starts_with("HTTP/1.1 403 "), "CONNECT {to}: {line}");
    }
}

#[tokio::test]
async fn a_request_that_is_refused_before_it_goes_takes_no_token() {
    let site = Site::start();
    let to = site.address();
    let file = RuleFile::one_rule("rate: 1/h, burst: 1, max_wait: 1s")
        .with("auth: {users: {crawler: secret}}");
    let member = Member::start(&file).await;
    // base64 of `crawler:secret`
    let auth = "Proxy-Authorization: Basic Y3Jhd2xlcjpzZWNyZXQ=\r\n";
    for (what, request, status) in [
        ("no password", format!("GET http://{to}/ HTTP/1.1\r\nHost: {to}\r\n\r\n"), 407),
        ("inside", format!("GET http://10.0.0.1/ HTTP/1.1\r\nHost: h\r\n{auth}\r\n"), 403),
        ("metadata", format!("CONNECT 169.254.169.254:443 HTTP/1.1\r\nHost: h\r\n{auth}\r\n"), 403),
        ("mail", format!("CONNECT 192.0.2.1:25 HTTP/1.1\r\nHost: h\r\n{auth}\r\n"), 403),
        (
            "framing",
            format!("GET http://{to}/ HTTP/1.1\r\nHost: {to}\r\nHost: x\r\n{auth}\r\n"),
            400,
        ),
    ] {
        let line = first_line(&member, request).await;
        assert!(line.starts_with(&format!("HTTP/1.1 {status} ")), "{what}: {line}");
    }
    let granted = member.metric("tidegate_tokens_granted_total", &[]).await;
    assert!(granted.abs() < 1e-9, "{granted} tokens for nothing");
    let request = format!("GET http://{to}/ HTTP/1.1\r\nHost: {to}\r\n{auth}\r\n");
    assert_eq!(first_line(&member, request).await, "HTTP/1.1 200 OK");
}

#[tokio::test]
async fn credentials_count_for_one_request_only() {
    let site = Site::start();
    let file = RuleFile::one_rule("rate: 100/s").with("auth: {users: {crawler: secret}}");
    let member = Member::start(&file).await;
    let to = site.address();
    let one = format!("GET http://{to}/one HTTP/1.1\r\nHost: {to}\r\n");
    let mut client = Raw::connect(member.proxy()).await;
    // base64 of `crawler:secret`
    client
        .send(format!(
            "{one}Proxy-Authorization: Basic Y3Jhd2xlcjpzZWNyZXQ=\r\n\r\n{one}Connection: close\r\n\r\n"
        ))
        .await;
    let both = String::from_utf8_lossy(&client.rest(SOON).await).into_owned();
    let statuses: Vec<&str> = both
        .split("HTTP/1.1 ")
        .filter_map(|part| part.get(..3))
        .filter(|word| word.bytes().all(|b| b.is_ascii_digit()))
        .collect();
    assert_eq!(statuses, ["200", "407"], "{both}");
    assert_eq!(site.count(), 1);
}

#[tokio::test]
async fn wrong_passwords_in_hundreds_are_counted_and_slow_nobody_down() {
    let site = Site::start();
    let file = RuleFile::one_rule("rate: 1000/s, burst: 1000")
        .with("auth: {users: {crawler: open-sesame, other: none-of-it}}");
    let member = Member::start(&file).await;
    let (proxy, url) = (member.proxy(), site.url("/"));
    let mut guessing = tokio::task::JoinSet::new();
    for _ in 0..10 {
        let url = url.clone();
        guessing.spawn(async move {
            for _ in 0..30 {
                // base64 of `crawler:wrong`
                let wrong = "Basic Y3Jhd2xlcjp3cm9uZw==";
                let answer = get_with(proxy, &url, "proxy-authorization", wrong).await;
                assert_eq!(answer.status, 407);
                assert!(!answer.text().contains("crawler"), "{}", answer.text());
            }
        });
    }
    // base64 of `crawler:open-sesame`
    let right = "Basic Y3Jhd2xlcjpvcGVuLXNlc2FtZQ==";
    for _ in 0..20 {
        let answer = get_with(proxy, &url, "proxy-authorization", right).await;
        assert_eq!(answer.status, 200);
        assert!(answer.took < SOON, "{:?}", answer.took);
    }
    guessing.join_all().await;
    assert_eq!(site.count(), 20);
    let metrics = member.metrics().await;
    let counted = |name: &str, labels: &[(&str, &str)]| metrics.sum(name, labels);
    assert!((counted("tidegate_refused_total", &[("reason", "auth")]) - 300.0).abs() < 1e-9);
    let user = |name, result| {
        counted("tidegate_user_requests_total", &[("user", name), ("result", result)])
    };
    assert!((user("crawler", "relayed") - 20.0).abs() < 1e-9);
    assert!(user("crawler", "refused").abs() < 1e-9, "a guess is not the user's");
    assert!(user("other", "relayed").abs() < 1e-9);
    for path in ["/metrics", "/api/v1/status", "/api/v1/config", "/api/v1/events"] {
        let text = get_direct(member.admin(), path).await.text();
        assert!(!text.contains("sesame") && !text.contains("none-of-it"), "{path}: {text}");
    }
}
