//! A wall in front of a site. It applies the rules of [`Wall`] on the site's own clock, which may
//! run faster.
//!
//! At ten times the speed, a wall of 2 requests per second with bans of 30 s becomes one of 20 with
//! bans of 3 s. A requested wait (`Retry-After`) has whole seconds, so it is rounded up to one.

use std::time::{Duration, Instant};

use super::Page;
use crate::walls::{Answer, Kind, SECOND, Wall};

/// Latency of a real site, in seconds: least and most.
const LATENCY: (f64, f64) = (0.15, 0.45);

/// A wall whose time begins with the first request.
#[derive(Debug)]
pub(super) struct Guard {
    wall: Wall,
    faster: u32,
    since: Option<Instant>,
    draw: fastrand::Rng,
}

impl Guard {
    pub(super) fn new(wall: Wall, faster: u32) -> Self {
        Self { wall, faster, since: None, draw: fastrand::Rng::with_seed(u64::from(faster)) }
    }

    /// The page that blocks a request at `at`, or `None` if the request passes.
    pub(super) fn answer(&mut self, at: Instant) -> Option<Page> {
        let passed = at.saturating_duration_since(*self.since.get_or_insert(at)) * self.faster;
        let now = i64::try_from(passed.as_micros()).expect("a run lasts minutes");
        match self.wall.answer(now) {
            Answer::Page => None,
            Answer::Block { retry_after, .. } => Some(self.block(retry_after)),
            Answer::Refusal | Answer::Silence => Some(self.block(0)),
        }
    }

    /// How long the response takes.
    pub(super) fn latency(&mut self) -> Duration {
        let (least, most) = LATENCY;
        Duration::from_secs_f64(least + self.draw.f64() * (most - least)) / self.faster
    }

    fn block(&self, retry_after: i64) -> Page {
        match self.wall.kind() {
            Kind::Window => Page::CloudflareChallenge,
            Kind::Day | Kind::Soft => Page::Captcha,
            Kind::Double => Page::Forbidden,
            Kind::Bucket => {
                let second = SECOND * i64::from(self.faster);
                let wait = (retry_after + second - 1) / second;
                Page::TooManyRequests((wait > 0).then(|| wait.to_string()))
            }
        }
    }
}
