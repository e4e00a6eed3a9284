//! The only module that reads a clock.
//!
//! A member's clock only measures *durations* (how long to sleep, how old an idle entry is). The
//! store's clock says when something happened ([`crate::store`]). All timers of the crate use
//! tokio's clock and so follow `tokio::time::pause`, which lets big fleets be simulated in virtual
//! time.

use std::time::Duration;

use parking_lot::Mutex;
pub use tokio::time::Instant;

/// The current time of the process's monotonic clock.
#[must_use]
#[inline]
#[allow(clippy::disallowed_methods, reason = "this is the one place")]
pub fn now() -> Instant {
    Instant::now()
}

/// Milliseconds since 1970 on this machine's clock, for display only. No decision uses it.
#[must_use]
#[allow(clippy::disallowed_methods, reason = "this is the one place")]
pub fn unix_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// Microseconds in `duration`, the unit of the stores; saturates (after 584,000 years).
#[must_use]
pub fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// Microseconds as a float: exact up to 2^53, which is the year 2255.
#[must_use]
#[allow(clippy::cast_precision_loss)]
pub fn exact(micros: i64) -> f64 {
    micros as f64
}

/// A whole number of microseconds, at most 2^53. Up to there a double, Lua's only number, is exact,
/// and absurdly low rates end up far in the future.
#[must_use]
#[allow(clippy::cast_possible_truncation)]
pub fn whole(micros: f64) -> i64 {
    micros.min(9_007_199_254_740_992.0) as i64
}

/// The duration of `micros` microseconds; negative counts as zero.
#[must_use]
pub fn from_micros(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

/// A reading of a member's clock, or of one in a model.
pub trait Moment: Copy + Ord {
    /// The moment `micros` microseconds later; a negative number counts as zero.
    #[must_use]
    fn after(self, micros: i64) -> Self;

    /// Microseconds from here to `later`; zero if that has passed.
    fn until(self, later: Self) -> i64;
}

impl Moment for Instant {
    fn after(self, micros: i64) -> Self {
        self + from_micros(micros)
    }

    fn until(self, later: Self) -> i64 {
        micros(later.saturating_duration_since(self))
    }
}

/// Limits how often something frequent is reported.
#[derive(Debug)]
pub struct LogThrottle {
    every: Duration,
    last: Mutex<Option<Instant>>,
}

impl LogThrottle {
    /// Allows one report in each span of this length.
    #[must_use]
    pub const fn every(every: Duration) -> Self {
        Self { every, last: Mutex::new(None) }
    }

    /// Whether it may be reported now.
    #[must_use]
    pub fn allows(&self) -> bool {
        let (mut last, now) = (self.last.lock(), now());
        let may = last.is_none_or(|last| now.duration_since(last) >= self.every);
        if may {
            *last = Some(now);
        }
        may
    }
}

/// One log line per second.
impl Default for LogThrottle {
    fn default() -> Self {
        Self::every(Duration::from_secs(1))
    }
}

/// The wall clock, for dates from outside (`Retry-After` in a response); never for measuring.
#[must_use]
#[allow(clippy::disallowed_methods, reason = "this is the one place")]
pub fn wall() -> std::time::SystemTime {
    std::time::SystemTime::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_frequent_event_is_logged_once_a_second() {
        let throttle = LogThrottle::default();
        assert!(throttle.allows());
        assert!(!throttle.allows());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(throttle.allows());
    }
}
