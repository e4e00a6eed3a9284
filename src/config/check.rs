//! From the tree to the runtime types: the top level of the file.
//!
//! Reading never stops at a mistake; what is built from a wrong file is thrown away by the caller.

mod cooldown;
mod detect;
mod hosts;
mod learn;
mod paths;
mod reach;
mod rule;
mod store;
mod top;

use std::{collections::HashMap, path::Path, rc::Rc};

use super::{
    BUILT_IN, Overrides,
    document::{self, Node},
    env::Env,
    keys::{FILE, Kind},
    notes::Notes,
    section::Reader,
    spot::Spot,
    units::Wrong,
};
use crate::{
    rules::{Rule, RuleSet},
    settings::Settings,
};

/// The whole file, as a kind.
static ROOT: Kind = Kind::Section(&FILE);

/// Where the values of a file that are no plain values come from.
pub(super) struct Surroundings<'a> {
    /// Relative paths start here.
    pub(super) folder: &'a Path,
    /// The environment.
    pub(super) env: &'a Env<'a>,
    /// Whether everybody on the machine can read the rule file.
    pub(super) exposed: bool,
}

/// Reads the file whose tree is `root`, with the values of the command line in place of its own.
pub(super) fn file(
    notes: &Notes<'_>,
    root: &Rc<Node>,
    overrides: &Overrides,
    around: &Surroundings<'_>,
) -> (Settings, RuleSet) {
    let mut reader = Spot::root(notes, Rc::clone(root), &ROOT).open();
    for (key, text) in overrides.given() {
        reader.replace(key, text);
    }
    let settings = top::settings(&reader, around);
    (settings, RuleSet::new(rules(&reader, around)))
}

fn rules(reader: &Reader<'_>, around: &Surroundings<'_>) -> Vec<Rule> {
    let switches = detect::switches(reader);
    let spot = reader.spot("rules").or_else(|| {
        // Standing nowhere: its lines are not those of this file.
        let node = document::parse(BUILT_IN, around.env).root?.get("rules")?.nowhere();
        Some(reader.spot_with("rules", node))
    });
    let Some(spot) = spot else { return Vec::new() };
    let spots = spot.list();
    if spots.is_empty() && spot.is_list() {
        let help = "add one, or leave `rules` out to get the built-in rule `default`";
        spot.wrong(Wrong::new("there is no rule", help));
    }
    let mut lines: HashMap<String, usize> = HashMap::new();
    let mut read = Vec::new();
    for item in spots {
        let named = item.node.get("name").and_then(|node| node.text().map(str::to_owned));
        let item = match &named {
            Some(name) => item.labelled(&format!("rules.{name}")),
            None => item,
        };
        let rule = rule::read(&item, &switches);
        let at = item.node.get("name").map_or(item.node.place, |node| node.place);
        if let Some(line) = named.and_then(|name| lines.insert(name, at.line)) {
            let help = format!("line {line} has it already; give each rule its own name");
            let message = format!("the name `{}` is given twice", rule.name);
            item.open().wrong_at(at, "name", Wrong::new(message, help));
        }
        read.push((item, rule));
    }
    reach::check(&read);
    read.into_iter().map(|(_, rule)| rule).collect()
}
