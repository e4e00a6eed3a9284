//! The right to send is a lease that a recent reply of the store renews.
//!
//! A process that was stopped (SIGSTOP, a paused VM, heavy swapping) wakes with outdated knowledge.
//! Its copy of a cooldown is as old as its sleep, so it must ask again before it acts. A failed
//! call renews the lease too: the store is away, and the member decides in local mode.

use std::time::Duration;

use parking_lot::Mutex;

use super::{SharedStore, heartbeat::HEARTBEAT};
use crate::runtime::clock::{self, Instant};

/// How late a heartbeat may be on a busy machine.
const LATE: Duration = Duration::from_millis(500);

/// When this member's contact with its store began.
#[derive(Debug)]
pub(super) struct Lease {
    length: Duration,
    timeout: Duration,
    contact: Mutex<Contact>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Contact {
    /// Of which moment the latest call that is over is a sign.
    latest: Option<Instant>,
    /// Knowledge from before this time may be outdated.
    since: Option<Instant>,
}

impl Lease {
    /// A lease over a store that replies within `timeout` or fails.
    pub(super) fn new(timeout: Duration) -> Self {
        Self { length: HEARTBEAT + timeout + LATE, timeout, contact: Mutex::default() }
    }

    /// A call that was sent then is over. True if the lease had run out before.
    ///
    /// A reply is as old as its call. A failure shows that there was none until the call's timeout,
    /// but if the process slept then, nothing after that.
    pub(super) fn note(&self, sent: Instant, answered: bool) -> bool {
        let sign = if answered { sent } else { clock::now().min(sent + self.timeout) };
        let mut contact = self.contact.lock();
        let before = contact.latest;
        contact.latest = before.max(Some(sign));
        let ran_out = before.map(|latest| latest + self.length).filter(|end| *end < sent);
        contact.since = contact.since.max(ran_out);
        ran_out.is_some()
    }

    /// Whether the latest contact is recent.
    fn is_on(&self) -> bool {
        self.contact.lock().latest.is_none_or(|latest| latest.elapsed() <= self.length)
    }

    /// Whether there has been unbroken contact since `heard`.
    fn covers(&self, heard: Instant) -> bool {
        self.contact.lock().since.is_none_or(|since| heard >= since)
    }
}

impl SharedStore {
    /// Whether this member may still rely on a reply about a scope to a call that was sent at
    /// `heard`.
    #[must_use]
    pub fn trusts(&self, heard: Instant) -> bool {
        self.lease.is_on() && (!self.is_up() || self.lease.covers(heard))
    }

    /// A call that was sent at this time has got a reply, or has failed.
    pub(super) fn note_call(&self, sent: Instant, answered: bool) {
        self.unanswered.note(sent, answered);
        if self.lease.note(sent, answered) {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_heard_before_a_pause_counts_no_more() {
        let (lease, start) = (Lease::new(millis(100)), clock::now());
        assert!(lease.is_on() && lease.covers(start), "nothing has been asked yet");
        assert!(!lease.note(start, true));
        tokio::time::advance(millis(1_600)).await;
        assert!(lease.is_on() && lease.covers(start));
        tokio::time::advance(millis(1)).await;
        assert!(!lease.is_on());
        let woke = clock::now();
        assert!(lease.note(woke, true), "the lease had run out");
        assert!(lease.is_on() && lease.covers(woke) && !lease.covers(start));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_waited_for_the_process_is_as_old_as_its_question() {
        let (lease, start) = (Lease::new(millis(100)), clock::now());
        assert!(!lease.note(start, true));
        tokio::time::advance(millis(14_000)).await;
        assert!(!lease.note(start + millis(500), true), "it was asked in time");
        assert!(!lease.is_on(), "and read too late");
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_a_sign_until_its_time_was_up() {
        let (lease, start) = (Lease::new(millis(1_000)), clock::now());
        assert!(!lease.note(start, true));
        tokio::time::advance(millis(14_000)).await;
        assert!(!lease.note(start + millis(500), false));
        assert!(!lease.is_on(), "it slept");
        assert!(lease.note(clock::now(), false), "the lease had run out");
        assert!(lease.is_on());
    }

    #[tokio::test(start_paused = true)]
    async fn heartbeats_keep_it_on() {
        let (lease, start) = (Lease::new(millis(100)), clock::now());
        for _ in 0..10 {
            assert!(!lease.note(clock::now(), true));
            tokio::time::advance(millis(1_100)).await;
        }
        assert!(lease.is_on() && lease.covers(start));
    }
}
