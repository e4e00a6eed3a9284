//! Who may use the proxy, and where it may connect to.

use integration_tests::{
    client::{Raw, get, get_with},
    member::{Member, RuleFile, run},
    ports::free_address,
    site::Site,
};

/// Starts a member that must not come up, and returns its exit code and what it said.
fn refused_start(text: &str) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().expect("the folder for temporary files is writable");
    std::fs::write(folder.path().join("rules.yaml"), text).expect("it is writable");
    let output = run(folder.path(), &["--config", "rules.yaml"]);
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn an_open_proxy_is_refused_unless_it_is_said_on_purpose() {
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
async fn a_client_without_the_password_gets_a_407_and_nothing_goes_out() {
    let site = Site::start();
    let file = RuleFile::one_rule("rate: 100/s").with("auth: {users: {crawler: secret}}");
    let member = Member::start(&file).await;
    let url = site.url("/");
    // base64 of `crawler:wrong`, `nobody:secret`, and what is no base64 at all
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
