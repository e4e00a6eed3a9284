//! A member's contact with its store, as a lease. Pure, so that tests can try every order of events.
//!
//! A process that was stopped (SIGSTOP, a paused VM, heavy swapping) wakes with outdated knowledge. Its copy of a
//! cooldown may be as old as its sleep, so it must ask again before it sends. A failed call renews the lease too,
//! because the member then decides in local mode.

use crate::runtime::clock::Moment;

/// When a member's contact with its store began, and when it was last renewed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Contact<T> {
    /// How long one sign of contact is valid, in microseconds.
    length: i64,
    /// The longest duration of a call, in microseconds.
    timeout: i64,
    /// The time of the latest sign of contact.
    latest: Option<T>,
    /// Knowledge from before this time may be outdated.
    since: Option<T>,
}

impl<T: Moment> Contact<T> {
    /// A lease of `length` microseconds over a store that replies within `timeout` microseconds or fails.
    #[must_use]
    pub fn new(length: i64, timeout: i64) -> Self {
        Self { length, timeout, latest: None, since: None }
    }

    /// Records a finished call that was sent at `sent`. True if the lease had expired before.
    ///
    /// A reply is as old as its call. A failure shows that there was no reply until the call's timeout. It shows
    /// nothing about a later time, because the process may have slept.
    pub fn note(&mut self, sent: T, answered: bool, now: T) -> bool {
        let sign = if answered { sent } else { now.min(sent.after(self.timeout)) };
        let before = self.latest;
        self.latest = before.max(Some(sign));
        let ran_out = before.map(|latest| latest.after(self.length)).filter(|end| *end < sent);
        self.since = self.since.max(ran_out);
        ran_out.is_some()
    }

    /// Whether the latest contact is recent.
    #[must_use]
    pub fn is_on(&self, now: T) -> bool {
        self.latest.is_none_or(|latest| latest.until(now) <= self.length)
    }

    /// Whether contact has been unbroken since `heard`.
    #[must_use]
    pub fn covers(&self, heard: T) -> bool {
        self.since.is_none_or(|since| heard >= since)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::runtime::clock::{self, Instant};

    fn millis(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    /// A lease of 1.6 s, and the time at which it began.
    fn contact() -> (Contact<Instant>, Instant) {
        (Contact::new(1_600_000, 100_000), clock::now())
    }

    #[test]
    fn replies_from_before_a_pause_do_not_count() {
        let (mut contact, start) = contact();
        assert!(contact.is_on(start) && contact.covers(start), "nothing has been asked yet");
        assert!(!contact.note(start, true, start));
        assert!(contact.is_on(start + millis(1_600)) && contact.covers(start));
        let woke = start + millis(1_601);
        assert!(!contact.is_on(woke));
        assert!(contact.note(woke, true, woke), "the lease had run out");
        assert!(contact.is_on(woke) && contact.covers(woke) && !contact.covers(start));
    }

    #[test]
    fn a_reply_that_waited_for_the_process_is_as_old_as_its_call() {
        let (mut contact, start) = contact();
        assert!(!contact.note(start, true, start));
        let woke = start + millis(14_000);
        assert!(!contact.note(start + millis(500), true, woke), "it was asked in time");
        assert!(!contact.is_on(woke), "and read too late");
    }

    #[test]
    fn a_failure_counts_as_a_sign_until_its_timeout() {
        let (mut contact, start) = contact();
        assert!(!contact.note(start, true, start));
        let woke = start + millis(14_000);
        assert!(!contact.note(start + millis(500), false, woke));
        assert!(!contact.is_on(woke), "it slept");
        assert!(contact.note(woke, false, woke), "the lease had run out");
        assert!(contact.is_on(woke));
    }

    #[test]
    fn heartbeats_keep_it_on() {
        let (mut contact, start) = contact();
        for beat in 0..10 {
            let now = start + millis(1_100) * beat;
            assert!(!contact.note(now, true, now));
        }
        assert!(contact.is_on(start + millis(11_000)) && contact.covers(start));
    }
}
