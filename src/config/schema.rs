//! The JSON Schema of the rule file, generated from the key table, for completion and checks in
//! editors.

use serde_json::{Map, Value, json};

use super::keys::{DEFAULTS, Default, FILE, Key, Kind, Section};

/// A variable of the environment may replace any scalar.
const ENV: &str = r"\$\{[A-Za-z_][A-Za-z0-9_]*(:-[^}]*)?\}";

/// The place of a rule's keys in the schema, which `defaults` shares.
const RULE_KEYS: &str = "#/properties/rules/items/properties";

/// The JSON Schema (draft 2020-12) of a rule file.
#[must_use]
pub fn json() -> Value {
    let mut schema = section(&FILE);
    if let Value::Object(root) = &mut schema {
        root.insert("$schema".into(), json!("https://json-schema.org/draft/2020-12/schema"));
        root.insert("title".into(), json!("Tidegate rule file"));
    }
    schema
}

fn section(section: &Section) -> Value {
    let is_defaults = std::ptr::eq(section, &DEFAULTS);
    let property = |key: &Key| match is_defaults {
        true => json!({"$ref": format!("{RULE_KEYS}/{}", key.name)}),
        false => property(key),
    };
    let properties: Map<String, Value> =
        section.keys.iter().map(|key| (key.name.to_owned(), property(key))).collect();
    let required: Vec<_> = section
        .keys
        .iter()
        .filter(|key| key.default == Default::Required)
        .map(|k| k.name)
        .collect();
    let mut schema = json!({
        "type": "object",
        "description": section.doc,
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    });
    if section.has_anchors() {
        schema["patternProperties"] = json!({"^x-": {}});
    }
    schema
}

fn property(key: &Key) -> Value {
    let mut schema = of(&key.kind);
    if let Value::Object(schema) = &mut schema {
        schema.insert("description".into(), json!(key.doc));
        if let Default::Is(text) = key.default {
            // A default that reads the environment or looks like a number has the type that YAML
            // gives it.
            let value = serde_yaml::from_str::<Value>(text).unwrap_or_else(|_| json!(text));
            schema.insert("default".into(), value);
        }
    }
    schema
}

/// The schema of a kind. Patterns describe the form; ranges of units are only in the description.
fn of(kind: &Kind) -> Value {
    match kind {
        Kind::Flag => or_env(json!({"type": "boolean"})),
        Kind::Word(words) => or_env(json!({"enum": words})),
        Kind::Duration(..) => text(r"^[0-9]+(\.[0-9]+)?\s*(ms|s|m|h|d)$"),
        Kind::Span(..) => text(r"^[0-9.]+\s*(ms|s|m|h|d)(\s*-\s*[0-9.]+\s*(ms|s|m|h|d))?$"),
        Kind::Size(..) => text(r"^[0-9]+(\.[0-9]+)?\s*(B|KiB|MiB|GiB|kB|MB|GB)$"),
        Kind::Count(min, max) => or_env(json!({"type": "integer", "minimum": min, "maximum": max})),
        Kind::Factor(min, max) => or_env(json!({"type": "number", "minimum": min, "maximum": max})),
        Kind::Rate => text(r"^[0-9]+(\.[0-9]+)?\s*/\s*[smhd]$"),
        Kind::Quota => text(r"^[0-9]+\s*/\s*[smhd]$"),
        Kind::Hours => text(r"^[0-9]{2}(:[0-9]{2}){1,2}-[0-9]{2}(:[0-9]{2}){1,2}\s+\S+$"),
        Kind::Share => text(r"^[0-9]+(\.[0-9]+)?\s*%$"),
        Kind::Ratio => text(r"^[0-9]+(\.[0-9]+)?\s*%\s+of\s+[0-9]+$"),
        Kind::Address => text(r"^[0-9A-Fa-f.:\[\]]+:[0-9]+$"),
        Kind::StoreUrl => text(r"^rediss?(-cluster|-sentinel)?://"),
        Kind::ProxyUrl => text(r"^(https?|socks5)://"),
        // Plain digits are a text too: the reader takes them as written.
        Kind::Text(most) => json!({"type": ["string", "number", "boolean"], "maxLength": most}),
        Kind::Secret => json!({"type": ["string", "number", "boolean"]}),
        Kind::Path | Kind::Host | Kind::Network | Kind::Egress => json!({"type": "string"}),
        Kind::Name => named(r"^[A-Za-z0-9_.-]{1,64}$"),
        Kind::Glob => text(r"^[/*]"),
        Kind::Status => json!({"anyOf": [
            {"type": "integer", "minimum": 100, "maximum": 599},
            text("^([1-5]xx|[1-5][0-9][0-9])$"),
        ]}),
        Kind::Method => text("^[A-Z]+$"),
        Kind::Section(inner) => section(inner),
        Kind::List(inner) => json!({"type": "array", "items": of(inner)}),
        Kind::OneOrMany(inner) => {
            json!({"anyOf": [of(inner), {"type": "array", "items": of(inner)}]})
        }
        Kind::Map(_, inner) => json!({"type": "object", "additionalProperties": of(inner)}),
        Kind::Either(kinds) => json!({"anyOf": kinds.iter().map(of).collect::<Vec<_>>()}),
    }
}

/// A string of this form, or one that reads the environment.
fn text(pattern: &str) -> Value {
    json!({"type": "string", "pattern": format!("({pattern})|({ENV})")})
}

/// As [`text`]; a name of digits only is a number to YAML.
fn named(pattern: &str) -> Value {
    json!({"anyOf": [text(pattern), {"type": "number"}]})
}

fn or_env(schema: Value) -> Value {
    json!({"anyOf": [schema, {"type": "string", "pattern": ENV}]})
}
