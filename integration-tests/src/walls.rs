//! Five kinds of walls against fast crawlers. They are pure functions of a seed and the times of
//! the requests.
//!
//! | wall | what it does |
//! |---|---|
//! | [`Kind::Window`] | so many requests within a sliding window; then a ban, which every further request renews |
//! | [`Kind::Bucket`] | a token bucket; every second one of them names its wait (`Retry-After`) |
//! | [`Kind::Day`] | a sliding window whose limit falls by half and comes back, as by day and by night |
//! | [`Kind::Double`] | a sliding window with bans that double each time within half an hour; answers a plain 403 |
//! | [`Kind::Soft`] | no limit: the further above a threshold, the more of the answers are captchas |
//!
//! Times are microseconds.

use std::collections::VecDeque;

use tidegate::runtime::clock::exact;

/// A second.
pub const SECOND: i64 = 1_000_000;
/// The window of a soft wall.
const SOFT_WINDOW: i64 = 20 * SECOND;
/// Bans start again at their first length after this time without one.
const FORGIVES_AFTER: i64 = 1_800 * SECOND;
/// Longest ban if bans double.
const LONGEST_BAN: i64 = 600 * SECOND;

/// The kind of a wall.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Sliding window, renewed ban.
    Window,
    /// Token bucket.
    Bucket,
    /// A limit that is lower by day.
    Day,
    /// Bans that double.
    Double,
    /// Soft threshold.
    Soft,
}

impl Kind {
    /// All, in the order of the tables.
    pub const ALL: [Self; 5] = [Self::Window, Self::Bucket, Self::Day, Self::Double, Self::Soft];

    /// Its name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Window => "window",
            Self::Bucket => "bucket",
            Self::Day => "day",
            Self::Double => "double",
            Self::Soft => "soft",
        }
    }
}

/// The response of the site.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Answer {
    /// A page.
    Page,
    /// A block.
    Block {
        /// The wait that it requests, in microseconds; 0 = none.
        retry_after: i64,
        /// Whether it is a 429 or a challenge instead of a plain 403.
        sure: bool,
    },
    /// A status that means nothing by itself: a plain 503.
    Refusal,
    /// No response: the connection is dropped.
    Silence,
}

/// One wall.
#[derive(Debug, Clone)]
pub struct Wall {
    kind: Kind,
    /// Requests per second that it tolerates at most.
    rate: f64,
    window: i64,
    /// Size of the token bucket.
    burst: f64,
    names_wait: bool,
    ban: i64,
    /// Length of a day.
    day: i64,
    tokens: f64,
    at: i64,
    hits: VecDeque<i64>,
    until: i64,
    next_ban: i64,
    last_ban: i64,
    draw: fastrand::Rng,
}

impl Wall {
    /// The wall of `kind` for `seed`: 1 to 4.3 requests per second, windows of 20 to 60 s, bans of
    /// 10 to 40 s.
    #[must_use]
    pub fn new(kind: Kind, seed: u64) -> Self {
        let mut draw = fastrand::Rng::with_seed(seed);
        let mut between = |low: f64, high: f64| low + draw.f64() * (high - low);
        let rate = between(1.0, 4.3);
        let window = seconds(between(20.0, 60.0));
        let burst = between(5.0, 30.0);
        let ban = seconds(between(10.0, 40.0));
        let day = seconds(between(1_200.0, 3_600.0));
        Self {
            kind,
            rate,
            window,
            burst,
            names_wait: seed.is_multiple_of(2),
            ban,
            day,
            tokens: burst,
            at: 0,
            hits: VecDeque::new(),
            until: 0,
            next_ban: ban,
            last_ban: i64::MIN / 2,
            draw,
        }
    }

    /// Which of the five it is.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// Requests per second that it tolerates at `now`.
    #[must_use]
    pub fn bears(&self, now: i64) -> f64 {
        if self.kind != Kind::Day {
            return self.rate;
        }
        let turn = exact(now % self.day) / exact(self.day) * std::f64::consts::TAU;
        self.rate * (0.75 + 0.25 * turn.cos())
    }

    /// Responds to a request at `now`, which must not be earlier than the last one.
    pub fn answer(&mut self, now: i64) -> Answer {
        match self.kind {
            Kind::Bucket => self.by_bucket(now),
            Kind::Soft => self.softly(now),
            Kind::Window | Kind::Day | Kind::Double => self.by_window(now),
        }
    }

    fn by_bucket(&mut self, now: i64) -> Answer {
        self.tokens = (self.tokens + exact(now - self.at) / 1e6 * self.rate).min(self.burst);
        self.at = now;
        if self.tokens >= 1.0 {
            self.tokens -= 1.0;
            return Answer::Page;
        }
        // RFC 9110 10.2.3: whole seconds.
        let wait = seconds((1.0 / self.rate).ceil());
        Answer::Block { retry_after: if self.names_wait { wait } else { 0 }, sure: true }
    }

    fn softly(&mut self, now: i64) -> Answer {
        self.forget(now - SOFT_WINDOW);
        let share = exact_len(self.hits.len()) / (exact(SOFT_WINDOW) / 1e6) / self.rate - 1.0;
        self.hits.push_back(now);
        if self.draw.f64() < (share * 1.5).clamp(0.0, 0.9) {
            return Answer::Block { retry_after: 0, sure: true };
        }
        Answer::Page
    }

    fn by_window(&mut self, now: i64) -> Answer {
        let block = Answer::Block { retry_after: 0, sure: self.kind != Kind::Double };
        if now < self.until {
            if self.kind == Kind::Window {
                self.until = now + self.ban;
            }
            return block;
        }
        self.forget(now - self.window);
        if exact_len(self.hits.len()) < self.bears(now) * exact(self.window) / 1e6 {
            self.hits.push_back(now);
            return Answer::Page;
        }
        if self.kind == Kind::Double {
            if now - self.last_ban > FORGIVES_AFTER {
                self.next_ban = self.ban;
            }
            self.until = now + self.next_ban;
            self.last_ban = now;
            self.next_ban = (self.next_ban * 2).min(LONGEST_BAN);
            self.hits.clear();
        } else {
            self.until = now + self.ban;
        }
        block
    }

    fn forget(&mut self, before: i64) {
        while self.hits.front().is_some_and(|hit| *hit <= before) {
            self.hits.pop_front();
        }
    }
}

#[allow(clippy::cast_precision_loss, reason = "far below 2^53")]
pub(crate) fn exact_len(count: usize) -> f64 {
    count as f64
}

#[allow(clippy::cast_possible_truncation, reason = "hours at most")]
fn seconds(seconds: f64) -> i64 {
    (seconds * 1e6) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages and blocks in an hour at `rate` times the tolerated rate.
    fn pages_at(kind: Kind, rate: f64) -> (u32, u32) {
        let mut wall = Wall::new(kind, 7);
        let step = seconds(1.0 / (wall.bears(0) * rate));
        let (mut pages, mut blocks, mut now) = (0, 0, 0);
        while now < 3_600 * SECOND {
            now += step;
            match wall.answer(now) {
                Answer::Page => pages += 1,
                _ => blocks += 1,
            }
        }
        (pages, blocks)
    }

    #[test]
    fn half_of_a_walls_limit_is_never_blocked_and_twice_its_limit_is() {
        for kind in Kind::ALL {
            assert_eq!(pages_at(kind, 0.45).1, 0, "{kind:?}");
            let (pages, blocks) = pages_at(kind, 2.0);
            assert!(blocks * 2 > pages, "{kind:?}: {blocks} blocks, {pages} pages");
        }
    }

    #[test]
    fn the_same_seed_is_the_same_wall() {
        for kind in Kind::ALL {
            assert_eq!(pages_at(kind, 1.5), pages_at(kind, 1.5));
        }
    }
}
