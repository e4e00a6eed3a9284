//! A YAML file as a syntax tree in which every value has its position.
//!
//! One bounded pass over the parser's events builds the tree. Nesting, size and the expansion of
//! aliases are counted during the pass, so that a malicious file costs no more than a big one.
//! Scalars keep their text, which is interpreted only where the type of the key is known. This
//! avoids YAML's surprises (`no`, `1:30`, `0777`).

mod builder;

use std::rc::Rc;

use saphyr_parser::{Parser, Span};

use super::{
    env::{self, Env},
    units::Wrong,
};
use builder::Builder;

/// Deepest nesting; the schema needs 7 levels.
const MOST_DEPTH: usize = 32;
/// Most values of a file, where each alias counts with all its content: enough for thousands of
/// full rules.
const MOST_NODES: usize = 150_000;

/// This many characters of a scalar count as another value, so that aliases of a long text are
/// bounded too.
const CHARS_PER_NODE: usize = 32;
/// Longest key, in bytes; the longest that means something is a user name.
const LONGEST_KEY: usize = 256;

/// A position in the file: lines and columns from 1, columns in characters, the end exclusive. All
/// zero for a value outside of the file (a default, the command line).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// Which file: 0 is the rule file itself, the others are those that it includes.
    pub(super) file: usize,
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
    fn of(span: Span, file: usize) -> Self {
        Self {
            file,
            line: span.start.line(),
            column: span.start.col() + 1,
            end_line: span.end.line(),
            end_column: span.end.col() + 1,
        }
    }

    /// Whether the character at `line` and `column` of its file belongs to it.
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
    /// Its position.
    pub(super) place: Place,
    /// Its content.
    pub(super) value: Value,
    /// Values in it, itself included, aliases expanded, long texts by their length.
    weight: usize,
}

/// A value.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// Nothing: an empty value, `~` or `null`.
    Null,
    /// A value with a flaw that was already reported.
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
    /// The text as written, if variables were replaced.
    pub(super) written: Option<String>,
    /// Whether it is quoted (or a block), and so a text even if it looks like a number.
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
    /// Its position.
    pub(super) place: Place,
}

impl Node {
    /// A scalar that is not from a file: a default, or a value of the command line.
    pub(super) fn of_text(text: &str) -> Rc<Self> {
        let scalar = Scalar { text: text.to_owned(), written: None, quoted: false };
        Rc::new(Self { place: Place::default(), value: Value::Scalar(scalar), weight: 1 })
    }

    /// A mapping at `place` that is put together from values of a file.
    pub(super) fn of_entries(place: Place, entries: Vec<(Name, Rc<Self>)>) -> Rc<Self> {
        let weight = 1 + entries.iter().map(|(_, node)| node.weight).sum::<usize>();
        Rc::new(Self { place, value: Value::Map(entries), weight })
    }

    /// The value of a key, if this is a mapping with that key.
    pub(super) fn get(&self, key: &str) -> Option<&Rc<Self>> {
        match &self.value {
            Value::Map(entries) => {
                entries.iter().find(|(k, _)| k.text == key).map(|(_, node)| node)
            }
            Value::Null | Value::Broken { .. } | Value::Scalar(_) | Value::List(_) => None,
        }
    }

    /// The same value without places, for one that is not from the file.
    pub(super) fn without_places(&self) -> Rc<Self> {
        let value = match &self.value {
            Value::Null => Value::Null,
            Value::Broken { reference } => Value::Broken { reference: *reference },
            Value::Scalar(scalar) => Value::Scalar(scalar.clone()),
            Value::List(items) => {
                Value::List(items.iter().map(|item| item.without_places()).collect())
            }
            Value::Map(entries) => {
                let entry = |(name, node): &(Name, Rc<Self>)| {
                    let name = Name { text: name.text.clone(), place: Place::default() };
                    (name, node.without_places())
                };
                Value::Map(entries.iter().map(entry).collect())
            }
        };
        Rc::new(Self { place: Place::default(), value, weight: self.weight })
    }

    /// The text of a scalar; `None` otherwise.
    pub(super) fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar(scalar) => Some(&scalar.text),
            Value::Null | Value::Broken { .. } | Value::List(_) | Value::Map(_) => None,
        }
    }

    /// The kind of value, for people.
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
    /// Its position.
    pub(super) place: Place,
    /// The path of the key.
    pub(super) path: String,
    /// The flaw.
    pub(super) message: String,
    /// The fix.
    pub(super) help: Option<String>,
    /// Whether the tree ends here, because the rest of the file cannot be read.
    pub(super) fatal: bool,
}

impl Flaw {
    /// A mistake at `place` that does not end the tree.
    pub(super) fn new(place: Place, path: String, wrong: Wrong) -> Self {
        Self { place, path, message: wrong.message, help: wrong.help, fatal: false }
    }
}

/// A file as a tree, and its syntax errors.
#[derive(Debug)]
pub(super) struct SyntaxTree {
    /// The tree; `None` if a fatal flaw ended it.
    pub(super) root: Option<Rc<Node>>,
    /// Flaws, in the order of the file.
    pub(super) flaws: Vec<Flaw>,
    /// Values of keys given twice: never read, and not to be shown.
    pub(super) hidden: Vec<Place>,
}

/// Reads `text`, putting in the variables of `env`.
pub(super) fn parse(text: &str, env: &Env<'_>) -> SyntaxTree {
    parse_file(text, 0, env)
}

/// Reads `text`, which is the file of this number.
pub(super) fn parse_file(text: &str, file: usize, env: &Env<'_>) -> SyntaxTree {
    let mut syntax_tree = parse_events(text, file, env);
    syntax_tree.flaws.iter_mut().for_each(|flaw| flaw.place.file = file);
    syntax_tree
}

fn parse_events(text: &str, file: usize, env: &Env<'_>) -> SyntaxTree {
    let mut builder = Builder::new(env);
    let mut parser = Parser::new_from_str(text);
    while let Some(next) = parser.next_event() {
        let done = match next {
            Ok((event, span)) => builder.event(event, Place::of(span, file)),
            Err(error) => {
                let mark = error.marker();
                let (line, column) = (mark.line(), mark.col() + 1);
                let place = Place { file, line, column, end_line: line, end_column: column + 1 };
                let help = advice(text, (line, mark.col()));
                Err(builder.flaw(place, format!("not valid YAML: {}", error.info()), Some(help)))
            }
        };
        if let Err(flaw) = done {
            return builder.finish_tree(Some(flaw));
        }
    }
    builder.finish_tree(None)
}

/// The likely cause of a syntax error at this line (from 1) and column (from 0).
fn advice(text: &str, (line, column): (usize, usize)) -> &'static str {
    let here = line.checked_sub(1).and_then(|before| text.lines().nth(before)).unwrap_or("");
    let indents = |line: &str| line.trim_start_matches(' ').starts_with('\t');
    if here.contains('\t') || text.lines().any(indents) {
        return "write spaces instead of tabs";
    }
    if here.chars().nth(column) == Some('*') {
        return "quote a pattern that begins with `*`: `\"*\"`, `\"*.shop.example\"`";
    }
    "check this line and the one before: keys of one mapping have the same indentation, and a \
     blank follows each `:`"
}
