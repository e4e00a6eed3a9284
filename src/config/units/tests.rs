//! The texts that each unit accepts and refuses, and its advice.

use super::*;

fn help<T: std::fmt::Debug>(read: Read<T>) -> String {
    read.unwrap_err().help.unwrap_or_default()
}

#[test]
fn durations_have_a_unit() {
    let cases = [
        ("500ms", 500),
        ("30s", 30_000),
        ("1.5s", 1_500),
        ("2m", 120_000),
        ("1h", 3_600_000),
        ("7d", 604_800_000),
        ("0s", 0),
        ("30 s", 30_000),
    ];
    for (text, millis) in cases {
        assert_eq!(duration(text).unwrap(), Duration::from_millis(millis), "{text}");
    }
}

#[test]
fn a_wrong_duration_gets_a_suggestion() {
    assert!(help(duration("30")).starts_with("did you mean `30s`?"));
    assert_eq!(help(duration("5 fortnights")), DURATION_HELP);
    for text in ["", "s", "-5s", "1e3s", "1:30", "NaNs", "infs", "0x10s", "1..5s", "٣s", ".5s"] {
        assert!(duration(text).is_err(), "{text}");
    }
    assert!(duration(&format!("{}d", "9".repeat(32))).is_err());
}

#[test]
fn a_span_is_one_length_or_a_range() {
    let second = Duration::from_secs(1);
    assert_eq!(span("30s-60s").unwrap(), (second * 30, second * 60));
    assert_eq!(span("1m - 2m").unwrap(), (second * 60, second * 120));
    assert_eq!(span("45s").unwrap(), (second * 45, second * 45));
    assert_eq!(help(span("60s-30s")), "did you mean `30s-60s`?");
    assert_eq!(help(span("30-60s")), "did you mean `30s-60s`?");
    assert!(span("30s-").is_err());
}

#[test]
fn sizes_have_a_unit() {
    assert_eq!(size("16KiB").unwrap(), 16 * 1024);
    assert_eq!(size("1MB").unwrap(), 1_000_000);
    assert_eq!(size("0B").unwrap(), 0);
    assert!(help(size("64")).starts_with("did you mean `64B`?"));
    for text in ["16kib", "-1B", "1e9KiB", "99999999999GiB", "KiB"] {
        assert!(size(text).is_err(), "{text}");
    }
}

#[test]
fn rates_are_positive_finite_and_per_unit() {
    assert_eq!(rate("3/s").unwrap().to_bits(), 3.0f64.to_bits());
    assert_eq!(rate("30/m").unwrap().to_bits(), 0.5f64.to_bits());
    assert!((rate("1/d").unwrap() - 1.0 / 86400.0).abs() < 1e-12);
    assert!(help(rate("3")).starts_with("did you mean `3/s`?"));
    let wrong =
        ["0/s", "-1/s", "1e400/s", "NaN/s", "inf/s", "/s", "3/", "3/x", "2000000/s", "0.5/d"];
    for text in wrong.into_iter().chain(["auto", "3 per second", "0.0/s"]) {
        assert!(rate(text).is_err(), "{text}");
    }
}

#[test]
fn quotas_are_whole_numbers_per_window() {
    let day = Duration::from_secs(86400);
    assert_eq!(quota("100000/d").unwrap(), Quota { tokens: 100_000, window: day });
    for text in ["0/d", "1.5/d", "+5/d", "-5/d", "99999999999999999999/d", "5", "5/w"] {
        assert!(quota(text).is_err(), "{text}");
    }
}

#[test]
fn shares_and_ratios_are_above_zero_and_at_most_one() {
    assert_eq!(share("25%").unwrap().to_bits(), 0.25f64.to_bits());
    assert_eq!(ratio("50% of 20").unwrap(), Ratio { share: 0.5, of: 20 });
    for text in ["0%", "101%", "25", "-5%", "NaN%"] {
        assert!(share(text).is_err(), "{text}");
    }
    for text in ["50%", "50% of 1", "50% of 1001", "50% in 20", "0% of 20", "50% of 20 x"] {
        assert!(ratio(text).is_err(), "{text}");
    }
}

#[test]
fn numbers_are_digits_only() {
    assert_eq!(count("12").unwrap(), 12);
    assert_eq!(factor("1.5").unwrap().to_bits(), 1.5f64.to_bits());
    for text in ["", "-1", "+1", "1e3", "1_000", "0x10", ".5", "NaN", "inf", "1e400"] {
        assert!(count(text).is_err(), "{text}");
        assert!(factor(text).is_err(), "{text}");
    }
    // The range check refuses this.
    assert_eq!(count("99999999999999999999999"), Ok(u64::MAX));
}

#[test]
fn only_true_and_false_are_booleans() {
    assert_eq!(flag("true"), Ok(true));
    assert_eq!(help(flag("yes")), "did you mean `true`?");
    assert_eq!(help(flag("off")), "did you mean `false`?");
    assert_eq!(help(flag("True")), "did you mean `true`?");
    assert!(flag("maybe").is_err());
}

#[test]
fn a_status_is_one_or_a_hundred() {
    assert_eq!(status("503"), Ok((503, 503)));
    assert_eq!(status("5xx"), Ok((500, 599)));
    for text in ["99", "600", "6xx", "5x", "5XX", "+50", "0503"] {
        assert!(status(text).is_err(), "{text}");
    }
}

#[test]
fn a_quoted_text_is_short_and_on_one_line() {
    let shown = quote(&format!("a\nb\u{1b}[31m{}", "x".repeat(1000)));
    assert!(shown.len() < 90 && !shown.contains(['\n', '\u{1b}']), "{shown}");
}
