//! How long a cooldown lasts: drawn at first, longer after each blocked probe, and learned from the length that worked.

use super::{Cooldown, HOPELESS};
use crate::{
    limiter::policy::CooldownPolicy,
    runtime::clock::{self, exact},
};

/// A hopeless scope is probed at least this often.
pub(crate) const DAY: i64 = 86_400 * 1_000_000;

/// The cooldowns of a hopeless scope grow by at least this factor.
pub(crate) const HOPELESS_GROW: f64 = 2.0;

/// A length that worked is repeated at most this often before a shorter one is tried, because bans may become shorter.
pub(crate) const WARIEST: u32 = 31;

impl Cooldown {
    /// Learns from a cooldown that was long enough. If it had to grow, the next one starts at its length. If the
    /// remembered length worked at once, the next one is shorter. Each failed attempt makes the next attempt rarer,
    /// because a ban that each request renews costs its whole length again.
    pub(super) fn settle(&mut self, policy: &CooldownPolicy) {
        let usual = clock::micros(policy.length.1);
        self.enough = self.lasted();
        let learned = if self.failed > 0 {
            if self.repeats == 0 {
                self.wary = (self.wary * 2 + 1).min(WARIEST);
            }
            self.repeats = self.wary;
            self.length
        } else if self.repeats > 1 {
            self.repeats -= 1;
            self.sufficed
        } else {
            self.repeats = 0;
            whole(exact(self.sufficed) / policy.grow.max(1.25))
        };
        self.sufficed = if learned > usual { learned } else { 0 };
        if self.sufficed == 0 {
            (self.wary, self.repeats) = (0, 0);
        }
    }

    /// The length of a cooldown that begins with a block. `draw` is from 0 to 1.
    pub(super) fn first_length(&self, draw: f64, retry_after: i64, policy: &CooldownPolicy) -> i64 {
        let max = clock::micros(policy.max);
        if policy.respect_retry_after && retry_after > 0 {
            return retry_after.min(max);
        }
        let (low, high) = (clock::micros(policy.length.0), clock::micros(policy.length.1));
        let drawn = low + whole(draw * exact(high - low));
        drawn.max(self.sufficed).min(max)
    }

    /// The length of the cooldown after a blocked probe.
    pub(super) fn next_length(&self, now: i64, retry_after: i64, policy: &CooldownPolicy) -> i64 {
        let max = clock::micros(policy.max);
        if self.failed >= HOPELESS {
            let grown = whole(exact(self.length) * policy.grow.max(HOPELESS_GROW));
            return grown.max(max).min(DAY);
        }
        if policy.respect_retry_after && retry_after > 0 {
            return retry_after.min(max);
        }
        let grown = whole(exact(self.length) * policy.grow);
        self.aim(now, grown).max(clock::micros(policy.length.0)).min(max)
    }
}

fn whole(micros: f64) -> i64 {
    clock::whole(micros.floor())
}
