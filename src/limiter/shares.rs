//! Which share of a scope's answers are blocks, by verdict: what tells a wall from pages that are always refused.
//!
//! A wall refuses less when less is sent. A page behind a login, a captcha on one page in a hundred and a member behind a
//! blocked exit do not care. The learned rate finds out which it is by a test at half the rate
//! ([`crate::limiter::learn`]); what remains at half the rate is the *base* share. Blocks that chance explains, given the
//! base, neither trip a cooldown nor lower the rate.
//!
//! Only blocks that an `ok` followed are counted: those of a trip are a wall's.

use crate::classify::verdict::Verdict;

/// Kinds of verdicts.
const KINDS: usize = Verdict::ALL.len();
/// A run of blocks that comes by chance less often than once in so many answers is a wall.
const CHANCE: f64 = 1e-6;
/// A larger share of blocks is a wall, whatever a test says.
const MOST: f64 = 0.45;
/// A smaller one is not worth a test.
const LEAST: f64 = 0.005;
/// Where so many answers are blocks, three of them in a row come by chance.
const FREQUENT: f64 = 0.05;
/// So many scattered blocks may come before they are looked into.
const FEW: f64 = 2.0;
/// Of fewer answers nothing is known.
const KNOWN_FROM: f64 = 10.0;
/// Counts are halved from here on: what is new counts for more.
const HALVED_FROM: f64 = 2_048.0;
/// A base that stands for so many blocks is known well enough to follow what is seen.
const MANY: f64 = 100.0;
/// A test has seen enough when so many blocks were to be expected.
const ENOUGH: f64 = 6.0;
/// The same by what was sent, since nothing is reported as long as nothing is blocked.
const ENOUGH_SENT: f64 = 15.0;

/// Counts of answers and blocks.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Shares {
    /// Whether the rate is learned, so that a test can tell which blocks a wall causes. Without it every block counts.
    pub tested: bool,
    /// Answers since the latest trip or test.
    answers: f64,
    /// Blocks among them, by verdict.
    blocks: [f64; KINDS],
    /// The base shares, by verdict.
    base: [f64; KINDS],
}

impl Shares {
    /// Nothing has been counted.
    #[must_use]
    pub fn new(tested: bool) -> Self {
        Self { tested, ..Self::default() }
    }

    /// Whether a test may tell which blocks a wall causes. Nothing is noted before something was counted: healthy scopes have no key.
    pub fn are_tested(&mut self, tested: bool) {
        if self.answers > 0.0 {
            self.tested = tested;
        }
    }

    /// Counts good answers, and the blocks before them.
    pub fn count(&mut self, oks: u32, kinds: &str) {
        self.answers += f64::from(oks);
        for verdict in kinds.chars().filter_map(Verdict::of_letter) {
            self.answers += 1.0;
            self.blocks[verdict as usize] += 1.0;
        }
        if self.answers >= HALVED_FROM {
            self.lower_base();
            self.answers = (self.answers / 2.0).floor();
            self.blocks.iter_mut().for_each(|blocks| *blocks = (*blocks / 2.0).floor());
        }
    }

    /// A base that has become rarer is what it is now: by any part where many were counted, else by half.
    fn lower_base(&mut self) {
        for (base, blocks) in self.base.iter_mut().zip(self.blocks) {
            let expected = *base * self.answers;
            if blocks < if expected >= MANY { expected } else { expected / 2.0 } {
                *base = blocks / self.answers;
            }
        }
    }

    /// A trip: what was scattered before it goes on to count only if it was much.
    pub fn tripped(&mut self) {
        if self.blocked() < FREQUENT * self.answers {
            self.restart();
        }
    }

    /// Begins to count anew.
    pub fn restart(&mut self) {
        self.answers = 0.0;
        self.blocks = [0.0; KINDS];
    }

    /// The share of blocks of one kind that is not taken for a wall: the base, or what has been scattered lately.
    fn tolerated(&self, at: usize) -> f64 {
        if !self.tested {
            return 0.0;
        }
        let seen = self.answers >= KNOWN_FROM && self.blocks[at] > FEW;
        let share = if seen { self.blocks[at] / self.answers } else { 0.0 };
        self.base[at].max(if share > MOST { 0.0 } else { share })
    }

    /// Whether chance explains these blocks in a row.
    #[must_use]
    pub fn are_chance(&self, kinds: &str) -> bool {
        let mut chance = 1.0;
        for verdict in kinds.chars().filter_map(Verdict::of_letter) {
            chance *= self.tolerated(verdict as usize);
        }
        chance >= CHANCE
    }

    /// How many of the last `of` answers have to be blocks before chance does not explain them.
    #[must_use]
    pub fn needed(&self, of: f64) -> f64 {
        let share = (0..KINDS).map(|at| self.tolerated(at)).sum::<f64>().min(MOST);
        (share * of + 6.0 * (of * share * (1.0 - share)).sqrt()).min(of)
    }

    /// Whether the base explains all scattered blocks, and there is one.
    #[must_use]
    pub fn are_explained(&self) -> bool {
        self.base() > 0.0 && !(0..KINDS).any(|at| self.exceeds(at))
    }

    /// Whether more is scattered than the base explains, and little enough that it may be the pages.
    #[must_use]
    pub fn are_doubtful(&self) -> bool {
        let is_more = |at| self.exceeds(at) && self.blocks[at] >= LEAST * self.answers;
        self.tested
            && self.answers >= KNOWN_FROM
            && self.blocked() <= MOST * self.answers
            && (0..KINDS).any(is_more)
    }

    fn exceeds(&self, at: usize) -> bool {
        let expected = self.base[at] * self.answers;
        self.blocks[at] > expected + 4.0 * expected.sqrt() + FEW
    }

    /// A test begins: what has been scattered is taken for the base until it is over.
    pub fn suspect(&mut self) {
        for at in 0..KINDS {
            self.base[at] = self.base[at].max(self.blocks[at] / self.answers);
        }
        self.restart();
    }

    /// The share of blocks that the base stands for.
    #[must_use]
    pub fn base(&self) -> f64 {
        self.base.iter().sum()
    }

    /// All blocks that were counted.
    fn blocked(&self) -> f64 {
        self.blocks.iter().sum()
    }

    /// Whether the share is the same at half the rate, once enough was `sent` to tell.
    #[must_use]
    pub fn outcome(&self, sent: f64) -> Option<bool> {
        let blocks = self.blocked();
        let expected = self.base() * self.answers;
        if expected >= ENOUGH {
            return Some(blocks * 3.0 >= expected);
        }
        let expected = self.base() * sent;
        (expected >= ENOUGH_SENT && blocks * 4.0 < expected).then_some(false)
    }

    /// The test is over: the base is what was seen in it, or in both halves where it is the `same`.
    pub fn settle(&mut self, same: bool) {
        let answers = self.answers.max(1.0);
        for at in 0..KINDS {
            let share = self.blocks[at] / answers;
            let seen = if self.blocks[at] >= FEW { share } else { 0.0 };
            self.base[at] = if same { (self.base[at] + share) / 2.0 } else { seen };
        }
        self.restart();
    }

    /// Forgets the base too.
    pub fn forget(&mut self) {
        self.base = [0.0; KINDS];
        self.restart();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(answers: u32, blocks: usize) -> Shares {
        let mut shares = Shares::new(true);
        shares.count(answers, &"b".repeat(blocks));
        shares
    }

    #[test]
    fn chance_explains_few_in_a_row_and_no_more() {
        let shares = shares(80, 20);
        assert!(shares.are_chance(&"b".repeat(8)), "a share of a fifth");
        assert!(!shares.are_chance(&"b".repeat(9)));
        assert!(!shares.are_chance("d"), "another verdict");
        assert!(shares.needed(20.0) > 14.0 && shares.needed(20.0) < 15.0);
    }

    #[test]
    fn without_a_test_every_block_counts() {
        let mut shares = shares(80, 20);
        shares.are_tested(false);
        assert!(!shares.are_chance("b") && !shares.are_doubtful());
    }

    #[test]
    fn half_of_all_answers_is_a_wall_whatever_a_test_says() {
        let shares = shares(50, 50);
        assert!(!shares.are_chance("bbb") && !shares.are_doubtful());
    }

    #[test]
    fn a_base_that_becomes_rarer_is_lowered() {
        let mut shares = shares(80, 20);
        shares.suspect();
        shares.count(40, "bbbbbbbbbb");
        assert_eq!(shares.outcome(50.0), Some(true));
        shares.settle(true);
        assert!((shares.base() - 0.2).abs() < 1e-9);
        shares.count(2_048, "bb");
        assert!(shares.base() < 0.002, "{shares:?}");
    }
}
