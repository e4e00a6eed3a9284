//! The right to send is a lease that a recent reply of the store renews ([`Contact`]).

use std::time::Duration;

use parking_lot::Mutex;

use super::{SharedStore, heartbeat::HEARTBEAT};
use crate::{
    runtime::clock::{self, Instant},
    store::contact::Contact,
};

/// How late a heartbeat may be on a busy machine.
const LATE: Duration = Duration::from_millis(500);

/// The contact of a member that knocks with each heartbeat.
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

    /// A call that was sent at this time has got a reply, or has failed.
    pub(super) fn note_call(&self, sent: Instant, answered: bool) {
        self.unanswered.note(sent, answered);
        if self.lease.0.lock().note(sent, answered, clock::now()) {
            let slept = clock::now().saturating_duration_since(sent);
            tracing::debug!(?slept, "the lease had run out: every scope is read again");
            self.news.send(super::News::Resync).ok();
        }
    }

    /// The longest time of a call.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.settings.timeout
    }
}
