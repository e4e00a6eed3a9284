//! `${NAME}` and `${NAME:-default}` in scalar values.
//!
//! Variables are replaced after the YAML has been parsed, so that no value can change the file's
//! structure. The typed reader then reads `3` as a number. `$${` stands for a literal `${`.

use super::units::{Read, Wrong};

/// The source of the environment's values.
pub type Env<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// Most bytes that a substituted value may have, so that no variable can fill the memory.
const MOST_BYTES: usize = 64 * 1024;

/// Replaces the variables in `text`; `None` if there are none.
///
/// # Errors
/// The first variable that is not set and has no default, and a `${` that is never closed or names
/// nothing.
pub(super) fn substitute(text: &str, env: &Env<'_>) -> Read<Option<String>> {
    if !text.contains("${") {
        return Ok(None);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        if rest[..at].ends_with('$') {
            out.push_str(&rest[..at]);
            out.push('{');
            rest = &rest[at + 2..];
            continue;
        }
        out.push_str(&rest[..at]);
        let inner = &rest[at + 2..];
        let Some(end) = inner.find('}') else {
            let help = "write `${NAME}` or `${NAME:-default}`; `$${` stands for a plain `${`";
            return Err(Wrong::new("a `${` without its `}`", help));
        };
        out.push_str(&value_of(&inner[..end], env)?);
        if out.len() > MOST_BYTES {
            let message = "the value with its variables is longer than 64 KiB";
            return Err(Wrong::new(message, "check the environment"));
        }
        rest = &inner[end + 1..];
    }
    out.push_str(rest);
    Ok(Some(out))
}

/// Whether `text` is `${NAME}` and nothing else: it holds no value itself, and so no secret.
pub(super) fn is_reference(text: &str) -> bool {
    let name = text.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
    name.is_some_and(|name| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'))
}

fn value_of(reference: &str, env: &Env<'_>) -> Read<String> {
    let (name, default) = match reference.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (reference, None),
    };
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if !starts || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        let help = "write `${NAME}` or `${NAME:-default}`; a name has letters, digits and `_`";
        let message = format!("`{}` is not a valid variable name", name.escape_default());
        return Err(Wrong::new(message, help));
    }
    match (env(name).filter(|value| !value.is_empty()), default) {
        (Some(value), _) => Ok(value),
        (None, Some(default)) => Ok(default.to_owned()),
        (None, None) => Err(Wrong::new(
            format!("the environment variable `{name}` is not set (or empty)"),
            format!("set {name}, or write a default: `${{{name}:-value}}`"),
        )),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn with_x(text: &str) -> Read<Option<String>> {
        substitute(text, &|name| match name {
            "X" => Some("3".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        })
    }

    #[test]
    fn variables_and_defaults_are_put_in() {
        assert_eq!(with_x("${X}/s").unwrap().as_deref(), Some("3/s"));
        assert_eq!(with_x("${Y:-5}/s").unwrap().as_deref(), Some("5/s"));
        assert_eq!(with_x("${EMPTY:-5}").unwrap().as_deref(), Some("5"));
        assert_eq!(with_x("a${X}${X}b").unwrap().as_deref(), Some("a33b"));
        assert_eq!(with_x("plain").unwrap(), None);
    }

    #[test]
    fn a_doubled_dollar_is_a_plain_one() {
        assert_eq!(with_x("$${X}").unwrap().as_deref(), Some("${X}"));
    }

    #[test]
    fn a_missing_variable_is_named_with_the_fix() {
        let Wrong { message, help } = with_x("${SECRET_NAME}").unwrap_err();
        let help = help.unwrap();
        assert!(message.contains("SECRET_NAME"), "{message}");
        assert!(help.contains("${SECRET_NAME:-value}"), "{help}");
    }

    #[test]
    fn an_open_or_empty_reference_is_an_error() {
        assert!(with_x("${X").is_err());
        assert!(with_x("${}").is_err());
        assert!(with_x("${1X}").is_err());
    }
}
