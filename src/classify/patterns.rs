//! Many strings looked for in one pass that can be interrupted anywhere.

use aho_corasick::{
    Anchored,
    automaton::{Automaton, StateID},
    dfa::DFA,
};

/// An automaton for a set of strings, ASCII letter case aside.
#[derive(Debug)]
pub(crate) struct Patterns {
    dfa: Option<DFA>,
    start: StateID,
    len: usize,
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
            return Ok(Self { dfa: None, start: StateID::default(), len: 0 });
        }
        let dfa = DFA::builder()
            .ascii_case_insensitive(true)
            .prefilter(false)
            .build(patterns)
            .map_err(|error| error.to_string())?;
        let start = dfa.start_state(Anchored::No).map_err(|error| error.to_string())?;
        Ok(Self { dfa: Some(dfa), start, len: patterns.len() })
    }

    /// A search from the beginning.
    pub(crate) fn search(&self) -> Search {
        Search { state: self.start, seen: vec![0; self.len.div_ceil(64)] }
    }

    /// Goes on with a search; `first` hears of each pattern when it is found for the first time: its number and
    /// the offset in `text` where it ends.
    pub(crate) fn advance(
        &self,
        search: &mut Search,
        text: &[u8],
        mut first: impl FnMut(usize, usize),
    ) {
        let Some(dfa) = &self.dfa else { return };
        let mut state = search.state;
        for (at, byte) in text.iter().enumerate() {
            state = dfa.next_state(Anchored::No, state, *byte);
            if dfa.is_special(state) && dfa.is_match(state) {
                for index in 0..dfa.match_len(state) {
                    let pattern = dfa.match_pattern(state, index).as_usize();
                    if search.mark(pattern) {
                        first(pattern, at + 1);
                    }
                }
            }
        }
        search.state = state;
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
