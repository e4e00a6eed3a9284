//! Blocks scattered among good pages. A test at half the rate shows whether a wall causes them.

use super::{HALF, LONGEST, Learn, Learned, NEAR, News, RateReason};
use crate::limiter::shares::{FREQUENT, LEAST, MOST, Shares};

/// Certain blocks start a test once they have lowered the rate to this part.
pub(crate) const TESTED_BELOW: f64 = 0.75;
/// How long a trip that came by chance can be undone.
pub(crate) const RECENT: i64 = 1_800_000_000;

/// The state before scattered blocks came. It is restored if no wall causes them.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct BeforeTest {
    /// The rate; 0 = there were none.
    pub rate: f64,
    /// The mark.
    pub mark: f64,
    /// The rate that had been blocked.
    pub bad: f64,
    /// Whether the test runs: half the rate is used, and blocks are counted.
    pub on: bool,
    /// Tokens granted in the test.
    pub sent: f64,
    /// The next test does not start before this time, because the last one found a wall.
    pub again: i64,
    /// The rate before the first trip that may have come by chance; 0 = there was none.
    pub untripped: f64,
    /// The time of that trip.
    pub tripped: i64,
}

/// The part of the rate at which a test runs: half, or less than the site let through if it refused most. At half of a
/// rate that is three times too high, a wall refuses one request in three, as single pages might.
fn part_to_test(shares: &Shares) -> f64 {
    if shares.base() > MOST { (1.0 - shares.base()).max(LEAST) * NEAR } else { HALF }
}

impl Learned {
    /// Saves the state to restore if no wall causes the blocks.
    pub(super) fn remember(&mut self) {
        if self.before_test.rate < self.rate {
            let Self { rate, mark, bad, .. } = *self;
            self.before_test = BeforeTest { rate, mark, bad, ..self.before_test };
        }
    }

    pub(super) fn forget_test(&mut self) {
        let BeforeTest { again, untripped, tripped, .. } = self.before_test;
        self.before_test = BeforeTest { again, untripped, tripped, ..BeforeTest::default() };
    }

    /// Whether a test is worthwhile: certain blocks must have lowered the rate first.
    pub(super) fn may_test(&self, news: News, learn: &Learn) -> bool {
        let eased = self.rate < self.before_test.rate * TESTED_BELOW;
        self.rate * HALF >= learn.floor && (eased || !news.sure)
    }

    /// Starts a test whether the share of blocks falls with the rate.
    pub(super) fn begin_test(&mut self, now: i64, news: News, shares: &mut Shares) {
        self.remember();
        shares.suspect();
        self.before_test.on = true;
        self.before_test.sent = 0.0;
        self.rate *= part_to_test(shares);
        self.changed = now;
        self.blocked = news.blocked;
        self.why = RateReason::Test;
    }

    pub(super) fn test(&mut self, now: i64, news: News, shares: &mut Shares, learn: &Learn) {
        self.blocked = news.blocked;
        let Some(same) = shares.outcome(self.before_test.sent) else { return };
        let BeforeTest { rate, mark, bad, untripped, tripped, .. } = self.before_test;
        let (tested, good) = (self.rate / part_to_test(shares), 1.0 - shares.base());
        let most = shares.most();
        shares.settle(same);
        self.forget_test();
        if same {
            self.why = RateReason::NoWall;
            (self.rate, self.mark, self.bad) = (rate, mark, bad);
            // With a share this large, three blocks in a row may be chance.
            if shares.base() >= FREQUENT && untripped > rate && now - tripped < RECENT {
                (self.rate, self.mark, self.bad) = (untripped, 0.0, 0.0);
            }
            self.before_test.untripped = 0.0;
        } else {
            self.why = RateReason::Eased;
            self.bad = tested;
            // Continue at the rate that the wall let through.
            self.rate = match most {
                Some(share) => self.rate * (1.0 - share) * NEAR,
                None => self.rate.max(tested * good * NEAR),
            };
            self.mark = self.rate;
            self.before_test.again = now + LONGEST;
        }
        self.patience = learn.patience;
        self.changed = now;
    }

    /// A failed try at a known wall confirms the wall: no test starts until the next try is over.
    pub(super) fn confirm_wall(&mut self, blocked: i64) {
        if blocked < self.before_test.again {
            self.forget_test();
            self.before_test.again = blocked + LONGEST + self.patience;
        }
    }

    /// If blocks continue at half of the allowed rate, there is no wall or a different one, and a test may start.
    pub(super) fn refute_wall(&mut self, blocked: i64) {
        if self.rate < self.before_test.rate * HALF {
            self.before_test.again = self.before_test.again.min(blocked);
        }
    }
}
