//! Valid fields as sites send them, and invalid ones.

use http::{HeaderName, HeaderValue};

use super::*;

/// Fri, 20 Nov 2026 12:00:00 GMT, in seconds since 1970.
const NOON: u64 = 1_795_176_000;

fn of(fields: &[(&'static str, &str)]) -> Option<SiteLimit> {
    let headers = fields
        .iter()
        .map(|(name, value)| (HeaderName::from_static(name), value.parse().expect("a field value")))
        .collect();
    site_limit(&headers, SystemTime::UNIX_EPOCH + Duration::from_secs(NOON))
}

/// The rate, in requests per minute, and how long it applies, in seconds.
fn ceiling(fields: &[(&'static str, &str)]) -> (f64, u64) {
    let ceiling = of(fields).and_then(|said| said.ceiling).expect("a ceiling");
    ((ceiling.rate * 6_000.0).round() / 100.0, ceiling.lasts.as_secs())
}

fn hold(fields: &[(&'static str, &str)]) -> u64 {
    of(fields).and_then(|said| said.hold).expect("a hold").as_secs()
}

#[test]
fn the_draft_names_limit_and_window_in_one_field_and_the_state_in_another() {
    let policy = ("ratelimit-policy", "\"default\";q=100;w=60");
    assert_eq!(ceiling(&[policy]), (100.0, 60));
    assert_eq!(ceiling(&[policy, ("ratelimit", "\"default\";r=51;t=60")]), (50.0, 60));
    assert_eq!(ceiling(&[policy, ("ratelimit", "\"default\";r=99;t=10")]), (100.0, 60));
    assert_eq!(hold(&[policy, ("ratelimit", "\"default\";r=0;t=30")]), 30);
    let two = ("ratelimit-policy", "\"burst\";q=100;w=60, \"daily\";q=1440;w=86400");
    assert_eq!(ceiling(&[two]), (1.0, 86_400), "the stricter one counts");
}

#[test]
fn older_versions_of_the_draft_are_understood() {
    assert_eq!(ceiling(&[("ratelimit", "limit=100, remaining=51, reset=60")]), (50.0, 60));
    assert_eq!(hold(&[("ratelimit", "limit=100, remaining=0, reset=7")]), 7);
    assert_eq!(ceiling(&[("ratelimit-policy", "10;w=1, 50;w=60")]), (50.0, 60));
    assert_eq!(ceiling(&[("ratelimit-limit", "10, 10;w=1, 50;w=60;comment=\"x\"")]), (50.0, 60));
    let old = [("ratelimit-remaining", "51"), ("ratelimit-reset", "60")];
    assert_eq!(ceiling(&old), (50.0, 60));
}

#[test]
fn a_reset_may_be_seconds_a_moment_or_a_date() {
    for reset in [
        "60",
        "1795176060",
        "1795176060000",
        "Fri, 20 Nov 2026 12:01:00 GMT",
        "2026-11-20T12:01:00.000Z",
    ] {
        for prefix in ["x-ratelimit", "x-rate-limit"] {
            let name = |part: &str| {
                HeaderName::try_from(format!("{prefix}-{part}")).expect("a field name")
            };
            let value = |text: &str| text.parse::<HeaderValue>().expect("a field value");
            let headers = [
                (name("limit"), value("300")),
                (name("remaining"), value("0")),
                (name("reset"), value(reset)),
            ]
            .into_iter()
            .collect();
            let noon = SystemTime::UNIX_EPOCH + Duration::from_secs(NOON);
            let said = site_limit(&headers, noon).expect("it says something");
            assert_eq!(said.hold, Some(Duration::from_secs(60)), "{prefix} {reset}");
        }
    }
    let date = ("date", "Fri, 20 Nov 2026 12:00:50 GMT");
    let fields = [("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1795176060")];
    assert_eq!(hold(&[date, fields[0], fields[1]]), 10, "by the clock of the site");
}

#[test]
fn sites_have_forms_of_their_own() {
    assert_eq!(ceiling(&[("x-rl", "16"), ("x-ttl", "60")]), (15.0, 60), "ip-api.com");
    let crossref = [("x-rate-limit-limit", "50"), ("x-rate-limit-interval", "1s")];
    assert_eq!(ceiling(&crossref), (3_000.0, 60));
    assert_eq!(ceiling(&[("x-ratelimit-limit-minute", "20")]), (20.0, 60), "Kong");
    let discord = [("x-ratelimit-remaining", "0"), ("x-ratelimit-reset-after", "2.5")];
    assert_eq!(of(&discord).and_then(|said| said.hold), Some(Duration::from_millis(2_500)));
    let reddit = [("x-ratelimit-remaining", "61.0"), ("x-ratelimit-reset", "60")];
    assert_eq!(ceiling(&reddit), (60.0, 60));
}

#[test]
fn nonsense_fields_are_ignored() {
    for (remaining, reset) in [
        ("0", "-5"),
        ("0", "0"),
        ("0", "soon"),
        ("0", "1795175000"),
        ("0", "99999999999999999999999999"),
        ("-1", "60"),
        ("nan", "60"),
        ("inf", "60"),
        ("", ""),
    ] {
        let fields = [("x-ratelimit-remaining", remaining), ("x-ratelimit-reset", reset)];
        assert_eq!(of(&fields), None, "{remaining} {reset}");
    }
    assert_eq!(of(&[("x-ratelimit-limit", "60")]), None, "a limit without a window");
    assert_eq!(of(&[("ratelimit-policy", "\"a\";q=0;w=60")]), None);
    assert_eq!(of(&[("ratelimit-policy", "\"a\";q=5;w=-1")]), None);
    assert_eq!(of(&[]), None);
}

#[test]
fn hostile_fields_are_bounded() {
    let names = [
        "ratelimit",
        "ratelimit-policy",
        "ratelimit-limit",
        "x-ratelimit-limit",
        "x-ratelimit-remaining",
        "x-ratelimit-reset",
        "x-ratelimit-reset-after",
        "x-ratelimit-limit-day",
        "x-rate-limit-interval",
        "x-rate-limit-limit",
        "x-rl",
        "x-ttl",
        "date",
    ];
    let parts = [
        "0",
        "1",
        "-1",
        "9",
        "1e308",
        "1795176060",
        "\"a\"",
        ";q=",
        ";w=",
        ";r=",
        ";t=",
        ",",
        "=",
        "limit",
        "reset",
        "NaN",
        ".",
        "s",
        "h",
        " ",
        "99999999999999999999",
        "2026-11-20T12:01:00Z",
        "\u{e9}",
        "?1",
        "(",
        ")",
    ];
    let mut draw = fastrand::Rng::with_seed(7);
    for _ in 0..20_000 {
        let mut headers = HeaderMap::new();
        for _ in 0..draw.usize(1..5) {
            let value: String =
                (0..draw.usize(0..6)).map(|_| parts[draw.usize(0..parts.len())]).collect();
            let name = names[draw.usize(0..names.len())];
            if let Ok(value) = HeaderValue::from_bytes(value.as_bytes()) {
                headers.append(HeaderName::from_static(name), value);
            }
        }
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(NOON);
        let Some(said) = site_limit(&headers, now) else { continue };
        let longest = Duration::from_secs_f64(LONGEST);
        assert!(said.hold.is_none_or(|hold| hold <= longest), "{headers:?} {said:?}");
        assert!(
            said.ceiling.is_none_or(|ceiling| ceiling.rate >= SLOWEST
                && ceiling.rate.is_finite()
                && ceiling.lasts <= longest),
            "{headers:?} {said:?}"
        );
    }
}

#[test]
fn fields_about_limits_are_recognised_by_their_names() {
    for name in ["ratelimit", "ratelimit-policy", "x-ratelimit-limit", "x-rate-limit-reset", "x-rl"]
    {
        assert!(may_say(name), "{name}");
    }
    for name in ["content-type", "x-request-id", "x-robots-tag", "date", "referrer-policy"] {
        assert!(!may_say(name), "{name}");
    }
}
