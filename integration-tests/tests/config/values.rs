//! The program gets the values of the file; and the effect of a reload.

use std::time::Duration;

use tidegate::{
    classify::verdict::Verdict,
    config::{self, Diff, Loaded},
    limiter::policy::Split,
    rules::{
        Action, HostPattern, Mode, Order, TunnelCount,
        settings::{EgressPattern, LogFormat, OnFailure, StoreSettings},
    },
};

use crate::{env, root};

fn good(text: &str) -> Loaded {
    config::parse(text, "f", &env).unwrap_or_else(|problems| panic!("{problems}"))
}

fn full() -> Loaded {
    let file = root().join("integration-tests/fixtures/config/valid/every-key.yaml");
    config::load(Some(&file), &env).unwrap_or_else(|problems| panic!("{problems}"))
}

#[test]
fn every_key_of_a_rule_reaches_the_runtime() {
    let loaded = full();
    let rule = &loaded.rules.as_slice()[0];
    assert_eq!(&*rule.name, "shop");
    assert_eq!(rule.matcher.hosts[1], HostPattern::Below("shop.example".into()));
    assert_eq!(&*rule.matcher.paths[0], "/search*");
    assert_eq!((rule.action, rule.per), (Action::Limit, Split::Host));
    assert_eq!((rule.limits.rate, rule.limits.burst, rule.limits.cost), (Some(0.5), 7, 2));
    let learn = rule.limits.learn.expect("on");
    assert_eq!((learn.start, learn.floor), (20.0 / 60.0, 1.0 / 60.0));
    assert_eq!((learn.back_off, learn.patience), (0.8, 120_000_000));
    let windows: Vec<_> =
        rule.limits.quotas.iter().map(|q| (q.tokens, q.window.as_secs())).collect();
    assert_eq!(windows, [(1_000, 3_600), (10_000, 86_400)]);
    assert_eq!((rule.max_wait, rule.queue), (Duration::from_secs(90), 50));
    assert_eq!((rule.order, rule.mode), (Order::Fifo, Mode::Observe));
    assert!(rule.intercept && !rule.verify);
    assert_eq!(rule.tunnel, TunnelCount::Connect);
    assert_eq!((rule.retry.attempts, &rule.retry.on[..]), (2, &[Verdict::Captcha][..]));
    assert_eq!(rule.retry.methods, [http::Method::GET]);
    let cooldown = rule.cooldown.as_ref().expect("on");
    assert_eq!((cooldown.per, cooldown.after), (Split::Host, 4.0));
    assert_eq!(cooldown.ratio.map(|ratio| (ratio.share, ratio.of)), Some((0.25, 40)));
    assert_eq!(cooldown.on.of(Verdict::Captcha, Some(200)), Some(3.0));
    assert_eq!(cooldown.on.of(Verdict::Ok, Some(502)), Some(0.5));
    assert_eq!(cooldown.on.of(Verdict::Forbidden, Some(403)), None);
    assert_eq!(cooldown.length, (Duration::from_secs(45), Duration::from_secs(90)));
    assert_eq!(cooldown.forget_after, Duration::from_secs(300));
    assert!(cooldown.probe && !cooldown.respect_retry_after);
    assert_eq!((cooldown.grow, cooldown.max), (1.5, Duration::from_secs(1_200)));
    assert_eq!(cooldown.ramp, Duration::ZERO);
    assert_eq!(loaded.rules.as_slice()[1].action, Action::Bypass);
    assert!(loaded.rules.as_slice()[3].cooldown.is_none());
}

#[test]
fn a_rate_is_learned_only_with_cooldowns_per_scope() {
    let limits = |keys: &str| {
        let loaded = good(&format!("rules: [{{name: a, match: '*', {keys}}}]"));
        loaded.rules.as_slice()[0].limits.clone()
    };
    let learn = limits("rate: 5/s").learn.expect("by default");
    assert_eq!((learn.start, learn.floor), (5.0, 0.05));
    assert_eq!((learn.back_off, learn.patience), (0.87, 60_000_000));
    let auto = limits("rate: auto");
    assert_eq!((auto.rate, auto.burst), (Some(1_000.0), 1));
    let learn = auto.learn.expect("auto is learned");
    assert_eq!((learn.start, learn.floor), (0.5, 0.02));
    let slow = limits("rate: auto, learn: {start: 1/m}").learn.expect("on");
    assert_eq!((slow.start, slow.floor), (1.0 / 60.0, 1.0 / 60.0));
    for fixed in [
        "rate: 3/s, learn: false",
        "rate: 3/s, cooldown: off",
        "rate: 3/s, per: host, cooldown: {per: domain}",
        "quota: 100/d",
        "action: bypass",
    ] {
        assert_eq!(limits(fixed).learn, None, "{fixed}");
    }
}

#[test]
fn every_key_of_the_top_level_reaches_the_runtime() {
    let settings = full().settings;
    assert_eq!(settings.listen.to_string(), "[::]:3128");
    let admin = settings.admin.expect("on");
    assert_eq!(admin.token.expect("set").expose(), "0123456789abcdef");
    let StoreSettings::Redis(redis) = settings.store else { panic!("a Redis store") };
    assert_eq!(redis.url.expose(), "rediss://crawler:hunter2@redis.example:6380/1");
    assert_eq!((&*redis.prefix, redis.timeout), ("fleet-7", Duration::from_millis(50)));
    assert_eq!((redis.on_failure, redis.local_share), (OnFailure::Closed, Some(0.25)));
    assert_eq!(&*settings.auth.users[0].0, "crawler");
    assert_eq!(settings.auth.users[0].1.expose(), "hunter2");
    assert_eq!(settings.auth.networks[0].to_string(), "10.0.0.0/8");
    assert_eq!(settings.egress.allow[0], EgressPattern::Loopback);
    assert_eq!(settings.egress.connect_ports, [443, 8443]);
    assert_eq!((settings.inspect.bytes, settings.inspect.error_bytes), (8_192, 65_536));
    assert_eq!(settings.timeouts.drain, Duration::from_secs(5));
    assert_eq!((settings.limits.per_client, settings.limits.header_bytes), (20, 32_768));
    assert_eq!(settings.ca_dir.to_str(), Some("/home/crawler/ca"));
    assert_eq!((settings.refuse.limit, settings.refuse.cooldown), (503, 502));
    assert!(!settings.annotate && settings.log.access);
    assert_eq!(
        (&*settings.log.level, settings.log.format),
        ("warn,tidegate=debug", LogFormat::Json)
    );
}

#[test]
fn a_machine_has_all_connections_of_its_own_proxy_and_a_part_of_a_shared_one() {
    let limits = |text: &str| {
        let limits = good(&format!("{text}\nrules: [{{name: a, match: '*'}}]")).settings.limits;
        (limits.connections, limits.per_client)
    };
    assert_eq!(limits("listen: 127.0.0.1:3128\nlimits: {connections: 4000}"), (4_000, 4_000));
    assert_eq!(limits("listen: 0.0.0.0:3128\nauth: none"), (10_000, 1_000));
    assert_eq!(limits("listen: '[::1]:3128'\nlimits: {per_client: 5}"), (10_000, 5));
}

#[test]
fn a_value_of_the_environment_is_a_number_where_it_looks_like_one() {
    let loaded = good(
        "rules: [{name: a, match: '*', rate: '${FIVE}/s', burst: '${FIVE}', queue: \"${FIVE}\"}]",
    );
    let rule = &loaded.rules.as_slice()[0];
    assert_eq!((rule.limits.rate, rule.limits.burst, rule.queue), (Some(5.0), 5, 5));
}

#[test]
fn a_value_of_the_environment_cannot_change_the_structure() {
    let text = "rules:\n  - name: a\n    match: '*'\n    rate: ${YAML}\n";
    let problems = config::parse(text, "f", &env).expect_err("no rate");
    assert_eq!(problems.as_slice().len(), 1, "{problems}");
    assert_eq!(problems.as_slice()[0].path, "rules[0].rate");
}

#[test]
fn burst_is_one_second_of_the_rate_and_at_least_the_cost() {
    let burst = |keys: &str| {
        let loaded = good(&format!("rules: [{{name: a, match: '*', {keys}}}]"));
        loaded.rules.as_slice()[0].limits.burst
    };
    assert_eq!(burst("rate: 3/s"), 3);
    assert_eq!(burst("rate: 2.5/s"), 3);
    assert_eq!(burst("rate: 1/m"), 1);
    assert_eq!(burst("rate: 3/s, cost: 10"), 10);
    assert_eq!(burst("quota: 100/d, cost: 2"), 2);
}

#[test]
fn the_cooldown_is_split_like_its_rule_unless_per_is_set() {
    let per = |keys: &str| {
        let loaded = good(&format!("rules: [{{name: a, match: '*', rate: 1/s, {keys}}}]"));
        loaded.rules.as_slice()[0].cooldown.as_ref().map(|cooldown| cooldown.per)
    };
    assert_eq!(per("per: host"), Some(Split::Host));
    assert_eq!(per("per: host, cooldown: {per: domain}"), Some(Split::Domain));
    assert_eq!(per("cooldown: off"), None);
}

#[test]
fn anchors_and_aliases_share_parts_of_rules() {
    let loaded = good(
        "\
rules:
  - {name: a, match: a.example, cooldown: &slow {for: 5m, max: 1h}}
  - {name: b, match: '*', cooldown: *slow}
",
    );
    let cooldowns: Vec<_> = loaded.rules.as_slice().iter().map(|rule| &rule.cooldown).collect();
    assert_eq!(cooldowns[0], cooldowns[1]);
    assert_eq!(cooldowns[0].as_ref().map(|c| c.max), Some(Duration::from_secs(3_600)));
}

fn diff(old: &str, new: &str) -> Diff {
    config::diff(&good(old), &good(new))
}

#[test]
fn a_diff_is_one_short_line_per_change() {
    let old = "rules:\n  - {name: a, match: a.example, rate: 3/s}\n  - {name: b, match: '*'}\n";
    let new = "\
timeouts: {idle: 2m}
rules:
  - {name: a, match: a.example, rate: 5/s, cooldown: {for: 1m}}
  - {name: b, match: '*'}
";
    assert_eq!(
        diff(old, new).lines,
        [
            "rules.a.cooldown.for: 30s-60s -> 1m",
            "rules.a.rate: 3/s -> 5/s",
            "timeouts.idle: 90s -> 2m",
        ]
    );
    assert!(diff(old, old).is_empty());
    let learn =
        |value: &str| format!("rules: [{{name: a, match: '*', rate: 3/s, learn: {value}}}]");
    assert!(diff(&learn("true"), &learn("{}")).is_empty());
    assert_eq!(
        diff(&learn("{}"), &learn("{patience: 5m}")).lines,
        ["rules.a.learn.patience: 60s -> 5m"]
    );
    assert_eq!(diff(&learn("true"), &learn("false")).lines[0], "rules.a.learn: true -> false");
}

#[test]
fn a_diff_reports_added_removed_and_moved_rules() {
    let old = "\
rules:
  - {name: a, match: a.example}
  - {name: a.b, match: b.example}
  - {name: c, match: '*'}
";
    let new = "\
rules:
  - {name: d, match: d.example}
  - {name: a.b, match: b.example}
  - {name: a, match: a.example}
  - {name: e, match: '*'}
";
    assert_eq!(
        diff(old, new).lines,
        [
            "rules.c: removed",
            "rules.d: added",
            "rules.e: added",
            "rules: order is now d, a.b, a, e",
        ]
    );
}

#[test]
fn a_diff_lists_changes_that_need_a_restart() {
    let rules = "rules: [{name: a, match: '*'}]\n";
    let moved =
        format!("listen: 127.0.0.1:1\nstore: redis://u:hunter2@h\nlog: {{level: debug}}\n{rules}");
    let diff = diff(rules, &moved);
    assert_eq!(diff.needs_restart, ["listen", "store"]);
    assert!(diff.lines.contains(&"store: memory -> redis://h".to_owned()), "{:?}", diff.lines);
}

#[test]
fn a_changed_secret_is_reported_but_not_shown() {
    let file = |password: &str| {
        format!("auth: {{users: {{crawler: {password}}}}}\nrules: [{{name: a, match: '*'}}]\n")
    };
    assert_eq!(diff(&file("hunter2"), &file("hunter3")).lines, ["auth.users: changed"]);
    let loaded = good(&file("hunter2"));
    assert!(loaded.values().all(|(_, value)| !value.contains("hunter2")));
    assert!(!format!("{loaded:?}").contains("hunter2"));
}

#[test]
fn a_last_rule_that_does_not_match_everything_is_a_warning() {
    let loaded = good("rules: [{name: a, match: a.example}]\n");
    let warning = &loaded.warnings[0];
    assert_eq!((warning.path.as_str(), warning.line), ("rules[0].match", 1));
    assert!(warning.message.contains("does not match everything"), "{warning}");
}

/// A rule file with `text`, and the files of a CA with these modes.
#[cfg(unix)]
fn folder(text: &str, mode: u32, key_mode: u32) -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().expect("a folder");
    let made = folder.path().join("made");
    tidegate::tls::ca::Ca::open(&made, None).expect("a CA is made");
    let read = |name| std::fs::read_to_string(made.join(name)).expect("it was made");
    let (cert, key) = (read("ca.pem"), read("ca.key"));
    let files =
        [("tidegate.yaml", text, mode), ("ca.pem", &cert, 0o644), ("ca.key", &key, key_mode)];
    for (name, text, mode) in files {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("writable");
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&path, permissions).expect("ours");
    }
    folder
}

#[cfg(unix)]
const WITH_SECRETS: &str = "\
auth: {users: {crawler: hunter2, other: '${PROXY_PASSWORD}'}}
ca: {cert: ca.pem, key: ca.key}
rules: [{name: a, match: '*'}]
";

#[cfg(unix)]
#[test]
fn paths_start_at_the_rule_file() {
    let folder = folder(WITH_SECRETS, 0o600, 0o600);
    let loaded = config::load(Some(&folder.path().join("tidegate.yaml")), &env).expect("good");
    assert_eq!(loaded.warnings, []);
    let (cert, key) = loaded.settings.ca.expect("given");
    assert_eq!((cert, key), (folder.path().join("ca.pem"), folder.path().join("ca.key")));
}

#[cfg(unix)]
#[test]
fn a_secret_that_everybody_can_read_is_a_warning_unless_it_is_in_the_environment() {
    let folder = folder(WITH_SECRETS, 0o644, 0o600);
    let loaded = config::load(Some(&folder.path().join("tidegate.yaml")), &env).expect("good");
    let warned: Vec<_> = loaded.warnings.iter().map(|warning| warning.path.as_str()).collect();
    assert_eq!(warned, ["auth.users.crawler"]);
    assert!(!format!("{:?}", loaded.warnings).contains("hunter2"));
}

/// Path and message of the only problem of the rule file in `folder`.
#[cfg(unix)]
fn only_problem(folder: &tempfile::TempDir) -> (String, String) {
    let read = config::load(Some(&folder.path().join("tidegate.yaml")), &env);
    let problems = read.expect_err("it is bad");
    let [problem] = problems.as_slice() else { panic!("{problems}") };
    (problem.path.clone(), problem.message.clone())
}

#[cfg(unix)]
#[test]
fn a_ca_that_cannot_be_used_is_an_error_at_its_file() {
    let (path, message) = only_problem(&folder(WITH_SECRETS, 0o600, 0o644));
    assert_eq!(path, "ca.key");
    assert!(message.contains("ca.key") && message.contains("chmod 440"), "{message}");
    let bad = folder(WITH_SECRETS, 0o600, 0o600);
    std::fs::write(bad.path().join("ca.pem"), "no certificate").expect("writable");
    let (path, message) = only_problem(&bad);
    assert_eq!(path, "ca.cert");
    assert!(message.contains("ca.pem"), "{message}");
}

#[cfg(unix)]
#[test]
fn a_file_of_roots_without_a_certificate_is_an_error_at_its_place() {
    let text = "upstream_ca: [ca.pem, tidegate.yaml]\nrules: [{name: a, match: '*'}]\n";
    let (path, message) = only_problem(&folder(text, 0o600, 0o600));
    assert_eq!(path, "upstream_ca[1]");
    assert!(message.contains("tidegate.yaml"), "{message}");
}

#[test]
fn a_rule_with_paths_that_https_passes_by_is_a_warning() {
    let file = |intercept: &str| {
        good(&format!(
            "rules:\n  - {{name: a, match: {{hosts: [a.example], paths: ['/%61dmin']}}}}\n  \
             - {{name: b, match: '*'{intercept}}}\n"
        ))
    };
    let warnings = file("").warnings;
    let [warning] = warnings.as_slice() else { panic!("{warnings:?}") };
    assert_eq!(warning.path, "rules[0].match");
    assert!(warning.message.contains("`b`"), "{warning}");
    for seen in [", intercept: true", ", action: deny", ", tunnel: refuse"] {
        assert_eq!(file(seen).warnings, [], "{seen}");
    }
    let loaded = file(", intercept: true");
    let path = &loaded.rules.as_slice()[0].matcher.paths[0];
    assert_eq!(&**path, "/admin", "a pattern is kept in its normal form");
}

#[test]
fn traffic_that_cannot_be_inspected_is_refused_by_an_intercepting_rule_unless_tunnel_allows_it() {
    for (keys, expected) in [
        ("", TunnelCount::Flights),
        (", intercept: true", TunnelCount::Refuse),
        (", intercept: true, tunnel: flights", TunnelCount::Flights),
        (", tunnel: refuse", TunnelCount::Refuse),
        (", action: bypass, intercept: true, tunnel: connect", TunnelCount::Connect),
    ] {
        let file = good(&format!("rules: [{{name: a, match: '*'{keys}}}]"));
        assert_eq!(file.rules.as_slice()[0].tunnel, expected, "{keys}");
    }
}

#[test]
fn intercept_on_a_rule_with_paths_is_a_warning() {
    let rule = |paths: &str| {
        good(&format!(
            "rules:\n  - {{name: a, match: {{hosts: [a.example], paths: ['{paths}']}}, \
             intercept: true}}\n  - {{name: b, match: '*'}}\n"
        ))
    };
    let warnings = rule("/search*").warnings;
    let [warning] = warnings.as_slice() else { panic!("{warnings:?}") };
    assert_eq!(warning.path, "rules[0].intercept");
    assert!(warning.message.contains("CONNECT"), "{warning}");
    assert_eq!(rule("*").warnings, [], "`*` also matches a request without a path");
}

#[test]
fn settings_that_cannot_have_an_effect_are_warnings() {
    for (text, path) in [
        (
            "egress: {allow: [loopback, private], deny: [private]}\nrules: [{name: a, match: '*'}]",
            "egress.allow[1]",
        ),
        ("rules: [{name: a, match: '*', rate: 5/s, each_user: {rate: 1/s}}]", "rules[0].each_user"),
        ("include: 'no-such-folder/*.yaml'\nrules: [{name: a, match: '*'}]", "include"),
    ] {
        let warnings = good(text).warnings;
        let [warning] = warnings.as_slice() else { panic!("{text}: {warnings:?}") };
        assert_eq!(warning.path, path);
        assert!(warning.help.is_some(), "{warning}");
    }
    let users = "auth: {users: {crawler: '${PROXY_PASSWORD}'}}\n\
                 rules: [{name: a, match: '*', rate: 5/s, each_user: {rate: 1/s}}]";
    assert_eq!(good(users).warnings, []);
}

#[test]
fn an_upstream_proxy_is_not_the_own_listener() {
    let file = |listen: &str, via: &str| {
        let text = format!(
            "listen: '{listen}'\nauth: none\nrules: [{{name: a, match: '*', via: '{via}'}}]"
        );
        config::parse(&text, "f", &env).map(drop).map_err(|problems| {
            let [problem] = problems.as_slice() else { panic!("{problems}") };
            problem.path.clone()
        })
    };
    for (listen, via) in [
        ("127.0.0.1:3128", "http://127.0.0.1:3128"),
        ("127.0.0.1:3128", "socks5://localhost:3128"),
        ("0.0.0.0:3128", "http://127.0.0.1:3128"),
        ("[::1]:3128", "http://[::1]:3128"),
    ] {
        assert_eq!(file(listen, via), Err("rules[0].via".to_owned()), "{listen} {via}");
    }
    assert_eq!(file("127.0.0.1:3128", "http://127.0.0.1:3129"), Ok(()));
    assert_eq!(file("127.0.0.1:3128", "http://192.0.2.7:3128"), Ok(()));
}

#[test]
fn a_reload_can_ask_whether_it_would_open_the_proxy() {
    let settings = good("rules: [{name: a, match: '*'}]").settings;
    let address = |text: &str| text.parse().expect("an address");
    assert!(settings.lacks_auth_on(address("0.0.0.0:3128")));
    assert!(settings.lacks_auth_on(address("192.0.2.1:3128")));
    assert!(!settings.lacks_auth_on(address("[::1]:3128")));
    let said = good("auth: none\nrules: [{name: a, match: '*'}]").settings;
    assert!(!said.lacks_auth_on(address("0.0.0.0:3128")));
}
