//! `tidegate check --explain URL`.

use integration_tests::member::run;

use crate::{err, folder, json, out, write};

const MAIN: &str = "defaults: {rate: 7/s}\n\
                    include: ['rules.d/*.yaml']\n\
                    rules:\n  - {name: rest, match: '*', per: domain}\n";
const SHOP: &str = "rules:\n\
                    - {name: search, match: {hosts: ['*.shop.example'], paths: ['/search*']}}\n\
                    - {name: bank, match: bank.example, intercept: true}\n\
                    - {name: ads, match: ads.example, action: deny}\n";

fn explain(url: &str) -> (Option<i32>, serde_json::Value) {
    let folder = folder();
    write(folder.path(), "main.yaml", MAIN);
    std::fs::create_dir(folder.path().join("rules.d")).expect("writable");
    write(folder.path(), "rules.d/shop.yaml", SHOP);
    let output = run(folder.path(), &["check", "main.yaml", "--explain", url, "--json"]);
    (output.status.code(), json(&output))
}

#[test]
fn explain_names_the_rule_its_scope_and_where_each_limit_comes_from() {
    let (code, said) = explain("http://www.shop.example/search?q=1");
    assert_eq!((code, &said["rule"]), (Some(0), &"search".into()), "{said}");
    assert_eq!((&said["scope"], &said["seen"]), (&"search".into(), &"plain".into()), "{said}");
    let rate = &said["settings"]["rate"];
    assert_eq!((&rate["value"], &rate["origin"]), (&"7/s".into(), &"main.yaml:1".into()));
    assert_eq!(said["origin"], "rules.d/shop.yaml:2");
    assert_eq!(said["settings"]["queue"]["origin"], serde_json::Value::Null, "a default");
}

#[test]
fn explain_says_why_earlier_rules_do_not_take_a_request() {
    let (_, said) = explain("http://www.shop.example/cart");
    assert_eq!((&said["rule"], &said["scope"]), (&"rest".into(), &"rest/shop.example".into()));
    assert_eq!(said["passed_by"][0]["why"], "it is for other paths");
    assert_eq!(said["passed_by"][1]["why"], "it is for other hosts");
    let (_, said) = explain("https://www.shop.example/search");
    assert_eq!((&said["rule"], &said["seen"]), (&"rest".into(), &"tunnel".into()), "{said}");
    assert_eq!(said["passed_by"][0]["why"], "it is for some paths only, and a CONNECT has none");
    let (_, said) = explain("https://bank.example/");
    assert_eq!((&said["rule"], &said["seen"]), (&"bank".into(), &"intercepted".into()), "{said}");
    let (_, said) = explain("http://ads.example/");
    let settings = said["settings"].as_object().expect("settings");
    assert!(!settings.contains_key("rate") && settings.contains_key("action"), "{said}");
}

#[test]
fn explain_is_readable_and_ends_with_the_usual_codes() {
    let folder = folder();
    write(folder.path(), "r.yaml", "rules:\n  - {name: a, match: a.example, rate: 2/s}\n");
    let output = run(folder.path(), &["check", "r.yaml", "--explain", "http://a.example/x"]);
    let page = out(&output);
    assert_eq!(output.status.code(), Some(0), "{page}");
    assert!(page.starts_with("rule   a  (r.yaml:2)\nscope  a\n"), "{page}");
    let rate = page.lines().find(|line| line.trim_start().starts_with("rate "));
    assert!(rate.is_some_and(|line| line.ends_with("2/s  (r.yaml:2)")), "{page}");
    let output = run(folder.path(), &["check", "r.yaml", "--explain", "http://b.example/"]);
    assert_eq!(output.status.code(), Some(1), "no rule matches");
    let output = run(folder.path(), &["check", "r.yaml", "--explain", "nonsense"]);
    assert_eq!((output.status.code(), err(&output).contains("--explain")), (Some(2), true));
}

/// The answer for a rule with `per: address`, under these egress rules.
fn located(egress: &str, url: &str, format: &[&str]) -> std::process::Output {
    let folder = folder();
    let rules = "rules:\n  - {name: shared, match: '*', per: address, rate: 1/s}\n";
    write(folder.path(), "main.yaml", &format!("egress: {egress}\n{rules}"));
    run(folder.path(), &[&["check", "main.yaml", "--explain", url], format].concat())
}

#[test]
fn explain_fetches_an_address() {
    for (url, scope) in [
        ("http://localhost/", "shared/127.0.0.1"),
        ("http://127.0.0.1/", "shared/127.0.0.1"),
        ("http://[2606:4700::1]/", "shared/[2606:4700::1]"),
        ("http://[2001:db8:1:2::7]/", "shared/2001:db8:1:2::/64"),
        ("http://nowhere.invalid/", "shared"),
    ] {
        let said = json(&located("{allow: [loopback, '2001:db8::/32']}", url, &["--json"]));
        assert_eq!(said["scope"], scope, "{said}");
    }
    let said = out(&located("{allow: [loopback]}", "http://nowhere.invalid/", &[]));
    assert!(said.contains("scope  shared/?  the name nowhere.invalid could not be "), "{said}");
}

#[test]
fn explain_names_a_scope_by_an_address_that_the_egress_rules_allow() {
    let only_v6 = "{allow: [loopback], deny: ['127.0.0.0/8']}";
    let said = json(&located(only_v6, "http://[::1]/", &["--json"]));
    assert_eq!((&said["scope"], &said["scope_unknown"]), (&"shared/::/64".into(), &().into()));
    for (egress, url, why) in [
        (only_v6, "http://127.0.0.1/", "is denied by `egress.deny`"),
        ("{}", "http://127.0.0.1/", "add it to `egress.allow`"),
        ("{}", "http://127.0.0.1:25/", "port 25 is another protocol's"),
    ] {
        let said = json(&located(egress, url, &["--json"]));
        assert_eq!(said["scope"], "shared", "{said}");
        assert!(said["scope_unknown"].as_str().is_some_and(|said| said.contains(why)), "{said}");
        let page = out(&located(egress, url, &[]));
        assert!(page.contains("scope  shared/?  ") && page.contains(why), "{page}");
    }
}
