//! Why the store is away, and what a member may do that has not reached it yet.

use std::sync::atomic::Ordering;

use super::{FIRST_WORD, Failure, Shared};
use crate::{settings::OnFailure, store::FailureCause};

/// Why the store is away.
#[derive(Debug)]
pub(super) struct Outage {
    text: String,
    cause: FailureCause,
    /// The causes of this outage that have been reported: each once.
    reported: Vec<FailureCause>,
}

impl Default for Outage {
    fn default() -> Self {
        let text = "it has not answered yet".to_owned();
        Self { text, cause: FailureCause::TimedOut, reported: Vec::new() }
    }
}

impl Outage {
    /// The store answers: the causes of the next outage are new ones.
    pub(super) fn is_over(&mut self) {
        self.reported.clear();
    }
}

impl Shared {
    /// Why it does not, in words.
    #[must_use]
    pub fn why_down(&self) -> String {
        self.outage.lock().text.clone()
    }

    /// Why it does not, as one of four causes.
    #[must_use]
    pub fn cause(&self) -> FailureCause {
        self.outage.lock().cause
    }

    /// Whether this member has no right to send under a limit: it has not heard from the store since it started, so
    /// that it knows neither how many share the rate nor what is left of it, and no share is given.
    #[must_use]
    pub fn knows_no_share(&self) -> bool {
        self.settings.on_failure == OnFailure::Local
            && self.settings.local_share.is_none()
            && !self.reached.load(Ordering::Acquire)
    }

    /// Remembers why the store is away; true if that is to be reported. At the start, silence may only mean that the
    /// connection is still being made.
    pub(super) fn note_outage(&self, failure: &Failure) -> bool {
        let cause = failure.kind.cause();
        let mut outage = self.outage.lock();
        outage.text.clone_from(&failure.text);
        outage.cause = cause;
        let early = !self.reached.load(Ordering::Acquire) && self.started.elapsed() < FIRST_WORD;
        if outage.reported.contains(&cause) || (early && cause == FailureCause::TimedOut) {
            return false;
        }
        outage.reported.push(cause);
        true
    }
}
