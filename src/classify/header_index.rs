//! Which signatures a head leaves to be asked, without asking each of them.
//!
//! Most signatures ask nothing of a head: they stay for every body. The others name a field that
//! must be there, as a rule, and hardly any answer has one of those.

use std::borrow::Cow;

use http::{HeaderMap, HeaderName, StatusCode};

use super::{compiled::Compiled, signature::StatusRange};

/// The signatures of a classifier by what they ask of a head, each by its number.
#[derive(Debug, Default)]
pub(crate) struct HeaderIndex {
    /// Nothing: ascending.
    free: Vec<usize>,
    /// This field, and perhaps more.
    by_field: Vec<(HeaderName, Vec<usize>)>,
    /// One bit for each length of those names.
    lengths: u64,
    /// A status or a redirect: by the first digit of the status.
    by_status: [Vec<usize>; 10],
    /// The same for 200 alone, which most answers have.
    at_ok: Vec<usize>,
}

impl HeaderIndex {
    pub(crate) fn new(signatures: &[Compiled]) -> Self {
        let mut heads = Self::default();
        for (number, signature) in signatures.iter().enumerate() {
            match signature.first_field() {
                Some(name) => heads.add_field(name, number),
                None if signature.asks_nothing_of_a_head() => heads.free.push(number),
                None => heads.add_status(signature, number),
            }
        }
        heads
    }

    /// Those that ask nothing of any head.
    pub(crate) fn free(&self) -> &[usize] {
        &self.free
    }

    /// Those that may hold at a head with this status and these fields and ask something of it,
    /// ascending.
    pub(crate) fn asking(&self, status: StatusCode, fields: &HeaderMap) -> Cow<'_, [usize]> {
        let by_status = match status {
            StatusCode::OK => &self.at_ok,
            _ => &self.by_status[usize::from(status.as_u16() / 100)],
        };
        let mut asking = Cow::Borrowed(&**by_status);
        for name in fields.keys() {
            if self.lengths >> (name.as_str().len() % 64) & 1 == 0 {
                continue;
            }
            if let Some((_, numbers)) = self.by_field.iter().find(|(known, _)| known == name) {
                asking.to_mut().extend(numbers);
                asking.to_mut().sort_unstable();
            }
        }
        asking
    }

    fn add_field(&mut self, name: &HeaderName, number: usize) {
        self.lengths |= 1 << (name.as_str().len() % 64);
        match self.by_field.iter_mut().find(|(known, _)| known == name) {
            Some((_, numbers)) => numbers.push(number),
            None => self.by_field.push((name.clone(), vec![number])),
        }
    }

    fn add_status(&mut self, signature: &Compiled, number: usize) {
        if signature.may_hold_at(StatusRange(200, 200)) {
            self.at_ok.push(number);
        }
        for (digit, numbers) in (0..).zip(&mut self.by_status) {
            if signature.may_hold_at(StatusRange(digit * 100, digit * 100 + 99)) {
                numbers.push(number);
            }
        }
    }
}
