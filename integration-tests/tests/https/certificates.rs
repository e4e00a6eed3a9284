//! Certificates of sites: the good one is accepted, each kind of bad one is the client's 502 with its reason.

use std::path::Path;

use integration_tests::{
    member::{Member, RuleFile},
    secure::{Flaw, Root},
    site::Site,
    tools::run_through,
    wait::wait_until,
};

use crate::SOON;

/// What curl gets through interception.
async fn ask(member: &Member, site: &Site) -> String {
    let (ca, url) = (member.ca_file().display().to_string(), site.url("/"));
    let arguments =
        ["--silent", "--include", "--suppress-connect-headers", "--cacert", ca.as_str(), &url];
    let output = run_through(&member.proxy_url(), Path::new("curl"), &arguments).await;
    String::from_utf8_lossy(&output.stdout).to_lowercase()
}

#[tokio::test]
async fn each_kind_of_bad_certificate_is_refused_with_its_reason() {
    let root = Root::new();
    let member = root.member("intercept: true, rate: 100/s, burst: 20").await;
    for (flaw, reason) in [
        (Flaw::Expired, "it has expired"),
        (Flaw::NotYetValid, "it is not valid yet"),
        (Flaw::OtherName, "it is for another name"),
        (Flaw::SelfSigned, "no root that is trusted here stands behind it"),
        (Flaw::UnknownRoot, "no root that is trusted here stands behind it"),
    ] {
        let site = Site::secure(root.server(flaw));
        let answer = ask(&member, &site).await;
        assert!(answer.starts_with("http/2 502"), "{flaw:?}: {answer}");
        assert!(answer.contains("tidegate-refused: tls"), "{flaw:?}: {answer}");
        assert!(answer.contains("tls_certificate_error"), "{flaw:?}: {answer}");
        assert!(answer.contains(reason), "{flaw:?}: {answer}");
        assert_eq!(site.count(), 0, "{flaw:?}: nothing was sent");
    }
    let good = Site::secure(root.server(Flaw::None));
    assert!(ask(&member, &good).await.starts_with("http/2 200"));
}

#[tokio::test]
async fn a_rule_may_say_that_certificates_do_not_matter() {
    let root = Root::new();
    let member = root.member("intercept: true, verify: false").await;
    for flaw in [Flaw::Expired, Flaw::OtherName, Flaw::SelfSigned] {
        let site = Site::secure(root.server(flaw));
        let answer = ask(&member, &site).await;
        assert!(answer.starts_with("http/2 200"), "{flaw:?}: {answer}");
    }
}

#[tokio::test]
async fn a_root_that_was_not_named_is_not_trusted() {
    let root = Root::new();
    let site = Site::secure(root.server(Flaw::None));
    let member = Member::start(&RuleFile::one_rule("intercept: true")).await;
    let answer = ask(&member, &site).await;
    assert!(answer.starts_with("http/2 502") && answer.contains("upstream_ca"), "{answer}");
}

#[tokio::test]
async fn a_client_that_does_not_trust_the_ca_is_named_in_the_log_and_counted() {
    let root = Root::new();
    let site = Site::secure(root.server(Flaw::None));
    let member = root.member("intercept: true").await;
    let proxy = member.proxy_url();
    let url = site.url("/");
    let curl = tokio::process::Command::new("curl")
        .args(["--silent", "--proxy", &proxy, "--cacert"])
        .arg(root.file())
        .arg(&url)
        .output();
    let output = curl.await.expect("curl is installed");
    assert_eq!(output.status.code(), Some(60), "it cannot verify the certificate");
    wait_until("it is counted and said", SOON, async || {
        let log = member.log();
        member.metric("tidegate_tls_client_rejected_total", &[]).await > 0.0
            && log.contains("does not trust the CA")
            && log.contains("pinning")
    })
    .await;
    assert_eq!(site.count(), 0);
}
