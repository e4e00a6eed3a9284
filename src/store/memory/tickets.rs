//! The reply of the embedded store to a call for tickets.

use crate::{
    limiter::{bucket::Window, learn::KnownRate},
    store::{Granted, Phase},
};

/// Tickets, and the rest of the reply.
#[derive(Debug, Default)]
pub(super) struct Tickets {
    pub(super) moments: Vec<i64>,
    pub(super) come_back: i64,
    pub(super) user_is_over: bool,
    pub(super) rate: f64,
    pub(super) learned: KnownRate,
    pub(super) windows: Vec<Window>,
}

impl Tickets {
    /// The reply of an open scope.
    pub(super) fn reply(self, now: i64, epoch: u64, streak: f64) -> Granted {
        let Self { moments: tickets, come_back, user_is_over, rate, learned, windows } = self;
        Granted {
            now,
            phase: Phase::Open,
            epoch,
            come_back,
            user_is_over,
            members: 1,
            streak,
            rate,
            learned,
            windows,
            tickets,
            local: false,
        }
    }
}
