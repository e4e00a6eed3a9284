//! Builds the tree from the parser's events, with limits on its size.

use std::{borrow::Cow, collections::HashMap, rc::Rc};

use saphyr_parser::{Event, ScalarStyle};

use super::{
    CHARS_PER_NODE, Flaw, LONGEST_KEY, MOST_DEPTH, MOST_NODES, Name, Node, Place, Scalar,
    SyntaxTree, Value,
};
use crate::config::{
    env::{self, Env},
    problem::MOST_PROBLEMS,
    units::Wrong,
};

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

/// The open lists and mappings.
pub(super) struct Builder<'a> {
    env: &'a Env<'a>,
    frames: Vec<Frame>,
    anchors: HashMap<usize, Rc<Node>>,
    weight: usize,
    root: Option<Rc<Node>>,
    flaws: Vec<Flaw>,
    hidden: Vec<Place>,
}

impl<'a> Builder<'a> {
    /// Nothing yet; variables come from `env`.
    pub(super) fn new(env: &'a Env<'a>) -> Self {
        Self {
            env,
            frames: Vec::new(),
            anchors: HashMap::new(),
            weight: 0,
            root: None,
            flaws: Vec::new(),
            hidden: Vec::new(),
        }
    }

    /// The syntax tree, after the last event or the fatal flaw that ended it.
    pub(super) fn finish_tree(mut self, fatal: Option<Flaw>) -> SyntaxTree {
        match fatal {
            Some(flaw) => {
                self.root = None;
                self.flaws.push(Flaw { fatal: true, ..flaw });
            }
            None if self.root.is_none() => {
                // A file caught between its truncation and its writing looks like this: it must not
                // count as "all by default".
                let help = "a rule file needs at least one key, such as `rules`";
                let flaw = self.flaw(Place::default(), "the file is empty".into(), Some(help));
                self.push(flaw);
            }
            None => {}
        }
        SyntaxTree { root: self.root, flaws: self.flaws, hidden: self.hidden }
    }

    /// Takes one event. An `Err` ends the syntax tree.
    pub(super) fn event(&mut self, event: Event<'_>, place: Place) -> Result<(), Flaw> {
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
                None => Err(self.flaw(place, "an alias inside its own value".into(), None)),
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
            return Err(self.flaw(place, message, Some("a rule file needs at most 7")));
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
        // The content of a list or mapping was counted before.
        let is_scalar = matches!(node.value, Value::Scalar(_));
        self.weight += if is_scalar { node.weight } else { 1 };
        self.add(node, place)
    }

    /// Adds a finished value to the open list or mapping; without one it is the root.
    fn add(&mut self, node: Rc<Node>, place: Place) -> Result<(), Flaw> {
        if self.weight > MOST_NODES {
            let message = format!("more than {MOST_NODES} values, with aliases expanded");
            return Err(self.flaw(place, message, Some("split the crawl over several files")));
        }
        let Some(frame) = self.frames.last_mut() else {
            if self.root.is_some() {
                let message = "a second YAML document".into();
                return Err(self.flaw(
                    place,
                    message,
                    Some("a rule file is one document: remove the `---`"),
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
                    if text.len() > LONGEST_KEY {
                        let message = format!("a key longer than {LONGEST_KEY} bytes");
                        return Err(self.flaw(place, message, None));
                    }
                    *key = Some(Name { text, place });
                }
                (None, _) => {
                    return Err(self.flaw(place, "a key that is not a single word".into(), None));
                }
                (Some(name), _) => match seen.get(&name.text) {
                    Some(first) => {
                        let message = format!("`{}` appears twice", name.text);
                        let help = format!("line {first} already has it");
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
            Err(Wrong { message, help }) => {
                let flaw = self.flaw_with(place, None, message, help);
                self.push(flaw);
                let value = Value::Broken { reference: env::is_reference(&text) };
                return Rc::new(Node { place, value, weight: 1 });
            }
        };
        let weight = 1 + scalar.text.len() / CHARS_PER_NODE;
        Rc::new(Node { place, value: Value::Scalar(scalar), weight })
    }

    fn wants_key(&self) -> bool {
        matches!(self.frames.last(), Some(Frame { part: Part::Map { key: None, .. }, .. }))
    }

    fn no_tag(&mut self, tag: bool, place: Place) {
        if tag {
            let flaw = self.flaw(
                place,
                "a tag (`!...`)".into(),
                Some("the schema knows the types: remove it"),
            );
            self.push(flaw);
        }
    }

    fn push(&mut self, flaw: Flaw) {
        if self.flaws.len() < MOST_PROBLEMS {
            self.flaws.push(flaw);
        }
    }

    /// A flaw at the current event.
    pub(super) fn flaw(&self, place: Place, message: String, help: Option<&str>) -> Flaw {
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
        Flaw::new(place, path, Wrong { message, help })
    }
}
