//! All signatures of a rule, checked, ordered and compiled into two automata.

use std::sync::{Arc, OnceLock};

use serde::Deserialize;

use super::{
    compiled::{Compiled, PatternSet},
    findings::Strings,
    header_index::HeaderIndex,
    patterns::Patterns,
    signature::{Action, Content, Shape, Signature, SignatureError, Switches},
    text::normalised,
    words::Words,
};
use crate::classify::verdict::Verdict;

/// The built-in signatures, as data.
const BUILTIN: &str = include_str!("../../config/signatures.yaml");

/// Longest pattern, in bytes.
const MAX_PATTERN: usize = 512;

/// Compiled signatures in the order of evaluation: a user's `ok` signatures, a user's others, the
/// built-in ones for heads, the built-in ones for bodies. Within each group they keep their order
/// in the file. The first match decides.
pub struct Classifier {
    pub(crate) signatures: Vec<Compiled>,
    pub(crate) header_index: HeaderIndex,
    /// The number of signatures at the start of the unconditional ones that require the shape of a
    /// wall.
    unconditional_walls: usize,
    pub(crate) strings: Strings,
}

impl std::fmt::Debug for Classifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let signatures = self.signatures.len();
        f.debug_struct("Classifier").field("signatures", &signatures).finish_non_exhaustive()
    }
}

impl PartialEq for Classifier {
    fn eq(&self, other: &Self) -> bool {
        let sources = |one: &Self| {
            one.signatures.iter().map(|s| &s.source).eq(other.signatures.iter().map(|s| &s.source))
        };
        sources(self)
    }
}

/// The signature file: one list for each part of a response.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SignatureFile {
    heads: Vec<Signature>,
    pages: Vec<Signature>,
    bodies: Vec<Signature>,
}

/// The built-in signatures, in the order of `config/signatures.yaml`.
///
/// # Panics
/// Never: the file is part of the binary, and a test reads it.
#[must_use]
pub fn builtin_signatures() -> Vec<Signature> {
    signatures(BUILTIN).expect("config/signatures.yaml is read by a test")
}

/// The signatures of a file in the format of `config/signatures.yaml`.
fn signatures(text: &str) -> Result<Vec<Signature>, serde_yaml::Error> {
    let file: SignatureFile = serde_yaml::from_str(text)?;
    let as_page = |signature: Signature| Signature {
        content: Content::Page,
        shape: Shape::Interstitial,
        ..signature
    };
    let pages = file.pages.into_iter().map(as_page);
    Ok(file.heads.into_iter().chain(pages).chain(file.bodies).collect())
}

impl Classifier {
    /// The built-in signatures, compiled once.
    ///
    /// # Panics
    /// Never: a test compiles them.
    #[must_use]
    pub fn builtin() -> Arc<Self> {
        static BUILTIN: OnceLock<Arc<Classifier>> = OnceLock::new();
        let compile = || {
            let compiled = Self::compile(builtin_signatures());
            Arc::new(compiled.expect("config/signatures.yaml is compiled by a test"))
        };
        Arc::clone(BUILTIN.get_or_init(compile))
    }

    /// The signatures of another file in the format of `config/signatures.yaml`, for instance of an
    /// earlier release.
    ///
    /// # Errors
    /// A message if the file cannot be read or compiled.
    pub fn of_file(text: &str) -> Result<Arc<Self>, String> {
        let sources = signatures(text).map_err(|error| error.to_string())?;
        Self::compile(sources).map(Arc::new).map_err(|error| error.to_string())
    }

    /// The built-in signatures and those of one rule. The rule's come first, `ok` before the
    /// others.
    ///
    /// # Errors
    /// A signature that cannot be compiled, or a switch for one that does not exist.
    pub fn with(
        mut custom: Vec<Signature>,
        switches: &Switches,
    ) -> Result<Arc<Self>, SignatureError> {
        if custom.is_empty() && *switches == Switches::default() {
            return Ok(Self::builtin());
        }
        custom.sort_by_key(|signature| signature.verdict != Verdict::Ok);
        custom.extend(builtin_signatures());
        switches.apply(&mut custom)?;
        Self::compile(custom).map(Arc::new)
    }

    /// Only these signatures, in this order.
    pub(crate) fn compile(sources: Vec<Signature>) -> Result<Self, SignatureError> {
        let mut names = std::collections::HashSet::new();
        let (mut raw, mut text) = (PatternSet::default(), PatternSet::default());
        let mut signatures = Vec::with_capacity(sources.len());
        for source in sources {
            check(&source)?;
            if !names.insert(Arc::clone(&source.name)) {
                return Err(SignatureError::Duplicate(source.name));
            }
            if source.action != Action::Off {
                signatures.push(Compiled::new(source, &mut raw, &mut text)?);
            }
        }
        let compile = |wanted: &PatternSet| {
            Patterns::new(&wanted.patterns, &wanted.literals).map_err(SignatureError::TooMany)
        };
        let header_index = HeaderIndex::new(&signatures);
        let requires_wall_shape = |number: &&usize| signatures[**number].requires_wall_shape();
        let unconditional_walls =
            header_index.unconditional().iter().take_while(requires_wall_shape).count();
        let strings = Strings { raw: compile(&raw)?, text: compile(&text)? };
        // Compiled now and not for the first page: every request on that page's thread would wait meanwhile.
        Words::builtin();
        Ok(Self { signatures, header_index, unconditional_walls, strings })
    }

    /// Whether all candidates require the shape of a wall: the first `unconditional` signatures
    /// without a condition on the head, and those in `conditional`. Pages without that shape are
    /// then skipped.
    pub(crate) fn require_wall_shape(&self, unconditional: usize, conditional: &[usize]) -> bool {
        unconditional <= self.unconditional_walls
            && conditional.iter().all(|number| self.signatures[*number].requires_wall_shape())
    }
}

impl Switches {
    /// Sets the actions of the named signatures.
    fn apply(&self, signatures: &mut [Signature]) -> Result<(), SignatureError> {
        let off = self.off.iter().map(|name| (name, Action::Off));
        for (name, action) in off.chain(self.log.iter().map(|name| (name, Action::Log))) {
            match signatures.iter_mut().find(|signature| signature.name == *name) {
                Some(signature) => signature.action = action,
                None => {
                    let near = similar(name, signatures);
                    return Err(SignatureError::Unknown(Arc::clone(name), near));
                }
            }
        }
        Ok(())
    }
}

/// The name that a misspelt one is most similar to, if any.
fn similar(name: &str, signatures: &[Signature]) -> Option<Arc<str>> {
    let likeness = |signature: &&Signature| {
        (strsim::jaro_winkler(name, &signature.name) * 1_000.0).round() as u64
    };
    let near = signatures.iter().max_by_key(likeness).filter(|best| likeness(best) > 850);
    near.map(|best| Arc::clone(&best.name))
}

/// Rejects a signature that could never match or never be reported.
fn check(source: &Signature) -> Result<(), SignatureError> {
    let name = || Arc::clone(&source.name);
    let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
    if source.name.is_empty() || source.name.len() > 64 || !source.name.bytes().all(fits) {
        return Err(SignatureError::BadName(name()));
    }
    if matches!(source.verdict, Verdict::ConnectionError | Verdict::Timeout) {
        return Err(SignatureError::BadVerdict(name(), source.verdict));
    }
    let location = source.location.iter().flat_map(|l| [&l.host, &l.path, &l.query]).flatten();
    let conditions = source.status.len() + source.header.len() + location.count();
    if source.is_head_only() && conditions == 0 {
        return Err(SignatureError::NoCondition(name()));
    }
    let titles = source.title.iter().filter(|title| !title.is_empty());
    let patterns = [&source.body, &source.any, &source.text];
    let bad = patterns
        .into_iter()
        .flatten()
        .chain(titles)
        .find(|pattern| pattern.len() > MAX_PATTERN || normalised(pattern).trim().is_empty());
    bad.map_or(Ok(()), |pattern| Err(SignatureError::BadPattern(name(), pattern.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_strings_are_long_enough_to_be_filtered() {
        let builtin = Classifier::builtin();
        for patterns in [&builtin.strings.raw, &builtin.strings.text] {
            assert_eq!(
                patterns.unfiltered(),
                Vec::<&str>::new(),
                "each page would be searched in full"
            );
        }
    }
}
