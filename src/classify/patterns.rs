//! Searches a text for many strings at once.
//!
//! Nearly every page contains none of them. So an n-gram filter runs first: it reads a few bytes at some positions and
//! has no false negatives. The automaton searches for all strings only if the filter finds a candidate.

use aho_corasick::AhoCorasick;

use super::ngram_filter::{NgramFilter, Shape};

/// A set of strings; ASCII letter case does not matter.
#[derive(Debug)]
pub(crate) struct Patterns {
    automaton: Option<AhoCorasick>,
    filter: Option<NgramFilter>,
    /// The strings of the n-gram filter.
    literals: Vec<String>,
    len: usize,
}

/// The first match of each pattern.
#[derive(Debug, Default)]
pub(crate) struct Hits(Vec<Option<(usize, usize)>>);

impl Patterns {
    /// Compiles `patterns`; their positions are their numbers. `literals` are the patterns of which
    /// a text must contain at least one for the others to matter.
    ///
    /// # Errors
    /// A message if they are too many or too long for the automaton.
    pub(crate) fn new(patterns: &[String], literals: &[usize]) -> Result<Self, String> {
        let automaton = match patterns {
            [] => None,
            patterns => Some(
                AhoCorasick::builder()
                    .ascii_case_insensitive(true)
                    .prefilter(false)
                    .build(patterns)
                    .map_err(|error| error.to_string())?,
            ),
        };
        let literals: Vec<String> =
            literals.iter().map(|literal| patterns[*literal].clone()).collect();
        let shapes: Vec<Shape> = literals.iter().map(|text| Shape::of(text.as_bytes())).collect();
        Ok(Self { automaton, filter: NgramFilter::new(&shapes), literals, len: patterns.len() })
    }

    /// The literals that are too short for a filter.
    #[cfg(test)]
    pub(super) fn unfiltered(&self) -> Vec<&str> {
        let shortest = super::ngram_filter::SHORTEST;
        self.literals.iter().map(String::as_str).filter(|text| text.len() < shortest).collect()
    }

    /// Finds all patterns in `text`, or none if `text` contains no literal.
    pub(crate) fn find(&self, text: &str) -> Hits {
        let bytes = text.as_bytes();
        let stands_at = |literal: usize, begin: usize| {
            let literal = self.literals[literal].as_bytes();
            let there = bytes.get(begin..begin + literal.len());
            there.is_some_and(|there| there.eq_ignore_ascii_case(literal))
        };
        match &self.filter {
            Some(filter) if !filter.any(bytes, stands_at) => Hits::default(),
            _ => self.find_all(text),
        }
    }

    /// Finds all patterns in `text`, with or without a literal.
    pub(crate) fn find_all(&self, text: &str) -> Hits {
        let Some(automaton) = &self.automaton else { return Hits::default() };
        let mut hits = vec![None; self.len];
        for found in automaton.find_overlapping_iter(text) {
            hits[found.pattern().as_usize()].get_or_insert((found.start(), found.end()));
        }
        Hits(hits)
    }
}

impl Hits {
    /// The first match of pattern number `pattern`: begin and end.
    pub(crate) fn of(&self, pattern: usize) -> Option<(usize, usize)> {
        self.0.get(pattern).copied().flatten()
    }

    /// Whether any pattern was found.
    pub(crate) fn has_any(&self) -> bool {
        self.0.iter().any(Option::is_some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(patterns: &[&str], literals: &[usize], text: &str) -> Vec<usize> {
        let patterns: Vec<String> = patterns.iter().map(ToString::to_string).collect();
        let compiled = Patterns::new(&patterns, literals).expect("few and short patterns");
        let hits = compiled.find(text);
        (0..patterns.len()).filter(|pattern| hits.of(*pattern).is_some()).collect()
    }

    #[test]
    fn overlapping_patterns_are_found_in_any_letter_case() {
        let patterns = ["shell", "hell", "lo w", "absent"];
        assert_eq!(found(&patterns, &[0, 1, 2, 3], "a SHELlo world"), [0, 1, 2]);
    }

    #[test]
    fn the_first_place_of_each_pattern_counts() {
        let patterns = ["literal".to_owned()];
        let compiled = Patterns::new(&patterns, &[0]).expect("few and short patterns");
        assert_eq!(compiled.find("a Literal, another literal").of(0), Some((2, 9)));
    }

    #[test]
    fn without_a_literal_nothing_is_found_and_with_one_everything() {
        let patterns = ["a long literal", "hay"];
        assert!(found(&patterns, &[0], "hay and nothing else").is_empty());
        assert_eq!(found(&patterns, &[0], "hay and A LONG LITERAL"), [0, 1]);
    }
}
