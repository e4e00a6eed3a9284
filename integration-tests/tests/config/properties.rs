//! For any input: the parser does not panic, the index finds the same rule as a search in order,
//! and rules reported as unreachable are unreachable.

use proptest::prelude::*;
use tidegate::{
    config::{self, Severity},
    rules::RuleSet,
    target::{Host, Scheme, Target},
};

/// A small world, so that patterns meet.
fn label() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["a", "b", "shop", "example"])
}

fn name() -> impl Strategy<Value = String> {
    prop::collection::vec(label(), 1..4).prop_map(|labels| labels.join("."))
}

fn address() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["10.0.0.1", "10.0.0.2", "::1", "::ffff:10.0.0.1"])
        .prop_map(str::to_owned)
}

fn pattern() -> impl Strategy<Value = String> {
    prop_oneof![
        1 => Just("*".to_owned()),
        6 => name(),
        6 => name().prop_map(|name| format!("*.{name}")),
        2 => address(),
    ]
}

fn path() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["/", "/a", "/a*", "/b*c", "*", "*?q=*", "/a/b", "/ab*"])
        .prop_map(str::to_owned)
}

/// Hosts and paths of a rule.
type Parts = (Vec<String>, Vec<String>);

fn rules() -> impl Strategy<Value = Vec<Parts>> {
    let hosts = prop::collection::vec(pattern(), 0..4);
    let paths = prop::collection::vec(path(), 0..3);
    prop::collection::vec((hosts, paths), 1..12)
}

fn write(rules: &[Parts]) -> String {
    let mut text = String::from("rules:\n");
    for (at, (hosts, paths)) in rules.iter().enumerate() {
        text.push_str(&format!(
            "  - {{name: r{at}, match: {{hosts: {hosts:?}, paths: {paths:?}}}}}\n"
        ));
    }
    text
}

/// The rules without those reported as unreachable, and their text.
fn reachable(mut rules: Vec<Parts>) -> (RuleSet, Vec<Parts>) {
    let mut dropped = Vec::new();
    loop {
        match config::parse(&write(&rules), "f", &|_| None) {
            Ok(loaded) => return (loaded.rules, dropped),
            Err(problems) => {
                let errors = problems.as_slice().iter();
                let mut errors = errors.filter(|problem| problem.severity == Severity::Error);
                let problem = errors.next().expect("a file is not refused for warnings");
                assert!(problem.message.starts_with("no request reaches it"), "{problems}");
                dropped.push(rules.remove(problem.line - 2));
            }
        }
    }
}

fn target() -> impl Strategy<Value = Target> {
    let host = prop_oneof![
        4 => name(),
        1 => address().prop_map(|ip| if ip.contains(':') { format!("[{ip}]") } else { ip }),
    ];
    (host, path()).prop_map(|(host, path)| Target {
        scheme: Scheme::Http,
        host: Host::parse(&host).expect("a host"),
        port: 80,
        path: path.replace('*', "x").into(),
        server: None,
    })
}

fn linear(rules: &RuleSet, target: &Target) -> Option<usize> {
    rules.as_slice().iter().position(|rule| rule.matcher.matches(target))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn the_index_finds_the_first_rule_of_the_file(
        rules in rules(),
        targets in prop::collection::vec(target(), 20),
    ) {
        let (set, _) = reachable(rules);
        for target in targets {
            prop_assert_eq!(set.find(&target), linear(&set, &target), "{:?}", target);
        }
    }

    #[test]
    fn a_rule_that_is_called_unreachable_is(
        rules in rules(),
        targets in prop::collection::vec(target(), 20),
    ) {
        let (set, dropped) = reachable(rules);
        for (hosts, paths) in dropped {
            let alone = config::parse(&write(&[(hosts, paths)]), "f", &|_| None).expect("good");
            for target in &targets {
                let unseen = alone.rules.find(target).is_none() || set.find(target).is_some();
                prop_assert!(unseen, "{:?}", target);
            }
        }
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "(?s).{0,200}") {
        let _read = config::parse(&text, "f", &|_| None).is_ok();
    }

    #[test]
    fn no_damage_to_a_good_file_makes_the_parser_panic(
        at in 0..config::BUILT_IN.len(),
        length in 0..40usize,
        patch in "[-\\[\\]{}:,*&!|>'\"%@`#~ \n\ta-z0-9$]{0,8}",
    ) {
        let end = (at + length).min(config::BUILT_IN.len());
        if config::BUILT_IN.is_char_boundary(at) && config::BUILT_IN.is_char_boundary(end) {
            let mut text = config::BUILT_IN.to_owned();
            text.replace_range(at..end, &patch);
            if let Err(problems) = config::parse(&text, "f", &|_| None) {
                prop_assert!(!problems.as_slice().is_empty());
                prop_assert!(problems.to_string().len() < 100_000);
            }
        }
    }
}

#[test]
fn a_thousand_rules_are_not_scanned_for_a_request() {
    let mut text = String::from("rules:\n");
    for at in 0..1_000 {
        text.push_str(&format!("  - {{name: r{at}, match: \"*.s{at}.example\"}}\n"));
    }
    text.push_str("  - {name: rest, match: '*'}\n");
    let rules = config::parse(&text, "f", &|_| None).expect("good").rules;
    let target = Target {
        scheme: Scheme::Http,
        host: Host::parse("www.s999.example").expect("a host"),
        port: 80,
        path: "/".into(),
        server: None,
    };
    // The shortest of many short rounds: nothing has interrupted that one, however busy the machine is.
    let round = |find: &dyn Fn() -> Option<usize>| {
        let start = std::time::Instant::now();
        (0..50).for_each(|_| assert_eq!(std::hint::black_box(find()), Some(999)));
        start.elapsed()
    };
    let time = |find: &dyn Fn() -> Option<usize>| (0..40).map(|_| round(find)).min().unwrap();
    let (indexed, scanned) = (time(&|| rules.find(&target)), time(&|| linear(&rules, &target)));
    assert!(indexed * 5 < scanned, "index {indexed:?}, scan {scanned:?}");
}
