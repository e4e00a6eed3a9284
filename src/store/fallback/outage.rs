//! An outage of the store as operators see it: since when, why, and what members enforce meanwhile.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use parking_lot::Mutex;

use super::{FIRST_WORD, Failure, News, SharedStore};
use crate::{
    rules::settings::OnFailure,
    runtime::clock::{self, Instant},
    store::{FailureKind, redis::servers},
};

/// How long the store must reply before its outage counts as over. While one node of a Cluster is away, heartbeats to
/// the other nodes succeed between failing calls; that is a single outage.
const STEADY: Duration = Duration::from_secs(2);

/// How a member enforces a rule's limits now.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Enforced {
    /// The fleet's limits, shared with the other members.
    Fleet,
    /// A share of the limits, independently of the other members.
    Share(f64),
    /// Requests under a limit are held: the store was never reached, so the share is unknown.
    Holds,
    /// No limits: the rule file says `open`.
    Nothing,
    /// Requests are refused: the rule file says `closed`.
    Refuses,
}

/// An outage of the store, as reported so far.
#[derive(Debug)]
pub(super) struct Outage {
    started: Instant,
    /// Whether the store has replied since the start.
    reached: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Kinds that were reported in this outage, each once.
    reported: Vec<FailureKind>,
    latest: Option<FailureKind>,
    /// Since when no call has failed.
    answers_since: Option<Instant>,
}

impl Default for Outage {
    fn default() -> Self {
        Self { started: clock::now(), reached: AtomicBool::new(false), state: Mutex::default() }
    }
}

impl Outage {
    /// Records a reply. Returns true if the end of a reported outage should be reported. The outage at the start ends
    /// with the first reply, which makes the member ready. A later outage ends once the store has replied for a while.
    fn replied(&self) -> bool {
        let is_first = !self.reached.swap(true, Ordering::AcqRel);
        let now = clock::now();
        let mut state = self.state.lock();
        let since = *state.answers_since.get_or_insert(now);
        if !is_first && now.duration_since(since) < STEADY {
            return false;
        }
        state.latest = None;
        !std::mem::take(&mut state.reported).is_empty()
    }

    /// Members with another schema have taken over, so the store counts as never reached.
    pub(super) fn starts_anew(&self) {
        self.reached.store(false, Ordering::Release);
    }

    /// A call failed. Returns true if it should be reported: the first failure of its kind in this
    /// outage, unless a new process is still connecting.
    fn notice(&self, kind: FailureKind) -> bool {
        let mut state = self.state.lock();
        state.latest = Some(kind);
        state.answers_since = None;
        let is_start = self.is_starting() && kind == FailureKind::Timeout;
        !is_start && !state.reported.contains(&kind)
    }

    /// Whether a new process has not reached the store yet, which is normal in the first second.
    fn is_starting(&self) -> bool {
        !self.has_been_reached() && self.started.elapsed() < FIRST_WORD
    }

    fn has_been_reached(&self) -> bool {
        self.reached.load(Ordering::Acquire)
    }
}

impl SharedStore {
    /// The store replies: reports the end of the outage to operators once it counts as over.
    pub(super) fn report_reply(&self) {
        if self.outage.replied() {
            self.news.send(News::Up(true)).ok();
        }
    }

    /// Reports a failure to operators if it is the first of its kind.
    pub(super) fn report_outage(&self, failure: &Failure) {
        // The event listeners may not exist yet, so the next heartbeat reports it.
        let is_start = failure.is_connecting() && self.outage.is_starting();
        if self.outage.notice(failure.kind) && !is_start && self.news.send(News::Up(false)).is_ok()
        {
            self.outage.state.lock().reported.push(failure.kind);
        }
    }

    /// Whether the store has replied since this member started.
    #[must_use]
    pub fn has_been_reached(&self) -> bool {
        self.outage.has_been_reached()
    }

    /// Whether this member may not send under a limit. That is so if it has not reached the store since it started and
    /// no share is configured: it knows neither the number of members nor what is left of the rate. It is also so
    /// beside members with another schema, which use the whole rate.
    #[must_use]
    pub fn knows_no_share(&self) -> bool {
        self.settings.on_failure == OnFailure::Local
            && !self.has_been_reached()
            && (self.settings.local_share.is_none() || self.failure() == Some(FailureKind::Schema))
    }

    /// The latest failure of the current outage.
    #[must_use]
    pub fn failure(&self) -> Option<FailureKind> {
        self.outage.state.lock().latest
    }

    /// The servers that the URL names, as `host:port`, without its password.
    #[must_use]
    pub fn servers(&self) -> String {
        let places = servers(&self.settings).unwrap_or_default();
        let places: Vec<_> = places.iter().map(|(host, port)| format!("{host}:{port}")).collect();
        places.join(", ")
    }

    /// How this member enforces the limits now.
    #[must_use]
    pub fn enforced(&self) -> Enforced {
        match self.settings.on_failure {
            _ if self.is_up() => Enforced::Fleet,
            OnFailure::Local if self.knows_no_share() => Enforced::Holds,
            OnFailure::Local => Enforced::Share(self.fleet().share),
            OnFailure::Open => Enforced::Nothing,
            OnFailure::Closed => Enforced::Refuses,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_kind_of_failure_is_logged_once_per_outage() {
        let outage = Outage::default();
        assert!(!outage.notice(FailureKind::Timeout), "the connection is still being made");
        assert!(outage.notice(FailureKind::Auth));
        outage.state.lock().reported.push(FailureKind::Auth);
        assert!(!outage.notice(FailureKind::Auth));
        tokio::time::advance(FIRST_WORD).await;
        assert!(outage.notice(FailureKind::Timeout));
        assert!(outage.replied(), "the outage of the start ends at once");
        assert!(outage.notice(FailureKind::Auth), "another outage");
        outage.state.lock().reported.push(FailureKind::Auth);
        assert!(!outage.replied(), "it may fail again at once");
        assert!(!outage.notice(FailureKind::Auth), "the same outage");
        assert!(!outage.replied());
        tokio::time::advance(STEADY).await;
        assert!(outage.replied(), "it is over");
        assert!(!outage.replied(), "which is reported once");
        assert!(outage.notice(FailureKind::Auth), "a third outage");
    }
}
