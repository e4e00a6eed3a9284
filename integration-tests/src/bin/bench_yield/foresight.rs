//! Impossible crawlers: they send at a fixed rate and know the wall's responses in advance. Their
//! results are the best that a fixed rate can reach.

use integration_tests::walls::{Answer, Wall};

use super::{
    fleet::Grant,
    policy::{Policy, micros},
};

/// Sends at a fixed rate, but not while the wall would block.
#[derive(Debug)]
pub(crate) struct Foresight {
    /// A copy of the wall, one request ahead.
    wall: Wall,
    gap: i64,
    next: i64,
    runs_into_walls: bool,
}

impl Foresight {
    /// This many requests per second, after a burst of one second's worth. With `runs_into_walls`
    /// it notices each ban by one block, but then knows its end. Otherwise nothing of it is ever
    /// blocked.
    pub(crate) fn boxed(wall: &Wall, rate: f64, runs_into_walls: bool) -> Box<dyn Policy> {
        let gap = micros(1.0 / rate);
        let burst = micros(rate.ceil() / rate);
        Box::new(Self { wall: wall.clone(), gap, next: gap - burst, runs_into_walls })
    }

    fn is_blocked(&self, at: i64) -> bool {
        self.wall.clone().answer(at) != Answer::Page
    }
}

impl Policy for Foresight {
    fn ask(&mut self, _slot: usize, now: i64) -> Result<(i64, Grant), i64> {
        if now < self.next {
            return Err(self.next);
        }
        let blocked = self.is_blocked(now);
        if blocked && !self.runs_into_walls {
            self.next = now + self.gap;
            return Err(self.next);
        }
        self.wall.answer(now);
        self.next += self.gap;
        if blocked {
            self.next = now + self.gap;
            while self.is_blocked(self.next) {
                self.next += self.gap;
            }
        }
        Ok((now, Grant::default()))
    }

    fn report(&mut self, _slot: usize, _now: i64, _grant: Grant, _answer: Answer) {}
}
