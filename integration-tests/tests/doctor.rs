//! `tidegate doctor` finds what is wrong with a client's environment, and does not report what is
//! right.

use std::{
    path::Path,
    process::{Command, Output},
};

use integration_tests::{
    member::{Member, RuleFile, binary_path},
    ports::free_address,
    secure::{Flaw, Root},
    site::Site,
};
use serde_json::Value;

/// Runs it for `url` in a shell with only these variables.
fn doctor(folder: &Path, variables: &[(&str, &str)], arguments: &[&str]) -> Output {
    let mut command = Command::new(binary_path());
    command.arg("doctor").args(arguments).arg("--json").env_clear().current_dir(folder);
    command.env("HOME", folder).envs(variables.iter().copied());
    command.output().expect("the binary starts")
}

/// The failed checks, each with its fix.
fn bad(output: &Output) -> Vec<(String, String)> {
    let said: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!("{error}: {}", String::from_utf8_lossy(&output.stderr));
    });
    let findings = said["findings"].as_array().expect("a list");
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let bad: Vec<_> = findings.iter().filter(|finding| finding["level"] == "bad").collect();
    assert_eq!(said["good"], bad.is_empty());
    assert_eq!(output.status.code(), Some(i32::from(!bad.is_empty())));
    bad.iter().map(|finding| (text(&finding["check"]), text(&finding["cure"]))).collect()
}

fn checks(output: &Output) -> Vec<String> {
    bad(output).into_iter().map(|(check, _)| check).collect()
}

fn config(member: &Member) -> String {
    member.rule_file().display().to_string()
}

#[tokio::test]
async fn correct_settings_are_not_blamed_and_each_mistake_has_its_fix() {
    let site = Site::start();
    let member = Member::start(&RuleFile::one_rule("rate: 50/s, burst: 50, max_wait: 1m")).await;
    let (url, proxy, config) = (site.url("/"), member.proxy_url(), config(&member));
    let ask = |variables: &[(&str, &str)], more: &[&str]| {
        let arguments = [&[&*url, "--config", &*config][..], more].concat();
        doctor(member.folder(), variables, &arguments)
    };
    let through = ("http_proxy", &*proxy);
    let good = ask(&[through], &["--timeout", "90s"]);
    assert_eq!(bad(&good), []);
    assert_eq!(site.count(), 1, "a real request went through it");
    assert!(String::from_utf8_lossy(&good.stdout).contains("200, judged ok"));
    assert_eq!(checks(&ask(&[], &[])), ["environment"]);
    assert_eq!(checks(&ask(&[("HTTP_PROXY", &*proxy)], &[])), ["environment"]);
    assert_eq!(checks(&ask(&[through, ("NO_PROXY", "127.0.0.1")], &[])), ["no_proxy"]);
    assert_eq!(checks(&ask(&[through], &["--timeout", "30s"])), ["time-out"]);
    let nobody = format!("http://{}", free_address());
    assert_eq!(checks(&ask(&[], &["--proxy", &nobody])), ["proxy"]);
    let other = format!("http://{}", site.authority());
    assert_eq!(checks(&ask(&[], &["--proxy", &other])), ["proxy"], "it is no Tidegate");
}

#[tokio::test]
async fn a_login_that_is_missing_and_a_store_that_is_away_are_found() {
    let site = Site::start();
    let store = format!("redis://{}", free_address());
    let file = RuleFile::one_rule("rate: 50/s, burst: 50")
        .store(&store)
        .with("auth: {users: {crawler: \"open sesame\"}}");
    let member = Member::start(&file).await;
    let (url, config) = (site.url("/"), config(&member));
    let without = member.proxy_url();
    let ask = |proxy: &str| {
        doctor(member.folder(), &[("http_proxy", proxy)], &[&url, "--config", &config])
    };
    let found = checks(&ask(&without));
    assert_eq!(found, ["proxy", "store"]);
    let with = format!("http://crawler:open%20sesame@{}", member.proxy());
    let found = checks(&ask(&with));
    assert!(!found.contains(&"proxy".to_owned()), "{found:?}");
    assert!(found.contains(&"store".to_owned()), "{found:?}");
}

#[tokio::test]
async fn an_intercepting_proxy_whose_ca_is_not_trusted_is_found() {
    let root = Root::new();
    let site = Site::secure(root.server(Flaw::None));
    let member = root.member("intercept: true, rate: 50/s, burst: 50").await;
    let (url, proxy, config) = (site.url("/"), member.proxy_url(), config(&member));
    let ask = |variables: &[(&str, &str)]| {
        let variables = [&[("https_proxy", &*proxy)][..], variables].concat();
        doctor(member.folder(), &variables, &[&url, "--config", &config])
    };
    let found = bad(&ask(&[]));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].0 == "https" && found[0].1.contains("tidegate env"), "{found:?}");
    let ca = member.ca_file().display().to_string();
    let trusting = ask(&[("SSL_CERT_FILE", &ca)]);
    assert_eq!(bad(&trusting), []);
    assert!(String::from_utf8_lossy(&trusting.stdout).contains("CA is trusted"));
}

#[tokio::test]
async fn a_rule_that_a_tunnel_passes_by_is_found() {
    let root = Root::new();
    let site = Site::secure(root.server(Flaw::None));
    let rules = "- {name: pages, match: {paths: [\"/shop*\"]}, rate: 1/s}\n\
                 - {name: rest, match: \"*\", rate: 50/s}\n";
    let member = Member::start(&RuleFile::new(rules)).await;
    let (url, proxy, config) = (site.url("/shop/1"), member.proxy_url(), config(&member));
    let roots = root.file().display().to_string();
    let variables = [("https_proxy", &*proxy), ("SSL_CERT_FILE", &*roots)];
    let found = bad(&doctor(member.folder(), &variables, &[&url, "--config", &config]));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].0 == "rule" && found[0].1.contains("intercept"), "{found:?}");
}

#[test]
fn a_bad_rule_file_is_the_first_thing_to_mend() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("bad.yaml"), "rules: [{name: bad}]\n").expect("writable");
    let found = bad(&doctor(folder.path(), &[], &["--config", "bad.yaml"]));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].0 == "rule file" && found[0].1.contains("tidegate check"), "{found:?}");
}
