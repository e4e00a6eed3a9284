//! The changes of a reload, as short lines for the log. Pure.

use std::collections::HashSet;

use super::{Loaded, diagnostics::Shown};

/// Most lines of a diff.
const MOST_LINES: usize = 100;
/// Most characters of a value in a line.
const MOST_CHARS: usize = 80;

/// The differences between two files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Diff {
    /// One line per change: `rules.default.rate: 3/s -> 5/s`. Secrets are not shown.
    pub lines: Vec<String>,
    /// Changed keys that only a restart puts into effect, of `FIXED`.
    pub needs_restart: Vec<&'static str>,
}

/// Keys that are read once: bound, connected, opened or made at the start.
const FIXED: [&str; 7] =
    ["listen", "admin", "store", "ca_dir", "ca", "log.format", "log.access_file"];

impl Diff {
    /// Whether nothing changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }
}

/// The changes from `old` to `new`.
#[must_use]
pub fn diff(old: &Loaded, new: &Loaded) -> Diff {
    let mut diff = Diff::default();
    let mut note = |line: String| {
        if !diff.lines.contains(&line) {
            diff.lines.push(line);
        }
    };
    let (before, after) = (names(old), names(new));
    let keys: std::collections::BTreeSet<_> = old.values.keys().chain(new.values.keys()).collect();
    let mut restart = HashSet::new();
    for key in keys {
        let (was, is) = (old.values.get(key), new.values.get(key));
        if was.map(|shown| shown.fingerprint) == is.map(|shown| shown.fingerprint) {
            continue;
        }
        restart.extend([key.as_str(), key.split('.').next().unwrap_or(key)]);
        match (owner(key, &before), owner(key, &after)) {
            (None, Some(name)) => note(format!("rules.{name}: added")),
            (Some(name), None) => note(format!("rules.{name}: removed")),
            _ => note(format!("{key}: {}", change(was, is))),
        }
    }
    let kept = |names: &[String], others: &[String]| {
        let others: HashSet<&String> = others.iter().collect();
        names.iter().filter(|name| others.contains(name)).cloned().collect::<Vec<_>>().join(", ")
    };
    let (was, is) = (ordered(old), ordered(new));
    if kept(&was, &is) != kept(&is, &was) {
        note(format!("rules: order is now {}", cut(&is.join(", "))));
    }
    if diff.lines.len() > MOST_LINES {
        let more = diff.lines.len() - MOST_LINES;
        diff.lines.truncate(MOST_LINES);
        diff.lines.push(format!("and {more} more"));
    }
    diff.needs_restart = FIXED.into_iter().filter(|key| restart.contains(key)).collect();
    diff
}

fn change(was: Option<&Shown>, is: Option<&Shown>) -> String {
    let text = |shown: Option<&Shown>| shown.map_or("(not set)".to_owned(), |s| cut(&s.text));
    let (was, is) = (text(was), text(is));
    if was == is { "changed".to_owned() } else { format!("{was} -> {is}") }
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(MOST_CHARS) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text.to_owned(),
    }
}

fn ordered(loaded: &Loaded) -> Vec<String> {
    loaded.rules.as_slice().iter().map(|rule| rule.name.to_string()).collect()
}

fn names(loaded: &Loaded) -> HashSet<String> {
    ordered(loaded).into_iter().collect()
}

/// The rule to which a key belongs. Names may have dots, keys of rules are known: the longest name
/// counts.
fn owner<'k>(key: &'k str, names: &HashSet<String>) -> Option<&'k str> {
    let rest = key.strip_prefix("rules.")?;
    rest.rmatch_indices('.').map(|(at, _)| &rest[..at]).find(|name| names.contains(*name))
}
