//! A site that strains under the load: its answers come late, or fail (`overload: ease`).
//!
//! While requests queue up at a site, it answers as many as it can: that is the rate to go on with, once half of it has
//! let the queue drain. Where half the rate makes the answers no better, the load is not the reason.

use super::{ABOVE, CONFIRMED, EASED, Learn, Learned, MINUTE, NEAR, RateReason, USED, WORTH};
use crate::limiter::load::Strain;

/// A queue drains at this part of what the site answers, and no step is larger. A site of whose answers more fail is
/// excused by nothing.
const HALF: f64 = 0.5;
/// A queue drains where the answers are so many times the requests; it grows where they are this part of them.
const DRAINS: f64 = 1.1;
const GROWS: f64 = 0.9;
/// A site that answers nothing strains, too; in answers per second.
const LITTLE: f64 = 1e-9;
/// How much of a new window goes into what the site is known to answer.
const NEW: f64 = 0.25;
/// Where the load was not the reason, late answers say nothing for so long.
const EXCUSED: i64 = 10 * MINUTE;

/// What is known of a site that strains.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Strained {
    /// The latest window that has been taken into account, by its end.
    pub heard: i64,
    /// Good answers per second while it strains; 0 = it does not.
    pub answers: f64,
    /// The rate before.
    pub rate: f64,
    /// The mark before.
    pub mark: f64,
    /// The rate that had been blocked before.
    pub bad: f64,
    /// Late answers say nothing before: half the rate made them no better.
    pub again: i64,
}

impl Learned {
    /// What is new about the load, and asks for a change. A site that is not heard of any more does not strain.
    pub(super) fn hear(&mut self, now: i64, load: &Strain) -> Option<Strain> {
        let strains = self.strained.answers > 0.0;
        if load.at <= self.strained.heard {
            let forgotten = strains && now - self.strained.heard > MINUTE;
            return forgotten.then_some(Strain::default());
        }
        self.strained.heard = load.at;
        let Strain { strained, answered, good, .. } = *load;
        let counts = strained && (now >= self.strained.again || good < answered * HALF);
        (counts || strains).then_some(Strain { strained: counts, ..*load })
    }

    pub(super) fn bear(&mut self, now: i64, load: Strain, learn: &Learn) {
        if !load.strained {
            self.relieve(now, learn);
            return;
        }
        // What somebody gets who hardly asks says nothing about what the site can give.
        let used = load.sent >= self.rate * USED;
        if self.strained.answers > 0.0 {
            let known = self.strained.answers;
            let fails = load.good < load.answered * HALF;
            let keeps_up =
                load.answered >= load.sent * GROWS && load.answered <= load.sent * DRAINS;
            if !fails && keeps_up && self.rate <= known * HALF * ABOVE {
                if now - self.changed >= MINUTE {
                    self.excuse(now);
                }
                return;
            }
            let new = if known > LITTLE { known + (load.good - known) * NEW } else { load.good };
            self.strained.answers = if used || known > LITTLE { new.max(LITTLE) } else { known };
            if !fails && load.answered > load.sent * DRAINS {
                self.changed = now;
                return;
            }
        } else {
            let Self { rate, mark, bad, .. } = *self;
            let answers = if used { load.good.max(LITTLE) } else { LITTLE };
            self.strained = Strained { answers, rate, mark, bad, ..self.strained };
        }
        self.why = RateReason::Overload;
        self.changed = now;
        self.bad = self.rate;
        self.rate = if used {
            (self.strained.answers * HALF).max(self.rate * HALF)
        } else {
            self.rate * EASED
        };
        self.mark = self.rate;
    }

    /// It goes on with what the site has answered.
    fn relieve(&mut self, now: i64, learn: &Learn) {
        let Strained { answers, rate, mark, .. } = self.strained;
        // A try that failed confirms the mark.
        let least = if mark > 0.0 && rate > mark * ABOVE { mark * CONFIRMED } else { 0.0 };
        self.strained.answers = 0.0;
        self.why = RateReason::Relieved;
        // What a try costs is the time until the queue has drained.
        self.patience = ((now - self.changed).min(MINUTE) * WORTH).max(learn.patience);
        self.changed = now;
        self.rate = (answers * NEAR).max(least).min(rate).max(self.rate);
        self.mark = self.rate;
        self.bad = self.bad.min(answers.max(self.rate));
    }

    /// Half the rate made it no better.
    fn excuse(&mut self, now: i64) {
        let Strained { heard, rate, mark, bad, .. } = self.strained;
        self.strained = Strained { heard, again: now + EXCUSED, ..Strained::default() };
        (self.rate, self.mark, self.bad) = (rate, mark, bad);
        self.why = RateReason::NoRelief;
        self.changed = now;
    }
}

#[cfg(test)]
mod tests;
