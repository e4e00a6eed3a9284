//! Finds the signatures that may match a head, without evaluating each of them.
//!
//! Most signatures have no condition on the head and apply to every body. Most of the others
//! require a header field that few responses have.

use std::borrow::Cow;

use http::{HeaderMap, HeaderName, StatusCode};

use super::{compiled::Compiled, signature::StatusRange};

/// The signatures of a classifier, by number, indexed by their conditions on the head.
#[derive(Debug, Default)]
pub(crate) struct HeaderIndex {
    /// Without a condition on the head; ascending.
    unconditional: Vec<usize>,
    /// By the first field that they require.
    by_field: Vec<(HeaderName, Vec<usize>)>,
    /// One bit for each length of the names in `by_field`.
    lengths: u64,
    /// With a condition on the status or the redirect: by the first digit of the status.
    by_status: [Vec<usize>; 10],
    /// The same for status 200, which most responses have.
    at_ok: Vec<usize>,
}

impl HeaderIndex {
    pub(crate) fn new(signatures: &[Compiled]) -> Self {
        let mut index = Self::default();
        for (number, signature) in signatures.iter().enumerate() {
            match signature.first_field() {
                Some(name) => index.add_field(name, number),
                None if signature.has_no_head_condition() => index.unconditional.push(number),
                None => index.add_status(signature, number),
            }
        }
        index
    }

    /// The signatures without a condition on the head, ascending.
    pub(crate) fn unconditional(&self) -> &[usize] {
        &self.unconditional
    }

    /// The signatures with conditions on the head that may hold for this status and these fields,
    /// ascending.
    pub(crate) fn conditional(&self, status: StatusCode, fields: &HeaderMap) -> Cow<'_, [usize]> {
        let by_status = match status {
            StatusCode::OK => &self.at_ok,
            _ => &self.by_status[usize::from(status.as_u16() / 100)],
        };
        let mut conditional = Cow::Borrowed(&**by_status);
        for name in fields.keys() {
            if self.lengths >> (name.as_str().len() % 64) & 1 == 0 {
                continue;
            }
            if let Some((_, numbers)) = self.by_field.iter().find(|(known, _)| known == name) {
                conditional.to_mut().extend(numbers);
                conditional.to_mut().sort_unstable();
            }
        }
        conditional
    }

    fn add_field(&mut self, name: &HeaderName, number: usize) {
        self.lengths |= 1 << (name.as_str().len() % 64);
        match self.by_field.iter_mut().find(|(known, _)| known == name) {
            Some((_, numbers)) => numbers.push(number),
            None => self.by_field.push((name.clone(), vec![number])),
        }
    }

    fn add_status(&mut self, signature: &Compiled, number: usize) {
        if signature.may_match_status(StatusRange(200, 200)) {
            self.at_ok.push(number);
        }
        for (digit, numbers) in (0..).zip(&mut self.by_status) {
            if signature.may_match_status(StatusRange(digit * 100, digit * 100 + 99)) {
                numbers.push(number);
            }
        }
    }
}
