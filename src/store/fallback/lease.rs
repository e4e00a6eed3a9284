//! What finished calls show about the store: how long it has been silent, and whether this member may still send (a
//! lease that each reply renews, [`Contact`]).

use std::time::Duration;

use parking_lot::Mutex;

use super::{SharedStore, heartbeat::HEARTBEAT};
use crate::{
    runtime::clock::{self, Instant},
    store::contact::Contact,
};

/// How late a heartbeat may be on a busy machine.
const LATE: Duration = Duration::from_millis(500);

/// The contact of a member that calls the store with each heartbeat.
#[derive(Debug)]
pub(super) struct Lease(Mutex<Contact<Instant>>);

impl Lease {
    /// A lease over a store that replies within `timeout` or fails.
    pub(super) fn new(timeout: Duration) -> Self {
        let length = clock::micros(HEARTBEAT + timeout + LATE);
        Self(Mutex::new(Contact::new(length, clock::micros(timeout))))
    }
}

impl SharedStore {
    /// Whether this member may still rely on a reply about a scope to a call that was sent at
    /// `heard`.
    #[must_use]
    pub fn trusts(&self, heard: Instant) -> bool {
        let contact = *self.lease.0.lock();
        contact.is_on(clock::now()) && (!self.is_up() || contact.covers(heard))
    }

    /// Records that a call sent at this time got a reply, or failed.
    pub(super) fn note_call(&self, sent: Instant, answered: bool) {
        self.unanswered.note(sent, answered);
        if self.lease.0.lock().note(sent, answered, clock::now()) {
            let slept = clock::now().saturating_duration_since(sent);
            tracing::debug!(?slept, "the lease had run out: every scope is read again");
            self.news.send(super::News::Resync).ok();
        }
    }

    /// The longest duration of a call.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.settings.timeout
    }
}

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
    /// Records that a call sent at this time got a reply, or failed. A failure counts only if no later call has got a
    /// reply.
    pub(super) fn note(&self, sent: Instant, answered: bool) {
        let mut calls = self.0.lock();
        if answered {
            *calls = Calls { heard: Some(clock::now()), unanswered: None };
        } else if calls.heard.is_none_or(|heard| sent >= heard) {
            let (first, latest) = calls.unanswered.unwrap_or((sent, sent));
            calls.unanswered = Some((first.min(sent), latest.max(sent)));
        }
    }

    /// When the silence began, as far as known.
    pub(super) fn since(&self) -> Option<Instant> {
        self.0.lock().unanswered.map(|(first, _)| first)
    }

    /// How long the silence is known to have lasted: from the first to the latest call.
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
    fn an_outage_lasts_from_the_first_to_the_latest_unanswered_call() {
        let (calls, start) = (UnansweredCalls::default(), clock::now());
        assert_eq!(calls.lasted(), Duration::ZERO);
        calls.note(start + seconds(10), false);
        assert_eq!(calls.lasted(), Duration::ZERO, "one call may have been lost");
        calls.note(start + seconds(14), false);
        calls.note(start + seconds(12), false);
        assert_eq!(calls.lasted(), seconds(4));
        assert_eq!(calls.since(), Some(start + seconds(10)));
        calls.note(start, true);
        assert_eq!((calls.lasted(), calls.since()), (Duration::ZERO, None));
    }

    #[test]
    fn an_unanswered_call_is_ignored_if_a_later_one_was_answered() {
        let calls = UnansweredCalls::default();
        let early = clock::now();
        calls.note(early, true);
        calls.note(early, false);
        let heard = calls.0.lock().heard.expect("it was answered");
        assert_eq!(calls.since().is_some(), early >= heard);
        calls.note(heard + seconds(1), false);
        calls.note(heard + seconds(2), false);
        assert!(calls.lasted() >= seconds(1));
    }
}
