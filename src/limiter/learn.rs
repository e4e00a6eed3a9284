//! The rate that a site tolerates, learned by the fleet. Pure arithmetic on the store's clock.
//!
//! `rate` in the rule file is the ceiling. A trip shows that the rate in force was too high. The tokens granted before
//! the trip give an estimate of what the site tolerates: the *mark*. From the mark the rate climbs in small steps to
//! just below the blocked rate and stays there for a calm period (`patience`). Then it tries a little more. A step that
//! lasts becomes the new mark. A step that trips confirms the old mark and makes the calm period longer.
//!
//! ```text
//! rate   ceiling ----.
//!                    |trip              trip (confirms the mark: a longer calm)
//!                    |       .----------.   .--------------------------------
//!                    |   .---'   calm   '---'   a longer calm
//!  mark              '---'
//! ```
//!
//! The rate changes only when tickets are taken. Tokens from before a change count at the old rate, so the bucket's
//! bound holds for the rate in force at each moment. `lua/lib/learn.lua` has the same operations in the same order.

pub(crate) mod overload;
mod reason;
pub(crate) mod scattered;
pub(crate) mod wall;

pub use overload::Strained;
pub use reason::{KnownRate, RateOverride, RateReason};
pub use scattered::BeforeTest;
pub use wall::{NamedWall, Wall};

use scattered::RECENT;

use crate::{
    limiter::{load::Strain, shares::Shares},
    runtime::clock::{exact, whole},
};

/// How a rate is learned.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Learn {
    /// The initial rate, in tokens per second.
    pub start: f64,
    /// The lowest rate, in tokens per second.
    pub floor: f64,
    /// Part of the estimate that is kept after a trip, between 0 and 1.
    pub back_off: f64,
    /// The calm period before the first try above the mark, in microseconds.
    pub patience: i64,
}

/// The state of the cooldown and of the load that the learned rate depends on.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct News {
    /// When the scope last opened after a cooldown; 0 = it never cooled.
    pub opened: i64,
    /// When the last block came; 0 = none.
    pub blocked: i64,
    /// Whether that block was a sure sign (a vendor's challenge, a 429) rather than a plain refusal.
    pub sure: bool,
    /// How many blocks tripped the latest cooldown.
    pub blocks: u32,
    /// Whether it is cooling now.
    pub closed: bool,
    /// The rate that the site itself announces, in tokens per second. The learned rate does not exceed it.
    pub named: Option<f64>,
    /// The load of the site.
    pub load: Strain,
}

/// What has been learned. All times are microseconds of the store's clock.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Learned {
    /// The rate in force, in tokens per second; 0 before the first request.
    pub rate: f64,
    /// The highest rate that the site is known to tolerate; 0 = no limit has been met.
    pub mark: f64,
    /// The latest rate that was blocked; 0 = none.
    pub bad: f64,
    /// When the rate was last set.
    pub changed: i64,
    /// The calm period before the next try.
    pub patience: i64,
    /// Start of the current minute of counting.
    pub minute: i64,
    /// Tokens granted in it.
    pub counted: f64,
    /// Tokens granted in the minute before.
    pub before: f64,
    /// The latest cooldown that has been taken into account, as the moment at which the scope opened again.
    pub seen: i64,
    /// The latest block that has been taken into account.
    pub blocked: i64,
    /// Version of the rate and mark. Manual changes are versioned like all others.
    pub turn: u64,
    /// Why this rate is in force.
    pub why: RateReason,
    /// Whether an operator has frozen the rate.
    pub frozen: bool,
    /// The cooldown in force when an operator set the rate. It does not count against the new rate.
    pub excused: bool,
    /// The state before scattered blocks came.
    pub before_test: BeforeTest,
    /// The state of an overloaded site.
    pub strained: Strained,
    /// The site's limit per window, if long bans have shown it.
    pub wall: Wall,
}

/// Grants are counted per minute. Most walls have no longer window, and a slow rate fills no shorter one.
pub(crate) const MINUTE: i64 = 60_000_000;
/// How long a step above the mark must last to become the mark: one whole counting window.
pub(crate) const HOLD: i64 = MINUTE;
/// The same for a step of the climb after a long ban, because a failed step would cost another long ban.
pub(crate) const LONG_HOLD: i64 = 10 * MINUTE;
/// How long each step lasts while no limit has been met, so that the first limit is found within minutes.
pub(crate) const QUICK: i64 = 20_000_000;
/// Blocks that come within this time count as one, because they answer requests that were in flight together.
pub(crate) const ECHO: i64 = 5_000_000;
/// A try that ended in a cooldown is repeated only after this many times the cooldown's length, so that tries cost a
/// small part of the time.
pub(crate) const WORTH: i64 = 15;
/// Longest calm period: a site's limit may change between day and night.
pub(crate) const LONGEST: i64 = 3_600_000_000;
/// The rate is multiplied by this after a sure block that tripped nothing.
pub(crate) const EASED: f64 = 0.9;
/// The mark is multiplied by this when a try just above it fails.
pub(crate) const CONFIRMED: f64 = 0.98;
/// A test of scattered blocks uses this part of the rate. The queue of an overloaded site drains at this part of its
/// response rate, and no step is larger. If more than this part of the responses fail, the load counts as the cause.
pub(crate) const HALF: f64 = 0.5;
/// Factor of each step while no limit has been met.
pub(crate) const CLIMB: f64 = 1.3;
/// The rate stops climbing at this part of the blocked rate and stays there for a calm period.
pub(crate) const NEAR: f64 = 0.95;
/// Each step of the climb covers this part of the distance to the blocked rate ...
pub(crate) const APPROACH: f64 = 0.1;
/// ... but at least this part of the rate.
pub(crate) const LEAST: f64 = 0.02;
/// The first step above the blocked rate is this part of the rate. Each further step is as large as the gain so far ...
pub(crate) const STEP: f64 = 0.04;
/// ... but at most this part.
pub(crate) const STRIDE: f64 = 0.25;
/// A rate counts as above the mark from this factor on, so that rounding does not count as a try.
pub(crate) const ABOVE: f64 = 1.01;
/// If less than this part of the rate was used, the result says nothing about the site.
pub(crate) const USED: f64 = 0.6;

impl Learned {
    /// Moves every moment back with the clock.
    pub fn set_back(&mut self, back: i64) {
        let BeforeTest { again, tripped, .. } = &mut self.before_test;
        let Strained { heard, again: spared, .. } = &mut self.strained;
        let Self { changed, minute, seen, blocked, .. } = self;
        for moment in [changed, minute, seen, blocked, again, tripped, heard, spared] {
            *moment = if *moment > 0 { *moment - back } else { 0 };
        }
    }

    /// Counts `tokens` granted for `moment`.
    pub fn count(&mut self, moment: i64, tokens: f64) {
        if moment >= self.minute + 2 * MINUTE {
            self.before = 0.0;
            self.counted = 0.0;
            self.minute = moment;
        } else if moment >= self.minute + MINUTE {
            self.before = self.counted;
            self.counted = 0.0;
            self.minute += MINUTE;
        }
        self.counted += tokens;
        self.wall.count(tokens);
        self.before_test.sent += if self.before_test.on { tokens } else { 0.0 };
    }

    /// Tokens per second over the minute before `moment`.
    fn carried(&self, moment: i64) -> f64 {
        let into = exact((moment - self.minute).max(0)) / exact(MINUTE);
        if into <= 1.0 {
            (self.counted + self.before * (1.0 - into)) / 60.0
        } else {
            self.counted * (2.0 - into).max(0.0) / 60.0
        }
    }

    /// Updates the rate in force from `now` on. `last` is the latest grant. `known` is the asking member's copy, for a
    /// store that lost its memory.
    pub fn observe(
        &mut self,
        now: i64,
        last: i64,
        (news, shares): (News, &mut Shares),
        known: KnownRate,
        ceiling: f64,
        learn: &Learn,
    ) {
        let (rate, mark) = (self.rate, self.mark);
        let most = news.named.map_or(ceiling, |named| named.min(ceiling));
        shares.are_tested(!self.frozen && now >= self.before_test.again);
        let strains = self.strained.answers > 0.0 || news.load.at > self.strained.heard;
        let load = if strains { self.hear(now, &news.load) } else { None };
        if known.turn > self.turn {
            self.restore(now, news, known, learn);
        } else if self.rate <= 0.0 {
            self.begin(now, learn.start, news, RateReason::Start, learn);
        } else if self.frozen {
            self.pass_over(news);
        } else if news.opened > self.seen && self.excused {
            self.pass_over(news);
            self.changed = news.opened;
            self.excused = false;
        } else if news.opened > self.seen {
            self.trip(last, news, shares, learn);
        } else if self.before_test.on {
            self.test(now, news, shares, learn);
        } else if let Some(load) = load {
            self.bear(now, load, learn);
        } else if self.may_test(news, learn) && shares.are_doubtful() {
            self.begin_test(now, news, shares);
        } else if shares.are_explained() || shares.are_few() {
            self.blocked = self.blocked.max(news.blocked);
            self.grow(now, most, learn);
        } else if (news.sure || now < self.before_test.again)
            && news.blocked > self.blocked + ECHO
            && news.blocked > self.seen
        {
            self.ease(news.blocked, shares, learn);
        } else {
            self.grow(now, most, learn);
        }
        let learned = self.rate;
        self.rate = learned.max(learn.floor).min(ceiling);
        if differs(self.rate, rate) && !differs(learned, rate) {
            self.why = RateReason::Bounds;
        }
        self.wall.observe(self.rate > rate && rate > 0.0, self.rate);
        if differs(self.rate, rate) || differs(self.mark, mark) {
            self.turn += 1;
        }
    }

    /// Applies a manual change. Earlier observations no longer count.
    pub fn override_rate(
        &mut self,
        now: i64,
        news: News,
        known: KnownRate,
        change: RateOverride,
        ceiling: f64,
        learn: &Learn,
    ) {
        if known.turn > self.turn {
            self.restore(now, news, known, learn);
        } else if self.rate <= 0.0 {
            self.begin(now, learn.start, news, RateReason::Start, learn);
        }
        match change {
            RateOverride::Set { rate, frozen } => {
                let thaws = self.frozen && frozen == Some(false);
                if let Some(rate) = rate {
                    self.begin(now, rate, news, RateReason::Manual, learn);
                    self.mark = rate;
                } else if thaws {
                    // The calm period starts here, and blocks in the meantime do not count.
                    self.pass_over(news);
                    self.changed = now;
                }
                self.frozen = frozen.unwrap_or(self.frozen);
            }
            RateOverride::Forget => {
                self.begin(now, learn.start, news, RateReason::Forgotten, learn);
                self.frozen = false;
            }
        }
        self.excused = news.closed;
        self.rate = self.rate.max(learn.floor).min(ceiling);
        self.turn += 1;
    }

    /// The copy for a member.
    #[must_use]
    pub fn known(&self) -> KnownRate {
        let Self { turn, rate, mark, frozen, why, .. } = *self;
        KnownRate { turn, rate, mark, frozen, why, wall: self.wall.name() }
    }

    /// Whether it contains anything that a new scope would not know.
    #[must_use]
    pub fn has_taught(&self, ceiling: f64, learn: &Learn) -> bool {
        let first = learn.start.max(learn.floor).min(ceiling);
        let met = self.mark > 0.0 || self.bad > 0.0 || self.strained.again > 0;
        let met = met || self.frozen || self.excused;
        met || (self.rate > 0.0 && differs(self.rate, first))
    }

    /// Starts over at `rate`: no limit has been met, and earlier trips and blocks do not count.
    fn begin(&mut self, now: i64, rate: f64, news: News, why: RateReason, learn: &Learn) {
        self.rate = rate;
        self.mark = 0.0;
        self.bad = 0.0;
        self.changed = now;
        self.patience = learn.patience;
        self.why = why;
        self.before_test = BeforeTest::default();
        self.strained = Strained::default();
        self.wall = Wall::unknown();
        self.pass_over(news);
    }

    /// Takes over a member's copy, because the store lost its memory.
    fn restore(&mut self, now: i64, news: News, known: KnownRate, learn: &Learn) {
        let taught = known.mark > 0.0 || known.frozen || differs(known.rate, learn.start);
        let why = if taught { RateReason::Recalled } else { RateReason::Start };
        self.begin(now, known.rate, news, why, learn);
        self.mark = known.mark;
        self.frozen = known.frozen;
        self.turn = known.turn;
    }

    fn pass_over(&mut self, news: News) {
        self.seen = news.opened;
        self.blocked = news.blocked;
        self.strained.heard = news.load.at;
    }

    fn is_trying(&self) -> bool {
        self.mark > 0.0 && self.rate > self.mark * ABOVE
    }

    /// The rate and the mark before the first of the blocks that tripped the cooldown.
    fn before_its_blocks(&self, news: News) -> (f64, f64) {
        let BeforeTest { rate, mark, on, .. } = self.before_test;
        let eased = self.changed == self.blocked && news.blocked - self.changed < HOLD;
        if eased && !on && rate > self.rate { (rate, mark) } else { (self.rate, self.mark) }
    }

    /// Applies a cooldown that is over.
    fn trip(&mut self, last: i64, news: News, shares: &mut Shares, learn: &Learn) {
        if self.before_test.on {
            // More blocks than scattered ones came, so this is a wall.
            shares.forget();
            self.before_test.again = news.opened + LONGEST;
        }
        let (rate, mark) = self.before_its_blocks(news);
        self.forget_test();
        self.strained.answers = 0.0;
        let before = &mut self.before_test;
        if before.untripped <= 0.0 || news.opened - before.tripped > RECENT {
            (before.untripped, before.tripped) = (self.rate, news.opened);
        }
        // The block that tripped it. A manual trip has none.
        let at = if news.blocked > self.seen { news.blocked } else { last };
        let length = news.opened - at;
        let (worth, longest) = Wall::patience(length, (WORTH, LONGEST));
        let worth = worth.max(learn.patience).min(longest);
        let by_block = news.blocked > self.seen;
        let limit = self.wall.trip(rate, news.blocks, length, mark <= 0.0).filter(|_| by_block);
        // The first of these blocks has already ended the try.
        let eased = self.changed == self.blocked
            && self.changed > self.seen
            && at - self.changed < HOLD
            && self.carried(at) >= self.mark;
        let known = self.bad > 0.0 && self.rate <= self.bad;
        if !eased {
            self.bad = self.rate;
        }
        if let Some(limit) = limit {
            self.why = if news.sure { RateReason::SureTrip } else { RateReason::DoubtfulTrip };
            self.bad = limit;
            self.mark = limit * wall::KEPT;
            self.patience = worth;
        } else if eased {
            self.mark *= CONFIRMED;
            self.patience = self.patience.max(worth);
        } else if self.is_trying() {
            self.why = RateReason::TryFailed;
            self.mark *= CONFIRMED;
            self.patience = (self.patience * 2).max(worth).min(longest);
        } else {
            // An unknown limit may be far below the rate; a known limit has only fallen.
            let least = if self.mark > 0.0 { 0.5 } else { 0.25 };
            let carried = self.carried(at);
            // If a scope sends little, plain refusals concern the pages and not the rate.
            let idle = !news.sure && at - self.changed >= MINUTE && carried < self.rate * USED;
            let estimate =
                if idle { self.rate } else { carried.max(self.rate * least).min(self.rate) };
            // A second one shows that it was no chance.
            let kept = if news.sure || known { learn.back_off } else { learn.back_off.sqrt() };
            self.why = if news.sure { RateReason::SureTrip } else { RateReason::DoubtfulTrip };
            self.mark = estimate * kept;
            // One doubtful trip is soon forgotten, unless it cost a long ban.
            self.patience =
                if news.sure || known || longest > LONGEST { worth } else { learn.patience };
        }
        self.rate = self.mark;
        self.changed = news.opened;
        self.seen = news.opened;
        self.blocked = self.blocked.max(news.opened);
        self.minute = 0;
    }

    /// Lowers the rate a little: after a sure block that tripped nothing, or after a scattered block of a known wall.
    fn ease(&mut self, blocked: i64, shares: &mut Shares, learn: &Learn) {
        if shares.base() > 0.0 && self.before_test.rate < self.rate {
            // The share of blocks rose, so it is measured again.
            shares.restart();
        }
        self.remember();
        self.bad = self.rate;
        if self.is_trying() {
            self.why = RateReason::TryFailed;
            self.rate = self.mark;
            self.patience = (self.patience * 2).min(LONGEST).max(self.patience);
            self.confirm_wall(blocked);
        } else {
            self.why = RateReason::Eased;
            self.rate *= EASED;
            self.mark = self.rate;
            self.patience = self.patience.max(learn.patience);
            self.refute_wall(blocked);
        }
        self.blocked = blocked;
        self.changed = blocked;
    }

    /// Raises the rate after a calm period.
    fn grow(&mut self, now: i64, ceiling: f64, learn: &Learn) {
        if self.mark <= 0.0 && self.rate < learn.start {
            // No limit has been met, and the rule file now allows a higher initial rate.
            self.rate = learn.start;
            self.changed = now;
            self.why = RateReason::Start;
            return;
        }
        let trying = self.is_trying();
        let near = self.bad * NEAR;
        let below = self.mark > 0.0 && self.rate < near * 0.99;
        let wait = if trying {
            // If a step exceeds a limit, that shows within the limit's window.
            let window = if self.patience > LONGEST { self.wall.window } else { 0 };
            if below && self.patience >= LONGEST { LONG_HOLD } else { window.max(HOLD) }
        } else if self.mark <= 0.0 {
            QUICK
        } else if below {
            // A step far below the blocked rate risks less. After a long ban every step risks more.
            let part = self.rate / self.bad;
            let part = if self.patience < LONGEST { part * part * part } else { part };
            whole((exact(self.patience.min(LONGEST)) * part).floor()).max(learn.patience)
        } else {
            self.patience
        };
        if now - self.changed < wait || self.rate >= ceiling {
            return;
        }
        self.changed = now;
        if self.mark > 0.0 && self.carried(now) < self.rate * USED {
            return;
        }
        if trying {
            self.mark = self.rate;
            self.wall.bears(self.rate);
            if !below && self.rate <= self.bad {
                // The climb has reached its goal and waits there.
                return;
            }
        }
        self.why = if self.mark > 0.0 && !below { RateReason::Try } else { RateReason::Climb };
        self.rate = if self.mark <= 0.0 {
            self.rate * CLIMB
        } else if below {
            (self.rate + ((self.bad - self.rate) * APPROACH).max(self.rate * LEAST)).min(near)
        } else {
            let gained = if self.bad > 0.0 { self.rate / self.bad - 1.0 } else { 0.0 };
            self.rate * (1.0 + gained.clamp(STEP, STRIDE))
        };
    }
}

/// Compares bit by bit: rates are assigned, not approximated.
fn differs(one: f64, other: f64) -> bool {
    one.to_bits() != other.to_bits()
}

#[cfg(test)]
mod tests;
