//! Assembles the text of a script from its files, and replaces names with positions and values.
//!
//! - `ARG.name` and `KEY.name` are an argument and a key: `ARGV[3]`, `KEYS[1]`.
//! - `ARG.name[n]` is the value of entry `n` in the list at the end, and `#KEY.list` is the number of entries.
//! - `CONST.NAME` is a constant (`constants`).
//! - `REPLY { name = value, ... }` is a table with the values in the order of the reply's fields.
//!
//! A call costs no more than with written positions, and the sources are valid Lua.

use std::collections::BTreeSet;

use super::{constants::constants, fields::Field};

/// The fields of a script.
#[derive(Debug, Default)]
pub(super) struct Layout {
    pub(super) keys: Vec<Field>,
    pub(super) arguments: Vec<Field>,
    pub(super) reply: Vec<Field>,
}

#[cfg(test)]
impl Layout {
    /// The fields, as the sources name them.
    pub(super) fn names(&self) -> impl Iterator<Item = String> {
        let tables = [("KEY", &self.keys), ("ARG", &self.arguments), ("REPLY", &self.reply)];
        let all = tables.into_iter().flat_map(|(table, fields)| {
            fields.iter().map(move |field| format!("{table}.{}", field.name))
        });
        all.collect::<Vec<_>>().into_iter()
    }
}

/// The text of a script.
pub(super) struct Assembly {
    pub(super) text: String,
    /// The names that it uses, such as `ARG.wanted`.
    pub(super) used: BTreeSet<String>,
}

/// Assembles a script. The error names a field that is unknown, missing or given twice.
pub(super) fn assemble(files: &[&str], layout: &Layout) -> Result<Assembly, String> {
    let mut used = BTreeSet::new();
    let mut text = String::new();
    for line in files.iter().flat_map(|file| file.lines()) {
        if !line.trim_start().starts_with("--") {
            text.push_str(line);
            text.push('\n');
        }
    }
    for (table, list, fields) in [("ARG", "ARGV", &layout.arguments), ("KEY", "KEYS", &layout.keys)]
    {
        text = replace(&text, table, |name, rest, counted| {
            used.insert(format!("{table}.{name}"));
            position(list, fields, name, rest, counted)
        })?;
    }
    let constants = constants();
    text = replace(&text, "CONST", |name, _, _| {
        used.insert(format!("CONST.{name}"));
        let value =
            constants.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone());
        Ok((value.ok_or_else(|| format!("there is no constant `{name}`"))?, 0))
    })?;
    text = replies(&text, &layout.reply, &mut used)?;
    Ok(Assembly { text, used })
}

/// Replaces each `TABLE.name` or `#TABLE.name`. `with` gets the name, the text after it, and whether there is a `#`. It
/// returns the replacement, and how many bytes of the text after the name it consumed.
fn replace(
    text: &str,
    table: &str,
    mut with: impl FnMut(&str, &str, bool) -> Result<(String, usize), String>,
) -> Result<String, String> {
    let (mut done, mut rest) = (String::with_capacity(text.len()), text);
    let token = format!("{table}.");
    while let Some(at) = rest.find(&token) {
        let (before, found) = (&rest[..at], &rest[at + token.len()..]);
        if before.ends_with(is_of_name) {
            done.push_str(&rest[..at + token.len()]);
            rest = found;
            continue;
        }
        let end = found.find(|c| !is_of_name(c)).unwrap_or(found.len());
        let (name, behind) = found.split_at(end);
        let counted = before.strip_suffix('#');
        let (text, taken) = with(name, behind, counted.is_some())?;
        done.push_str(counted.unwrap_or(before));
        done.push_str(&text);
        rest = &behind[taken..];
    }
    done.push_str(rest);
    Ok(done)
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// The replacement of a name: `ARGV[3]`; `ARGV[2 + 3 * n]` in a list; `((#ARGV - 4) / 3)` for the length of the list.
fn position(
    list: &str,
    fields: &[Field],
    name: &str,
    behind: &str,
    counted: bool,
) -> Result<(String, usize), String> {
    let single = fields.iter().filter(|field| !field.each).count();
    let entry = fields.len() - single;
    if counted {
        let of_list = format!("{name}_");
        let is_list = fields.iter().any(|field| field.each && field.name.starts_with(&of_list));
        let length = format!("((#{list} - {single}) / {entry})");
        return if is_list { Ok((length, 0)) } else { Err(format!("{list} has no list `{name}`")) };
    }
    let at = fields.iter().position(|field| field.name == name);
    let at = at.ok_or_else(|| format!("{list} has no field `{name}`"))?;
    match (fields[at].each, behind.starts_with('[')) {
        (false, _) => Ok((format!("{list}[{}]", at + 1), 0)),
        // Lua counts from one.
        (true, true) => Ok((format!("{list}[{} - {entry} + {entry} * ", at + 1), 1)),
        (true, false) => Err(format!("`{name}` of {list} needs the number of an entry")),
    }
}

/// Replaces each `REPLY { name = value, ... }`.
fn replies(text: &str, fields: &[Field], used: &mut BTreeSet<String>) -> Result<String, String> {
    const TOKEN: &str = "REPLY {";
    let (mut done, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find(TOKEN) {
        done.push_str(&rest[..at]);
        let (entries, behind) = entries(&rest[at + TOKEN.len()..])?;
        rest = behind;
        let mut values = vec![None; fields.len()];
        for entry in entries {
            let (name, value) = entry
                .split_once('=')
                .ok_or_else(|| format!("`{}` of REPLY has no name", entry.trim()))?;
            let name = name.trim();
            let at = fields.iter().position(|field| field.name == name);
            let at = at.ok_or_else(|| format!("REPLY has no field `{name}`"))?;
            if values[at].replace(value.trim()).is_some() {
                return Err(format!("REPLY has `{name}` twice"));
            }
            used.insert(format!("REPLY.{name}"));
        }
        done.push_str("{ ");
        for (field, value) in fields.iter().zip(values) {
            let value = value.ok_or_else(|| format!("REPLY lacks `{}`", field.name))?;
            done.push_str(value);
            done.push_str(", ");
        }
        done.push('}');
    }
    done.push_str(rest);
    Ok(done)
}

/// The entries of a table, and the text after it.
fn entries(text: &str) -> Result<(Vec<&str>, &str), String> {
    let (mut entries, mut from, mut depth) = (Vec::new(), 0, 0);
    for (at, c) in text.char_indices() {
        match c {
            '{' | '(' | '[' => depth += 1,
            ',' if depth == 0 => {
                entries.push(&text[from..at]);
                from = at + 1;
            }
            '}' if depth == 0 => {
                entries.push(&text[from..at]);
                entries.retain(|entry| !entry.trim().is_empty());
                return Ok((entries, &text[at + 1..]));
            }
            '}' | ')' | ']' => depth -= 1,
            _ => {}
        }
    }
    Err("REPLY does not end".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(name: &str, each: bool) -> Field {
        Field { name: name.to_owned(), each }
    }

    fn text(source: &str) -> Result<String, String> {
        let layout = Layout {
            keys: vec![
                field("memory", false),
                field("scope_bucket", true),
                field("scope_waiting", true),
            ],
            arguments: vec![field("wanted", false), field("member", false)],
            reply: vec![field("now", false), field("tickets", false)],
        };
        assemble(&[source], &layout).map(|assembly| assembly.text.trim_end().to_owned())
    }

    #[test]
    fn names_become_positions() {
        for (source, expected) in [
            ("local n = ARG.member .. KEY.memory", "local n = ARGV[2] .. KEYS[1]"),
            ("for n = 1, #KEY.scope do", "for n = 1, ((#KEYS - 1) / 2) do"),
            ("x(KEY.scope_bucket[n], now)", "x(KEYS[2 - 2 + 2 * n], now)"),
            ("x(KEY.scope_waiting[n], now)", "x(KEYS[3 - 2 + 2 * n], now)"),
            ("wanted > CONST.BATCH", "wanted > 1000"),
            ("MY_ARG.other = 1", "MY_ARG.other = 1"),
            ("return REPLY { tickets = { 1, 2 }, now = f(a, b) }", "return { f(a, b), { 1, 2 }, }"),
            ("a()\n  -- ARG.unknown\nb()", "a()\nb()"),
        ] {
            assert_eq!(text(source).as_deref(), Ok(expected), "{source}");
        }
    }

    #[test]
    fn a_field_that_is_unknown_missing_or_given_twice_is_a_mistake() {
        for (source, expected) in [
            ("ARG.wnated", "ARGV has no field `wnated`"),
            ("#KEY.memory", "KEYS has no list `memory`"),
            ("KEY.scope_bucket", "`scope_bucket` of KEYS needs the number of an entry"),
            ("CONST.BACTH", "there is no constant `BACTH`"),
            ("REPLY { now = 1 }", "REPLY lacks `tickets`"),
            ("REPLY { now = 1, now = 2, tickets = {} }", "REPLY has `now` twice"),
            ("REPLY { then = 1 }", "REPLY has no field `then`"),
            ("REPLY { now, tickets = {} }", "`now` of REPLY has no name"),
            ("REPLY { now = 1", "REPLY does not end"),
        ] {
            assert_eq!(text(source).as_ref().map_err(String::as_str), Err(expected), "{source}");
        }
    }
}
