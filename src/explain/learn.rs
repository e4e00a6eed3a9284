//! The work of `tidegate learn-signature`: takes blocked and ordinary pages of one site and returns
//! an entry for `detect`, tested on both.
//!
//! The entry contains what all blocked pages have and no ordinary page has: their title, a sentence
//! of their visible text, and names from their markup (ids, classes, form targets).

use std::{collections::BTreeSet, path::PathBuf};

use super::{ExplainError, Options, Report, Source, run, source};
use crate::classify::{
    Classifier, Signature, SignatureError, Switches, read_page, verdict::Verdict,
};

/// Most names from the markup in one entry. One may match by chance; more than two add nothing.
const MOST_NAMES: usize = 2;

/// Length of names and sentences in an entry, in characters.
const LENGTHS: std::ops::RangeInclusive<usize> = 8..=80;

/// Words that the names in the markup of a wall often contain.
const TELLING: [&str; 8] =
    ["captcha", "challenge", "verif", "block", "denied", "bot", "human", "check"];

/// A learned signature, and its result on the given pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proposal {
    /// The entry for `detect`.
    pub signature: Signature,
    /// The number of blocked pages, and of ordinary ones.
    pub pages: (usize, usize),
    /// Blocked pages that it does not match.
    pub missed: Vec<String>,
    /// Ordinary pages that it matches.
    pub taken: Vec<String>,
}

/// Why nothing could be learned; a message for people.
#[derive(Debug, thiserror::Error)]
pub enum LearnError {
    /// A page cannot be read.
    #[error(transparent)]
    Read(#[from] ExplainError),
    /// Everything that the blocked pages have in common is also on ordinary pages.
    #[error(
        "the blocked pages have nothing in common that the ordinary ones lack: give pages of one \
         wall only, and ordinary pages of the same site"
    )]
    Nothing,
    /// The proposed signature does not compile.
    #[error(transparent)]
    Signature(#[from] SignatureError),
}

/// A page to learn from.
struct Page {
    source: String,
    /// The source in lower case.
    small: String,
    title: String,
    text: String,
}

/// Proposes a signature for the pages in `blocked` and tests it on these and on `ordinary`.
///
/// # Errors
/// [`LearnError`].
pub fn learn(
    blocked: &[PathBuf],
    ordinary: &[PathBuf],
    name: &str,
    verdict: Verdict,
    options: &Options,
) -> Result<Proposal, LearnError> {
    let (walls, pages) = (read(blocked, options)?, read(ordinary, options)?);
    let signature = propose(&walls, &pages, name, verdict).ok_or(LearnError::Nothing)?;
    let classifier = Classifier::with(vec![signature.clone()], &Switches::default())?;
    let tried = Options { builtin: classifier, ..options.clone() };
    let matches = |paths: &[PathBuf], wanted: bool| {
        let mut otherwise = Vec::new();
        for path in paths {
            let items = match run(&Source::Path(path.clone()), &tried)? {
                Report::One(item) => vec![*item],
                Report::Many { items, .. } => items,
            };
            let differs = items.into_iter().filter(|item| {
                let found = item.evidence.as_ref().is_some_and(|proof| *proof.signature == *name);
                found != wanted
            });
            otherwise.extend(differs.map(|item| item.name));
        }
        Ok::<_, ExplainError>(otherwise)
    };
    let (missed, taken) = (matches(blocked, true)?, matches(ordinary, false)?);
    Ok(Proposal { signature, pages: (walls.len(), pages.len()), missed, taken })
}

fn read(paths: &[PathBuf], options: &Options) -> Result<Vec<Page>, ExplainError> {
    let mut pages = Vec::new();
    for path in paths {
        let exchanges = source::read(&Source::Path(path.clone()), options)?;
        pages.extend(exchanges.items.into_iter().map(|exchange| {
            let seen = &exchange.body[..exchange.body.len().min(options.limits.bytes)];
            let source = String::from_utf8_lossy(seen).into_owned();
            let (title, text) = read_page(&source);
            Page { small: source.to_lowercase(), source, title, text }
        }));
    }
    Ok(pages)
}

fn propose(walls: &[Page], pages: &[Page], name: &str, verdict: Verdict) -> Option<Signature> {
    let first = walls.first()?;
    let mut signature = Signature::new(name, verdict);
    let is_title = |page: &Page| page.title == first.title;
    if !first.title.is_empty() && walls.iter().all(is_title) && !pages.iter().any(is_title) {
        // In a glob, `*` would match anything.
        signature.title =
            vec![first.title.clone()].into_iter().filter(|t| !t.contains('*')).collect();
    }
    let only_walls = |part: &str, of: fn(&Page) -> &str| {
        walls.iter().all(|page| of(page).contains(part))
            && !pages.iter().any(|page| of(page).contains(part))
    };
    let mut names: Vec<String> = names(&first.source)
        .into_iter()
        .filter(|name| only_walls(name, |page| &page.small))
        .collect();
    let is_telling = |name: &String| TELLING.iter().any(|word| name.contains(word));
    names.sort_by_key(|name| (!is_telling(name), name.len()));
    names.truncate(MOST_NAMES);
    signature.body = names;
    if signature.title.is_empty() || signature.body.is_empty() {
        let saying = sayings(&first.text).find(|saying| only_walls(saying, |page| &page.text));
        signature.text = saying.map(str::to_owned).into_iter().collect();
    }
    (!signature.is_head_only()).then_some(signature)
}

/// The quoted strings of the markup, in lower case, that look like names instead of numbers.
fn names(source: &str) -> BTreeSet<String> {
    let small = source.to_lowercase();
    let is_name = |part: &&str| {
        LENGTHS.contains(&part.chars().count())
            && part.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '/' | '.'))
            && part.chars().filter(char::is_ascii_digit).count() < 4
    };
    small.split(['"', '\'']).filter(is_name).map(str::to_owned).collect()
}

/// The sentences of a text.
fn sayings(text: &str) -> impl Iterator<Item = &str> {
    let parts = text.split(['.', '!', '?', '。', '：', ':', '|']).map(str::trim);
    parts.filter(|part| LENGTHS.contains(&part.chars().count()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(source: &str) -> Page {
        let (title, text) = read_page(source);
        Page { source: source.to_owned(), small: source.to_lowercase(), title, text }
    }

    #[test]
    fn common_marks_of_walls_that_no_page_has_are_proposed() {
        let walls = [
            page(
                "<title>Shop</title><div id=\"shop-wall-check\" class=\"page-body\">One more thing. Token a1b2c3d4</div>",
            ),
            page(
                "<title>Shop</title><div id=\"shop-wall-check\" class=\"page-body\">One more thing. Token 99887766</div>",
            ),
        ];
        let pages = [page("<title>Shop</title><div class=\"page-body\">Shoes</div>")];
        let learnt =
            propose(&walls, &pages, "shop-wall", Verdict::Captcha).expect("there is a mark");
        assert_eq!((learnt.title.len(), &*learnt.body), (0, &["shop-wall-check".to_owned()][..]));
        assert_eq!(learnt.text, ["one more thing"]);
        assert!(propose(&walls, &walls, "none", Verdict::Captcha).is_none());
    }
}
