//! Certificates of sites: a valid one is accepted, and each kind of invalid one gives a 502 with
//! its reason.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use integration_tests::{
    member::{Member, RuleFile},
    secure::{Flaw, Root},
    site::Site,
    tools::run_through,
    wait::wait_until,
};

use rcgen::{
    BasicConstraints, CertificateParams, GeneralSubtree, IsCa, KeyPair, KeyUsagePurpose,
    NameConstraints,
};

use crate::SOON;

/// The result of curl through interception, with the proxy's CA.
async fn ask(member: &Member, site: &Site) -> String {
    ask_trusting(member, &member.ca_file(), site).await
}

async fn ask_trusting(member: &Member, ca: &Path, site: &Site) -> String {
    let (ca, url) = (ca.display().to_string(), site.url("/"));
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

#[tokio::test]
async fn the_bundle_verifies_intercepted_sites() {
    let root = Root::new();
    let site = Site::secure(root.server(Flaw::None));
    let member = root.member("intercept: true").await;
    let bundle = member.ca_file().with_file_name("bundle.pem");
    assert!(ask_trusting(&member, &bundle, &site).await.starts_with("http/2 200"));
    let count = |file: &Path| {
        let text = fs::read_to_string(file).expect("it is there");
        text.matches("BEGIN CERTIFICATE").count()
    };
    assert!(count(&bundle) > count(&member.ca_file()), "the system's roots are in it too");
}

#[tokio::test]
async fn a_ca_of_ones_own_may_be_limited_to_the_names_that_it_is_for() {
    let root = Root::new();
    let site = Site::secure(root.server(Flaw::None));
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let only = GeneralSubtree::DnsName("localhost".to_owned());
    params.name_constraints =
        Some(NameConstraints { permitted_subtrees: vec![only], excluded_subtrees: vec![] });
    let certificate = params.self_signed(&key).expect("a certificate");
    let folder = tempfile::tempdir().expect("the folder for temporary files is writable");
    let (cert, secret) = (folder.path().join("own.pem"), folder.path().join("own.key"));
    fs::write(&cert, certificate.pem()).expect("it is writable");
    fs::write(&secret, key.serialize_pem()).expect("it is writable");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).expect("it is ours");
    let file = RuleFile::one_rule("intercept: true, verify: false").with(&format!(
        "ca: {{cert: \"{}\", key: \"{}\"}}",
        cert.display(),
        secret.display()
    ));
    let member = Member::start(&file).await;
    let answer = ask_trusting(&member, &cert, &site).await;
    assert!(answer.starts_with("http/2 200"), "{answer}");
    assert!(!member.ca_file().exists(), "no other one is made");
    let elsewhere = ["--silent", "--cacert", &cert.display().to_string(), "https://other.example/"];
    let curl = tokio::process::Command::new("curl")
        .args(elsewhere)
        .env("https_proxy", member.proxy_url())
        .output();
    let output = curl.await.expect("curl is installed");
    assert_eq!(output.status.code(), Some(60), "for any other name it is worth nothing");
}
