//! Verdicts on the head alone.

use std::time::Duration;

use http::Method;
use tidegate::classify::verdict::{Confidence, Verdict};

use crate::{head, page};

#[test]
fn a_named_header_settles_it_under_any_status() {
    for (status, field, value, verdict) in [
        (429, "cf-mitigated", "challenge", Verdict::CloudflareChallenge),
        (504, "cf-mitigated", "challenge", Verdict::CloudflareChallenge),
        (202, "x-amzn-waf-action", "challenge", Verdict::Captcha),
        (405, "x-amzn-waf-action", "captcha", Verdict::Captcha),
        (202, "sg-captcha", "challenge", Verdict::Captcha),
        (429, "x-kpsdk-ct", "0abc", Verdict::Captcha),
        (429, "x-vercel-mitigated", "challenge", Verdict::Captcha),
        (403, "x-datadome-cid", "AHrl", Verdict::Captcha),
    ] {
        let judgement = head(status, &[(field, value)]).judgement();
        assert_eq!(judgement.verdict, verdict, "{status} {field}");
        assert_eq!(judgement.confidence, Confidence::High);
        let evidence = judgement.evidence.unwrap();
        assert_eq!((evidence.place, &*evidence.excerpt), (format!("header {field}"), value));
    }
}

#[test]
fn marks_that_a_vendor_adds_to_every_response_are_not_evidence() {
    for (status, fields) in [
        (200, &[("server", "cloudflare"), ("cf-ray", "8f0-FRA")][..]),
        (404, &[("server", "cloudflare"), ("set-cookie", "__cf_bm=x")]),
        (200, &[("x-kpsdk-ct", "0abc")]),
        (200, &[("x-datadome", "protected"), ("set-cookie", "datadome=x")]),
        (200, &[("x-iinfo", "1-2"), ("x-cdn", "Imperva"), ("set-cookie", "visid_incap_1=x")]),
        (200, &[("set-cookie", "_abck=x"), ("server", "AkamaiGHost")]),
        (
            200,
            &[(
                "content-security-policy",
                "script-src geo.captcha-delivery.com challenges.cloudflare.com www.google.com/recaptcha/",
            )],
        ),
    ] {
        let mut response = head(status, fields);
        response.body = b"<p>Hello</p>".to_vec();
        assert_eq!(response.verdict(), Verdict::Ok, "{fields:?}");
    }
}

#[test]
fn a_redirect_is_judged_by_the_parts_of_its_location() {
    for (location, verdict) in [
        ("https://www.google.com/sorry/index?continue=x", Verdict::Captcha),
        ("https://yandex.ru/showcaptcha?cc=1", Verdict::Captcha),
        ("//validate.perfdrive.com/x", Verdict::Captcha),
        ("/?__cf_chl_rt_tk=x", Verdict::CloudflareChallenge),
        ("/login", Verdict::Ok),
        ("https://consent.google.com/m?continue=https://www.google.com/sorry/", Verdict::Ok),
        ("/search?q=showcaptcha", Verdict::Ok),
        ("https://shop.queue-it.net/?c=shop", Verdict::Ok),
        ("http://[broken", Verdict::Ok),
    ] {
        let response = head(302, &[("location", location)]);
        assert_eq!(response.verdict(), verdict, "{location}");
    }
    assert_eq!(head(302, &[]).verdict(), Verdict::Ok, "an empty 302");
}

#[test]
fn a_plain_429_is_a_rate_limit_and_a_plain_403_a_doubtful_refusal_with_any_body() {
    for kind in ["text/html", "application/json", "application/xml", "image/png", "text/plain"] {
        let json = |status| page(status, "{\"error\":\"no\"}").with("content-type", kind);
        let judgement = json(429).judgement();
        assert_eq!(
            (judgement.verdict, judgement.confidence),
            (Verdict::RateLimited, Confidence::High)
        );
        let judgement = json(403).judgement();
        assert_eq!(
            (judgement.verdict, judgement.confidence),
            (Verdict::Forbidden, Confidence::Low)
        );
        assert_eq!(judgement.evidence.unwrap().signature.as_ref(), "status-403");
        assert!(!judgement.neutral, "a refused {kind} is a block");
    }
}

#[test]
fn other_statuses_alone_are_not_blocks() {
    for status in [
        200, 201, 204, 205, 206, 304, 400, 401, 404, 405, 410, 451, 500, 502, 503, 504, 521, 522,
        526, 530,
    ] {
        let judgement = page(status, "<h1>Something</h1>").judgement();
        assert_eq!(judgement.verdict, Verdict::Ok, "{status}");
        assert!(judgement.evidence.is_none());
    }
}

#[test]
fn an_answer_to_head_is_judged_by_status_and_fields_only() {
    let mut response = page(200, "");
    response.method = Method::HEAD;
    assert_eq!(response.verdict(), Verdict::Ok);
    response.status = 403;
    assert_eq!(response.verdict(), Verdict::Forbidden);
    assert_eq!(response.with("cf-mitigated", "challenge").verdict(), Verdict::CloudflareChallenge);
}

#[test]
fn files_that_no_person_reads_are_neutral_unless_the_status_is_a_block() {
    for kind in [
        "image/svg+xml",
        "image/gif",
        "font/woff2",
        "text/css",
        "text/javascript",
        "application/javascript; charset=utf-8",
        "video/mp4",
        "audio/mpeg",
    ] {
        for status in [200, 206, 304, 404, 500] {
            let judgement = head(status, &[("content-type", kind)]).judgement();
            assert_eq!(
                (judgement.verdict, judgement.neutral),
                (Verdict::Ok, true),
                "{kind} {status}"
            );
        }
        assert!(!head(429, &[("content-type", kind)]).judgement().neutral);
    }
    for kind in ["text/html", "application/json", "application/pdf", "text/plain"] {
        let mut response = head(200, &[("content-type", kind)]);
        response.body = b"[1]".to_vec();
        assert!(!response.judgement().neutral, "{kind}");
    }
}

#[test]
fn robots_txt_and_the_favicon_never_count() {
    for url in ["https://site.example/robots.txt", "https://site.example/favicon.ico?v=2"] {
        for status in [200, 403, 404, 429] {
            let mut response = page(status, "<h1>Forbidden</h1>").with("retry-after", "60");
            response.url = url;
            let judgement = response.judgement();
            assert!(judgement.neutral, "{url} {status}");
            assert_eq!(judgement.retry_after, None);
        }
    }
}

#[test]
fn a_block_carries_the_wait_that_the_site_asks_for() {
    let wait =
        |response: crate::Response| response.with("retry-after", "90").judgement().retry_after;
    assert_eq!(wait(page(429, "slow down")), Some(Duration::from_secs(90)));
    assert_eq!(wait(page(503, "<title>Just a moment...</title>")), Some(Duration::from_secs(90)));
    assert_eq!(wait(head(301, &[("location", "/there")])), None);
}
