//! Malicious files: each fails (or loads) quickly and in bounded memory.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tidegate::config;

const MIB: usize = 1 << 20;
/// Generous: these take milliseconds, a parser that can be hurt takes minutes.
const SOON: Duration = Duration::from_secs(2);

/// Processor time of this thread: other tests on the machine do not count.
fn busy() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).expect("a length")
}

fn error_of(text: &str) -> String {
    let start = busy();
    let read = config::parse(text, "f", &|_| None);
    assert!(busy() - start < SOON, "took {:?}: {}", busy() - start, &text[..text.len().min(60)]);
    match read {
        Ok(_) => panic!("taken for good: {}", &text[..text.len().min(60)]),
        Err(problems) => problems.to_string(),
    }
}

#[test]
fn deep_nesting_ends_at_once() {
    for text in ["[".repeat(10_000), "- ".repeat(MIB / 2 - 1), "? ".repeat(10_000)] {
        let said = error_of(&text);
        assert!(said.contains("nested deeper") || said.contains("recursion limit"), "{said}");
    }
    assert!(error_of(&"{a: ".repeat(10_000)).contains("recursion limit"));
    let indented: String = (0..1000).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
    assert!(error_of(&indented).contains("nested deeper than 32 levels"));
}

#[test]
fn a_bomb_of_aliases_is_counted_in_full() {
    let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for level in 1..20 {
        let alias = format!("*a{}", level - 1);
        text.push_str(&format!("a{level}: &a{level} [{}]\n", [alias.as_str(); 9].join(", ")));
    }
    assert!(error_of(&text).contains("with aliases expanded"));
    assert!(error_of("a: &a [*a]\n").contains("an alias inside its own value"));
}

#[test]
fn aliases_of_a_long_text_are_counted_by_its_length() {
    let long = "x".repeat(MIB / 2);
    let text = format!("a: &a {long}\nrules: [{}]\n", "*a,".repeat(MIB / 8));
    assert!(error_of(&text).contains("with aliases expanded"));
}

#[test]
fn variables_with_long_values_are_counted_by_their_length() {
    let text = format!("rules: [{}]\n", "'${A}',".repeat(MIB / 8));
    let value = "x".repeat(60 * 1024);
    let problems = config::parse(&text, "f", &|_| Some(value.clone())).expect_err("too much");
    assert!(problems.to_string().contains("more than"), "{problems}");
}

#[test]
fn a_key_has_an_end() {
    let said = error_of(&format!("{}: 1\n", "k".repeat(1_000)));
    assert!(said.contains("a key longer than 256 bytes"), "{said}");
    error_of(&format!("? {}\n: 1\n", "k".repeat(MIB - 100)));
}

#[test]
fn a_file_of_nothing_but_values_is_bounded() {
    assert!(error_of(&format!("rules: [{}]", "a,".repeat(MIB / 2 - 20))).contains("more than"));
    assert!(error_of(&"a: 1\n".repeat(MIB / 5 - 1)).contains("100 errors or more"));
    assert!(error_of(&format!("\"{}", "a".repeat(MIB - 1))).contains("not valid YAML"));
    assert!(error_of(&"a".repeat(MIB)).contains("does not belong here"));
}

#[test]
fn a_file_over_a_mebibyte_is_refused_unread() {
    assert!(error_of(&"#".repeat(MIB + 1)).contains("larger than 1 MiB"));
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("big.yaml");
    let file = std::fs::File::create(&path).expect("writable");
    file.set_len(1 << 30).expect("a sparse file");
    let problems = config::load(Some(&path), &|_| None).expect_err("too large");
    assert!(problems.to_string().contains("larger than 1 MiB"));
}

#[test]
fn bytes_that_are_not_utf_8_are_named_by_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("latin1.yaml");
    std::fs::write(&path, b"# a\nlisten: \xe9\n").expect("writable");
    let problems = config::load(Some(&path), &|_| None).expect_err("not UTF-8");
    assert!(problems.to_string().contains("it is not UTF-8 (line 2)"));
}

#[test]
fn a_byte_order_mark_and_windows_line_ends_do_not_matter() {
    let unix = "rules:\n  - name: a\n    match: \"*\"\n    rate: 3/s\n";
    let windows = format!("\u{feff}{}", unix.replace('\n', "\r\n"));
    let unix = config::parse(unix, "f", &|_| None).expect("good");
    let windows = config::parse(&windows, "f", &|_| None).expect("good");
    assert_eq!(unix.rules.as_slice(), windows.rules.as_slice());
}

#[test]
fn an_empty_file_does_not_mean_the_defaults() {
    for text in ["", "\n\n", "# nothing\n", "---\n", "~\n"] {
        error_of(text);
    }
}

#[test]
fn five_thousand_rules_load_soon() {
    let mut text = String::from("rules:\n");
    for at in 0..5_000 {
        text.push_str(&format!("  - {{name: r{at}, match: h{at}.example, rate: 3/s}}\n"));
    }
    text.push_str("  - {name: rest, match: '*', rate: 1/s}\n");
    let start = busy();
    let loaded = config::parse(&text, "f", &|_| None).expect("good");
    assert!(busy() - start < SOON, "took {:?}", busy() - start);
    assert_eq!(loaded.rules.as_slice().len(), 5_001);
}
