//! A wall with a long ban, named by what it let through: so many requests per window.
//!
//! While the rate is constant, a site that counts requests per window blocks before the first window is full. It lets
//! the same number through whatever the rate is, and its window is longer than that took. Windows are round, so the next
//! round one is likely. If the same number is blocked after a longer time, the window is longer still.

use crate::runtime::clock::exact;

/// After a ban of this length a guess is worthwhile: another trip would cost as much again.
const LONG: i64 = 480_000_000;
/// Longest patience after such a ban.
const LONGEST: i64 = 21_600_000_000;
/// The part of the limit that is used.
pub(super) const KEPT: f64 = 0.97;
/// Windows of most walls, in microseconds.
const ROUND: [i64; 9] = [
    1_000_000,
    5_000_000,
    10_000_000,
    60_000_000,
    120_000_000,
    300_000_000,
    600_000_000,
    1_800_000_000,
    3_600_000_000,
];
/// A window is at least this much longer than what the wall let through took: hardly anybody writes a rate that is right.
const LONGER: f64 = 1.15;
/// Requests that were blocked or under way at a trip: so many, and those of so many seconds.
const UNDER_WAY: (f64, f64) = (4.0, 0.5);

/// A limit by count that bans have shown.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NamedWall {
    /// Requests that the site lets through in its window.
    pub requests: f64,
    /// The window, in microseconds.
    pub window: i64,
    /// How long it bans, in microseconds.
    pub ban: i64,
    /// Trips in a row that agree with it.
    pub trips: u32,
}

/// The limit by count, as far as known.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Wall {
    /// Tokens granted since the scope last opened, and one; 0 = unknown, because the rate has risen since.
    pub sent: f64,
    /// Requests that the wall lets through in its window; 0 = unknown.
    pub most: f64,
    /// The window, in microseconds.
    pub window: i64,
    /// The latest ban that showed it, in microseconds.
    pub ban: i64,
    /// Trips in a row that agree with it.
    pub trips: u32,
}

impl Wall {
    /// The limit that the rate follows. After short bans it follows none.
    pub(super) fn name(&self) -> Option<NamedWall> {
        let Self { most: requests, window, ban, trips, .. } = *self;
        (requests > 0.0 && ban >= LONG).then_some(NamedWall { requests, window, ban, trips })
    }

    /// A wall of which nothing is known; requests are counted from here.
    pub(super) fn unknown() -> Self {
        Self { sent: 1.0, ..Self::default() }
    }

    /// The longest patience after a ban.
    pub(super) const fn longest_patience(ban: i64, usual: i64) -> i64 {
        if ban >= LONG { LONGEST } else { usual }
    }

    pub(super) fn count(&mut self, tokens: f64) {
        if self.sent > 0.0 {
            self.sent += tokens;
        }
    }

    /// What was sent at several rates tells nothing, and neither does what no window is long enough for.
    pub(super) fn observe(&mut self, rose: bool, rate: f64) {
        if rose || self.sent > rate * exact(ROUND[ROUND.len() - 1]) / 1e6 {
            self.sent = 0.0;
        }
    }

    /// Takes a trip at `rate` into account. Returns the limit in tokens per second, if the ban was long and the counts
    /// tell.
    pub(super) fn trip(&mut self, rate: f64, ban: i64) -> Option<f64> {
        let Self { sent, most, window, trips, .. } = *self;
        if sent <= 0.0 {
            self.sent = 1.0;
            return None;
        }
        let (requests, seconds) = UNDER_WAY;
        let passed = (sent - requests - rate * seconds).max(sent / 2.0);
        let took = passed / rate * 1e6;
        let known = most > 0.0 && passed <= most * LONGER;
        let window = if known && took <= exact(window) {
            // The same window: it let less through.
            Some(window)
        } else {
            ROUND.into_iter().find(|window| exact(*window) >= took * LONGER)
        };
        *self = Self::unknown();
        self.window = window.filter(|_| known || most <= 0.0)?;
        self.most = if known { most.min(passed) } else { passed };
        (self.ban, self.trips) = (ban, if known { trips + 1 } else { 1 });
        (ban >= LONG).then(|| self.limit())
    }

    fn limit(&self) -> f64 {
        self.most / (exact(self.window) / 1e6)
    }

    /// Processes a rate that went well: a wall that would have blocked it is none.
    pub(super) fn bears(&mut self, rate: f64) {
        if self.most > 0.0 && rate > self.limit() * LONGER {
            *self = Self { sent: self.sent, ..Self::default() };
        }
    }
}

#[cfg(test)]
mod tests;
