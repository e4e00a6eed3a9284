//! The share of a scope's responses that are blocks, by verdict. It separates a wall from pages
//! that are always refused.
//!
//! A wall refuses less when less is sent. The rate does not matter for a page behind a login, a
//! captcha on one page in a hundred, or a member behind a blocked exit. The learned rate tests this
//! at half the rate ([`crate::limiter::learn`]). The share that remains there is the *base*. Blocks
//! that are likely by chance, given the base, neither trip a cooldown nor lower the rate.
//!
//! Only blocks before an `ok` are counted. The blocks of a trip belong to a wall.

use crate::classify::verdict::Verdict;

/// Kinds of verdicts.
const KINDS: usize = Verdict::ALL.len();
/// A run of blocks with a lower probability than this belongs to a wall.
pub(crate) const CHANCE: f64 = 1e-6;
/// A larger share of blocks belongs to a wall, whatever a test shows.
pub(crate) const MOST: f64 = 0.45;
/// A smaller share of scattered blocks neither lowers the rate nor is worth a test.
pub(crate) const LEAST: f64 = 0.02;
/// With this share of blocks, three in a row are likely by chance.
pub(crate) const FREQUENT: f64 = 0.05;
/// A test starts after this many scattered blocks.
pub(crate) const FEW: f64 = 2.0;
/// A plain 503 is assumed to be at least this likely, so that it takes five to trip.
pub(crate) const REFUSED: f64 = 0.05;
/// With fewer responses than this, the share is unknown.
pub(crate) const KNOWN_FROM: f64 = 10.0;
/// Counts are halved at this number, so that recent responses count more.
pub(crate) const HALVED_FROM: f64 = 2_048.0;
/// A base with this many blocks is exact enough to follow the observed share.
pub(crate) const MANY: f64 = 100.0;
/// A test ends when this many blocks are expected.
pub(crate) const ENOUGH: f64 = 6.0;
/// The same by requests sent, because members report nothing while nothing is blocked.
pub(crate) const ENOUGH_SENT: f64 = 15.0;

/// Counts of responses and blocks.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Shares {
    /// Whether the rate is learned, so that a test can show which blocks a wall causes. Otherwise
    /// every block counts.
    pub tested: bool,
    /// Responses since the latest trip or test.
    answers: f64,
    /// Blocks among them, by verdict.
    blocks: [f64; KINDS],
    /// The base shares, by verdict.
    base: [f64; KINDS],
}

impl Shares {
    /// Empty counts.
    #[must_use]
    pub fn new(tested: bool) -> Self {
        Self { tested, ..Self::default() }
    }

    /// Sets whether tests are possible. Changes nothing before the first count, because healthy
    /// scopes have no key.
    pub fn are_tested(&mut self, tested: bool) {
        if self.answers > 0.0 {
            self.tested = tested;
        }
    }

    /// Counts good responses and the blocks before them.
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

    /// Lowers a base whose blocks have become rarer: by any amount if the counts are large,
    /// otherwise by half.
    fn lower_base(&mut self) {
        for (base, blocks) in self.base.iter_mut().zip(self.blocks) {
            let expected = *base * self.answers;
            if blocks < if expected >= MANY { expected } else { expected / 2.0 } {
                *base = blocks / self.answers;
            }
        }
    }

    /// Processes a trip. Scattered blocks before it stay counted only if there were many. If there were more than the base
    /// explains, a wall causes them.
    pub fn tripped(&mut self) {
        let expected = self.base() * self.answers;
        if self.base() > 0.0 && self.blocked() > expected + expected.sqrt() {
            self.forget();
        } else if self.blocked() < FREQUENT * self.answers {
            self.restart();
        }
    }

    /// Starts the counts again.
    pub fn restart(&mut self) {
        self.answers = 0.0;
        self.blocks = [0.0; KINDS];
    }

    /// The share of blocks of one kind that is not attributed to a wall: the base, or the recently
    /// observed share.
    fn tolerated(&self, at: usize) -> f64 {
        if !self.tested {
            return 0.0;
        }
        let seen = self.answers >= KNOWN_FROM && self.blocks[at] > FEW;
        let share = if seen { self.blocks[at] / self.answers } else { 0.0 };
        self.base[at].max(if share > MOST { 0.0 } else { share })
    }

    /// Whether these blocks in a row are likely by chance.
    #[must_use]
    pub fn are_chance(&self, kinds: &str) -> bool {
        let mut chance = 1.0;
        for verdict in kinds.chars().filter_map(Verdict::of_letter) {
            // A plain 503 has the verdict `ok`.
            let least = if self.tested && verdict == Verdict::Ok { REFUSED } else { 0.0 };
            chance *= self.tolerated(verdict as usize).max(least);
        }
        chance >= CHANCE
    }

    /// How many of the last `of` responses must be blocks to be unlikely by chance.
    #[must_use]
    pub fn needed(&self, of: f64) -> f64 {
        let share = (0..KINDS).map(|at| self.tolerated(at)).sum::<f64>().min(MOST);
        (share * of + 6.0 * (of * share * (1.0 - share)).sqrt()).min(of)
    }

    /// Whether there are scattered blocks and the base explains all of them.
    #[must_use]
    pub fn are_explained(&self) -> bool {
        self.base() > 0.0 && !(0..KINDS).any(|at| self.exceeds(at))
    }

    /// Whether there are more scattered blocks than the base explains.
    #[must_use]
    pub fn are_doubtful(&self) -> bool {
        let is_more = |at| self.exceeds(at) && self.blocks[at] >= LEAST * self.answers;
        self.tested && self.answers >= KNOWN_FROM && (0..KINDS).any(is_more)
    }

    /// Whether there are scattered blocks, but so few that a lower rate would cost more pages than it saves blocks.
    #[must_use]
    pub fn are_few(&self) -> bool {
        self.blocked() > 0.0 && self.blocked() < LEAST * self.answers
    }

    fn exceeds(&self, at: usize) -> bool {
        let expected = self.base[at] * self.answers;
        self.blocks[at] > expected + 4.0 * expected.sqrt() + FEW
    }

    /// A test begins. Until it ends, the observed share counts as the base.
    pub fn suspect(&mut self) {
        for at in 0..KINDS {
            self.base[at] = self.base[at].max(self.blocks[at] / self.answers);
        }
        self.restart();
    }

    /// The total share of blocks of the base.
    #[must_use]
    pub fn base(&self) -> f64 {
        self.base.iter().sum()
    }

    /// All blocks that were counted.
    fn blocked(&self) -> f64 {
        self.blocks.iter().sum()
    }

    /// Whether the share is the same at half the rate; `None` until enough was `sent`.
    #[must_use]
    pub fn outcome(&self, sent: f64) -> Option<bool> {
        let blocks = self.blocked();
        let expected = self.base() * self.answers;
        if expected >= ENOUGH {
            // At half of a rate that was more than twice too high, a wall still blocks most.
            let most = MOST * self.answers;
            if blocks > most {
                return (blocks > most + self.answers.sqrt()).then_some(false);
            }
            return Some(blocks * 3.0 >= expected);
        }
        let expected = self.base() * sent;
        (expected >= ENOUGH_SENT && blocks * 4.0 < expected).then_some(false)
    }

    /// The share of blocks, if it is so large that it belongs to a wall.
    pub(crate) fn most(&self) -> Option<f64> {
        let most = self.answers >= KNOWN_FROM && self.blocked() > MOST * self.answers;
        most.then(|| self.blocked() / self.answers)
    }

    /// Ends the test. If the share is the `same`, the base becomes that of both halves. The few blocks that a wall sends at
    /// half the rate are no base: they may be the last of the old rate.
    pub fn settle(&mut self, same: bool) {
        if !same {
            self.forget();
            return;
        }
        let answers = self.answers.max(1.0);
        for (base, blocks) in self.base.iter_mut().zip(self.blocks) {
            *base = (*base + blocks / answers) / 2.0;
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
    fn fewer_than_two_blocks_in_a_hundred_are_few() {
        assert!(shares(295, 5).are_few() && !shares(295, 5).are_doubtful());
        assert!(!shares(294, 6).are_few() && shares(294, 6).are_doubtful());
        assert!(!shares(300, 0).are_few(), "the first block of a streak may belong to a wall");
    }

    #[test]
    fn without_a_test_every_block_counts() {
        let mut shares = shares(80, 20);
        shares.are_tested(false);
        assert!(!shares.are_chance("b") && !shares.are_doubtful());
    }

    #[test]
    fn blocks_on_half_of_all_responses_are_always_a_wall() {
        assert!(!shares(50, 50).are_chance("bbb"));
    }

    #[test]
    fn a_wall_that_still_blocks_most_at_half_the_rate_sets_no_base() {
        let mut shares = shares(14, 6);
        shares.suspect();
        shares.count(10, &"a".repeat(12));
        assert_eq!(shares.outcome(22.0), None, "it may be chance");
        shares.count(14, &"a".repeat(28));
        assert_eq!(shares.outcome(64.0), Some(false));
        assert!(shares.most().is_some_and(|share| share > 0.6));
        shares.settle(false);
        assert!(shares.base().abs() < 1e-9);
    }

    #[test]
    fn a_trip_after_more_blocks_than_the_base_explains_forgets_the_base() {
        for (blocks, forgotten) in [(10, false), (25, true)] {
            let mut shares = shares(80, 20);
            shares.suspect();
            shares.count(50 - blocks, &"b".repeat(blocks as usize));
            shares.tripped();
            assert_eq!(shares.base() <= 0.0, forgotten, "{blocks} of 50");
        }
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
