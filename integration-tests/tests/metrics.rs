//! `/metrics`: valid OpenMetrics 1.0, with correct numbers and a bounded number of series.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    io::Write as _,
    process::{Command, Stdio},
};

use http::{Request, header};
use http_body_util::Full;
use integration_tests::{
    client::{ProxyClient, get},
    member::{Member, RuleFile},
    metric_names::metric_names,
    site::Site,
    tools::{python, script},
};

/// A scrape in the format that `accept` requests: content type and text.
async fn scrape(member: &Member, accept: &str) -> (String, String) {
    let request = Request::get("/metrics")
        .header(header::HOST, member.admin().to_string())
        .header(header::ACCEPT, accept)
        .body(Full::default())
        .expect("the parts are good");
    let answer =
        ProxyClient::connect(member.admin()).await.send(request).await.expect("it answers");
    let kind = answer.header("content-type").expect("it says what it is").to_owned();
    (kind, answer.text())
}

async fn open_metrics(member: &Member) -> String {
    let (kind, text) = scrape(member, "application/openmetrics-text; version=1.0.0").await;
    assert_eq!(kind, "application/openmetrics-text; version=1.0.0; charset=utf-8");
    text
}

/// A sample: its name, its labels in order, its value.
struct Sample {
    name: String,
    labels: Vec<(String, String)>,
    value: f64,
}

/// Reads one sample line strictly; panics on anything that the ABNF of OpenMetrics 1.0 does not allow.
fn sample(line: &str) -> Sample {
    let end = line.find(['{', ' ']).unwrap_or_else(|| panic!("no value: {line}"));
    let name = line[..end].to_owned();
    assert!(is_name(&name), "no metric name: {line}");
    let mut labels = Vec::new();
    let mut rest = &line[end..];
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        while !rest.starts_with('}') {
            let (label, after) = rest.split_once("=\"").unwrap_or_else(|| panic!("label: {line}"));
            assert!(is_name(label) && !label.contains(':'), "no label name: {line}");
            let (value, after) = quoted(after, line);
            labels.push((label.to_owned(), value));
            rest = after.strip_prefix(',').unwrap_or(after);
        }
        rest = &rest[1..];
    }
    let value = rest.strip_prefix(' ').unwrap_or_else(|| panic!("no space: {line}"));
    let value = value.parse().unwrap_or_else(|_| panic!("no number: {line}"));
    Sample { name, labels, value }
}

fn is_name(name: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    !name.is_empty() && name.chars().all(good) && !name.starts_with(|c: char| c.is_ascii_digit())
}

/// A label value up to its closing quote, unescaped, and the rest.
fn quoted<'a>(text: &'a str, line: &str) -> (String, &'a str) {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (value, &text[at + 1..]),
            '\\' => match chars.next() {
                Some((_, 'n')) => value.push('\n'),
                Some((_, c @ ('\\' | '"'))) => value.push(c),
                other => panic!("bad escape {other:?}: {line}"),
            },
            c => value.push(c),
        }
    }
    panic!("a label value without its end: {line}")
}

/// The name of the family that a sample of this kind belongs to, and whether the suffix is one of that kind.
fn belongs(sample: &str, family: &str, kind: &str) -> bool {
    let suffixes: &[&str] = match kind {
        "counter" => &["_total", "_created"],
        "histogram" => &["_bucket", "_sum", "_count", "_created"],
        "info" => &["_info"],
        "gauge" => &[""],
        other => panic!("unexpected type {other}"),
    };
    suffixes.iter().any(|suffix| sample.strip_prefix(family) == Some(suffix))
}

/// Checks the whole text and returns its samples.
fn strict(text: &str) -> Vec<Sample> {
    let body = text.strip_suffix("# EOF\n").expect("the text ends with `# EOF` and a newline");
    let (mut families, mut series) = (HashSet::new(), HashSet::new());
    let (mut family, mut kind) = (String::new(), String::new());
    let mut samples = Vec::new();
    for line in body.lines() {
        assert!(!line.is_empty(), "empty lines are not allowed");
        if let Some(rest) = line.strip_prefix("# ") {
            let mut words = rest.splitn(3, ' ');
            let (what, name) = (words.next().expect("a word"), words.next().expect("a name"));
            if name != family {
                assert!(families.insert(name.to_owned()), "{name} comes twice");
                name.clone_into(&mut family);
                kind.clear();
            }
            match what {
                "TYPE" => words.next().expect("a type").clone_into(&mut kind),
                "HELP" => assert!(words.next().is_some_and(|help| help.len() > 10), "{line}"),
                "UNIT" => assert!(name.ends_with(words.next().expect("a unit")), "{line}"),
                _ => panic!("no comment that OpenMetrics has: {line}"),
            }
            continue;
        }
        let sample = sample(line);
        assert!(!kind.is_empty(), "a sample before its TYPE: {line}");
        assert!(belongs(&sample.name, &family, &kind), "{} is not of {kind} {family}", sample.name);
        assert!(kind != "counter" || sample.value >= 0.0, "a counter below 0: {line}");
        assert!(series.insert(format!("{} {:?}", sample.name, sample.labels)), "twice: {line}");
        samples.push(sample);
    }
    buckets_add_up(&samples);
    samples
}

/// Buckets rise, and the last one (`+Inf`) is the count.
fn buckets_add_up(samples: &[Sample]) {
    let mut histograms: HashMap<String, BTreeMap<u64, f64>> = HashMap::new();
    let mut counts = HashMap::new();
    for sample in samples {
        let others = sample.labels.iter().filter(|(name, _)| name != "le");
        let others = format!("{:?}", others.collect::<Vec<_>>());
        if let Some(name) = sample.name.strip_suffix("_bucket") {
            let le = sample.labels.iter().find(|(name, _)| name == "le").expect("a bucket has le");
            let le: f64 = le.1.parse().expect("a bound is a number");
            // Positive floats sort like their bits.
            histograms
                .entry(name.to_owned() + &others)
                .or_default()
                .insert(le.to_bits(), sample.value);
        } else if let Some(name) = sample.name.strip_suffix("_count") {
            counts.insert(name.to_owned() + &others, sample.value);
        }
    }
    assert!(!histograms.is_empty() && histograms.len() == counts.len());
    for (name, buckets) in histograms {
        let values: Vec<f64> = buckets.values().copied().collect();
        assert!(values.windows(2).all(|pair| pair[0] <= pair[1]), "{name} falls: {values:?}");
        assert!(buckets.contains_key(&f64::INFINITY.to_bits()), "{name} has no +Inf");
        assert_eq!(values.last(), counts.get(&name), "{name}");
    }
}

#[tokio::test]
async fn the_text_is_valid_openmetrics_after_real_traffic() {
    let site = Site::start();
    let member = Member::start(&RuleFile::one_rule("rate: 50/s, burst: 5")).await;
    for path in ["/", "/a", "/b?q=\"\\\n".trim_end()] {
        get(member.proxy(), &site.url(&path.replace(['"', '\\'], ""))).await;
    }
    let samples = strict(&open_metrics(&member).await);
    let ok = samples.iter().find(|sample| {
        sample.name == "tidegate_requests_total"
            && sample.labels.iter().any(|(_, value)| value == "ok")
    });
    let ok = ok.expect("answers are counted").value;
    assert!((ok - 3.0).abs() < 1e-9, "{ok} answers");
}

#[tokio::test]
async fn a_scraper_of_the_older_format_gets_that_one() {
    let member = Member::start(&RuleFile::one_rule("rate: 3/s, burst: 5")).await;
    let (kind, text) = scrape(&member, "text/plain").await;
    assert_eq!(kind, "text/plain; version=0.0.4; charset=utf-8");
    for line in ["# TYPE tidegate_requests_total counter", "# TYPE tidegate_build_info gauge"] {
        assert!(text.lines().any(|l| l == line), "{line} is missing in\n{text}");
    }
    assert!(!text.contains("# EOF"));
}

#[tokio::test]
async fn the_number_of_series_does_not_grow_with_the_sites() {
    let site = Site::start();
    let rules = "- {name: sites, match: \"*\", per: host, rate: 50/s, burst: 5}";
    let member = Member::start(&RuleFile::new(rules)).await;
    get(member.proxy(), &site.url("/")).await;
    let before = strict(&open_metrics(&member).await).len();
    let port = site.address().port();
    for host in 2..30 {
        // Nothing listens there, but each is a scope of its own.
        get(member.proxy(), &format!("http://127.0.0.{host}:{port}/")).await;
    }
    let text = open_metrics(&member).await;
    assert!(strict(&text).len() <= before + 4, "new hosts made new series:\n{text}");
    assert!(!text.contains("127.0.0."), "a host is a label:\n{text}");
    let scopes = member.status().await["scopes_total"].as_u64();
    assert!(scopes >= Some(29), "they are scopes: {scopes:?}");
}

#[test]
fn the_reference_names_no_metric_that_there_is_not() {
    let docs = include_str!("../../docs/metrics.md");
    let rows = docs.lines().filter_map(|line| line.strip_prefix("| `tidegate_"));
    let names: Vec<&str> = rows.filter_map(|row| row.split('`').next()).collect();
    assert!(names.len() > 20, "the reference has its tables");
    let known = metric_names();
    for name in names {
        let name = format!("tidegate_{name}");
        assert!(known.contains(&name), "docs/metrics.md names {name}, which is none");
    }
}

/// The samples that Prometheus' own parser finds in `text`.
fn read_by_prometheus(text: &str, format: &str) -> serde_json::Value {
    let program = script("read_metrics.py");
    let mut child = Command::new(python())
        .arg(program)
        .arg(format)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python is there");
    let mut input = child.stdin.take().expect("it has an input");
    // The parser reads everything before it writes.
    input.write_all(text.as_bytes()).expect("it reads");
    drop(input);
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{format}: it is refused (see above)");
    serde_json::from_slice(&output.stdout).expect("it prints JSON")
}

#[tokio::test]
async fn prometheus_own_parsers_read_both_formats() {
    let member = Member::start(&RuleFile::one_rule("rate: 50/s, burst: 5")).await;
    let site = Site::start();
    get(member.proxy(), &site.url("/")).await;
    let families = read_by_prometheus(&open_metrics(&member).await, "openmetrics");
    let families = families.as_object().expect("families");
    assert!(families.len() > 20, "{} families", families.len());
    for (name, family) in families {
        assert!(family["help"].as_str().is_some_and(|help| help.len() > 10), "{name}: {family}");
    }
    for (name, kind) in [
        ("tidegate_requests", "counter"),
        ("tidegate_held_requests", "gauge"),
        ("tidegate_hold_seconds", "histogram"),
        ("tidegate_build", "info"),
    ] {
        assert_eq!(families[name]["type"], kind, "{name}");
    }
    let (_, text) = scrape(&member, "text/plain").await;
    let older = read_by_prometheus(&text, "prometheus");
    assert_eq!(older["tidegate_requests"]["type"], "counter", "{older}");
}
