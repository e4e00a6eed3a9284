//! Signatures of users, and switches for the built-in ones.

use tidegate::classify::{
    Classifier, Signature, SignatureError, Switches,
    signature::{Action, Example},
    verdict::Verdict,
};

use crate::{page, prose};

/// From YAML, as users write it.
fn signature(yaml: &str) -> Signature {
    serde_yaml::from_str(yaml).unwrap()
}

fn with(signatures: &[&str]) -> std::sync::Arc<Classifier> {
    let signatures = signatures.iter().map(|yaml| signature(yaml)).collect();
    Classifier::with(signatures, &Switches::default()).unwrap()
}

#[test]
fn every_condition_of_a_users_signature_must_hold() {
    let classifier = with(&["{name: shop-robot-check, verdict: captcha, status: [200, 403], \
        header: {server: '*shop*'}, title: Quay Check, body: ['Type the characters you see']}"]);
    let markup = "<title> quay  check </title><p>Type the <b>characters</b> you&nbsp;see</p>";
    let wall = page(200, &format!("{markup}{}", prose(5_000))).with("server", "MyShop/1");
    let judgement = wall.judged_by(&classifier);
    assert_eq!(judgement.verdict, Verdict::Captcha, "its shape does not matter");
    assert_eq!(judgement.evidence.unwrap().signature.as_ref(), "shop-robot-check");
    for other in [
        page(500, markup).with("server", "MyShop"),
        page(200, markup),
        page(200, &markup.replace("quay", "Shop")).with("server", "MyShop"),
        page(200, &markup.replace("see", "hear")).with("server", "MyShop"),
    ] {
        assert_eq!(other.judged_by(&classifier).verdict, Verdict::Ok);
    }
}

#[test]
fn an_ok_entry_overrules_built_in_signatures_and_header_matches() {
    let classifier = with(&[
        "{name: too-late, verdict: captcha, body: Members}",
        "{name: members-only, verdict: ok, status: [403], body: Members only}",
    ]);
    let members = page(403, "<p>Members only</p>");
    assert_eq!(members.judgement().verdict, Verdict::Forbidden);
    assert_eq!(members.judged_by(&classifier).verdict, Verdict::Ok);
    let challenged = members.with("cf-mitigated", "challenge");
    assert_eq!(challenged.judged_by(&classifier).verdict, Verdict::Ok);
    let other = page(403, "<p>Nobody</p>").with("cf-mitigated", "challenge");
    assert_eq!(other.judged_by(&classifier).verdict, Verdict::CloudflareChallenge);
}

#[test]
fn a_signature_may_ask_for_the_head_alone() {
    let classifier = with(&["{name: busy, verdict: 429_rate_limited, status: [503, 52x-530]}"
        .replace("52x-530", "520-530")
        .as_str()]);
    assert_eq!(page(503, "x").judged_by(&classifier).verdict, Verdict::RateLimited);
    assert_eq!(page(526, "x").judged_by(&classifier).verdict, Verdict::RateLimited);
    assert_eq!(page(500, "x").judged_by(&classifier).verdict, Verdict::Ok);
}

#[test]
fn a_built_in_signature_can_be_switched_off_or_to_log_only() {
    let wall = page(503, "<title>Just a moment...</title>");
    let off = Switches { off: vec!["cloudflare-title".into()], log: Vec::new() };
    let judgement = wall.judged_by(&Classifier::with(Vec::new(), &off).unwrap());
    assert_eq!((judgement.verdict, judgement.logged.len()), (Verdict::Ok, 0));
    let log = Switches { off: Vec::new(), log: vec!["cloudflare-title".into()] };
    let judgement = wall.judged_by(&Classifier::with(Vec::new(), &log).unwrap());
    assert_eq!(judgement.verdict, Verdict::Ok);
    assert_eq!(judgement.logged, ["cloudflare-title".into()]);
    let head = page(200, "x").with("cf-mitigated", "challenge");
    let log = Switches { off: Vec::new(), log: vec!["cloudflare-mitigated".into()] };
    let judgement = head.judged_by(&Classifier::with(Vec::new(), &log).unwrap());
    assert_eq!((judgement.verdict, judgement.logged.len()), (Verdict::Ok, 1));
}

#[test]
fn settings_that_can_never_work_are_rejected_with_the_fix() {
    let refused = |yaml: &str| {
        Classifier::with(vec![signature(yaml)], &Switches::default()).unwrap_err().to_string()
    };
    assert!(refused("{name: a, verdict: ok}").contains("no condition"));
    assert!(refused("{name: a b, verdict: ok, body: x}").contains("not a valid signature name"));
    assert!(refused("{name: a, verdict: timeout, body: x}").contains("no response can be"));
    assert!(refused("{name: a, verdict: ok, body: ''}").contains("pattern"));
    assert!(
        refused("{name: a, verdict: ok, header: {'no name': x}}")
            .contains("not a valid header name")
    );
    assert!(refused("{name: anubis, verdict: ok, body: x}").contains("two signatures"));
    let switches = Switches { off: vec!["cloudflare-titel".into()], log: Vec::new() };
    let error = Classifier::with(Vec::new(), &switches).unwrap_err();
    let near = Some("cloudflare-title".into());
    assert_eq!(error, SignatureError::Unknown("cloudflare-titel".into(), near));
}

#[test]
fn examples_are_tried_and_the_failing_ones_are_named() {
    let mut own = signature(
        "{name: own, verdict: captcha, body: Robot, expect: [{body: Robot}, {matches: false, body: '{prose}'}]}",
    );
    assert_eq!(own.failed_examples().unwrap(), Vec::<String>::new());
    own.action = Action::Log;
    assert!(own.failed_examples().unwrap().is_empty(), "an example is about the match");
    own.expect.push(Example { matches: false, ..own.expect[0].clone() });
    let failures = own.failed_examples().unwrap();
    assert_eq!(failures.len(), 1);
    assert!(failures[0].contains("example 3 of the signature `own` matches"), "{failures:?}");
}

#[test]
fn classifiers_made_of_the_same_signatures_are_equal() {
    let yaml = "{name: own, verdict: captcha, body: Robot}";
    assert_eq!(with(&[yaml]), with(&[yaml]));
    assert_ne!(with(&[yaml]), Classifier::builtin());
}
