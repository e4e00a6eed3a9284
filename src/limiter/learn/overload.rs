//! An overloaded site: its responses are late or fail (`overload: ease`).
//!
//! While requests queue up at a site, it responds at its full capacity. The fleet sends at half of that rate until the
//! queue has drained, and then continues at nearly all of it. If half the rate changes nothing, the load is not the
//! cause.

use super::{ABOVE, CONFIRMED, EASED, HALF, Learn, Learned, MINUTE, NEAR, RateReason, USED, WORTH};
use crate::limiter::load::Strain;

/// A queue drains if there are more responses per request than `DRAINS`, and grows if there are fewer than `GROWS`.
pub(crate) const DRAINS: f64 = 1.1;
/// See [`DRAINS`].
pub(crate) const GROWS: f64 = 0.9;
/// Response rate of a site that answers nothing, in responses per second. Zero means that it is not overloaded.
pub(crate) const LITTLE: f64 = 1e-9;
/// The weight of a new window in the known rate of good responses.
pub(crate) const NEW: f64 = 0.25;
/// After the load was not the cause, late responses are ignored for this long.
pub(crate) const EXCUSED: i64 = 10 * MINUTE;

/// What is known of an overloaded site.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Strained {
    /// The end of the latest window that has been taken into account.
    pub heard: i64,
    /// Good responses per second while it is overloaded; 0 = it is not.
    pub answers: f64,
    /// The rate before the overload.
    pub rate: f64,
    /// The mark before the overload.
    pub mark: f64,
    /// The blocked rate before the overload.
    pub bad: f64,
    /// Late responses are ignored before this time, because half the rate did not help.
    pub again: i64,
}

impl Learned {
    /// The latest window, if it requires a change. A site without reports for a minute is not overloaded.
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
        // With few requests, the responses do not show the site's capacity.
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

    /// Continues at the rate at which the site answered under load.
    fn relieve(&mut self, now: i64, learn: &Learn) {
        let Strained { answers, rate, mark, .. } = self.strained;
        // A try that failed confirms the mark.
        let least = if mark > 0.0 && rate > mark * ABOVE { mark * CONFIRMED } else { 0.0 };
        self.strained.answers = 0.0;
        self.why = RateReason::Relieved;
        // A try costs the time until the queue has drained.
        self.patience = ((now - self.changed).min(MINUTE) * WORTH).max(learn.patience);
        self.changed = now;
        self.rate = (answers * NEAR).max(least).min(rate).max(self.rate);
        self.mark = self.rate;
        self.bad = self.bad.min(answers.max(self.rate));
    }

    /// Half the rate did not help, so the load is not the reason.
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
