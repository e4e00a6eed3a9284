//! Several files: `include`, `defaults` and anchors.

use std::{fs, path::Path, sync::Arc, time::Duration};

use tempfile::TempDir;
use tidegate::config::{
    self, Loaded, Overrides, Problems,
    reload::{Reloader, SharedEnv},
};

/// Far longer than any of this takes.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A folder with these files.
fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in files {
        write(folder.path(), name, text);
    }
    folder
}

fn write(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().expect("a folder")).expect("writable");
    fs::write(path, text).expect("writable");
}

fn load(folder: &TempDir) -> Result<Loaded, Problems> {
    config::load(Some(&folder.path().join("main.yaml")), &|_| None)
}

fn good(folder: &TempDir) -> Loaded {
    load(folder).unwrap_or_else(|problems| panic!("{problems}"))
}

fn names(loaded: &Loaded) -> Vec<&str> {
    loaded.rules.as_slice().iter().map(|rule| &*rule.name).collect()
}

const MAIN: &str = "include: [first.yaml, 'rules.d/*.yaml']\n\
                    rules:\n  - {name: rest, match: '*', rate: 1/s}\n";

fn rule(name: &str) -> String {
    format!("rules:\n  - {{name: {name}, match: {name}.example, rate: 2/s}}\n")
}

#[test]
fn included_rules_come_first_in_the_order_of_patterns_and_names() {
    let (b, a, z, x) = (rule("b"), rule("a"), rule("z"), rule("hidden"));
    let folder = folder(&[
        ("main.yaml", MAIN),
        ("rules.d/b.yaml", &b),
        ("rules.d/a.yaml", &a),
        ("rules.d/.x.yaml", &x),
        ("rules.d/notes.txt", "no rules"),
        ("first.yaml", &z),
    ]);
    let loaded = good(&folder);
    assert_eq!(names(&loaded), ["z", "a", "b", "rest"]);
    let origin = loaded.origin("rules.a.rate").expect("it stands in a file");
    assert!(origin.ends_with("rules.d/a.yaml:2"), "{origin}");
    assert_eq!(loaded.origin("rules.a.queue"), None, "a default stands nowhere");
}

#[test]
fn a_file_without_rules_of_its_own_may_include_all_of_them() {
    let rules = "rules:\n  - {name: all, match: '*', rate: 1/s}\n";
    let folder = folder(&[("main.yaml", "include: one.yaml\n"), ("one.yaml", rules)]);
    assert_eq!(names(&good(&folder)), ["all"]);
    write(folder.path(), "main.yaml", "include: 'none/*.yaml'\n");
    assert_eq!(names(&good(&folder)), ["default"], "without any rule the built-in one counts");
}

#[test]
fn mistakes_name_their_file_line_and_column() {
    let folder = folder(&[
        ("main.yaml", MAIN),
        ("first.yaml", "rules:\n  - {name: a, match: a.example, ratte: 3/s}\n"),
        ("rules.d/b.yaml", "rules:\n  - {name: rest, match: b.example}\nlisten: x\n"),
        ("rules.d/c.yaml", "rules: [\n"),
        ("rules.d/d.yaml", ""),
    ]);
    let problems = load(&folder).expect_err("four bad files");
    let said: Vec<_> = problems.as_slice().iter().map(ToString::to_string).collect();
    for (place, what) in [
        ("first.yaml:2:33: rules[0].ratte", "did you mean `rate`?"),
        ("rules.d/b.yaml:3:1: listen", "unknown key `listen`"),
        ("rules.d/c.yaml:2:1", "not valid YAML"),
        ("rules.d/d.yaml: the file is empty", ""),
        ("main.yaml:3:12: rules[0].name", "rules.d/b.yaml:2 already has it"),
    ] {
        let found = said.iter().any(|problem| problem.contains(place) && problem.contains(what));
        assert!(found, "{place}: {what} is missing in\n{}", said.join("\n"));
    }
}

#[test]
fn a_pattern_that_names_nothing_good_is_a_mistake_of_the_main_file() {
    let folder = folder(&[("dir/a.yaml", "rules: []")]);
    for (include, what) in [
        ("none.yaml", "main.yaml:1:10: include"),
        ("dir", "it is not a file"),
        ("'*/a.yaml'", "a folder name with `*`"),
        ("[none.yaml]", "include[0]"),
        ("{a: b}", "a mapping does not belong here"),
        ("dir/a.yaml", "there are no rules"),
    ] {
        write(folder.path(), "main.yaml", &format!("include: {include}\n"));
        let problems = load(&folder).expect_err(include).to_string();
        assert!(problems.contains(what), "{include}: {problems}");
    }
}

#[test]
fn defaults_count_for_rules_that_do_not_give_the_key() {
    let main = "x-hosts: &hosts [a.example, b.example]\n\
                defaults: {per: domain, rate: 7/s, cooldown: {after: 9}}\n\
                include: one.yaml\n\
                rules:\n\
                - {name: own, match: {hosts: *hosts}, rate: 2/s}\n\
                - {name: free, match: free.example, action: bypass}\n\
                - {name: rest, match: '*'}\n";
    let one = "x-limit: &limit 4/s\nrules:\n  - {name: one, match: one.example, rate: *limit}\n";
    let loaded = good(&folder(&[("main.yaml", main), ("one.yaml", one)]));
    let rates = loaded.rules.as_slice().iter().map(|rule| rule.limits.rate);
    assert_eq!(rates.collect::<Vec<_>>(), [Some(4.0), Some(2.0), None, Some(7.0)]);
    let after = loaded.values().find(|(path, _)| *path == "rules.rest.cooldown.after");
    assert_eq!(after, Some(("rules.rest.cooldown.after", "9")));
    let origin = loaded.origin("rules.rest.rate").expect("it stands in a file");
    assert!(origin.ends_with("main.yaml:2"), "{origin}");
    assert_eq!(loaded.warnings, [], "a bypass is not blamed for defaults");
}

#[test]
fn a_mistake_in_defaults_is_reported_once_even_if_no_rule_needs_the_value() {
    let rules = "rules:\n- {name: a, match: a.example}\n- {name: rest, match: '*', rate: 1/s}\n";
    for (defaults, what) in [
        ("{rate: fast}", "main.yaml:1:18: defaults.rate"),
        ("{max_wait: 2}", "main.yaml:1:22: defaults.max_wait"),
        ("{name: x}", "unknown key `name`"),
        ("{cooldown: {for: 1}}", "defaults.cooldown.for"),
        ("7", "defaults: a single value does not belong here"),
    ] {
        let main = format!("defaults: {defaults}\n{rules}");
        let problems = load(&folder(&[("main.yaml", &main)])).expect_err(defaults);
        assert_eq!(problems.as_slice().len(), 1, "{problems}");
        assert!(problems.to_string().contains(what), "{defaults}: {problems}");
    }
}

#[test]
fn the_default_learn_is_not_a_mistake_without_a_rate() {
    let main = "defaults: {learn: true, burst: 3}\nrules:\n- {name: rest, match: '*'}\n";
    assert_eq!(good(&folder(&[("main.yaml", main)])).warnings, []);
}

#[tokio::test]
async fn included_files_that_change_come_and_go_are_seen() {
    let folder = folder(&[("main.yaml", MAIN), ("first.yaml", &rule("z"))]);
    fs::create_dir(folder.path().join("rules.d")).expect("a folder");
    let loaded = good(&folder);
    let env: SharedEnv = Arc::new(|_| None);
    let path = folder.path().join("main.yaml");
    let mut reloader = Reloader::new(&path, &loaded, Overrides::default(), env);
    let mut next = async || {
        let read = tokio::time::timeout(TIMEOUT, reloader.next()).await;
        read.expect("the change is seen").map(|loaded| names(&loaded).join(" "))
    };
    write(folder.path(), "rules.d/a.yaml", &rule("a"));
    assert_eq!(next().await.expect("good"), "z a rest");
    write(folder.path(), "rules.d/a.yaml", &rule("b"));
    assert_eq!(next().await.expect("good"), "z b rest");
    write(folder.path(), "rules.d/a.yaml", "rules: 3\n");
    let problems = next().await.expect_err("a bad file");
    assert!(problems.to_string().contains("rules.d/a.yaml:1:8"), "{problems}");
    fs::remove_file(folder.path().join("rules.d/a.yaml")).expect("removed");
    assert_eq!(next().await.expect("good"), "z rest");
}
