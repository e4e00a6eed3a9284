//! Counts error responses (`errors: 20/m`). Some walls ban a client for its 404s, however slow it
//! is.
//!
//! The window slides. The log holds at most one entry per slot of the window, so its size does not
//! depend on the limit. An entry expires with its latest error, so no window holds more errors than
//! were counted. `lua/lib/errors.lua` does the same, operation by operation. All times are
//! microseconds of the store's clock.

use super::policy::Quota;
use crate::runtime::clock;

/// Slots of a window. Capacity returns at most one slot late.
pub(crate) const SLOTS: i64 = 64;

/// The errors of one scope in the latest window.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ErrorLog {
    /// The time of the latest error of each slot, and the slot's number of errors, oldest first.
    entries: Vec<(i64, u64)>,
    /// When the latest error expires; 0 = there was none.
    pub until: i64,
}

impl ErrorLog {
    /// Counts an error. Returns the time at which another one is allowed; 0 = now.
    pub fn count(&mut self, now: i64, limit: Quota) -> i64 {
        let window = clock::micros(limit.window);
        let slot = (window / SLOTS).max(1);
        self.entries.retain(|(at, _)| at + window > now);
        match self.entries.last_mut() {
            Some((at, count)) if at.div_euclid(slot) == now.div_euclid(slot) => {
                *at = now;
                *count += 1;
            }
            _ => self.entries.push((now, 1)),
        }
        self.until = now + window;
        let mut left: u64 = self.entries.iter().map(|(_, count)| count).sum();
        let mut room = 0;
        for (at, count) in &self.entries {
            if left < limit.tokens {
                break;
            }
            left -= count;
            room = at + window;
        }
        room
    }

    /// The clock was set back by `back`.
    pub fn set_back(&mut self, back: i64) {
        for (at, _) in &mut self.entries {
            *at -= back;
        }
        self.until = if self.until > 0 { self.until - back } else { 0 };
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SECOND: i64 = 1_000_000;

    fn per_minute(tokens: u64) -> Quota {
        Quota { tokens, window: Duration::from_secs(60) }
    }

    #[test]
    fn the_last_allowed_error_pauses_until_the_first_one_is_too_old() {
        let (mut log, start) = (ErrorLog::default(), 1_000 * SECOND);
        assert_eq!(log.count(start, per_minute(3)), 0);
        assert_eq!(log.count(start + 10 * SECOND, per_minute(3)), 0);
        assert_eq!(log.count(start + 20 * SECOND, per_minute(3)), start + 60 * SECOND);
        // The first one has expired, and the second is next.
        assert_eq!(log.count(start + 60 * SECOND, per_minute(3)), start + 70 * SECOND);
        assert_eq!(log.count(start + 300 * SECOND, per_minute(3)), 0, "all have left");
    }

    #[test]
    fn no_window_holds_more_than_the_limit_and_the_log_stays_short() {
        let (mut log, mut now, mut sent) = (ErrorLog::default(), 0, Vec::new());
        let limit = per_minute(1_000);
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..20_000 {
            sent.push(now);
            now = log.count(now, limit).max(now + random.i64(0..50_000));
            assert!(log.entries.len() <= 65, "{} entries", log.entries.len());
        }
        for (n, at) in sent.iter().enumerate().skip(1_000) {
            assert!(at - sent[n - 1_000] >= 60 * SECOND, "1,001 within a minute");
        }
        // The count is not much lower than the limit either.
        assert!(now < 21 * 62 * SECOND, "20,000 errors took {} s", now / SECOND);
    }
}
