//! Rejoins the store after an outage. For each scope a member reports its local decisions, and its knowledge if the
//! store has lost its data. It also does so for scopes without current requests.

use std::{
    sync::{Arc, Weak, atomic::Ordering},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{
    SharedStore,
    local_scope::{self, Fleet, LocalScope},
    recover::{Heard, Remembered},
};
use crate::{
    rules::settings::OnFailure,
    runtime::clock::{self, Instant},
    store::{
        Ask, Granted, Phase,
        keys::Keys,
        scripts::{Knowledge, RuleArguments, Take, TakeReply},
    },
};

/// Members report in each scope for this long after the store's return, and the store waits for them as long. It covers
/// connecting, retrying, and a call that hangs.
pub(in crate::store) const GRACE: Duration = Duration::from_secs(3);
/// When to retry if the store is reachable but did not accept the report: a cluster slot may be moving.
const AGAIN: Duration = Duration::from_millis(100);
/// The number of scopes to report as soon as the store is back. Others are reported with their next call.
const MOST: usize = 10_000;

/// What must be reported.
#[derive(Debug, Default)]
pub(super) struct Rejoin {
    /// The number of outages, and the latest return.
    times: Mutex<Times>,
    /// Scopes with decisions in local mode.
    diverged: Mutex<Vec<Arc<Keys>>>,
    /// Scopes with limits.
    heard: Mutex<Vec<Weak<Keys>>>,
    /// Notifies the task that a report is due.
    due: Notify,
}

#[derive(Debug, Default)]
struct Times {
    away: u64,
    gone: Option<Instant>,
    back: Option<Instant>,
}

impl Rejoin {
    /// The store went away or came back.
    pub(super) fn turned(&self, up: bool) {
        let mut times = self.times.lock();
        if up {
            times.back = times.gone.is_some().then(clock::now);
            self.due.notify_one();
        } else {
            *times = Times { away: times.away + 1, gone: Some(clock::now()), back: None };
        }
    }

    /// Reports everything known to the store.
    pub(super) fn report(&self) {
        self.due.notify_one();
    }

    /// The outage that has just ended, and how long ago it began.
    fn latest(&self) -> Option<(u64, Duration)> {
        let times = self.times.lock();
        times.back.filter(|back| back.elapsed() < GRACE)?;
        Some((times.away, times.gone?.elapsed()))
    }

    /// Records that a decision was made in this scope without the store.
    pub(super) fn diverged(&self, keys: &Arc<Keys>) {
        let mut diverged = self.diverged.lock();
        if diverged.len() < MOST {
            diverged.push(Arc::clone(keys));
        }
    }

    fn heard(&self, keys: &Arc<Keys>) {
        if keys.listed.swap(true, Ordering::Relaxed) {
            return;
        }
        let mut heard = self.heard.lock();
        if heard.len().is_power_of_two() || heard.len() >= MOST {
            heard.retain(|keys| keys.strong_count() > 0);
        }
        if heard.len() < MOST {
            heard.push(Arc::downgrade(keys));
        }
    }

    /// The scopes to report. If only a memory was lost, only those of `memories`.
    fn to_report(&self, memories: &[Arc<Remembered>]) -> Vec<Arc<Keys>> {
        let mut all = std::mem::take(&mut *self.diverged.lock());
        let of_them = |keys: &Arc<Keys>| {
            memories.iter().any(|memory| Arc::ptr_eq(memory, &keys.memory)) && keys.matters()
        };
        all.extend(self.heard.lock().iter().filter_map(Weak::upgrade).filter(of_them));
        all
    }
}

impl SharedStore {
    /// Reports to the store what it cannot know, each time it returns or has lost its data.
    pub(super) async fn rejoin_when_due(&self) {
        let mut again = None;
        loop {
            tokio::select! {
                () = self.rejoin.due.notified() => {}
                () = sleep_until(again) => {}
            }
            let memories = self.recovery.due();
            again = self.report_scopes(&memories).await;
            for memory in memories {
                // A store that is away gets the full report when it is back.
                if self.is_up() && !self.confirm_memory(&memory).await {
                    memory.is_still_due();
                    again = earlier(again, clock::now() + AGAIN);
                }
            }
        }
    }

    /// Reports each scope. Returns when to report again if a scope was closed.
    async fn report_scopes(&self, memories: &[Arc<Remembered>]) -> Option<Instant> {
        let mut again = None;
        for keys in self.rejoin.to_report(memories) {
            let Some(rule) = keys.latest_arguments() else { continue };
            let granted = self.ask(&keys, &rule, &Ask::default()).await;
            // The store does not read the bucket of a closed scope.
            if let Some(granted) = granted.filter(|granted| !is_looked_at(granted)) {
                let opens = clock::now() + clock::from_micros(granted.come_back - granted.now);
                again = earlier(again, opens);
                self.rejoin.diverged(&keys);
            } else if keys.known.local.lock().is_some() {
                // A failed report is repeated at the next return.
                self.rejoin.diverged(&keys);
            }
        }
        again
    }

    /// Reports the decisions during the outage to the store; `None` if it does not reply.
    pub(super) async fn ask(
        &self,
        keys: &Arc<Keys>,
        rule: &RuleArguments,
        ask: &Ask,
    ) -> Option<Granted> {
        if !self.is_up() && !self.asks_once_more(keys) {
            return None;
        }
        let latest = self.rejoin.latest();
        let new = latest.filter(|(away, _)| keys.known.reported.load(Ordering::Relaxed) < *away);
        let local = self.settings.on_failure == OnFailure::Local;
        let (away, taken) = match &*keys.known.local.lock() {
            Some(local) => (local.report(&self.here), Some(local.taken())),
            None => {
                let idle = new.map(|(_, gone)| local_scope::idle(&self.here, gone, self.fleet()));
                (idle.unwrap_or_default(), None)
            }
        };
        let since = keys.memory.since();
        let (ticket, epoch) = keys.known.latest_ticket();
        let knows = Knowledge {
            windows: keys.known.windows(),
            away: if local { away } else { String::new() },
            latest: ticket,
            latest_epoch: epoch,
            memory: since,
            fleet: self.members(),
            expires: keys.time_after(self.settings.timeout),
        };
        let ask = Ask { drain: ask.drain || taken.is_some(), ..ask.clone() };
        let arguments = rule.take(&ask, &self.member, knows);
        let sent = clock::now();
        let user = ask.user.as_deref().filter(|_| rule.limits_users());
        let reply = self.call_anyway::<Take>(keys.of_user(user), arguments).await;
        keys.unanswered.note(sent, reply.is_some());
        let reply = reply?;
        keys.note_time(reply.now);
        let memory = reply.memory;
        let granted = Granted::from(reply);
        if !self.is_up() {
            self.lost.notify_one();
        }
        match keys.memory.hears(memory, since) {
            Heard::Same => {}
            Heard::Lost => self.memory_is_lost(),
            // The report did not contain these tokens, and the store no longer knows them.
            Heard::Stale => {
                return Some(Granted { tickets: Vec::new(), come_back: granted.now, ..granted });
            }
        }
        keys.granted(&granted);
        if granted.rate > 0.0 || !granted.windows.is_empty() {
            self.rejoin.heard(keys);
        }
        if is_looked_at(&granted) {
            keys.known.reported.fetch_max(latest.map_or(0, |(away, _)| away), Ordering::Relaxed);
            let mut local = keys.known.local.lock();
            // Decisions made locally since then must be reported too.
            if local.as_ref().map(LocalScope::taken) == taken {
                *local = None;
            }
        }
        Some(granted)
    }

    /// This member's knowledge of its fleet.
    pub(super) fn fleet(&self) -> Fleet {
        let members = self.members();
        Fleet { members, share: self.settings.local_share.unwrap_or(1.0 / f64::from(members)) }
    }
}

/// Whether the store has read the bucket. It does not read the bucket of a closed scope.
fn is_looked_at(granted: &Granted) -> bool {
    matches!(granted.phase, Phase::Open | Phase::Due | Phase::Probe)
}

impl From<TakeReply> for Granted {
    fn from(reply: TakeReply) -> Self {
        Self {
            now: reply.now,
            phase: reply.phase,
            epoch: reply.epoch,
            come_back: reply.come_back,
            user_is_over: reply.over,
            members: reply.members,
            streak: reply.streak,
            rate: reply.rate,
            learned: reply.learned,
            windows: reply.windows,
            tickets: reply.tickets.0,
            local: false,
        }
    }
}

fn earlier(first: Option<Instant>, other: Instant) -> Option<Instant> {
    Some(first.map_or(other, |first| first.min(other)))
}

async fn sleep_until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
