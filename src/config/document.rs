//! A YAML file as a tree in which every value knows its place.
//!
//! One bounded pass over the parser's events builds the tree: nesting, size and what aliases expand to are counted
//! while it grows, so that a hostile file costs no more than a big one. Scalars keep their text; what it means is
//! decided where a key's type is known, which leaves no room for YAML's surprises (`no`, `1:30`, `0777`).

use std::{borrow::Cow, collections::HashMap, rc::Rc};

use saphyr_parser::{Event, Parser, ScalarStyle, Span};

use super::{
    env::{self, Env},
    problem::MOST_PROBLEMS,
};

/// Deepest nesting; the schema needs 7 levels.
const MOST_DEPTH: usize = 32;
/// Most values of a file, each alias counted with all that it stands for: room for thousands of full rules.
const MOST_NODES: usize = 150_000;

/// Where something stands in the file: lines and columns from 1, columns in characters, the end exclusive.
/// All zero for what does not stand in a file (a default, the command line).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// First line.
    pub(super) line: usize,
    /// First column.
    pub(super) column: usize,
    /// Last line.
    pub(super) end_line: usize,
    /// Column after the last character.
    pub(super) end_column: usize,
}

impl Place {
    fn of(span: Span) -> Self {
        Self {
            line: span.start.line(),
            column: span.start.col() + 1,
            end_line: span.end.line(),
            end_column: span.end.col() + 1,
        }
    }

    /// Whether the character at `line` and `column` belongs to it.
    pub(super) fn covers(self, line: usize, column: usize) -> bool {
        (self.line, self.column) <= (line, column)
            && (line, column) < (self.end_line, self.end_column)
    }

    /// Characters of its first line, for the caret.
    pub(super) fn width(self) -> usize {
        if self.end_line == self.line {
            self.end_column.saturating_sub(self.column).max(1)
        } else {
            1
        }
    }
}

/// A value and its place.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Node {
    /// Where it stands.
    pub(super) place: Place,
    /// What it is.
    pub(super) value: Value,
    /// Values in it, itself included, aliases expanded.
    weight: usize,
}

/// A value.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// Nothing: an empty value, `~` or `null`.
    Null,
    /// Something that a flaw has been told about already.
    Broken {
        /// Whether it is nothing but a reference to the environment.
        reference: bool,
    },
    /// Text.
    Scalar(Scalar),
    /// A list.
    List(Vec<Rc<Node>>),
    /// A mapping, in the order of the file; of a key given twice only the first.
    Map(Vec<(Name, Rc<Node>)>),
}

/// A scalar.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Scalar {
    /// The text, variables put in.
    pub(super) text: String,
    /// The text as written, where variables were put in.
    pub(super) written: Option<String>,
    /// Whether it stood in quotes (or a block) and so is text even where it looks like a number.
    pub(super) quoted: bool,
}

impl Scalar {
    /// Whether it is nothing but a reference to the environment, without a default.
    pub(super) fn is_reference(&self) -> bool {
        self.written.as_deref().is_some_and(env::is_reference)
    }
}

/// A key and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Name {
    /// The key.
    pub(super) text: String,
    /// Where it stands.
    pub(super) place: Place,
}

impl Node {
    /// A scalar that stands in no file: a default, or a value of the command line.
    pub(super) fn of_text(text: &str) -> Rc<Self> {
        let scalar = Scalar { text: text.to_owned(), written: None, quoted: false };
        Rc::new(Self { place: Place::default(), value: Value::Scalar(scalar), weight: 1 })
    }

    /// The value of a key, where this is a mapping that has it.
    pub(super) fn get(&self, key: &str) -> Option<&Rc<Self>> {
        match &self.value {
            Value::Map(entries) => {
                entries.iter().find(|(k, _)| k.text == key).map(|(_, node)| node)
            }
            Value::Null | Value::Broken { .. } | Value::Scalar(_) | Value::List(_) => None,
        }
    }

    /// The same standing in no file, as the built-in defaults do.
    pub(super) fn nowhere(&self) -> Rc<Self> {
        let value = match &self.value {
            Value::Null => Value::Null,
            Value::Broken { reference } => Value::Broken { reference: *reference },
            Value::Scalar(scalar) => Value::Scalar(scalar.clone()),
            Value::List(items) => Value::List(items.iter().map(|item| item.nowhere()).collect()),
            Value::Map(entries) => {
                let entry = |(name, node): &(Name, Rc<Self>)| {
                    let name = Name { text: name.text.clone(), place: Place::default() };
                    (name, node.nowhere())
                };
                Value::Map(entries.iter().map(entry).collect())
            }
        };
        Rc::new(Self { place: Place::default(), value, weight: self.weight })
    }

    /// The text, where it is a scalar.
    pub(super) fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar(scalar) => Some(&scalar.text),
            Value::Null | Value::Broken { .. } | Value::List(_) | Value::Map(_) => None,
        }
    }

    /// What it is, for a person.
    pub(super) fn kind(&self) -> &'static str {
        match &self.value {
            Value::Null | Value::Broken { .. } => "nothing",
            Value::Scalar(_) => "a single value",
            Value::List(_) => "a list",
            Value::Map(_) => "a mapping",
        }
    }
}

/// A mistake of the file's form.
#[derive(Debug)]
pub(super) struct Flaw {
    /// Where.
    pub(super) place: Place,
    /// The path of the key.
    pub(super) path: String,
    /// What is wrong.
    pub(super) message: String,
    /// What would be right.
    pub(super) help: Option<String>,
    /// Whether the tree ends here: nothing more can be said about the file.
    pub(super) fatal: bool,
}

/// A file read into a tree, and what is wrong with its form.
#[derive(Debug)]
pub(super) struct Document {
    /// The tree; `None` where a fatal flaw ended it.
    pub(super) root: Option<Rc<Node>>,
    /// Flaws, in the order of the file.
    pub(super) flaws: Vec<Flaw>,
    /// Values of keys given twice: never read, and not to be shown.
    pub(super) hidden: Vec<Place>,
}

/// Reads `text`, putting in the variables of `env`.
pub(super) fn parse(text: &str, env: &Env<'_>) -> Document {
    let mut builder = Builder {
        env,
        frames: Vec::new(),
        anchors: HashMap::new(),
        weight: 0,
        root: None,
        flaws: Vec::new(),
        hidden: Vec::new(),
    };
    let mut parser = Parser::new_from_str(text);
    while let Some(next) = parser.next_event() {
        let done = match next {
            Ok((event, span)) => builder.event(event, Place::of(span)),
            Err(error) => {
                let mark = error.marker();
                let (line, column) = (mark.line(), mark.col() + 1);
                let place = Place { line, column, end_line: line, end_column: column + 1 };
                Err(builder.flaw(place, format!("not valid YAML: {}", error.info()), advice(text)))
            }
        };
        if let Err(flaw) = done {
            builder.flaws.push(Flaw { fatal: true, ..flaw });
            return Document { root: None, flaws: builder.flaws, hidden: builder.hidden };
        }
    }
    if builder.root.is_none() {
        // A file caught between its truncation and its writing looks like this: it must not count as "all by default".
        let help = "a rule file needs at least one key, such as `rules`";
        let flaw = builder.flaw(Place::default(), "the file is empty".into(), Some(help));
        builder.push(flaw);
    }
    Document { root: builder.root, flaws: builder.flaws, hidden: builder.hidden }
}

fn advice(text: &str) -> Option<&'static str> {
    let tab = text.lines().any(|line| line.trim_start_matches(' ').starts_with('\t'));
    tab.then_some("indent with spaces: YAML allows no tab there")
}

struct Frame {
    place: Place,
    anchor: usize,
    weight: usize,
    part: Part,
}

enum Part {
    List(Vec<Rc<Node>>),
    Map { entries: Vec<(Name, Rc<Node>)>, key: Option<Name>, seen: HashMap<String, usize> },
}

struct Builder<'a> {
    env: &'a Env<'a>,
    frames: Vec<Frame>,
    anchors: HashMap<usize, Rc<Node>>,
    weight: usize,
    root: Option<Rc<Node>>,
    flaws: Vec<Flaw>,
    hidden: Vec<Place>,
}

impl Builder<'_> {
    /// Takes one event. An `Err` ends the document.
    fn event(&mut self, event: Event<'_>, place: Place) -> Result<(), Flaw> {
        match event {
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd => Ok(()),
            Event::Alias(id) => match self.anchors.get(&id).cloned() {
                Some(node) => {
                    self.weight = self.weight.saturating_add(node.weight);
                    self.add(node, place)
                }
                None => {
                    Err(self.flaw(place, "an alias inside the value it stands for".into(), None))
                }
            },
            Event::Scalar(text, style, anchor, tag) => {
                self.no_tag(tag.is_some(), place);
                let node = self.scalar(text, style, place);
                self.finish(node, anchor)
            }
            Event::SequenceStart(anchor, tag) => {
                self.open(Part::List(Vec::new()), anchor, tag.is_some(), place)
            }
            Event::MappingStart(anchor, tag) => {
                let part = Part::Map { entries: Vec::new(), key: None, seen: HashMap::new() };
                self.open(part, anchor, tag.is_some(), place)
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(),
        }
    }

    fn open(&mut self, part: Part, anchor: usize, tag: bool, place: Place) -> Result<(), Flaw> {
        self.no_tag(tag, place);
        if self.frames.len() >= MOST_DEPTH {
            let message = format!("nested deeper than {MOST_DEPTH} levels");
            return Err(self.flaw(place, message, Some("a rule file needs 7")));
        }
        self.frames.push(Frame { place, anchor, weight: 1, part });
        Ok(())
    }

    fn close(&mut self) -> Result<(), Flaw> {
        let Some(frame) = self.frames.pop() else { return Ok(()) };
        let value = match frame.part {
            Part::List(items) => Value::List(items),
            Part::Map { entries, .. } => Value::Map(entries),
        };
        let node = Rc::new(Node { place: frame.place, value, weight: frame.weight });
        self.finish(node, frame.anchor)
    }

    fn finish(&mut self, node: Rc<Node>, anchor: usize) -> Result<(), Flaw> {
        if anchor > 0 {
            self.anchors.insert(anchor, Rc::clone(&node));
        }
        let place = node.place;
        self.weight += 1;
        self.add(node, place)
    }

    /// Puts a finished value where it belongs: the list or mapping that is open, else the root.
    fn add(&mut self, node: Rc<Node>, place: Place) -> Result<(), Flaw> {
        if self.weight > MOST_NODES {
            let message = format!("more than {MOST_NODES} values, aliases counted in full");
            return Err(self.flaw(place, message, Some("split the crawl over several files")));
        }
        let Some(frame) = self.frames.last_mut() else {
            if self.root.is_some() {
                let message = "a second YAML document".into();
                return Err(self.flaw(
                    place,
                    message,
                    Some("a rule file is one document: drop the `---`"),
                ));
            }
            self.root = Some(node);
            return Ok(());
        };
        frame.weight = frame.weight.saturating_add(node.weight);
        match &mut frame.part {
            Part::List(items) => items.push(node),
            Part::Map { entries, key, seen } => match (key.take(), &node.value) {
                (None, Value::Scalar(scalar)) => {
                    let text = scalar.written.clone().unwrap_or_else(|| scalar.text.clone());
                    *key = Some(Name { text, place });
                }
                (None, _) => {
                    return Err(self.flaw(place, "a key that is no single word".into(), None));
                }
                (Some(name), _) => match seen.get(&name.text) {
                    Some(first) => {
                        let message = format!("`{}` is given twice", name.text);
                        let help = format!("it stands in line {first} already");
                        let place = name.place;
                        self.hidden.push(node.place);
                        let flaw = self.flaw_with(place, Some(&name.text), message, Some(help));
                        self.push(flaw);
                    }
                    None => {
                        seen.insert(name.text.clone(), name.place.line);
                        entries.push((name, node));
                    }
                },
            },
        }
        Ok(())
    }

    fn scalar(&mut self, text: Cow<'_, str>, style: ScalarStyle, place: Place) -> Rc<Node> {
        let quoted = style != ScalarStyle::Plain;
        if !quoted && matches!(&*text, "" | "~" | "null" | "Null" | "NULL") && !self.wants_key() {
            return Rc::new(Node { place, value: Value::Null, weight: 1 });
        }
        // A key is a word of the schema or a name: nothing is put in.
        let value = if self.wants_key() { Ok(None) } else { env::substitute(&text, self.env) };
        let scalar = match value {
            Ok(None) => Scalar { text: text.into_owned(), written: None, quoted },
            Ok(Some(put_in)) => {
                Scalar { text: put_in, written: Some(text.into_owned()), quoted: false }
            }
            Err((message, help)) => {
                let flaw = self.flaw_with(place, None, message, Some(help));
                self.push(flaw);
                let value = Value::Broken { reference: env::is_reference(&text) };
                return Rc::new(Node { place, value, weight: 1 });
            }
        };
        Rc::new(Node { place, value: Value::Scalar(scalar), weight: 1 })
    }

    fn wants_key(&self) -> bool {
        matches!(self.frames.last(), Some(Frame { part: Part::Map { key: None, .. }, .. }))
    }

    fn no_tag(&mut self, tag: bool, place: Place) {
        if tag {
            let flaw = self.flaw(
                place,
                "a tag (`!...`)".into(),
                Some("the schema knows the types: drop it"),
            );
            self.push(flaw);
        }
    }

    fn push(&mut self, flaw: Flaw) {
        if self.flaws.len() < MOST_PROBLEMS {
            self.flaws.push(flaw);
        }
    }

    fn flaw(&self, place: Place, message: String, help: Option<&str>) -> Flaw {
        self.flaw_with(place, None, message, help.map(str::to_owned))
    }

    fn flaw_with(
        &self,
        place: Place,
        key: Option<&str>,
        message: String,
        help: Option<String>,
    ) -> Flaw {
        let mut path = String::new();
        for (at, frame) in self.frames.iter().enumerate() {
            match &frame.part {
                Part::List(items) => path.push_str(&format!("[{}]", items.len())),
                Part::Map { key: open, .. } => {
                    let last = at + 1 == self.frames.len();
                    let name = open.as_ref().map(|name| name.text.as_str());
                    if let Some(name) = name.or(key.filter(|_| last)) {
                        let dot = if path.is_empty() { "" } else { "." };
                        path.push_str(&format!("{dot}{name}"));
                    }
                }
            }
        }
        Flaw { place, path, message, help, fatal: false }
    }
}
