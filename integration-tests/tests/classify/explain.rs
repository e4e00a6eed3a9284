//! `explain` reads saved responses and returns verdicts with their reasons.

use std::{path::Path, sync::Arc};

use http::{HeaderMap, Method, StatusCode};
use tidegate::{
    classify::verdict::Verdict,
    explain::{self, Options, Report, Source},
    rules::RuleSet,
};

use crate::LIMITS;

fn options(status: u16) -> Options {
    let html = (http::header::CONTENT_TYPE, "text/html".parse().unwrap());
    Options {
        status: StatusCode::from_u16(status).unwrap(),
        headers: HeaderMap::from_iter([html]),
        method: Method::GET,
        url: None,
        rules: Arc::new(RuleSet::default()),
        limits: LIMITS,
        builtin: tidegate::classify::Classifier::builtin(),
    }
}

fn bytes(name: &str, bytes: &[u8]) -> Report {
    let source = Source::Bytes(name.to_owned(), bytes.to_vec());
    explain::run(&source, &options(403)).unwrap()
}

#[test]
fn our_own_pages_are_judged_as_their_manifest_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/pages");
    let report = explain::run(&Source::Path(folder), &options(200)).unwrap();
    let Report::Many { items, summary } = &report else { panic!("a folder has many") };
    assert!(items.len() >= 12, "the manifest is not read in full");
    assert_eq!(summary.unexpected, Some(0), "{report}");
}

#[test]
fn a_saved_page_is_explained_with_full_and_partial_matches() {
    let page = b"<title>Attention Required! | Cloudflare</title><h1 data-translate=\"block_headline\">Sorry</h1>";
    let report = bytes("page.html", page);
    let Report::One(item) = &report else { panic!("one page") };
    assert_eq!(item.verdict, Verdict::Forbidden);
    let proof = item.evidence.as_ref().unwrap();
    assert_eq!((&*proof.signature, proof.place.as_str()), ("cloudflare-blocked", "body"));
    assert!(proof.excerpt.starts_with("data-translate=\"block_headline\""), "{}", proof.excerpt);
    let near: Vec<&str> = item.near.iter().map(|near| near.signature.as_str()).collect();
    assert!(near.contains(&"cloudflare-captcha"), "{near:?}");
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["verdict"], "403_forbidden");
    assert_eq!(json["evidence"]["vendor"], "cloudflare");
    assert!(json.get("rule").is_some());
    assert!(report.to_string().contains("cloudflare-blocked"), "{report}");
}

#[test]
fn a_raw_response_carries_its_own_head_in_all_its_spellings() {
    for raw in [
        &b"HTTP/1.1 503 Busy\r\nContent-Type: text/html\r\n\r\n<title>Just a moment...</title>"[..],
        b"HTTP/2 503 \r\ncontent-type: text/html\r\n\r\n<title>Just a moment...</title>",
        b"HTTP/1.1 200 Connection established\r\n\r\nHTTP/1.1 503 Busy\nContent-Type: text/html\n\n<title>Just a moment...</title>",
        b"HTTP/1.1 503 Busy\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n10\r\n<title>Just a mo\r\nf\r\nment...</title>\r\n0\r\n\r\n",
        b"HTTP/1.1 503 Busy\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\nContent-Encoding: gzip\r\n\r\n<title>Just a moment...</title>",
    ] {
        let Report::One(item) = bytes("-", raw) else { panic!("one response") };
        assert_eq!((item.status, item.verdict), (503, Verdict::CloudflareChallenge));
    }
    let cut = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 100\r\n\r\n<p>";
    let Report::One(item) = bytes("-", cut) else { panic!("one response") };
    assert_eq!(item.verdict, Verdict::ConnectionError);
}

#[test]
fn a_har_file_is_replayed() {
    let har = serde_json::json!({"log": {"version": "1.2", "entries": [
        {"request": {"method": "GET", "url": "https://a.example/"},
         "response": {"status": 200, "headers": [{"name": "Content-Type", "value": "text/html"},
            {"name": "Content-Encoding", "value": "br"}], "content": {"size": 12, "text": "<p>Hello</p>"}}},
        {"request": {"method": "GET", "url": "https://a.example/x"},
         "response": {"status": 0, "headers": [], "content": {"size": -1}}},
        {"request": {"method": "GET", "url": "https://a.example/y"},
         "response": {"status": 403, "headers": [{"name": "cf-mitigated", "value": "challenge"}],
            "content": {"size": 2, "text": "aGk=", "encoding": "base64"}}},
    ]}});
    let Report::Many { items, summary } = bytes("crawl.har", har.to_string().as_bytes()) else {
        panic!("many")
    };
    let verdicts: Vec<Verdict> = items.iter().map(|item| item.verdict).collect();
    assert_eq!(verdicts, [Verdict::Ok, Verdict::CloudflareChallenge]);
    assert_eq!(summary.verdicts["cloudflare_challenge"], 1);
}

#[test]
fn a_warc_file_is_replayed_packed_or_not() {
    let block =
        "HTTP/1.1 403 Forbidden\r\nContent-Type: text/html\r\n\r\n<title>Just a moment...</title>";
    let record = |kind: &str, block: &str| {
        format!(
            "WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Target-URI: https://a.example/\r\nContent-Type: application/http; msgtype={kind}\r\nContent-Length: {}\r\n\r\n{block}\r\n\r\n",
            block.len()
        )
    };
    let warc = record("request", "GET / HTTP/1.1\r\n\r\n") + &record("response", block);
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packer, warc.as_bytes()).unwrap();
    for (name, file) in [("a.warc", warc.into_bytes()), ("a.warc.gz", packer.finish().unwrap())] {
        let Report::Many { items, .. } = bytes(name, &file) else { panic!("many") };
        assert_eq!(items.len(), 1);
        assert_eq!(
            (items[0].name.as_str(), items[0].verdict),
            ("https://a.example/", Verdict::CloudflareChallenge)
        );
    }
}

/// Rules from a file, with an environment that is empty.
fn rules(text: &str) -> Arc<RuleSet> {
    Arc::new(tidegate::config::parse(text, "rules.yaml", &|_| None).unwrap().rules)
}

/// Host, status, fields.
type Answer<'a> = (&'a str, u16, &'a [(&'a str, &'a str)]);

/// A HAR file with these responses.
fn har(responses: &[Answer<'_>]) -> Vec<u8> {
    let entry = |(host, status, fields): &Answer<'_>| {
        let mut headers = vec![serde_json::json!({"name": "content-type", "value": "text/html"})];
        headers.extend(
            fields.iter().map(|(name, value)| serde_json::json!({"name": name, "value": value})),
        );
        serde_json::json!({
            "request": {"method": "GET", "url": format!("https://{host}/page")},
            "response": {"status": status, "headers": headers,
                "content": {"size": 5, "text": "<p>Hi"}},
        })
    };
    let entries: Vec<_> = responses.iter().map(entry).collect();
    serde_json::json!({"log": {"version": "1.2", "entries": entries}}).to_string().into_bytes()
}

fn cooldowns(rules_text: &str, responses: &[Answer<'_>]) -> Vec<explain::Cooldown> {
    let options = Options { rules: rules(rules_text), ..options(200) };
    let source = Source::Bytes("crawl.har".to_owned(), har(responses));
    match explain::run(&source, &options).unwrap() {
        Report::Many { summary, .. } => summary.cooldowns,
        Report::One(_) => panic!("a HAR has many"),
    }
}

#[test]
fn a_replay_says_which_cooldowns_would_have_been_tripped_and_for_how_long() {
    let rules = "rules: [{name: all, match: '*', cooldown: {per: host, after: 2, ratio: 'off', \
        for: 30s-60s, max: 10m}}]";
    let none: &[(&str, &str)] = &[];
    let wait: &[(&str, &str)] = &[("retry-after", "90")];
    let tripped = cooldowns(
        rules,
        &[
            ("a.example", 403, none),
            ("b.example", 403, none),
            ("a.example", 200, none),
            ("a.example", 403, none),
            ("a.example", 403, none),
            ("b.example", 429, wait),
        ],
    );
    let trips: Vec<(&str, usize, (f64, f64), &str)> = tripped
        .iter()
        .map(|one| (one.scope.as_str(), one.position, one.seconds, one.why.as_str()))
        .collect();
    assert_eq!(
        trips,
        [
            ("all/a.example", 5, (30.0, 60.0), "2 in a row"),
            ("all/b.example", 6, (90.0, 90.0), "Retry-After"),
        ]
    );
}

#[test]
fn a_replay_counts_the_share_of_blocks_where_the_rule_does() {
    let rules =
        "rules: [{name: all, match: '*', cooldown: {after: 10, ratio: 50% of 4, for: 30s}}]";
    let none: &[(&str, &str)] = &[];
    let responses = [200, 403, 200, 403, 200].map(|status| ("a.example", status, none));
    let tripped = cooldowns(rules, &responses);
    assert_eq!(tripped.len(), 1);
    assert_eq!((tripped[0].position, tripped[0].why.as_str()), (4, "50% of the last 4"));
}

#[test]
fn an_unreadable_input_is_reported_with_its_position() {
    let failed = |name: &str, bytes: &[u8]| {
        let source = Source::Bytes(name.to_owned(), bytes.to_vec());
        explain::run(&source, &options(200)).unwrap_err().to_string()
    };
    assert!(failed("a.har", b"{\"log\": 1}").starts_with("a.har cannot be read as HAR file"));
    assert!(failed("-", b"HTTP/1.1 abc\r\n\r\n").contains("has no status"));
    assert!(failed("a.warc", b"WARC/1.0\r\nContent-Length: 50\r\n\r\nshort").contains("within"));
    let missing = Source::Path("/nonexistent/page.html".into());
    let error = explain::run(&missing, &options(200)).unwrap_err().to_string();
    assert!(error.contains("/nonexistent/page.html"), "{error}");
}
