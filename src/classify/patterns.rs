//! Many strings looked for in one pass that can be interrupted anywhere.

use aho_corasick::{
    Anchored,
    automaton::{Automaton, StateID},
    dfa::DFA,
};

/// Places of a text that are searched at the same time. Each step of an automaton waits for the one
/// before, so that four searches side by side take hardly longer than one.
const LANES: usize = 4;

/// An automaton for a set of strings, ASCII letter case aside.
#[derive(Debug)]
pub(crate) struct Patterns {
    dfa: Option<DFA>,
    start: StateID,
    len: usize,
    /// Bytes after which a search has forgotten where it began.
    memory: usize,
}

/// Where a search stands, and what it has found.
#[derive(Debug)]
pub(crate) struct Search {
    state: StateID,
    /// One bit per pattern.
    seen: Vec<u64>,
}

impl Patterns {
    /// Compiles `patterns`; their positions are their numbers.
    ///
    /// # Errors
    /// Too many or too long for the automaton's numbers, as a message.
    pub(crate) fn new(patterns: &[String]) -> Result<Self, String> {
        if patterns.is_empty() {
            return Ok(Self { dfa: None, start: StateID::default(), len: 0, memory: 0 });
        }
        let dfa = DFA::builder()
            .ascii_case_insensitive(true)
            .prefilter(false)
            .build(patterns)
            .map_err(|error| error.to_string())?;
        let start = dfa.start_state(Anchored::No).map_err(|error| error.to_string())?;
        let memory = dfa.max_pattern_len().saturating_sub(1);
        Ok(Self { dfa: Some(dfa), start, len: patterns.len(), memory })
    }

    /// A search from the beginning.
    pub(crate) fn search(&self) -> Search {
        Search { state: self.start, seen: vec![0; self.len.div_ceil(64)] }
    }

    /// Goes on with a search; `first` hears of each pattern when it is found for the first time:
    /// its number and the offset in `text` where it ends.
    pub(crate) fn advance(
        &self,
        search: &mut Search,
        text: &[u8],
        mut first: impl FnMut(usize, usize),
    ) {
        if let Some(dfa) = &self.dfa {
            run(dfa, search, text, 0, &mut first);
        }
    }

    /// The same several times as fast, where it does not matter which place of a pattern is heard
    /// of.
    pub(crate) fn advance_anyhow(
        &self,
        search: &mut Search,
        text: &[u8],
        mut first: impl FnMut(usize, usize),
    ) {
        let Some(dfa) = &self.dfa else { return };
        let lane = text.len() / LANES;
        if lane <= self.memory {
            return run(dfa, search, text, 0, &mut first);
        }
        let mut states = [search.state; LANES];
        for (number, state) in states.iter_mut().enumerate().skip(1) {
            let begin = number * lane;
            let before = text[begin - self.memory..begin].iter();
            *state = before.fold(self.start, |s, byte| dfa.next_state(Anchored::No, s, *byte));
        }
        for at in 0..lane {
            for (number, state) in states.iter_mut().enumerate() {
                let place = number * lane + at;
                *state = dfa.next_state(Anchored::No, *state, text[place]);
                if dfa.is_special(*state) {
                    found(dfa, search, *state, place + 1, &mut first);
                }
            }
        }
        search.state = states[LANES - 1];
        run(dfa, search, &text[LANES * lane..], LANES * lane, &mut first);
    }
}

/// Goes on with a search in `text`, which stands at `offset`.
fn run(
    dfa: &DFA,
    search: &mut Search,
    text: &[u8],
    offset: usize,
    first: &mut impl FnMut(usize, usize),
) {
    let mut state = search.state;
    for (at, byte) in text.iter().enumerate() {
        state = dfa.next_state(Anchored::No, state, *byte);
        if dfa.is_special(state) {
            found(dfa, search, state, offset + at + 1, first);
        }
    }
    search.state = state;
}

/// Marks the patterns that end in `state`.
#[cold]
fn found(
    dfa: &DFA,
    search: &mut Search,
    state: StateID,
    end: usize,
    first: &mut impl FnMut(usize, usize),
) {
    if !dfa.is_match(state) {
        return;
    }
    for index in 0..dfa.match_len(state) {
        let pattern = dfa.match_pattern(state, index).as_usize();
        if search.mark(pattern) {
            first(pattern, end);
        }
    }
}

impl Search {
    /// Whether pattern number `pattern` was found.
    pub(crate) fn has(&self, pattern: usize) -> bool {
        self.seen.get(pattern / 64).is_some_and(|word| word >> (pattern % 64) & 1 == 1)
    }

    /// Whether any pattern was found.
    pub(crate) fn has_any(&self) -> bool {
        self.seen.iter().any(|word| *word != 0)
    }

    fn mark(&mut self, pattern: usize) -> bool {
        let new = !self.has(pattern);
        if let Some(word) = self.seen.get_mut(pattern / 64) {
            *word |= 1 << (pattern % 64);
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(patterns: &[&str], pieces: &[&str], anyhow: bool) -> Vec<usize> {
        let patterns: Vec<String> = patterns.iter().map(ToString::to_string).collect();
        let compiled = Patterns::new(&patterns).expect("few and short patterns");
        let mut search = compiled.search();
        for piece in pieces {
            if anyhow {
                compiled.advance_anyhow(&mut search, piece.as_bytes(), |_, _| {});
            } else {
                compiled.advance(&mut search, piece.as_bytes(), |_, _| {});
            }
        }
        (0..patterns.len()).filter(|pattern| search.has(*pattern)).collect()
    }

    #[test]
    fn overlapping_patterns_are_found_across_pieces() {
        let patterns = ["shell", "hell", "lo w", "absent"];
        assert_eq!(all(&patterns, &["a SHE", "l", "lo", " world"], false), [0, 1, 2]);
    }

    #[test]
    fn searching_in_lanes_finds_the_same_wherever_the_text_is_cut() {
        let patterns = ["needle-one", "needle-two", "e-t", "zz"];
        for shift in (0..120).step_by(7) {
            let text =
                format!("{}needle-two{}needle-one", "x".repeat(shift), "y".repeat(150 - shift));
            for cut in (0..text.len()).step_by(3) {
                let (a, b) = text.split_at(cut);
                assert_eq!(all(&patterns, &[a, b], true), [0, 1, 2], "{shift} {cut}");
            }
        }
    }
}
