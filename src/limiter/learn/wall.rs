//! A wall with a long ban, named by what it let through: so many requests per window.
//!
//! While the rate is constant, a site that counts requests per window blocks before the first window is full. It lets
//! the same number through whatever the rate is, and its window is longer than that took. How much longer says nothing
//! but the next trip. So the guess is a ladder: a rate from the rule file is twice too high, else five times, else
//! twelve. Each step is safe for all windows up to the next. Windows are round, so a round one near a step is likelier.

use crate::runtime::clock::{exact, whole};

/// After a ban of this length a guess is worthwhile: another trip would cost as much again.
const LONG: i64 = 480_000_000;
/// Longest patience after such a ban.
const LONGEST: i64 = 21_600_000_000;
/// A try that fails costs another ban: so often at most, in its lengths. With [`KEPT`], 92 % of the pages are left.
const WORTH: i64 = 20;
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
/// Counts and windows that differ by less are the same.
const LONGER: f64 = 1.15;
/// A round window may be shorter than a guess by so much: the ladder has 3 % to spare, and counts are as exact.
const SHORTER: f64 = 1.06;
/// The first guess at a rate that nobody has tried: it is twice too high, and the count is exact to 3 %.
const TWICE: f64 = 2.06;
/// If that fails, it is five times too high. 97 % of the count were used.
const FURTHER: f64 = 2.5 * KEPT;
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
    /// Whether the guess is a step of the ladder, and not the next round window.
    pub ladder: bool,
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

    /// The patience after a ban, and the longest one; `usual` after a short one.
    pub(super) fn patience(ban: i64, usual: (i64, i64)) -> (i64, i64) {
        let (worth, longest) = if ban >= LONG { (WORTH, LONGEST) } else { usual };
        ((ban * worth).min(longest), longest)
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

    /// Takes a trip at `rate` into account; `first`: no limit had been met. Returns the limit in tokens per second, if the
    /// ban was long and the counts tell.
    pub(super) fn trip(&mut self, rate: f64, ban: i64, first: bool) -> Option<f64> {
        let Self { sent, most, window, trips, .. } = *self;
        if sent <= 0.0 {
            self.sent = 1.0;
            return None;
        }
        let (requests, seconds) = UNDER_WAY;
        let passed = (sent - requests - rate * seconds).max(sent / 2.0);
        let took = passed / rate * 1e6;
        let known = most > 0.0 && passed <= most * LONGER;
        // A bucket lets more through than the guess says, but not for long.
        let failed = self.ladder && took <= exact(window) * FURTHER;
        let ladder = failed || ban >= LONG && first;
        // On the ladder the count is from the first window after the ban: about the same number is blocked at the guess.
        let less = known && took <= exact(window) && !(failed && passed * LONGER >= most);
        let window = if less {
            // The same window: it let less through.
            Some(window)
        } else if ladder {
            round(took * if failed { FURTHER } else { TWICE })
        } else {
            next(took * LONGER).filter(|_| known || most <= 0.0)
        };
        *self = Self::unknown();
        self.window = window?;
        self.most = if known { most.min(passed) } else { passed };
        (self.ban, self.trips) = (ban, if known { trips + 1 } else { 1 });
        self.ladder = ladder;
        (ban >= LONG || failed).then(|| self.limit())
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

/// The next round window.
fn next(least: f64) -> Option<i64> {
    ROUND.into_iter().find(|window| exact(*window) >= least)
}

/// The round window near this one, or else this one.
fn round(window: f64) -> Option<i64> {
    let near = next(window / SHORTER)?;
    Some(if exact(near) <= window * LONGER { near } else { whole(window.floor()) })
}

#[cfg(test)]
mod tests;
