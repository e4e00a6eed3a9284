//! The limit of a site that crawlers do not know: a plain token bucket on the site's own clock.

use std::time::Instant;

/// Allows `burst + rate * t` requests in any window.
#[derive(Debug)]
pub(super) struct HiddenLimit {
    rate: f64,
    burst: f64,
    tokens: f64,
    last: Option<Instant>,
}

impl HiddenLimit {
    pub(super) fn new(rate: f64, burst: f64) -> Self {
        Self { rate, burst, tokens: burst, last: None }
    }

    /// Whether a request at `at` is within the limit; one that is not takes nothing.
    pub(super) fn allows(&mut self, at: Instant) -> bool {
        let since = self.last.map_or(0.0, |last| at.duration_since(last).as_secs_f64());
        self.last = Some(at);
        self.tokens = (self.tokens + since * self.rate).min(self.burst);
        let allowed = self.tokens >= 1.0;
        if allowed {
            self.tokens -= 1.0;
        }
        allowed
    }
}
