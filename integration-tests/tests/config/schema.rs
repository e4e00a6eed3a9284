//! JSON Schema, reference page, default file and parser agree.

use std::fs;

use regex::Regex;
use serde_json::Value;
use tidegate::config::{self, reference, schema};

use crate::{env, is_as_in, root, yaml_files};

/// Whether `value` is valid under `schema`, for the part of JSON Schema that ours uses. An unknown
/// keyword panics, so that this check stays complete.
fn check(schema: &Value, value: &Value, at: &str) -> Result<(), String> {
    for (keyword, wanted) in schema.as_object().expect("a schema is an object") {
        let fits = match keyword.as_str() {
            "$schema" | "title" | "description" | "default" => true,
            "type" => match wanted {
                Value::Array(types) => types.iter().any(|wanted| is_of_type(value, wanted)),
                wanted => is_of_type(value, wanted),
            },
            "const" => value == wanted,
            "$ref" => {
                let pointer = wanted.as_str().expect("text").trim_start_matches('#');
                let root = schema::json();
                check(root.pointer(pointer).expect("it is there"), value, at)?;
                true
            }
            "enum" => wanted.as_array().expect("a list").contains(value),
            "minimum" => {
                value.as_f64().is_none_or(|number| number >= wanted.as_f64().unwrap_or(0.0))
            }
            "maximum" => {
                value.as_f64().is_none_or(|number| number <= wanted.as_f64().unwrap_or(0.0))
            }
            "maxLength" => {
                value.as_str().is_none_or(|text| text.len() as u64 <= wanted.as_u64().unwrap_or(0))
            }
            "pattern" => value.as_str().is_none_or(|text| {
                Regex::new(wanted.as_str().expect("text")).expect("a pattern").is_match(text)
            }),
            "anyOf" => {
                let any = wanted.as_array().expect("a list");
                any.iter().any(|schema| check(schema, value, at).is_ok())
            }
            "items" => {
                for (n, item) in value.as_array().into_iter().flatten().enumerate() {
                    check(wanted, item, &format!("{at}[{n}]"))?;
                }
                true
            }
            "required" => value.as_object().is_none_or(|map| {
                wanted
                    .as_array()
                    .expect("a list")
                    .iter()
                    .all(|key| map.contains_key(key.as_str().expect("text")))
            }),
            "properties" | "patternProperties" | "additionalProperties" => {
                check_keys(schema, value, at)?;
                true
            }
            other => panic!("the keyword {other} is not known to this check"),
        };
        if !fits {
            return Err(format!("{at}: {value} is not {keyword} {wanted}"));
        }
    }
    Ok(())
}

fn check_keys(schema: &Value, value: &Value, at: &str) -> Result<(), String> {
    for (key, item) in value.as_object().into_iter().flatten() {
        let at = format!("{at}.{key}");
        let mut patterns = schema["patternProperties"].as_object().into_iter().flatten();
        let fits = |(pattern, _): &(&String, &Value)| {
            Regex::new(pattern).expect("a pattern").is_match(key)
        };
        if let Some((_, schema)) = patterns.find(fits) {
            check(schema, item, &at)?;
            continue;
        }
        match (
            schema.get("properties").and_then(|keys| keys.get(key)),
            &schema["additionalProperties"],
        ) {
            (Some(schema), _) => check(schema, item, &at)?,
            (None, Value::Bool(false)) => return Err(format!("{at}: unknown key")),
            (None, schema) => check(schema, item, &at)?,
        }
    }
    Ok(())
}

fn is_of_type(value: &Value, wanted: &Value) -> bool {
    match wanted.as_str().expect("a type") {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        other => panic!("the type {other} is not known to this check"),
    }
}

fn valid(text: &str) -> Result<(), String> {
    let value: Value = serde_yaml::from_str(text).map_err(|error| error.to_string())?;
    check(&schema::json(), &value, "")
}

#[test]
fn the_schema_takes_every_good_file() {
    let folders = ["config", "config/examples", "integration-tests/fixtures/config/valid"];
    for file in folders.into_iter().flat_map(yaml_files) {
        // Signatures have their own form.
        if file.ends_with("config/signatures.yaml") {
            continue;
        }
        let text = fs::read_to_string(&file).expect("UTF-8");
        valid(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    }
}

#[test]
fn the_schema_rejects_the_mistakes_that_an_editor_should_mark() {
    let rule = |keys: &str| format!("rules: [{{name: a, match: '*', {keys}}}]");
    let wrong = [
        "lisen: 127.0.0.1:1".to_owned(),
        "timeouts: {idle: 30}".to_owned(),
        "limits: {connections: 0}".to_owned(),
        "rules: [{match: '*'}]".to_owned(),
        rule("rate: 3"),
        rule("rate: automatic"),
        rule("rate: 3/s, learn: often"),
        rule("rate: 3/s, learn: {back_off: 2}"),
        rule("per: hosts"),
        rule("cooldown: {for: 30x}"),
        rule("cooldown: {ratio: 50%}"),
        rule("burst: '5'"),
    ];
    for text in wrong {
        assert!(valid(&text).is_err(), "{text}");
        assert!(config::parse(&text, "f", &env).is_err(), "{text}");
    }
}

#[test]
fn the_reference_page_is_fresh() {
    let page = root().join("docs/rule-file.md");
    assert!(is_as_in(&page, &reference::markdown()), "TIDEGATE_BLESS=1 cargo test writes it");
}

#[test]
fn the_default_file_shows_every_key_of_the_table() {
    let text = config::BUILT_IN;
    let schema = schema::json();
    let keys = |value: &Value| -> Vec<String> {
        value["properties"].as_object().expect("keys").keys().cloned().collect()
    };
    let rule = &schema["properties"]["rules"]["items"];
    let cooldown = &rule["properties"]["cooldown"]["anyOf"][1];
    let sections = ["egress", "inspect", "timeouts", "limits", "refuse", "log"];
    let mut all: Vec<String> =
        keys(&schema).into_iter().chain(keys(rule)).chain(keys(cooldown)).collect();
    all.extend(sections.iter().flat_map(|section| keys(&schema["properties"][section])));
    assert!(all.len() > 60, "{all:?}");
    for key in all {
        assert!(text.contains(&format!("{key}:")), "{key} is missing");
    }
}

/// Paths of all keys below `schema`, of lists of rules as those of the rule `shop`.
fn paths(schema: &Value, at: &str, found: &mut Vec<String>) {
    for (key, inner) in schema["properties"].as_object().expect("keys") {
        let path = if at.is_empty() { key.clone() } else { format!("{at}.{key}") };
        let variants = inner["anyOf"].as_array().into_iter().flatten();
        let section = variants.chain([inner]).find(|variant| variant["properties"].is_object());
        match (section, &inner["items"]) {
            (Some(section), _) => paths(section, &path, found),
            (None, rule) if path == "rules" => paths(rule, "rules.shop", found),
            (None, _) => found.push(path),
        }
    }
}

#[test]
fn every_key_of_the_table_is_read() {
    let file = root().join("integration-tests/fixtures/config/valid/every-key.yaml");
    let loaded = config::load(Some(&file), &env).unwrap_or_else(|problems| panic!("{problems}"));
    let read: Vec<&str> = loaded.values().map(|(path, _)| path).collect();
    let mut all = Vec::new();
    paths(&schema::json(), "", &mut all);
    assert!(all.len() > 70, "{all:?}");
    // A given CA needs a private key file, which a repository cannot contain.
    all.retain(|path| !path.starts_with("ca."));
    // Keys in `defaults` are read as values of the rules.
    all.retain(|path| !path.starts_with("defaults."));
    for path in all {
        assert!(read.contains(&path.as_str()), "{path} is in the table, but is not read");
    }
}

/// The tree is built from another parser's events; both must read the same.
#[test]
fn two_yaml_parsers_read_the_same() {
    let folders = ["config", "config/examples", "integration-tests/fixtures/config/valid"];
    for file in folders.into_iter().flat_map(yaml_files) {
        if file.ends_with("config/signatures.yaml") {
            continue;
        }
        let text = fs::read_to_string(&file).expect("UTF-8");
        let name = file.to_str().expect("UTF-8");
        let ours = config::parse(&text, name, &env).unwrap_or_else(|problems| panic!("{problems}"));
        let other: serde_yaml::Value = serde_yaml::from_str(&text).expect("YAML");
        let again = serde_yaml::to_string(&other).expect("YAML again");
        let again =
            config::parse(&again, name, &env).unwrap_or_else(|problems| panic!("{problems}"));
        assert_eq!(ours.rules.as_slice(), again.rules.as_slice(), "{name}");
        assert_eq!(format!("{:?}", ours.settings), format!("{:?}", again.settings), "{name}");
        assert!(config::diff(&ours, &again).is_empty(), "{name}");
    }
}
