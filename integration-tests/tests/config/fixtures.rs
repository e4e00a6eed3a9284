//! Whole files: examples and valid fixtures load, and each invalid one gives exactly the expected
//! message.

use std::fs;

use tidegate::config::{self, Overrides, Problems};

use crate::{env, is_as_in, root, yaml_files};

#[test]
fn every_example_loads_without_a_warning() {
    for file in yaml_files("config/examples") {
        let loaded =
            config::load(Some(&file), &env).unwrap_or_else(|problems| panic!("{problems}"));
        assert_eq!(loaded.warnings, [], "{}", file.display());
    }
}

#[test]
fn every_valid_fixture_loads() {
    for file in yaml_files("integration-tests/fixtures/config/valid") {
        config::load(Some(&file), &env).unwrap_or_else(|problems| panic!("{problems}"));
    }
}

#[test]
fn every_invalid_fixture_gives_the_expected_message() {
    let mut different = Vec::new();
    for file in yaml_files("integration-tests/fixtures/config/invalid") {
        let text = fs::read_to_string(&file).expect("UTF-8");
        let name = file.file_name().expect("a file").to_str().expect("ASCII");
        let Err(problems) = config::parse(&text, name, &env) else {
            panic!("{name} is taken for good");
        };
        let said = format!("{problems}\n");
        assert!(!said.contains("hunter2"), "{name} shows a secret:\n{said}");
        assert!(!problems.to_json().to_string().contains("hunter2"), "{name}: a secret in JSON");
        if !is_as_in(&file.with_extension("expected"), &said) {
            different.push(format!("{name}:\n{said}"));
        }
    }
    assert!(different.is_empty(), "TIDEGATE_BLESS=1 accepts these:\n{}", different.join("\n"));
}

#[test]
fn the_default_file_is_the_built_in_one() {
    let file = fs::read_to_string(root().join("config/tidegate.yaml")).expect("UTF-8");
    assert_eq!(file, config::BUILT_IN);
}

#[test]
fn the_built_in_rate_and_burst_come_from_the_environment() {
    let env = |name: &str| match name {
        "APP_RATE_LIMIT" => Some("7".to_owned()),
        "APP_RATE_BURST" => Some("11".to_owned()),
        _ => None,
    };
    let loaded = config::parse(config::BUILT_IN, "f", &env).expect("good");
    let limits = &loaded.rules.as_slice()[0].limits;
    assert_eq!((limits.rate, limits.burst), (Some(7.0), 11));
    let loaded = config::parse(config::BUILT_IN, "f", &|_| None).expect("good");
    let limits = &loaded.rules.as_slice()[0].limits;
    assert_eq!((limits.rate, limits.burst), (Some(3.0), 5));
}

fn with_overrides(overrides: &Overrides) -> Result<config::Loaded, Problems> {
    let file = root().join("config/tidegate.yaml");
    config::load_with(Some(&file), overrides, &|_| None)
}

#[test]
fn the_command_line_overrides_the_file() {
    let overrides = Overrides {
        listen: Some("127.0.0.1:0".into()),
        admin: Some("off".into()),
        store: Some("redis://localhost".into()),
    };
    let settings = with_overrides(&overrides).expect("good").settings;
    assert_eq!(settings.listen.port(), 0);
    assert!(settings.admin.is_none());
    assert!(matches!(settings.store, tidegate::rules::settings::StoreSettings::Redis(_)));
}

#[test]
fn the_command_line_is_checked_like_the_file() {
    let overrides = Overrides { listen: Some("0.0.0.0:3128".into()), ..Overrides::default() };
    let said = with_overrides(&overrides).expect_err("no auth").to_string();
    assert!(said.starts_with("error: command line: --listen: 0.0.0.0:3128 is reachable"), "{said}");
    let overrides = Overrides { admin: Some("of".into()), ..Overrides::default() };
    let said = with_overrides(&overrides).expect_err("no address").to_string();
    assert!(
        said.starts_with("error: command line: --admin: `of` is not a valid address"),
        "{said}"
    );
}

#[test]
fn a_missing_file_is_named_with_the_fix() {
    let missing = root().join("config/no-such-file.yaml");
    let said = config::load(Some(&missing), &env).expect_err("missing").to_string();
    assert!(said.contains("no-such-file.yaml: it cannot be read"), "{said}");
    assert!(said.contains("--config FILE"), "{said}");
}
