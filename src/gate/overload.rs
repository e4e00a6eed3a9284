//! How a site bears the load, as this member measures it for rules with `overload: ease`.

use std::time::Duration;

use parking_lot::Mutex;

use super::Entry;
use crate::{
    classify::verdict::{Judgement, Verdict},
    limiter::load::{Meter, Outcome, Tally},
    runtime::clock::{self, Instant},
};

/// What is measured of one scope. Boxed: few rules ask.
#[derive(Debug, Default)]
pub(super) struct Metering(Mutex<Option<Box<Measured>>>);

/// A meter, and the moment from which it counts time.
#[derive(Debug)]
struct Measured {
    since: Instant,
    meter: Meter,
}

impl Default for Measured {
    fn default() -> Self {
        Self { since: clock::now(), meter: Meter::default() }
    }
}

impl Metering {
    /// A request is sent.
    pub(super) fn sent(&self) {
        let mut measured = self.0.lock();
        let Measured { since, meter } = &mut **measured.get_or_insert_default();
        meter.sent(clock::micros(since.elapsed()));
    }

    /// A request that was sent has its answer, whose head came after the time `took`; what to report to the store, if
    /// anything. `asked`: the store wants to know.
    pub(super) fn answered(
        &self,
        entry: &Entry,
        judgement: &Judgement,
        took: Option<Duration>,
        asked: bool,
    ) -> Option<Tally> {
        let outcome = outcome(judgement, took);
        let mut measured = self.0.lock();
        let Measured { since, meter } = &mut **measured.get_or_insert_default();
        let (strain, late) = meter.answered(clock::micros(since.elapsed()), outcome, asked);
        if late {
            entry.metrics.strain_late.inc();
        } else if outcome == Outcome::Failed {
            entry.metrics.strain_failed.inc();
        }
        strain
    }
}

/// What an answer to a request that was sent says about the load.
fn outcome(judgement: &Judgement, took: Option<Duration>) -> Outcome {
    let status = judgement.status.unwrap_or_default();
    match judgement.verdict {
        Verdict::Timeout => Outcome::Failed,
        Verdict::Ok if (500..600).contains(&status) => Outcome::Failed,
        Verdict::Ok if !judgement.neutral && (200..300).contains(&status) => {
            took.map_or(Outcome::Other, |took| Outcome::Page(clock::micros(took)))
        }
        _ => Outcome::Other,
    }
}
