//! Reads one value of the file: a scalar, a list or a mapping, with its path and its kind.

use std::rc::Rc;

use super::{
    advice,
    diagnostics::Diagnostics,
    keys::{Kind, Section},
    problem::Severity,
    range,
    syntax_tree::{Flaw, Name, Node, Value},
    units::{Read, Wrong, quote},
};

/// A value with its path and its kind.
#[derive(Debug, Clone)]
pub(super) struct Cursor<'a> {
    /// Collects mistakes.
    pub(super) diagnostics: &'a Diagnostics<'a>,
    /// The value.
    pub(super) node: Rc<Node>,
    /// Its path in the file.
    pub(super) path: String,
    /// Its path with rules by name.
    pub(super) label: String,
    /// The kinds of values that are allowed.
    pub(super) kind: &'static Kind,
}

impl<'a> Cursor<'a> {
    /// The root of a file.
    pub(super) fn root(
        diagnostics: &'a Diagnostics<'a>,
        node: Rc<Node>,
        kind: &'static Kind,
    ) -> Self {
        Self { diagnostics, node, path: String::new(), label: String::new(), kind }
    }

    /// Reports that the value is wrong.
    pub(super) fn wrong(&self, wrong: Wrong) {
        self.note(Severity::Error, wrong);
    }

    /// Reports a warning about the value.
    pub(super) fn warn(&self, wrong: Wrong) {
        self.note(Severity::Warning, wrong);
    }

    fn note(&self, severity: Severity, wrong: Wrong) {
        let flaw = Flaw::new(self.node.place, self.path.clone(), wrong);
        self.diagnostics.note(severity, flaw);
    }

    pub(super) fn mistyped(&self) {
        match self.node.value {
            Value::Broken { .. } => {}
            Value::Null => {
                let help = format!("write {}, or omit the key", self.kind.words());
                self.wrong(Wrong::new("there is no value", help));
            }
            Value::Scalar(_) if !self.kind.all_words().is_empty() => {
                self.scalar(|text| {
                    let wrong =
                        |wrong: Wrong| Wrong { help: self.as_mapping().or(wrong.help), ..wrong };
                    range::word(self.kind, text).map_err(wrong)
                });
            }
            Value::Scalar(_) | Value::List(_) | Value::Map(_) => {
                let message = format!("{} does not belong here", self.node.kind());
                let help = self.as_mapping();
                let help = help.unwrap_or_else(|| format!("write {}", self.kind.words()));
                self.wrong(Wrong::new(message, help));
            }
        }
    }

    /// The mapping that the value probably stands for, as advice.
    fn as_mapping(&self) -> Option<String> {
        let name = self.path.rsplit('.').next().unwrap_or_default();
        advice::for_mapping(name, self.kind, &self.node)
    }

    /// The text of a scalar; `None` otherwise.
    pub(super) fn text(&self) -> Option<&str> {
        self.node.text()
    }

    /// Parses a scalar with `read`; `None` if that fails, which is reported.
    pub(super) fn scalar<T>(&self, read: impl Fn(&str) -> Read<T>) -> Option<T> {
        let text = self.bare_text()?;
        let wrong = match read(text) {
            Ok(value) => return Some(value),
            Err(wrong) => wrong,
        };
        let meant = advice::spellings(text).into_iter().find(|spelling| read(spelling).is_ok());
        let meant = meant.filter(|_| !self.kind.is_secret());
        let help = meant.map(|meant| format!("did you mean `{meant}`?")).or(wrong.help);
        self.wrong_scalar(Wrong { help, ..wrong });
        None
    }

    /// The text of a scalar that is not in quotes by mistake; `None` otherwise, which is reported.
    fn bare_text(&self) -> Option<&str> {
        let Value::Scalar(scalar) = &self.node.value else {
            self.mistyped();
            return None;
        };
        let bare = matches!(self.kind, Kind::Flag | Kind::Count(..) | Kind::Factor(..));
        if bare && scalar.quoted {
            let message = format!("{} is in quotes, so it is text", quote(&scalar.text));
            self.wrong(Wrong::new(message, "write it without the quotes"));
            return None;
        }
        Some(scalar.text.trim())
    }

    /// Reports why a scalar cannot be read. A value from the environment may be a secret in the wrong
    /// place: only the reference is shown.
    fn wrong_scalar(&self, wrong: Wrong) {
        let reference = match &self.node.value {
            Value::Scalar(scalar) => scalar.written.as_ref(),
            Value::Null | Value::Broken { .. } | Value::List(_) | Value::Map(_) => None,
        };
        self.wrong(match reference {
            None => wrong,
            Some(reference) => Wrong::new(
                format!("the value of {} is invalid", quote(reference)),
                format!("it must become {}", self.kind.words()),
            ),
        });
    }

    /// Reports that the value's own name, a free key, is wrong.
    pub(super) fn wrong_name(&self, name: &Name, wrong: Wrong) {
        let flaw = Flaw::new(name.place, self.path.clone(), wrong);
        self.diagnostics.note(Severity::Error, flaw);
    }

    /// Whether a mistake at `key` of this mapping, or below it, has been noted.
    pub(super) fn is_wrong(&self, key: &str) -> bool {
        self.diagnostics.has_error(&join(&self.path, key))
    }

    /// Whether it is a text of the file itself, without a part from the environment.
    pub(super) fn is_literal(&self) -> bool {
        let in_file = self.node.place.line > 0;
        matches!(&self.node.value, Value::Scalar(scalar) if in_file && scalar.written.is_none())
    }

    /// Whether it is a mapping.
    pub(super) fn is_map(&self) -> bool {
        matches!(self.node.value, Value::Map(_))
    }

    /// Whether it is a list.
    pub(super) fn is_list(&self) -> bool {
        matches!(self.node.value, Value::List(_))
    }

    /// Whether it is a list or a mapping without anything in it.
    pub(super) fn is_empty(&self) -> bool {
        match &self.node.value {
            Value::List(items) => items.is_empty(),
            Value::Map(entries) => entries.is_empty(),
            Value::Null | Value::Broken { .. } | Value::Scalar(_) => false,
        }
    }

    /// The same under another label.
    pub(super) fn labelled(mut self, label: &str) -> Self {
        label.clone_into(&mut self.label);
        self
    }

    /// Whether it is this word.
    pub(super) fn is_word(&self, word: &str) -> bool {
        self.text() == Some(word)
    }

    /// The items of a list, or the one value.
    pub(super) fn one_or_many(&self) -> Vec<Self> {
        match &self.node.value {
            Value::List(_) => self.list(),
            Value::Null | Value::Broken { .. } => {
                self.mistyped();
                Vec::new()
            }
            Value::Scalar(_) | Value::Map(_) => {
                vec![Self { kind: self.item_kind(), ..self.clone() }]
            }
        }
    }

    /// The items of a list.
    pub(super) fn list(&self) -> Vec<Self> {
        let Value::List(items) = &self.node.value else {
            self.mistyped();
            return Vec::new();
        };
        let cursor = |(at, node): (usize, &Rc<Node>)| Self {
            diagnostics: self.diagnostics,
            node: Rc::clone(node),
            path: format!("{}[{at}]", self.path),
            label: format!("{}[{at}]", self.label),
            kind: self.item_kind(),
        };
        items.iter().enumerate().map(cursor).collect()
    }

    /// The entries of a mapping with free keys.
    pub(super) fn entries(&self) -> Vec<(Name, Self)> {
        let Value::Map(entries) = &self.node.value else {
            self.mistyped();
            return Vec::new();
        };
        let cursor = |(name, node): &(Name, Rc<Node>)| {
            let (path, label) = (join(&self.path, &name.text), join(&self.label, &name.text));
            let kind = self.item_kind();
            (
                name.clone(),
                Self { diagnostics: self.diagnostics, node: Rc::clone(node), path, label, kind },
            )
        };
        entries.iter().map(cursor).collect()
    }

    fn item_kind(&self) -> &'static Kind {
        let inner = |kind: &'static Kind| match kind {
            Kind::List(inner) | Kind::OneOrMany(inner) | Kind::Map(_, inner) => Some(*inner),
            _ => None,
        };
        match self.kind {
            Kind::Either(kinds) => {
                let map = matches!(self.node.value, Value::Map(_));
                let fits = |kind: &&'static Kind| matches!(kind, Kind::Map(..)) == map;
                kinds.iter().filter(fits).find_map(inner).unwrap_or(self.kind)
            }
            kind => inner(kind).unwrap_or(kind),
        }
    }

    /// The section of its kind.
    pub(super) fn section(&self) -> &'static Section {
        self.kind.section().expect("only kinds with a section are opened")
    }
}

/// The path of `key` in the mapping at `path`.
pub(super) fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}
