//! Crawlers that cannot be: they send at a fixed rate and know beforehand what the wall will answer. What they bring
//! home is the most that a fixed rate can.

use integration_tests::walls::{Answer, Wall};

use super::{
    fleet::Pass,
    policy::{Policy, micros},
};

/// Sends evenly, and not before the wall lets through again.
#[derive(Debug)]
pub(crate) struct Foresight {
    /// What the wall in front of it does, one request ahead.
    wall: Wall,
    gap: i64,
    next: i64,
    runs_into_walls: bool,
}

impl Foresight {
    /// So many requests per second, after one second's worth at once. `runs_into_walls`: it learns of each ban by one
    /// block, but then knows its end; else nothing of it is ever blocked.
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
    fn ask(&mut self, _slot: usize, now: i64) -> Result<(i64, Pass), i64> {
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
        Ok((now, Pass::default()))
    }

    fn hear(&mut self, _slot: usize, _now: i64, _pass: Pass, _answer: Answer) {}
}
