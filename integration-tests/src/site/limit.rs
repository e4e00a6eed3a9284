//! The limit of a site that crawlers do not know: a token bucket on the site's own clock, and a ban for who exceeds it.

use std::time::{Duration, Instant};

/// Allows `burst + rate * t` requests in any window. What exceeds that starts a ban, and asking during a ban renews it.
#[derive(Debug)]
pub(super) struct HiddenLimit {
    rate: f64,
    burst: f64,
    tokens: f64,
    last: Option<Instant>,
    ban: Duration,
    banned_until: Option<Instant>,
}

impl HiddenLimit {
    pub(super) fn new(rate: f64, burst: f64, ban: Duration) -> Self {
        Self { rate, burst, tokens: burst, last: None, ban, banned_until: None }
    }

    /// Whether a request at `at` is within the limit; one that is not takes nothing.
    pub(super) fn allows(&mut self, at: Instant) -> bool {
        let since = self.last.map_or(0.0, |last| at.duration_since(last).as_secs_f64());
        self.last = Some(at);
        self.tokens = (self.tokens + since * self.rate).min(self.burst);
        let banned = self.banned_until.is_some_and(|until| at < until);
        let allowed = self.tokens >= 1.0 && !banned;
        if allowed {
            self.tokens -= 1.0;
        } else {
            self.banned_until = Some(at + self.ban);
        }
        allowed
    }
}
