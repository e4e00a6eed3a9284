//! When a long ban is probed.
//!
//! Bans have round lengths: five minutes, ten, an hour. A probe right after a round length finds the end of a ban
//! sooner than a wait that doubles. If the length of the last ban is known, the next probe goes right after that
//! length.

use super::Cooldown;
use crate::runtime::clock::{exact, whole};

/// Longer cooldowns aim at round lengths, in microseconds. Shorter bans end between two probes anyway.
pub(crate) const LONG: i64 = 240_000_000;
/// Lengths of bans, in microseconds. Twenty minutes is a ban of ten minutes, renewed by the probe after ten minutes.
pub(crate) const ROUND: [i64; 8] = [
    300_000_000,
    600_000_000,
    1_200_000_000,
    1_800_000_000,
    3_600_000_000,
    7_200_000_000,
    14_400_000_000,
    86_400_000_000,
];
/// A probe may come later or earlier than planned by at most this factor.
pub(crate) const LATER: f64 = 1.5;
/// The ban began with a request; this member measures from the response.
pub(crate) const AFTER: f64 = 1.01;

impl Cooldown {
    /// The length of the next cooldown, in microseconds. `grown` is the length without this adjustment.
    pub(super) fn aim(&self, now: i64, grown: i64) -> i64 {
        let passed = if self.since > 0 { now - self.since } else { self.length };
        let planned = passed + grown;
        if planned < LONG {
            return grown;
        }
        let latest = exact(planned) * LATER;
        let fits = |end: i64| end > passed && exact(end) <= latest;
        if fits(self.enough) {
            return self.enough - passed;
        }
        let ends = ROUND.map(|length| whole((exact(length) * AFTER).floor()));
        // Take the last round length before the plan, or else the first one after it.
        let near = |end: &&i64| **end > passed && exact(**end) * LATER >= exact(planned);
        let sooner = ends.iter().rev().filter(|end| **end <= planned).find(near);
        let later = ends.iter().find(|end| **end > planned && fits(**end));
        sooner.or(later).map_or(grown, |end| end - passed)
    }

    /// An upper bound of the ban's length, from the probe that succeeded; 0 = the ban was not long.
    pub(super) fn lasted(&self) -> i64 {
        let length = self.until - self.since;
        if self.since > 0 && length >= LONG { length } else { 0 }
    }
}
