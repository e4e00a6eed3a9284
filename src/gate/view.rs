//! A cooldown scope as this member knows it: the store's answers and the fleet's news, one atomic word for the check
//! that stands directly before the first byte.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::{
    clock::{self, Instant},
    cooldown::Known,
    store::{Granted, Peeked, Phase, Reported, ScopeNews, What},
};

/// What the scope does with requests, as far as this member knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gateway {
    /// They go.
    Open,
    /// They are held until then.
    Cooling(Instant),
    /// A probe is out; ask again at this moment at the latest.
    Probing(Instant),
    /// The cooldown is over, or nothing is known yet: ask.
    Ask,
}

#[derive(Debug, Clone, Copy)]
struct State {
    epoch: u64,
    gateway: Gateway,
    streak: f64,
    opened: Option<Instant>,
    /// Since when it has been closed without a break, by however many cooldowns.
    closed: Option<Instant>,
}

/// A cooldown scope as this member knows it.
#[derive(Debug)]
pub(super) struct View {
    /// The cooldown's key.
    pub(super) key: Arc<str>,
    /// `epoch << 1 | closed`.
    word: AtomicU64,
    /// Successes that cost no call, since the last report.
    oks: AtomicU32,
    /// Whether there is a streak to reset: 1 where so.
    troubled: AtomicU32,
    state: Mutex<State>,
    changed: watch::Sender<()>,
    /// The latest epoch whose trip has been told, at most once each: news and a scope read again may both know of it.
    told: AtomicU64,
    /// Addresses (hashed) whose blank page has been counted since the last success.
    blank: Mutex<Vec<u64>>,
}

/// Blank addresses remembered: more than any sensible `after`.
const BLANKS: usize = 64;

impl View {
    /// Nothing known: whoever wants to send asks first, where there is somebody to ask.
    pub(super) fn new(key: Arc<str>, unknown: bool) -> Self {
        let gateway = if unknown { Gateway::Ask } else { Gateway::Open };
        Self {
            key,
            word: u64::from(unknown).into(),
            oks: 0.into(),
            troubled: 0.into(),
            state: Mutex::new(State { epoch: 0, gateway, streak: 0.0, opened: None, closed: None }),
            changed: watch::Sender::new(()),
            told: 0.into(),
            blank: Mutex::default(),
        }
    }

    /// Whether a grant of `epoch` may still be used.
    pub(super) fn allows(&self, epoch: u64, probe: bool) -> bool {
        let word = self.word.load(Ordering::Acquire);
        word >> 1 == epoch && (probe || word & 1 == 0)
    }

    /// The epoch, where requests may go.
    pub(super) fn open_epoch(&self) -> Option<u64> {
        let word = self.word.load(Ordering::Acquire);
        (word & 1 == 0).then_some(word >> 1)
    }

    pub(super) fn gateway(&self) -> Gateway {
        self.state.lock().gateway
    }

    /// Whether a cooldown is in force now, or a probe out.
    pub(super) fn is_closed(&self) -> bool {
        match self.gateway() {
            Gateway::Cooling(until) | Gateway::Probing(until) => until > clock::now(),
            Gateway::Open | Gateway::Ask => false,
        }
    }

    pub(super) fn epoch(&self) -> u64 {
        self.state.lock().epoch
    }

    pub(super) fn streak(&self) -> f64 {
        self.state.lock().streak
    }

    /// When the scope last opened after a cooldown.
    pub(super) fn opened(&self) -> Option<Instant> {
        self.state.lock().opened
    }

    /// For how long it has been closed, by one cooldown after the other; zero where it is open.
    pub(super) fn closed_for(&self) -> Duration {
        self.state.lock().closed.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// What to tell a store that may know less.
    pub(super) fn known(&self) -> Known {
        let state = self.state.lock();
        let remaining = match state.gateway {
            Gateway::Cooling(until) => clock::micros(until - clock::now()),
            Gateway::Open | Gateway::Probing(_) | Gateway::Ask => 0,
        };
        Known { epoch: state.epoch, remaining }
    }

    /// Wakes with every change.
    pub(super) fn watch(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// A success that costs no call; false where there is a streak to reset.
    pub(super) fn count_ok(&self) -> bool {
        if self.troubled.load(Ordering::Relaxed) == 1 {
            return false;
        }
        self.oks.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Takes the successes counted so far, for a report.
    pub(super) fn take_oks(&self) -> u32 {
        self.oks.swap(0, Ordering::Relaxed)
    }

    /// Whether a blank page at this address is new evidence.
    pub(super) fn is_new_blank(&self, address: u64) -> bool {
        let mut blank = self.blank.lock();
        if blank.contains(&address) {
            return false;
        }
        if blank.len() >= BLANKS {
            blank.remove(0);
        }
        blank.push(address);
        true
    }

    /// Forgets the blank addresses: the scope has answered well.
    pub(super) fn forget_blanks(&self) {
        let mut blank = self.blank.lock();
        if !blank.is_empty() {
            blank.clear();
        }
    }

    /// Takes over what an answer to an ask tells; true where it opens the scope.
    pub(super) fn granted(&self, granted: &Granted) -> bool {
        let at = moment(granted.come_back, granted.now);
        let gateway = match granted.phase {
            Phase::Open => Gateway::Open,
            Phase::Cooling => Gateway::Cooling(at),
            Phase::Probing | Phase::Probe => Gateway::Probing(at),
        };
        self.set(granted.epoch, gateway, Some(granted.streak))
    }

    /// Takes over what an answer to a report tells.
    pub(super) fn reported(&self, reported: &Reported) {
        let streak = if reported.until > 0 { 0.0 } else { reported.streak };
        self.set(reported.epoch, gateway_until(reported.until, reported.now), Some(streak));
    }

    /// Takes over a scope read whole.
    pub(super) fn peeked(&self, peeked: &Peeked) {
        let gateway = if peeked.until > 0 && peeked.probe_until > peeked.now {
            Gateway::Probing(moment(peeked.probe_until, peeked.now))
        } else {
            gateway_until(peeked.until, peeked.now)
        };
        self.set(peeked.epoch, gateway, Some(peeked.streak));
    }

    /// Whether nobody has told the trip that began `epoch` yet; from now on somebody has.
    pub(super) fn tells_first(&self, epoch: u64) -> bool {
        self.told.fetch_max(epoch, Ordering::Relaxed) < epoch
    }

    /// Takes over pushed news.
    pub(super) fn pushed(&self, news: &ScopeNews) {
        let gateway = match news.what {
            What::Due => Gateway::Ask,
            What::Opened | What::Cleared | What::Streak => Gateway::Open,
            What::Tripped => Gateway::Cooling(clock::now() + clock::from_micros(news.remaining)),
        };
        self.set(news.epoch, gateway, Some(news.streak));
    }

    /// The store was away and is back, or news were lost: what is closed here is asked for again at once.
    pub(super) fn doubt(&self) {
        let state = *self.state.lock();
        if matches!(state.gateway, Gateway::Probing(_)) {
            self.set(state.epoch, Gateway::Ask, None);
        }
        self.changed.send_replace(());
    }

    /// News may come late or twice: an older epoch changes nothing, and within an epoch a scope that is open stays so
    /// (only a trip closes it, and that is a new epoch). True where it opens the scope after a cooldown.
    fn set(&self, epoch: u64, gateway: Gateway, streak: Option<f64>) -> bool {
        let mut state = self.state.lock();
        let late = epoch < state.epoch
            || (epoch == state.epoch && state.gateway == Gateway::Open && gateway != Gateway::Open);
        if late {
            return false;
        }
        // Who has just come finds an open scope open, and knows of no cooldown that has ended.
        let reopened =
            gateway == Gateway::Open && state.gateway != Gateway::Open && state.epoch > 0;
        if reopened {
            state.opened = Some(clock::now());
        }
        match gateway {
            Gateway::Open => state.closed = None,
            Gateway::Cooling(_) => _ = state.closed.get_or_insert_with(clock::now),
            Gateway::Probing(_) | Gateway::Ask => {}
        }
        let moved = state.epoch != epoch || state.gateway != gateway;
        state.epoch = epoch;
        state.gateway = gateway;
        if let Some(streak) = streak {
            state.streak = streak;
            self.troubled.store(u32::from(streak > 0.0), Ordering::Relaxed);
        }
        let closed = u64::from(gateway != Gateway::Open);
        self.word.store(epoch << 1 | closed, Ordering::Release);
        drop(state);
        if moved {
            self.changed.send_replace(());
        }
        reopened
    }
}

fn gateway_until(until: i64, now: i64) -> Gateway {
    if until == 0 {
        Gateway::Open
    } else if until > now {
        Gateway::Cooling(moment(until, now))
    } else {
        Gateway::Ask
    }
}

/// A moment of the store on this process's clock. The answer took its time to get here, so this is a little late and
/// never early.
pub(super) fn moment(store: i64, now: i64) -> Instant {
    clock::now() + clock::from_micros(store.saturating_sub(now))
}
