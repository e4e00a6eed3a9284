//! A mistake in a rule file, explained so that a person can fix it: place, key, line, caret, fix.
//!
//! Secrets are never shown: scalars that may be one are hidden in the shown lines, and everything
//! before an `@` is hidden everywhere.

use std::fmt;

use super::syntax_tree::Place;

/// Most problems that are kept per file. Nobody reads more.
pub(super) const MOST_PROBLEMS: usize = 100;
/// Most characters of a line that are shown.
const SHOWN_LINE: usize = 140;

words! {
    /// How bad it is.
    #[derive(PartialOrd, Ord)]
    pub enum Severity {
        /// The file is not used.
        Error = "error",
        /// The file is used, but probably not as meant.
        Warning = "warning",
    }
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// How bad.
    pub severity: Severity,
    /// Name of the file, as given.
    pub file: String,
    /// Line, from 1; 0 for the whole file (it cannot be read, or the value is from the command
    /// line).
    pub line: usize,
    /// Column in characters, from 1; 0 as for `line`.
    pub column: usize,
    /// The path of the key, `rules[2].cooldown.for`; empty if the problem has no key.
    pub path: String,
    /// The mistake.
    pub message: String,
    /// The fix.
    pub help: Option<String>,
    /// The line itself, with secrets blanked; may be empty.
    pub source: String,
    /// The start of the caret in `source`, from 1.
    pub caret: usize,
    /// Characters that the caret covers.
    pub width: usize,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.severity.as_str(), self.sentence())?;
        if !self.source.is_empty() {
            let number = self.line.to_string();
            let (indent, before) =
                (" ".repeat(number.len()), " ".repeat(self.caret.saturating_sub(1)));
            write!(f, "\n {number} | {}", self.source)?;
            write!(f, "\n {indent} | {before}{}", "^".repeat(self.width.max(1)))?;
        }
        if let Some(help) = &self.help {
            write!(f, "\n   = {help}")?;
        }
        Ok(())
    }
}

impl Problem {
    /// The problem in one line for the log: place, mistake and fix.
    #[must_use]
    pub fn one_line(&self) -> String {
        let help = self.help.as_ref().map(|help| format!(" ({help})"));
        self.sentence() + &help.unwrap_or_default()
    }

    /// Place and mistake: `rules.yaml:3:11: rules[0].rate: ...`.
    fn sentence(&self) -> String {
        let at =
            if self.line > 0 { format!(":{}:{}", self.line, self.column) } else { String::new() };
        let colon = if self.path.is_empty() { "" } else { ": " };
        format!("{}{at}{colon}{}: {}", self.file, self.path, self.message)
    }

    /// The problem as a JSON object.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::json!({
            "severity": self.severity.as_str(),
            "file": self.file,
            "line": self.line,
            "column": self.column,
            "path": self.path,
            "message": self.message,
            "help": self.help,
            "source": self.source,
        })
    }
}

/// Everything that is wrong in one file; at least one error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Problems(pub(super) Vec<Problem>);

impl Problems {
    /// Errors and warnings, in the order of the file.
    #[must_use]
    pub fn as_slice(&self) -> &[Problem] {
        &self.0
    }

    /// One JSON object: `errors`, `warnings` (numbers) and `problems` (a list).
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        report_json(&self.0)
    }

    /// A problem with a whole file that cannot be read at all.
    pub(super) fn of_file(file: &str, message: String, help: Option<&str>) -> Self {
        Self(vec![Problem {
            severity: Severity::Error,
            file: file.to_owned(),
            line: 0,
            column: 0,
            path: String::new(),
            message,
            help: help.map(str::to_owned),
            source: String::new(),
            caret: 0,
            width: 0,
        }])
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for problem in &self.0 {
            write!(f, "{problem}\n\n")?;
        }
        let errors = self.0.iter().filter(|p| p.severity == Severity::Error).count();
        let file = self.0.first().map_or("the rule file", |problem| &problem.file);
        match errors {
            1 => write!(f, "{file} is not used: 1 error"),
            MOST_PROBLEMS.. => write!(f, "{file} is not used: {errors} errors or more"),
            _ => write!(f, "{file} is not used: {errors} errors"),
        }
    }
}

/// The output of `tidegate check --json`, for a valid file (only warnings) and an invalid one.
#[must_use]
pub fn report_json(problems: &[Problem]) -> serde_json::Value {
    let count = |severity| problems.iter().filter(|p| p.severity == severity).count();
    serde_json::json!({
        "ok": count(Severity::Error) == 0,
        "errors": count(Severity::Error),
        "warnings": count(Severity::Warning),
        "problems": problems.iter().map(Problem::to_json).collect::<Vec<_>>(),
    })
}

/// The text of a file, and the places to hide.
#[derive(Debug)]
pub(super) struct Source<'a> {
    /// Name of the file.
    pub(super) name: &'a str,
    /// Its lines.
    lines: Vec<&'a str>,
}

impl<'a> Source<'a> {
    /// The source `name` with its `text`.
    pub(super) fn new(name: &'a str, text: &'a str) -> Self {
        Self { name, lines: text.lines().collect() }
    }

    /// The line of `place`, unchanged.
    pub(super) fn line(&self, place: Place) -> &'a str {
        place.line.checked_sub(1).and_then(|at| self.lines.get(at)).copied().unwrap_or("")
    }

    /// The line of `place` with its `hidden` places replaced, cut for a terminal; and the column in
    /// it.
    pub(super) fn show(&self, place: Place, hidden: &[Place]) -> (String, usize) {
        let line = self.line(place);
        if line.is_empty() {
            return (String::new(), 0);
        }
        let on_line = |hide: &&Place| {
            hide.file == place.file && hide.line <= place.line && place.line <= hide.end_line
        };
        let hidden: Vec<&Place> = hidden.iter().filter(on_line).collect();
        let beside = if hidden.is_empty() { Vec::new() } else { no_values(line) };
        let blank = |(at, c): (usize, char)| {
            let covers = |hide: &&Place| hide.covers(place.line, at + 1);
            if beside.get(at) == Some(&true) || hidden.iter().any(covers) {
                '*'
            } else if c.is_control() {
                ' '
            } else {
                c
            }
        };
        // A very long line is cut on both sides of the place.
        let skip = place.column.saturating_sub(SHOWN_LINE / 2);
        let skip = if place.column <= SHOWN_LINE { 0 } else { skip };
        let chars = line.chars().enumerate().skip(skip).take(SHOWN_LINE);
        let shown: String = chars.map(blank).collect();
        (blank_before_at(&shown).trim_end().to_owned(), place.column - skip)
    }
}

/// The characters of a line that are a comment, a tag or an anchor. To YAML they are not values,
/// but the author may have meant one (`bob: #Hunter2`).
fn no_values(line: &str) -> Vec<bool> {
    let (mut comment, mut word, mut before) = (false, false, ' ');
    let mut marked = Vec::with_capacity(line.len());
    for c in line.chars() {
        let begins = before.is_whitespace() || matches!(before, '[' | '{' | ',');
        comment |= begins && c == '#';
        word = !c.is_whitespace() && (word || begins && matches!(c, '!' | '&'));
        marked.push(comment || word);
        before = c;
    }
    marked
}

/// Hides the text before an `@` (the password of a URL), without changing the length.
pub(super) fn blank_before_at(text: &str) -> String {
    let mut out: Vec<char> = text.chars().collect();
    for at in (0..out.len()).filter(|&at| out[at] == '@').collect::<Vec<_>>() {
        for before in (0..at).rev() {
            if out[before].is_whitespace() || matches!(out[before], '/' | '"' | '\'' | '`' | ',') {
                break;
            }
            out[before] = '*';
        }
    }
    out.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_before_an_at_sign_is_hidden() {
        assert_eq!(blank_before_at("redis://u:pw@h:1 x"), "redis://****@h:1 x");
        assert_eq!(blank_before_at("no secret"), "no secret");
    }

    #[test]
    fn a_hidden_place_is_blanked_and_the_column_stays() {
        let source = Source::new("f", "users: {a: hunter2}\n");
        let at = |column, end_column| Place { file: 0, line: 1, column, end_line: 1, end_column };
        let hide = at(12, 19);
        assert_eq!(source.show(at(8, 9), &[hide]), ("users: {a: *******}".to_owned(), 8));
        let elsewhere = Place { file: 1, ..hide };
        assert_eq!(source.show(at(8, 9), &[elsewhere]).0, "users: {a: hunter2}");
    }

    #[test]
    fn beside_a_secret_comments_tags_and_anchors_are_blanked() {
        for (line, shown) in [
            ("bob: #Hunter2 x", "bob: **********"),
            ("bob: !Hunter2 x", "bob: ******** x"),
            ("{bob: &Hunter2 x}", "{bob: ******** x}"),
            ("bob: a#b!c", "bob: a#b!c"),
        ] {
            let source = Source::new("f", line);
            let place = Place { file: 0, line: 1, column: 1, end_line: 1, end_column: 1 };
            assert_eq!(source.show(place, &[place]).0, shown);
            assert_eq!(source.show(place, &[]).0, line);
        }
    }

    #[test]
    fn a_line_of_a_megabyte_is_cut_around_its_place() {
        let line = "x".repeat(1 << 20);
        let source = Source::new("f", &line);
        let place = Place { file: 0, line: 1, column: 500_000, end_line: 1, end_column: 500_001 };
        let (shown, column) = source.show(place, &[]);
        assert!(shown.len() <= SHOWN_LINE && column <= SHOWN_LINE);
    }
}
