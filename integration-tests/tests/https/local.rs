//! `tidegate.local`: the CA, and whether a client is proxied, is intercepted and trusts the CA.

use std::path::Path;

use integration_tests::{
    client::get,
    member::{Member, RuleFile},
    tools::run_through,
    wait::wait_until,
};
use serde_json::Value;

use crate::{SOON, secure_site};

/// The response that curl gets, as JSON.
async fn check(member: &Member, url: &str) -> Value {
    let ca = member.ca_file().display().to_string();
    let arguments = ["--silent", "--show-error", "--fail", "--cacert", ca.as_str(), url];
    let output = run_through(&member.proxy_url(), Path::new("curl"), &arguments).await;
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[tokio::test]
async fn it_serves_the_ca_and_takes_no_token() {
    let member = Member::start(&RuleFile::one_rule("intercept: true, rate: 1/h, burst: 1")).await;
    let pem = get(member.proxy(), "http://tidegate.local/ca.pem").await;
    let file = std::fs::read_to_string(member.ca_file()).expect("the CA was made at the start");
    assert_eq!((pem.status, pem.text()), (200, file));
    let der = get(member.proxy(), "http://tidegate.local/ca.der").await;
    assert_eq!(der.header("content-type"), Some("application/x-x509-ca-cert"));
    assert_eq!(der.body[0], 0x30, "a sequence");
    let page = get(member.proxy(), "http://tidegate.local/").await;
    assert!(page.text().contains("this page exists only inside the proxy"), "{}", page.text());
    assert_eq!(get(member.proxy(), "http://tidegate.local/elsewhere").await.status, 404);
    assert!(member.metric("tidegate_tokens_granted_total", &[]).await.abs() < 1e-9);
}

#[tokio::test]
async fn it_says_whether_a_client_is_proxied_and_trusts_the_ca() {
    let rules = "- {name: seen, match: {hosts: [shop.example]}, intercept: true}\n\
                 - {name: default, match: \"*\"}";
    let member = Member::start(&RuleFile::new(rules)).await;
    let plain = check(&member, "http://tidegate.local/check").await;
    assert_eq!((&plain["proxied"], &plain["intercepts"]), (&true.into(), &true.into()));
    assert_eq!(plain["trusted"], Value::Null, "not known by http");
    let readers = get(member.proxy(), "http://tidegate.local/check").await;
    let readers = readers.header("access-control-allow-origin").map(str::to_owned);
    assert_eq!(readers.as_deref(), Some("http://tidegate.local"), "no other page reads it");
    let secure = check(&member, "https://tidegate.local/check").await;
    assert_eq!((&secure["proxied"], &secure["trusted"]), (&true.into(), &true.into()));
}

#[tokio::test]
async fn without_an_intercepting_rule_there_is_no_ca() {
    let member = Member::start(&RuleFile::one_rule("rate: 100/s")).await;
    assert_eq!(check(&member, "http://tidegate.local/check").await["intercepts"], false);
    assert_eq!(get(member.proxy(), "http://tidegate.local/ca.pem").await.status, 404);
    assert!(!member.ca_file().exists());
}

#[tokio::test]
async fn an_intercepted_connection_is_an_open_tunnel() {
    let (site, root) = secure_site();
    site.on("/held", integration_tests::site::Page::Held);
    let member = root.member("intercept: true").await;
    let (proxy, ca, url) =
        (member.proxy_url(), member.ca_file().display().to_string(), site.url("/held"));
    let asking = tokio::spawn(async move {
        let arguments = ["--silent", "--cacert", ca.as_str(), url.as_str()];
        run_through(&proxy, Path::new("curl"), &arguments).await
    });
    let tunnels = async || member.metric("tidegate_tunnels", &[("rule", "default")]).await;
    wait_until("it is shown", SOON, async || (tunnels().await - 1.0).abs() < 1e-9).await;
    site.release();
    asking.await.expect("curl ends");
    wait_until("it is gone", SOON, async || tunnels().await.abs() < 1e-9).await;
}
