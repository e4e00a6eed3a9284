//! A wall with a long ban, described by its limit: this many requests per window.
//!
//! A site that counts requests per window blocks before the first window is full, if the rate is constant. It lets the
//! same number through at any rate. Its window is longer than the time that this took; only the next trip shows how
//! much longer. Most documented windows are round, so the first guess is the next round window. If that is blocked too,
//! the next guess is a round window at up to 2.8 times the time, or else 2.4 times the time: for an unknown window, this
//! costs the fewest pages between too many bans and too low a rate.

use crate::runtime::clock::{exact, whole};

/// After a ban of at least this length a guess is worthwhile, because another trip would cost as much again.
pub(crate) const LONG: i64 = 480_000_000;
/// Longest calm period after such a ban.
pub(crate) const LONGEST: i64 = 21_600_000_000;
/// A failed try costs another ban, so tries are this many ban lengths apart. With [`KEPT`], 92 % of the pages are left.
pub(crate) const WORTH: i64 = 20;
/// The part of the limit that is used.
pub(crate) const KEPT: f64 = 0.97;
/// Windows of most walls, in microseconds.
pub(crate) const ROUND: [i64; 10] = [
    1_000_000,
    5_000_000,
    10_000_000,
    60_000_000,
    120_000_000,
    300_000_000,
    600_000_000,
    900_000_000,
    1_800_000_000,
    3_600_000_000,
];
/// A window is longer by at least this factor than the time to use up its limit: hardly any rule file has exactly the
/// right rate. Counts and windows that differ by less are equal.
pub(crate) const LONGER: f64 = 1.15;
/// If no round window is near after a failed guess, the rate is still too high by about this factor.
pub(crate) const FURTHER: f64 = 2.5 * KEPT;
/// Requests of this many seconds were in flight at a trip.
pub(crate) const IN_FLIGHT: f64 = 0.5;

/// A site's limit per window, as bans have shown it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NamedWall {
    /// Requests that the site lets through in its window.
    pub requests: f64,
    /// The window, in microseconds.
    pub window: i64,
    /// The length of its bans, in microseconds.
    pub ban: i64,
    /// Trips in a row that agree with it.
    pub trips: u32,
}

/// What is known of a site's limit per window.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Wall {
    /// Tokens granted since the scope last opened, plus one; 0 = unknown, because the rate has risen since.
    pub sent: f64,
    /// Requests that the wall lets through in its window; 0 = unknown.
    pub most: f64,
    /// The window, in microseconds.
    pub window: i64,
    /// The latest ban that showed it, in microseconds.
    pub ban: i64,
    /// Trips in a row that agree with it.
    pub trips: u32,
    /// Whether the guess follows a long ban at a rate that had met no limit, so that a second ban means that it failed.
    pub guessed: bool,
}

impl Wall {
    /// The limit that the rate follows; `None` after short bans.
    pub(super) fn name(&self) -> Option<NamedWall> {
        let Self { most: requests, window, ban, trips, .. } = *self;
        (requests > 0.0 && ban >= LONG).then_some(NamedWall { requests, window, ban, trips })
    }

    /// A wall without any known property. Counting starts here.
    pub(super) fn unknown() -> Self {
        Self { sent: 1.0, ..Self::default() }
    }

    /// The calm period after a ban, and the longest calm period; `usual` applies after a short ban.
    pub(super) fn patience(ban: i64, usual: (i64, i64)) -> (i64, i64) {
        let (worth, longest) = if ban >= LONG { (WORTH, LONGEST) } else { usual };
        ((ban * worth).min(longest), longest)
    }

    pub(super) fn count(&mut self, tokens: f64) {
        if self.sent > 0.0 {
            self.sent += tokens;
        }
    }

    /// Discards the count if the rate rose, or if no window is long enough for this count.
    pub(super) fn observe(&mut self, rose: bool, rate: f64) {
        if rose || self.sent > rate * exact(ROUND[ROUND.len() - 1]) / 1e6 {
            self.sent = 0.0;
        }
    }

    /// Takes a trip at `rate` after this many `blocks` into account. `first`: no limit had been met. Returns the limit in
    /// tokens per second if the ban was long and the counts show a limit.
    pub(super) fn trip(&mut self, rate: f64, blocks: u32, ban: i64, first: bool) -> Option<f64> {
        let Self { sent, most, window, trips, .. } = *self;
        if sent <= 0.0 {
            self.sent = 1.0;
            return None;
        }
        let passed = (sent - 1.0 - f64::from(blocks) - rate * IN_FLIGHT).max(sent / 2.0);
        let took = passed / rate * 1e6;
        let known = most > 0.0 && passed <= most * LONGER;
        // A token bucket lets more through than the guess, but only for a short time.
        let failed = self.guessed && took <= exact(window) * FURTHER;
        let guessed = failed || ban >= LONG && first;
        // The count covers the first window after the ban, so a failed guess is blocked after about the same number.
        let less = known && took <= exact(window) && !(failed && passed * LONGER >= most);
        let window = if less {
            // It is the same window with a lower limit.
            Some(window)
        } else if failed {
            Some(further(took))
        } else {
            next(took * LONGER).filter(|_| guessed || known || most <= 0.0)
        };
        *self = Self::unknown();
        self.window = window?;
        self.most = if known { most.min(passed) } else { passed };
        (self.ban, self.trips) = (ban, if known { trips + 1 } else { 1 });
        self.guessed = guessed;
        (ban >= LONG || failed).then(|| self.limit())
    }

    fn limit(&self) -> f64 {
        self.most / (exact(self.window) / 1e6)
    }

    /// Records that a rate went well. A wall that would have blocked this rate does not exist.
    pub(super) fn bears(&mut self, rate: f64) {
        if self.most > 0.0 && rate > self.limit() * LONGER {
            *self = Self { sent: self.sent, ..Self::default() };
        }
    }
}

/// The next round window.
fn next(least: f64) -> Option<i64> {
    ROUND.into_iter().find(|window| exact(*window) >= least)
}

/// The window after a failed guess: the next round one if it is near.
fn further(took: f64) -> i64 {
    let near = next(took * LONGER).filter(|window| exact(*window) <= took * FURTHER * LONGER);
    near.unwrap_or_else(|| whole((took * FURTHER).floor()))
}

#[cfg(test)]
mod tests;
