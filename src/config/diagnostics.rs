//! The results of reading a file: problems, places to hide, and the effective values.

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
    hash::{BuildHasher, RandomState},
    rc::Rc,
    sync::OnceLock,
};

use super::{
    problem::{MOST_PROBLEMS, Problem, Severity, Source, blank_before_at},
    syntax_tree::{self, Flaw, Node, Place, Value},
};

/// Everything that is found while one file is read.
#[derive(Debug)]
pub(super) struct Diagnostics<'a> {
    sources: Vec<Source<'a>>,
    found: RefCell<Vec<(Severity, Flaw)>>,
    hidden: RefCell<Vec<Place>>,
    values: RefCell<BTreeMap<String, Shown>>,
    defaults: RefCell<HashMap<&'static str, Rc<Node>>>,
}

/// The effective value of a key, for people and for comparing two files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shown {
    /// The value; `***` for a secret.
    pub(super) text: String,
    /// A hash of the value, also of a secret, to compare two files.
    pub(super) fingerprint: u64,
    /// Its place.
    place: Place,
}

impl<'a> Diagnostics<'a> {
    /// For the rule file and the files that it includes, by the number of their places.
    pub(super) fn new(sources: Vec<Source<'a>>) -> Self {
        Self {
            sources,
            found: RefCell::default(),
            hidden: RefCell::default(),
            values: RefCell::default(),
            defaults: RefCell::default(),
        }
    }

    /// A default of the key table, parsed once. It has no place of its own: a mistake in it is
    /// reported at the mapping that lacks the key.
    pub(super) fn default_node(&self, text: &'static str) -> Rc<Node> {
        let read = || match text.as_bytes().first() {
            Some(b'[' | b'{' | b'"') => {
                let root = syntax_tree::parse(text, &|_| None).root;
                root.expect("the table's defaults are YAML: a test reads each").without_places()
            }
            _ => Node::of_text(text),
        };
        Rc::clone(self.defaults.borrow_mut().entry(text).or_insert_with(read))
    }

    /// Reports a flaw.
    pub(super) fn note(&self, severity: Severity, flaw: Flaw) {
        let mut found = self.found.borrow_mut();
        let known = |(_, f): &(Severity, Flaw)| {
            f.place == flaw.place && f.path == flaw.path && f.message == flaw.message
        };
        if found.len() < MOST_PROBLEMS && !found.iter().any(known) {
            found.push((severity, flaw));
        }
    }

    /// Whether a mistake at `path` or below it has been noted.
    pub(super) fn has_error(&self, path: &str) -> bool {
        let below = |rest: &str| rest.is_empty() || rest.starts_with(['.', '[']);
        self.found.borrow().iter().any(|(severity, flaw)| {
            *severity == Severity::Error && flaw.path.strip_prefix(path).is_some_and(below)
        })
    }

    /// Blanks a place in every line that is shown.
    pub(super) fn hide(&self, place: Place) {
        self.hidden.borrow_mut().push(place);
    }

    /// Hides the whole line of a syntax error if it may contain a secret, because nothing is known
    /// about it yet.
    pub(super) fn hide_near_secrets(&self, flaw: &Flaw) {
        let near = ["auth", "admin", "store"].iter().any(|key| flaw.path.starts_with(key));
        let line = self.source(flaw.place).line(flaw.place).to_ascii_lowercase();
        let words = ["token", "users", "password", "secret", "://", "@"];
        if near || words.iter().any(|word| line.contains(word)) {
            let Place { file, line, .. } = flaw.place;
            self.hide(Place { file, line, column: 1, end_line: line + 1, end_column: 1 });
        }
    }

    /// Blanks a value with all that is in it.
    pub(super) fn hide_all(&self, node: &Node) {
        match &node.value {
            // The intended value may be in a comment on its line.
            Value::Null => {
                self.hide(Place { end_line: node.place.line, end_column: 0, ..node.place })
            }
            // A mere reference to the environment shows nothing, and the reader needs to see it.
            Value::Broken { reference: true } => {}
            Value::Scalar(scalar) if scalar.is_reference() => {}
            Value::Broken { .. } | Value::Scalar(_) => self.hide(node.place),
            Value::List(items) => items.iter().for_each(|item| self.hide_all(item)),
            Value::Map(entries) => entries.iter().for_each(|(_, item)| self.hide_all(item)),
        }
    }

    /// Records the effective value at `label`.
    pub(super) fn record(&self, label: &str, shown: Shown) {
        self.values.borrow_mut().insert(label.to_owned(), shown);
    }

    fn source(&self, place: Place) -> &Source<'a> {
        &self.sources[place.file]
    }

    /// A place for people: `line 7`, or `rules.d/shops.yaml:7` for one that is not in `file`.
    pub(super) fn words(&self, place: Place, file: usize) -> String {
        if place.file == file {
            return format!("line {}", place.line);
        }
        format!("{}:{}", self.source(place).name, place.line)
    }

    /// Every value that was read, by path, and every problem, in the order of the file.
    pub(super) fn finish(self) -> (BTreeMap<String, Shown>, Vec<Problem>) {
        let hidden = self.hidden.take();
        let mut found = self.found.take();
        found.sort_by_key(|(_, flaw)| (flaw.place.file, flaw.place.line, flaw.place.column));
        let problem = |(severity, flaw): (Severity, Flaw)| {
            let source = self.source(flaw.place);
            let (line, column) = source.show(flaw.place, &hidden);
            let room = line.chars().count().saturating_sub(column.saturating_sub(1));
            Problem {
                severity,
                file: source.name.to_owned(),
                line: flaw.place.line,
                column: flaw.place.column,
                path: flaw.path,
                message: blank_before_at(&flaw.message),
                help: flaw.help.map(|help| blank_before_at(&help)),
                width: flaw.place.width().min(room.max(1)),
                source: line,
                caret: column,
            }
        };
        (self.values.take(), found.into_iter().map(problem).collect())
    }
}

impl Shown {
    /// File and line of the value; `None` for a default.
    pub(super) fn origin(&self) -> Option<(usize, usize)> {
        (self.place.line > 0).then_some((self.place.file, self.place.line))
    }

    /// Of `node`, which is a secret or not.
    pub(super) fn of(node: &Node, secret: bool) -> Self {
        static HASHER: OnceLock<RandomState> = OnceLock::new();
        let full = flow(node);
        let fingerprint = HASHER.get_or_init(RandomState::new).hash_one(&full);
        let hidden = secret && !matches!(full.as_str(), "memory" | "none" | "off" | "{}");
        let text = match full.split_once("://") {
            Some((scheme, rest)) if hidden && matches!(node.value, Value::Scalar(_)) => {
                // A store's URL. Its host is worth showing, but its user and options may be secret.
                let place = rest.split(['?', '#']).next().unwrap_or("");
                let place = place.rsplit_once('@').map_or(place, |(_, place)| place);
                format!("{scheme}://{place}")
            }
            _ if hidden => "***".to_owned(),
            _ => full,
        };
        Self { text, fingerprint, place: node.place }
    }
}

/// A value on one line, in YAML's flow style.
fn flow(node: &Node) -> String {
    match &node.value {
        Value::Null | Value::Broken { .. } => "~".to_owned(),
        Value::Scalar(scalar) => scalar.text.clone(),
        Value::List(items) => {
            format!("[{}]", items.iter().map(|item| flow(item)).collect::<Vec<_>>().join(", "))
        }
        Value::Map(entries) => {
            let entries =
                entries.iter().map(|(name, node)| format!("{}: {}", name.text, flow(node)));
            format!("{{{}}}", entries.collect::<Vec<_>>().join(", "))
        }
    }
}
