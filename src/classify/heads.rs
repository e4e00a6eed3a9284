//! Which signatures a head leaves to be asked, without asking each of them.
//!
//! Most signatures ask nothing of a head: they stay for every body. The others name a field that
//! must be there, as a rule, and hardly any answer has one of those.

use std::collections::HashMap;

use http::{HeaderMap, HeaderName};

use super::compiled::Compiled;

/// The signatures of a classifier by what they ask of a head, each by its number.
#[derive(Debug, Default)]
pub(crate) struct Heads {
    /// Nothing: ascending.
    free: Vec<usize>,
    /// This field, and perhaps more.
    by_field: HashMap<HeaderName, Vec<usize>>,
    /// A status or a redirect.
    others: Vec<usize>,
}

impl Heads {
    pub(crate) fn new(signatures: &[Compiled]) -> Self {
        let mut heads = Self::default();
        for (number, signature) in signatures.iter().enumerate() {
            match signature.first_field() {
                Some(name) => heads.by_field.entry(name.clone()).or_default().push(number),
                None if signature.asks_nothing_of_a_head() => heads.free.push(number),
                None => heads.others.push(number),
            }
        }
        heads
    }

    /// Those that ask nothing of any head.
    pub(crate) fn free(&self) -> &[usize] {
        &self.free
    }

    /// Those that may hold at a head with these fields and ask something of it, ascending.
    pub(crate) fn asking(&self, fields: &HeaderMap) -> Vec<usize> {
        let named = fields.keys().filter_map(|name| self.by_field.get(name)).flatten();
        let mut asking: Vec<usize> = self.others.iter().chain(named).copied().collect();
        asking.sort_unstable();
        asking
    }
}
