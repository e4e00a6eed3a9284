//! Builds the runtime types from the tree: the top level of the file.
//!
//! Reading does not stop at a mistake. The caller discards the result of an invalid file.

mod cooldown;
mod detect;
mod hosts;
mod learn;
pub(super) mod paths;
mod reach;
mod rule;
mod store;
mod top;

use std::{collections::HashMap, path::Path, rc::Rc};

use super::{
    BUILT_IN, Overrides,
    cursor::Cursor,
    diagnostics::Diagnostics,
    env::Env,
    keys::{FILE, INCLUDED, Kind},
    section::Reader,
    syntax_tree::{self, Node, Place},
    units::Wrong,
};
use crate::rules::{Rule, RuleSet, settings::Settings};

/// The whole file, as a kind.
static ROOT: Kind = Kind::Section(&FILE);

/// A file that it includes, as a kind.
static INCLUDED_ROOT: Kind = Kind::Section(&INCLUDED);

/// What a rule file refers to outside of its text.
pub(super) struct FileContext<'a> {
    /// Relative paths start here.
    pub(super) folder: &'a Path,
    /// The environment.
    pub(super) env: &'a Env<'a>,
    /// Whether everybody on the machine can read the rule file.
    pub(super) exposed: bool,
}

/// Reads the file with the tree `root`, with the trees of its included files and the values of the
/// command line.
pub(super) fn file(
    diagnostics: &Diagnostics<'_>,
    root: &Rc<Node>,
    included: &[Rc<Node>],
    overrides: &Overrides,
    context: &FileContext<'_>,
) -> (Settings, RuleSet) {
    let mut reader = Cursor::root(diagnostics, Rc::clone(root), &ROOT).open();
    for (key, text) in overrides.given() {
        reader.replace(key, text);
    }
    let settings = top::settings(&reader, context);
    // A mistake in the pattern was reported when its files were listed.
    reader.many("include", |_| Ok(()));
    let included = included.iter().map(|root| {
        let file = Cursor::root(diagnostics, Rc::clone(root), &INCLUDED_ROOT).open();
        file.cursor("rules")
    });
    let mut lists: Vec<_> = included.flatten().collect();
    lists.extend(reader.cursor("rules"));
    if lists.is_empty() {
        lists.extend(built_in_rules(&reader, context));
    }
    let rules = rules(&reader, &lists, &settings, context);
    (settings, RuleSet::new(rules))
}

/// The rules of the built-in file, without places: their lines are not those of this file.
fn built_in_rules<'a>(reader: &Reader<'a>, context: &FileContext<'_>) -> Option<Cursor<'a>> {
    let node = syntax_tree::parse(BUILT_IN, context.env).root?.get("rules")?.without_places();
    Some(reader.cursor_with("rules", node))
}

/// The rules of these lists, one list per file.
fn rules(
    reader: &Reader<'_>,
    lists: &[Cursor<'_>],
    settings: &Settings,
    context: &FileContext<'_>,
) -> Vec<Rule> {
    let switches = detect::switches(reader);
    let defaults = rule::defaults(reader, &switches, context);
    for cursor in lists.iter().filter(|cursor| cursor.is_list() && cursor.is_empty()) {
        let help = "add one, or omit `rules` to use the built-in rule `default`";
        cursor.wrong(Wrong::new("there are no rules", help));
    }
    let mut places: HashMap<String, Place> = HashMap::new();
    let mut read = Vec::new();
    for item in lists.iter().flat_map(Cursor::list) {
        let named = item.node.get("name").and_then(|node| node.text().map(str::to_owned));
        let item = match &named {
            Some(name) => item.labelled(&format!("rules.{name}")),
            None => item,
        };
        let rule = rule::read(&item, &switches, &defaults, context);
        let at = item.node.get("name").map_or(item.node.place, |node| node.place);
        if let Some(first) = named.and_then(|name| places.insert(name, at)) {
            let first = item.diagnostics.words(first, at.file);
            let help = format!("{first} already has it; rule names must be unique");
            let message = format!("the name `{}` is used twice", rule.name);
            item.open().wrong_at(at, "name", Wrong::new(message, help));
        }
        read.push((item, rule));
    }
    reach::check(&read);
    read.iter().for_each(|(cursor, rule)| top::check_rule(cursor, rule, settings));
    read.into_iter().map(|(_, rule)| rule).collect()
}
