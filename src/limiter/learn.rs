//! The rate that a site bears, learned by the fleet: pure arithmetic on the store's clock.
//!
//! `rate` in the rule file is the ceiling. A trip says that the rate in force was too high and, by what had gone well
//! before it, how much the site bears: that becomes the *mark*. From the mark the scope climbs in small steps to just
//! below the rate that was blocked, and stays there; only after a calm that lasts its *patience* it tries more. A step
//! that lasts becomes the new mark; one that trips confirms the old mark, and makes the scope more patient.
//!
//! ```text
//! rate   ceiling ----.
//!                    |trip              trip (confirms the mark: more patience)
//!                    |       .----------.   .--------------------------------
//!                    |   .---' patience '---'   a longer patience
//!  mark              '---'
//! ```
//!
//! The rate changes only when tickets are taken, and what flowed in before counts at the rate of its time: the bucket's
//! bound holds against the rate in force at each moment. `lua/lib/learn.lua` is this file, operation by operation.

mod overload;
mod reason;
mod scattered;
mod wall;

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
    /// Rate at the very beginning, in tokens per second.
    pub start: f64,
    /// Never slower than this, in tokens per second.
    pub floor: f64,
    /// Part of the estimate that is kept after a trip, between 0 and 1.
    pub back_off: f64,
    /// Calm, in microseconds, before the first try above the mark.
    pub patience: i64,
}

/// What the cooldown tells.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct News {
    /// When the scope last opened after a cooldown; 0 = it never cooled.
    pub opened: i64,
    /// When the last block came; 0 = none.
    pub blocked: i64,
    /// Whether that block was a sure sign (a vendor's challenge, a 429) and not a plain refusal.
    pub sure: bool,
    /// Whether it is cooling now.
    pub closed: bool,
    /// The rate that the site itself names, in tokens per second: nothing is learned beyond it.
    pub named: Option<f64>,
    /// How the site bears the load.
    pub load: Strain,
}

/// What has been learned. All times are microseconds of the store's clock.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Learned {
    /// The rate in force, in tokens per second; 0 before the first request.
    pub rate: f64,
    /// What the site bears, as far as known; 0 = no limit has been met.
    pub mark: f64,
    /// The rate that was blocked last; 0 = none.
    pub bad: f64,
    /// When the rate was last set.
    pub changed: i64,
    /// Calm that is waited for before the next try.
    pub patience: i64,
    /// Start of the current minute of counting.
    pub minute: i64,
    /// Tokens granted in it.
    pub counted: f64,
    /// Tokens granted in the minute before.
    pub before: f64,
    /// The latest cooldown that has been taken into account, by the moment at which the scope opened again.
    pub seen: i64,
    /// The latest block that has been taken into account.
    pub blocked: i64,
    /// Counts the changes of rate and mark, and what a person did.
    pub turn: u64,
    /// Why the rate is what it is.
    pub why: RateReason,
    /// Whether a person has frozen it.
    pub frozen: bool,
    /// The cooldown in force when a person set the rate is not this rate's doing.
    pub excused: bool,
    /// What was known before scattered blocks came.
    pub before_test: BeforeTest,
    /// What is known of a site that strains under the load.
    pub strained: Strained,
    /// The limit by count that the bans tell, if they are long.
    pub wall: Wall,
}

/// Grants are counted by the minute: the longest window of most walls, and the shortest that a slow rate fills.
const MINUTE: i64 = 60_000_000;
/// How long a step above the mark must last to become the mark: one whole window of counting.
const HOLD: i64 = MINUTE;
/// The same for a step of the climb after a long ban: another one would cost as much again.
const LONG_HOLD: i64 = 10 * MINUTE;
/// How long each step lasts while no limit has been met: the first one is to be found within minutes.
const QUICK: i64 = 20_000_000;
/// Blocks within this time of one another count as one: they answer requests that were under way together.
const ECHO: i64 = 5_000_000;
/// A try that ended in a cooldown is not made again before this many times its length: what curiosity may cost is a
/// small part of the time.
const WORTH: i64 = 15;
/// Longest patience: limits change by day and night.
const LONGEST: i64 = 3_600_000_000;
/// What is left of the rate after a sure block that tripped nothing.
const EASED: f64 = 0.9;
/// What is left of a mark that a try just above it has confirmed.
const CONFIRMED: f64 = 0.98;
/// How much faster each step is while no limit has been met.
const CLIMB: f64 = 1.3;
/// This part of the rate that was blocked is near enough: there the scope stays for its patience.
const NEAR: f64 = 0.95;
/// What is left below that is used up step by step: each is this part of the way to the blocked rate ...
const APPROACH: f64 = 0.1;
/// ... but at least this part of the rate.
const LEAST: f64 = 0.02;
/// A first step above is this part of the rate; each further one as much as has been gained beyond the blocked rate ...
const STEP: f64 = 0.04;
/// ... up to this part.
const STRIDE: f64 = 0.25;
/// A rate counts as above the mark from here: rounding is no try.
const ABOVE: f64 = 1.01;
/// Less than this part of the rate used says nothing about what the site bears.
const USED: f64 = 0.6;

impl Learned {
    /// A clock that was set back takes every moment with it.
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

    /// The rate in force from `now` on. `last`: the latest grant; `known`: what the asking member remembers, for a
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
        } else if shares.are_explained() {
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

    /// What a person does. What was seen before is of no account any more.
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
                    // Calm is counted from here, and what came meanwhile was not its doing.
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

    /// What a member is told.
    #[must_use]
    pub fn known(&self) -> KnownRate {
        let Self { turn, rate, mark, frozen, why, .. } = *self;
        KnownRate { turn, rate, mark, frozen, why, wall: self.wall.name() }
    }

    /// Whether there is anything that a new scope would not know.
    #[must_use]
    pub fn has_taught(&self, ceiling: f64, learn: &Learn) -> bool {
        let first = learn.start.max(learn.floor).min(ceiling);
        let met = self.mark > 0.0 || self.bad > 0.0 || self.strained.again > 0;
        let met = met || self.frozen || self.excused;
        met || (self.rate > 0.0 && differs(self.rate, first))
    }

    /// Begins anew at `rate`: no limit has been met, and no earlier trip or block counts.
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

    /// The store lost its memory, and a member knew more.
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

    /// The rate and the mark before the first of the blocks that tripped.
    fn before_its_blocks(&self, news: News) -> (f64, f64) {
        let BeforeTest { rate, mark, on, .. } = self.before_test;
        let eased = self.changed == self.blocked && news.blocked - self.changed < HOLD;
        if eased && !on && rate > self.rate { (rate, mark) } else { (self.rate, self.mark) }
    }

    /// A cooldown is over.
    fn trip(&mut self, last: i64, news: News, shares: &mut Shares, learn: &Learn) {
        if self.before_test.on {
            // More than was scattered: a wall.
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
        // The block that tripped it; a trip by hand has none.
        let at = if news.blocked > self.seen { news.blocked } else { last };
        let length = news.opened - at;
        let (worth, longest) = Wall::patience(length, (WORTH, LONGEST));
        let worth = worth.max(learn.patience).min(longest);
        let by_block = news.blocked > self.seen;
        let limit = self.wall.trip(rate, length, mark <= 0.0).filter(|_| by_block);
        // The first of the blocks that tripped it has already ended the try.
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
            // A first limit may be far below; one that was met at the mark has only fallen.
            let least = if self.mark > 0.0 { 0.5 } else { 0.25 };
            let carried = self.carried(at);
            // Plain refusals of somebody who hardly asks are about the pages.
            let idle = !news.sure && at - self.changed >= MINUTE && carried < self.rate * USED;
            let estimate =
                if idle { self.rate } else { carried.max(self.rate * least).min(self.rate) };
            let kept = if news.sure { learn.back_off } else { learn.back_off.sqrt() };
            self.why = if news.sure { RateReason::SureTrip } else { RateReason::DoubtfulTrip };
            self.mark = estimate * kept;
            // One doubtful trip is soon forgotten, but not one that cost a long ban.
            self.patience =
                if news.sure || known || longest > LONGEST { worth } else { learn.patience };
        }
        self.rate = self.mark;
        self.changed = news.opened;
        self.seen = news.opened;
        self.blocked = self.blocked.max(news.opened);
        self.minute = 0;
    }

    /// A sure block that tripped nothing, or a scattered one of what is known to be a wall: a little slower.
    fn ease(&mut self, blocked: i64, shares: &mut Shares, learn: &Learn) {
        if shares.base() > 0.0 && self.before_test.rate < self.rate {
            // A rise: how large is it?
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

    /// Calm: after long enough a little faster.
    fn grow(&mut self, now: i64, ceiling: f64, learn: &Learn) {
        if self.mark <= 0.0 && self.rate < learn.start {
            // No limit has been met, and the rule file allows more than it did.
            self.rate = learn.start;
            self.changed = now;
            self.why = RateReason::Start;
            return;
        }
        let trying = self.is_trying();
        let near = self.bad * NEAR;
        let below = self.mark > 0.0 && self.rate < near * 0.99;
        let wait = if trying {
            // A step above a limit shows within its window.
            let window = if self.patience > LONGEST { self.wall.window } else { 0 };
            if below && self.patience >= LONGEST { LONG_HOLD } else { window.max(HOLD) }
        } else if self.mark <= 0.0 {
            QUICK
        } else if below {
            // The further below the blocked rate, the less is at stake; after a long ban more than after a short one.
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
                // The climb has arrived: here it waits.
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

/// Rates are set, never approached: they differ where a single bit does.
fn differs(one: f64, other: f64) -> bool {
    one.to_bits() != other.to_bits()
}

#[cfg(test)]
mod tests;
