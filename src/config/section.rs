//! Reads a mapping by its section of the key table: unknown keys, types, ranges, defaults.
//!
//! A mistake is recorded and the default is used instead, so that one run finds all mistakes.

use std::rc::Rc;

use serde::{
    Deserialize,
    de::value::{self, BorrowedStrDeserializer},
};

use super::{
    advice,
    cursor::{Cursor, join},
    diagnostics::{Diagnostics, Shown},
    keys::{Default, Key, Kind, Section},
    problem::Severity,
    range::{self, Ranged},
    syntax_tree::{Flaw, Name, Node, Place, Value},
    units::{Read, Wrong, quote},
};

/// A mapping that is read key by key.
#[derive(Debug, Clone)]
pub(super) struct Reader<'a> {
    diagnostics: &'a Diagnostics<'a>,
    section: &'static Section,
    entries: Vec<(Name, Rc<Node>)>,
    /// Values of `defaults` for keys that are not given here.
    inherited: Vec<(Name, Rc<Node>)>,
    place: Place,
    /// Path of the mapping in the file.
    pub(super) path: String,
    /// The path with rules by name.
    pub(super) label: String,
}

impl<'a> Cursor<'a> {
    /// Opens the section of its kind as an empty mapping: all keys have their defaults.
    pub(super) fn open_empty(&self) -> Reader<'a> {
        Reader::new(self, self.section(), Vec::new())
    }

    /// Opens it as the section of its kind. Any other value than a mapping is reported and counts as
    /// an empty mapping.
    pub(super) fn open(&self) -> Reader<'a> {
        let entries = match &self.node.value {
            Value::Map(entries) => entries.clone(),
            Value::Null | Value::Broken { .. } | Value::Scalar(_) | Value::List(_) => {
                self.mistyped();
                Vec::new()
            }
        };
        Reader::new(self, self.section(), entries)
    }
}

impl<'a> Reader<'a> {
    /// Opens the mapping at `cursor`, whose `entries` should have the keys of `section`.
    pub(super) fn new(
        cursor: &Cursor<'a>,
        section: &'static Section,
        entries: Vec<(Name, Rc<Node>)>,
    ) -> Self {
        let reader = Self {
            diagnostics: cursor.diagnostics,
            section,
            place: cursor.node.place,
            path: cursor.path.clone(),
            label: cursor.label.clone(),
            entries,
            inherited: Vec::new(),
        };
        reader.check_keys();
        reader
    }

    fn check_keys(&self) {
        for (name, node) in &self.entries {
            let anchor = self.section.has_anchors() && name.text.starts_with("x-");
            if self.section.key(&name.text).is_none() && !anchor {
                // The value of an unknown key may be a secret.
                self.diagnostics.hide_all(node);
                let help = match name.text.as_str() {
                    "<<" => {
                        "merge keys are not supported; an alias can replace a whole value".into()
                    }
                    text => advice::for_key(text, self.section),
                };
                self.wrong_key(
                    name,
                    Wrong::new(format!("unknown key {}", quote(&name.text)), help),
                );
            }
        }
    }

    /// Reports a mistake at a key of this mapping.
    pub(super) fn wrong_key(&self, name: &Name, wrong: Wrong) {
        self.note(Severity::Error, name.place, &name.text, wrong);
    }

    /// Reports a mistake at the key `key`, else at the mapping.
    pub(super) fn wrong(&self, key: &str, wrong: Wrong) {
        self.note(Severity::Error, self.place_of(key), key, wrong);
    }

    /// Reports a warning about the value of `key`.
    pub(super) fn warn(&self, key: &str, wrong: Wrong) {
        self.note(Severity::Warning, self.place_of(key), key, wrong);
    }

    /// Reports a mistake of `key` at `place`.
    pub(super) fn wrong_at(&self, place: Place, key: &str, wrong: Wrong) {
        self.note(Severity::Error, place, key, wrong);
    }

    fn place_of(&self, key: &str) -> Place {
        self.entry(key).map_or(self.place, |node| node.place)
    }

    /// The value of `key` that is given here, else the inherited one.
    fn entry(&self, key: &str) -> Option<&Rc<Node>> {
        let both = self.entries.iter().chain(&self.inherited);
        both.into_iter().find(|(name, _)| name.text == key).map(|(_, node)| node)
    }

    /// The path of `key`. An inherited value has its path below `defaults`.
    fn path_of(&self, key: &str) -> String {
        let inherits = !self.has(key) && self.counts(key);
        join(if inherits { "defaults" } else { &self.path }, key)
    }

    fn note(&self, severity: Severity, place: Place, key: &str, wrong: Wrong) {
        let path = self.path_of(key);
        self.diagnostics.note(severity, Flaw::new(place, path, wrong));
    }

    /// Whether the section has a key of this name.
    pub(super) fn knows(&self, key: &str) -> bool {
        self.section.key(key).is_some()
    }

    /// The allowed values of `key`.
    pub(super) fn kind(&self, key: &str) -> &'static Kind {
        &self.key(key).kind
    }

    /// Keys that are given, in the order of the file.
    pub(super) fn given(&self) -> impl Iterator<Item = &Name> {
        self.entries.iter().map(|(name, _)| name)
    }

    /// Lets the values of `defaults` count for keys that are not given here.
    pub(super) fn inherit(&mut self, defaults: Vec<(Name, Rc<Node>)>) {
        self.inherited = defaults;
    }

    /// Whether `key` is given here or inherited.
    pub(super) fn counts(&self, key: &str) -> bool {
        self.entry(key).is_some()
    }

    /// Whether `key` is given here.
    pub(super) fn has(&self, key: &str) -> bool {
        self.entries.iter().any(|(name, _)| name.text == key)
    }

    /// Gives `key` another value, from the command line.
    pub(super) fn replace(&mut self, key: &str, text: &str) {
        self.entries.retain(|(name, _)| name.text != key);
        let name = Name { text: key.to_owned(), place: Place::default() };
        self.entries.push((name, Node::of_text(text)));
    }

    fn key(&self, name: &str) -> &'static Key {
        self.section.key(name).expect("every key that is read is in the table: see the tests")
    }

    /// The value of `key`, if it is given or inherited.
    pub(super) fn given_cursor(&self, key: &str) -> Option<Cursor<'a>> {
        let spec = self.key(key);
        let node = self.entry(key)?;
        let cursor = Cursor { path: self.path_of(key), ..self.cursor_of(spec, Rc::clone(node)) };
        let section = spec.kind.section().is_some() && matches!(node.value, Value::Map(_));
        if spec.kind.is_secret() && !section {
            self.diagnostics.hide_all(node);
        }
        self.record(&cursor);
        Some(cursor)
    }

    /// `node` as the value of `key`.
    pub(super) fn cursor_with(&self, key: &str, node: Rc<Node>) -> Cursor<'a> {
        self.cursor_of(self.key(key), node)
    }

    /// Whether a mistake at `key` or below it has been noted.
    pub(super) fn is_wrong(&self, key: &str) -> bool {
        self.diagnostics.has_error(&self.path_of(key))
    }

    /// The value of `key`, given or default; `None` if there is neither, which is reported for a
    /// required key.
    pub(super) fn cursor(&self, key: &str) -> Option<Cursor<'a>> {
        if let Some(cursor) = self.given_cursor(key) {
            return Some(cursor);
        }
        let spec = self.key(key);
        match spec.default {
            Default::Absent(_) => None,
            Default::Is(_) => {
                let cursor = self.default_cursor(key);
                self.record(&cursor);
                Some(cursor)
            }
            Default::Required => {
                let message = format!("`{key}` is missing");
                let help = format!("add `{key}: ` with {}", spec.kind.words());
                self.wrong(key, Wrong::new(message, help));
                None
            }
        }
    }

    fn cursor_of(&self, spec: &'static Key, node: Rc<Node>) -> Cursor<'a> {
        let (path, label) = (join(&self.path, spec.name), join(&self.label, spec.name));
        Cursor { diagnostics: self.diagnostics, node, path, label, kind: &spec.kind }
    }

    fn default_cursor(&self, key: &str) -> Cursor<'a> {
        let spec = self.key(key);
        let Default::Is(text) = spec.default else {
            unreachable!("only keys with a default are read by default, see the tests")
        };
        self.cursor_of(spec, self.diagnostics.default_node(text))
    }

    fn record(&self, cursor: &Cursor<'_>) {
        // Sections are shown key by key; entries of `detect` are shown with their list.
        let by_key = cursor.kind.section().is_some() && matches!(cursor.node.value, Value::Map(_));
        if by_key || cursor.label == "rules" || cursor.label.contains('[') {
            return;
        }
        let shown = Shown::of(&cursor.node, cursor.kind.is_secret());
        self.diagnostics.record(&cursor.label, shown);
    }

    /// Reads a scalar: the given one, or the default if that is missing or wrong. `read` must accept
    /// the default.
    pub(super) fn read<T>(&self, key: &str, read: impl Fn(&str) -> Read<T>) -> T {
        let given = self.given_cursor(key).and_then(|cursor| cursor.scalar(&read));
        given.unwrap_or_else(|| {
            let cursor = self.default_cursor(key);
            if !self.counts(key) {
                self.record(&cursor);
            }
            let text = cursor.text().unwrap_or("");
            read(text).expect("the table's defaults are right: a test reads each")
        })
    }

    /// The value of `key`, as its kind describes it.
    pub(super) fn get<T: Ranged>(&self, key: &str) -> T {
        self.read(key, |text| T::parse(self.kind(key), text))
    }

    /// The same, of a key without a default.
    pub(super) fn optional_get<T: Ranged>(&self, key: &str) -> Option<T> {
        self.optional(key, |text| T::parse(self.kind(key), text))
    }

    /// One of the key's words, as the type that serde reads from it.
    pub(super) fn word<T: Deserialize<'static>>(&self, key: &str) -> T {
        self.read(key, |text| range::word(self.kind(key), text).map(named))
    }

    /// The same, of a key without a default.
    pub(super) fn optional_word<T: Deserialize<'static>>(&self, key: &str) -> Option<T> {
        self.optional(key, |text| range::word(self.kind(key), text).map(named))
    }

    /// A scalar without a default; a missing required one is noted.
    pub(super) fn optional<T>(&self, key: &str, read: impl Fn(&str) -> Read<T>) -> Option<T> {
        self.cursor(key)?.scalar(read)
    }

    /// A scalar read by `read`; `None` if it is `word`.
    pub(super) fn unless<T>(
        &self,
        key: &str,
        word: &str,
        read: impl Fn(&str) -> Read<T>,
    ) -> Option<T> {
        self.cursor(key).filter(|cursor| !cursor.is_word(word))?.scalar(read)
    }

    /// The items of a list, or the one value, each read by `read`; those that fail are noted and
    /// left out.
    pub(super) fn many<T>(&self, key: &str, read: impl Fn(&str) -> Read<T>) -> Vec<T> {
        let Some(cursor) = self.cursor(key) else { return Vec::new() };
        cursor.one_or_many().iter().filter_map(|item| item.scalar(&read)).collect()
    }

    /// The mapping at `key`, which has the default `{}`.
    pub(super) fn section(&self, key: &str) -> Reader<'a> {
        self.given_cursor(key).unwrap_or_else(|| self.default_cursor(key)).open()
    }
}

fn named<T: Deserialize<'static>>(word: &'static str) -> T {
    let read = T::deserialize(BorrowedStrDeserializer::<value::Error>::new(word));
    read.expect("the table's words are those of the type: a test reads each")
}
