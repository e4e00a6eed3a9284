//! This member's measurement of a site's load, for rules with `overload: ease`.

use std::time::Duration;

use parking_lot::Mutex;

use super::Entry;
use crate::{
    classify::verdict::{Judgement, Verdict},
    limiter::load::{Meter, Outcome, Tally},
    runtime::clock::{self, Instant},
};

/// The measurement of one scope. Boxed, because few rules use it.
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

    /// Records the response to a request. `took` is the time until its head. Returns a report for the store, if one is
    /// due. `asked`: the store wants a report in any case.
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

/// What a response says about the load.
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
