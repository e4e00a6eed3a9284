//! Advice for a slip: which key or which value was probably meant.
//!
//! Nothing here lists mistakes. An unknown key is compared with the names and the descriptions of
//! the key table. A wrong value is spelled differently and read again. A value in place of a
//! mapping is tried for each key of the mapping.

use std::time::Duration;

use super::{
    keys::{FILE, Key, Kind, Section},
    range::{self, Ranged as _, similarity},
    syntax_tree::{Node, Value},
    units,
};

/// How similar an unknown key must be to a key beside it, and to one in a mapping below.
const SIMILAR: f64 = 0.8;
const SIMILAR_BELOW: f64 = 0.85;
/// What each mapping in between takes from the similarity.
const PER_LEVEL: f64 = 0.05;
/// Shorter words of an unknown key say too little to search descriptions for them.
const SHORTEST_WORD: usize = 4;
/// Advice names at most this many keys.
const MOST_DESCRIBED: usize = 2;

/// A key that can be written in a section or in a mapping below it.
struct Candidate {
    /// The path from the section.
    path: String,
    /// Mappings in between.
    level: usize,
    key: &'static Key,
}

/// A suggestion for the unknown key `name` of `section`.
pub(super) fn for_key(name: &str, section: &Section) -> String {
    let mut candidates = Vec::new();
    collect(section, "", 0, &mut candidates);
    if let Some(path) = similar(name, &candidates) {
        return format!("did you mean `{path}`?");
    }
    if FILE.key(name).is_some() {
        return "it belongs to the top level of the rule file".to_owned();
    }
    described(name, &candidates).unwrap_or_else(|| {
        let names: Vec<_> = section.keys.iter().map(|key| key.name).collect();
        format!("known here: {}", names.join(", "))
    })
}

/// Collects the keys of a section and then those of the mappings in it.
fn collect(section: &Section, path: &str, level: usize, found: &mut Vec<Candidate>) {
    let of = |key: &'static Key| Candidate { path: format!("{path}{}", key.name), level, key };
    found.extend(section.keys.iter().map(of));
    for key in section.keys {
        if let Some(inner) = key.kind.section() {
            let list = if matches!(key.kind, Kind::List(_)) { "[]" } else { "" };
            collect(inner, &format!("{path}{}{list}.", key.name), level + 1, found);
        }
    }
}

/// The path of the key with the most similar name, if it is similar enough.
fn similar<'c>(name: &str, candidates: &'c [Candidate]) -> Option<&'c str> {
    let mut best = (0.0, None);
    for Candidate { path, level, key } in candidates {
        let score = similarity(name, key.name) - PER_LEVEL * *level as f64;
        let wanted = if *level == 0 { SIMILAR } else { SIMILAR_BELOW };
        if score >= wanted && score > best.0 {
            best = (score, Some(path.as_str()));
        }
    }
    best.1
}

/// The keys whose descriptions have the most words of `name`, and what the first one says of them.
fn described(name: &str, candidates: &[Candidate]) -> Option<String> {
    let asked: Vec<String> = words(name).filter(|word| word.len() >= SHORTEST_WORD).collect();
    let hits = |text: &str| {
        let said: Vec<String> = words(text).collect();
        asked.iter().filter(|word| said.contains(word)).count()
    };
    let scored = candidates.iter().map(|one| (hits(&without_links(one.key.doc)), one));
    let scored: Vec<_> = scored.collect();
    let most = scored.iter().map(|(score, _)| *score).max().filter(|most| *most > 0)?;
    let best = scored.into_iter().filter(|(score, _)| *score == most).map(|(_, one)| one);
    let best: Vec<_> = best.collect();
    // The first mapping with such a key is the nearest one.
    let folder = |one: &Candidate| one.path.len() - one.key.name.len();
    let nearest: Vec<_> = best
        .iter()
        .filter(|one| one.path[..folder(one)] == best[0].path[..folder(best[0])])
        .collect();
    if nearest.len() > MOST_DESCRIBED {
        return None;
    }
    let paths: Vec<_> = nearest.iter().map(|one| format!("`{}`", one.path)).collect();
    let doc = without_links(best[0].key.doc);
    let sentence = doc.split_inclusive(". ").find(|sentence| hits(sentence) > 0)?;
    Some(format!("did you mean {}? {}", paths.join(" or "), sentence.trim_end()))
}

/// Its words, in singular.
fn words(text: &str) -> impl Iterator<Item = String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric());
    words.map(|word| word.to_ascii_lowercase().trim_end_matches('s').to_owned())
}

/// `[text](target)` as `text`.
fn without_links(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, link)) = rest.split_once("](") {
        plain.push_str(before);
        rest = link.split_once(')').map_or("", |(_, after)| after);
    }
    (plain + rest).replace('[', "")
}

/// A suggestion for a value of the key `name` that should be a mapping with the keys of `kind`.
pub(super) fn for_mapping(name: &str, kind: &Kind, node: &Node) -> Option<String> {
    let shown = match &node.value {
        Value::Scalar(scalar) if scalar.written.is_none() => scalar.text.as_str(),
        Value::List(items) if !items.is_empty() => "[...]",
        _ => return None,
    };
    let kinds = if let Kind::Either(kinds) = kind { kinds } else { std::slice::from_ref(kind) };
    let section = kinds.iter().find(|kind| matches!(kind, Kind::Section(_)))?.section()?;
    let mut takers = section.keys.iter().filter(|key| takes(&key.kind, node));
    let mapping = format!("`{name}: {{{}: {shown}}}`", takers.next()?.name);
    Some(match takers.next() {
        None => format!("did you mean {mapping}?"),
        Some(_) => format!("write {}, such as {mapping}", kind.words()),
    })
}

/// Whether a value can be one of this kind. Kinds that any text fits do not count.
fn takes(kind: &Kind, node: &Node) -> bool {
    match (kind, &node.value) {
        (Kind::Either(kinds), _) => kinds.iter().any(|kind| takes(kind, node)),
        (Kind::List(inner) | Kind::OneOrMany(inner), Value::List(items)) => {
            items.iter().all(|item| takes(inner, item))
        }
        (Kind::OneOrMany(inner), Value::Scalar(_)) => takes(inner, node),
        (_, Value::Scalar(scalar)) => takes_text(kind, &scalar.text),
        _ => false,
    }
}

fn takes_text(kind: &Kind, text: &str) -> bool {
    match kind {
        Kind::Word(_) => range::word(kind, text).is_ok(),
        Kind::Duration(..) => Duration::parse(kind, text).is_ok(),
        Kind::Span(..) => <(Duration, Duration)>::parse(kind, text).is_ok(),
        Kind::Size(..) | Kind::Count(..) => usize::parse(kind, text).is_ok(),
        Kind::Factor(..) => f64::parse(kind, text).is_ok(),
        Kind::Rate => units::rate(text).is_ok(),
        Kind::Quota => units::quota(text).is_ok(),
        Kind::Hours => units::hours(text).is_ok(),
        Kind::Share => units::share(text).is_ok(),
        Kind::Ratio => units::ratio(text).is_ok(),
        Kind::Status => units::status(text).is_ok(),
        Kind::Host => text == "*" || text.contains('.') && !text.contains('/'),
        Kind::Glob => text.starts_with('/'),
        Kind::Network => text.parse::<ipnet::IpNet>().is_ok(),
        _ => false,
    }
}

/// Other spellings of a value: a decimal comma, upper case, a unit written out (`10 requests per
/// minute`). The caller suggests the first that can be read.
pub(super) fn spellings(text: &str) -> Vec<String> {
    let is_group = |rest: &str| rest.bytes().take_while(u8::is_ascii_digit).count() == 3;
    let point = if text.split(',').skip(1).all(is_group) { "" } else { "." };
    let plain = text.replace(',', point).to_ascii_lowercase();
    let (number, rest) = units::split_unit(&plain);
    let per = rest.replace("rps", "/s").replace("rpm", "/m");
    let word = per.rsplit(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
    let mut spellings = vec![plain.clone()];
    let one_number = !rest.contains(|c: char| c.is_ascii_digit());
    if let Some(unit) = units::time_unit(word).filter(|_| one_number) {
        // `5s` is not a rate: it may stand for five a second or for one in five seconds.
        let separator = if per == word { "" } else { "/" };
        spellings.push(format!("{number}{separator}{unit}"));
    }
    spellings
}
