//! How long the store has been silent, measured by calls without a reply.

use std::time::Duration;

use parking_lot::Mutex;

use crate::runtime::clock::{self, Instant};

/// The calls without a reply since the last reply.
#[derive(Debug, Default)]
pub(in crate::store) struct UnansweredCalls(Mutex<Calls>);

#[derive(Debug, Default)]
struct Calls {
    /// When the last reply arrived.
    heard: Option<Instant>,
    /// When the first and the latest of them were sent.
    unanswered: Option<(Instant, Instant)>,
}

impl UnansweredCalls {
    /// A call that was sent at this time has got a reply, or has failed.
    pub(super) fn note(&self, sent: Instant, answered: bool) {
        if answered { self.answered() } else { self.unanswered(sent) }
    }

    /// A call that was sent at this time has failed. If later ones have got replies, that means
    /// nothing.
    fn unanswered(&self, sent: Instant) {
        let mut calls = self.0.lock();
        if calls.heard.is_none_or(|heard| sent >= heard) {
            let (first, latest) = calls.unanswered.unwrap_or((sent, sent));
            calls.unanswered = Some((first.min(sent), latest.max(sent)));
        }
    }

    /// A reply has arrived.
    fn answered(&self) {
        *self.0.lock() = Calls { heard: Some(clock::now()), unanswered: None };
    }

    /// When it began, as far as is known.
    pub(super) fn since(&self) -> Option<Instant> {
        self.0.lock().unanswered.map(|(first, _)| first)
    }

    /// For how long it is known to have lasted: from the first to the latest call.
    pub(super) fn lasted(&self) -> Duration {
        let unanswered = self.0.lock().unanswered;
        unanswered.map_or(Duration::ZERO, |(first, latest)| latest - first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[test]
    fn silence_lasts_from_the_first_to_the_latest_call_that_was_left_unanswered() {
        let (calls, start) = (UnansweredCalls::default(), clock::now());
        assert_eq!(calls.lasted(), Duration::ZERO);
        calls.unanswered(start + seconds(10));
        assert_eq!(calls.lasted(), Duration::ZERO, "one call may have been lost");
        calls.unanswered(start + seconds(14));
        calls.unanswered(start + seconds(12));
        assert_eq!(calls.lasted(), seconds(4));
        assert_eq!(calls.since(), Some(start + seconds(10)));
        calls.answered();
        assert_eq!((calls.lasted(), calls.since()), (Duration::ZERO, None));
    }

    #[test]
    fn a_call_that_was_overtaken_by_one_that_was_answered_says_nothing() {
        let calls = UnansweredCalls::default();
        let early = clock::now();
        calls.answered();
        calls.unanswered(early);
        let heard = calls.0.lock().heard.expect("it was answered");
        assert_eq!(calls.since().is_some(), early >= heard);
        calls.unanswered(heard + seconds(1));
        calls.unanswered(heard + seconds(2));
        assert!(calls.lasted() >= seconds(1));
    }
}
