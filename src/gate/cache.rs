//! A member's cached copy of one cooldown. Pure, so that tests can try every order of events.
//!
//! - An older epoch changes nothing. Within an epoch an open scope stays open, because only a trip closes it, and a
//!   trip starts another epoch.
//! - News are hints. A trip closes the scope at once, but no news open it. The member then reads the store and trusts
//!   the result. A reply to a call from before the hint is ignored.
//! - Each call sends the cached state ([`CooldownCache::known`]), which repairs a store that lost it.
//!
//! Times are of the member's own clock ([`Moment`]).

use crate::{
    limiter::cooldown::{KnownCooldown, KnownPhase},
    runtime::clock::Moment,
    store::{Granted, Peeked, Phase, Reported, ScopeNews, What},
};

/// How the scope handles requests, as far as this member knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CachedPhase<T> {
    /// Requests are sent.
    Open,
    /// Requests are held until this moment.
    Cooling(T),
    /// A probe is in flight; ask again at this time at the latest.
    Probing(T),
    /// The cooldown is over, but the probe does not get a ticket before this moment.
    Due(T),
    /// The cooldown is over, or nothing is known yet; ask the store.
    Ask,
}

/// One cooldown as one member knows it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CooldownCache<T> {
    epoch: u64,
    phase: CachedPhase<T>,
    streak: f64,
    opened: Option<T>,
    /// The probe that this member holds, by its ticket.
    probe: Option<i64>,
    hint: Option<Hint<T>>,
}

/// News of a trip that are not confirmed yet.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Hint<T> {
    epoch: u64,
    came: T,
}

/// The effect of an event on the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Effect {
    /// The epoch or the phase has changed.
    pub moved: bool,
    /// The scope opened after a cooldown.
    pub reopened: bool,
    /// The store must be read, to confirm a hint.
    pub confirm: bool,
    /// The probe in the reply may be sent. Queues that share a cooldown may ask for its probe at the same time. The
    /// store cannot tell them apart and grants the same probe to each, but only the first reply counts.
    pub probe: bool,
}

impl<T: Moment> CooldownCache<T> {
    /// An empty cache. If `unknown`, requests ask the store first.
    #[must_use]
    pub fn new(unknown: bool) -> Self {
        let phase = if unknown { CachedPhase::Ask } else { CachedPhase::Open };
        Self { epoch: 0, phase, streak: 0.0, opened: None, probe: None, hint: None }
    }

    /// The latest epoch in a reply.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// How requests are handled.
    #[must_use]
    pub fn phase(&self) -> CachedPhase<T> {
        self.phase
    }

    /// Blocks in a row.
    #[must_use]
    pub fn streak(&self) -> f64 {
        self.streak
    }

    /// When the scope last opened after a cooldown.
    #[must_use]
    pub fn opened(&self) -> Option<T> {
        self.opened
    }

    /// Epoch and state in one word, `epoch << 1 | closed`; see [`allows`].
    #[must_use]
    pub fn word(&self) -> u64 {
        self.epoch << 1 | u64::from(self.phase != CachedPhase::Open)
    }

    /// Whether news of a trip are not confirmed yet.
    #[must_use]
    pub fn is_hinted(&self) -> bool {
        self.hint.is_some()
    }

    /// The state for a store that may have lost it. It omits a cooldown or probe that ended more than `keep`
    /// microseconds ago, because the store does not keep it longer either.
    #[must_use]
    pub fn known(&self, now: T, keep: i64) -> KnownCooldown {
        let is_old = |end: T| end.until(now) > keep;
        let phase = match self.phase {
            CachedPhase::Cooling(end) | CachedPhase::Probing(end) | CachedPhase::Due(end)
                if is_old(end) =>
            {
                KnownPhase::Open
            }
            CachedPhase::Open => KnownPhase::Opened,
            CachedPhase::Cooling(end) => KnownPhase::Cooling(now.until(end)),
            CachedPhase::Probing(end) => KnownPhase::Probing(now.until(end)),
            CachedPhase::Due(_) | CachedPhase::Ask => KnownPhase::Probing(0),
        };
        // An unconfirmed trip is sent as the next epoch. Any real epoch is later, because its number is the store's
        // time.
        let hinted = self.hint.is_some_and(|hint| hint.epoch > self.epoch);
        let epoch = self.epoch + u64::from(hinted && !phase.is_open());
        KnownCooldown { epoch, phase, holds_probe: self.probe.is_some() }
    }

    /// Applies the reply to a take that was sent at `asked`.
    pub fn granted(&mut self, granted: &Granted, asked: T, now: T) -> Effect {
        if self.is_outdated(granted.epoch, asked) {
            return Effect::default();
        }
        let at = now.after(granted.come_back.saturating_sub(granted.now).max(0));
        let phase = match granted.phase {
            Phase::Open => CachedPhase::Open,
            Phase::Cooling => CachedPhase::Cooling(at),
            Phase::Due => CachedPhase::Due(at),
            Phase::Probing | Phase::Probe => CachedPhase::Probing(at),
        };
        let probe = granted.tickets.first().copied().filter(|_| granted.phase == Phase::Probe);
        let is_new = probe != self.probe || granted.epoch != self.epoch;
        let effect = self.set(granted.epoch, phase, granted.streak, now);
        if probe.is_none() || self.epoch != granted.epoch || self.phase != phase {
            return effect;
        }
        self.probe = probe;
        Effect { probe: is_new, ..effect }
    }

    /// Applies the reply to a report that was sent at `asked`.
    pub fn reported(&mut self, reported: &Reported, asked: T, now: T) -> Effect {
        if self.is_outdated(reported.epoch, asked) {
            return Effect::default();
        }
        let streak = if reported.until > 0 { 0.0 } else { reported.streak };
        let phase = gateway_until(reported.until, reported.now, now);
        self.set(reported.epoch, phase, streak, now)
    }

    /// Applies a scope that was read at `asked`.
    pub fn peeked(&mut self, peeked: &Peeked, asked: T, now: T) -> Effect {
        if self.is_outdated(peeked.epoch, asked) {
            return Effect::default();
        }
        let phase = if peeked.until > 0 && peeked.probe_until > peeked.now {
            CachedPhase::Probing(now.after(peeked.probe_until.saturating_sub(peeked.now)))
        } else {
            gateway_until(peeked.until, peeked.now, now)
        };
        self.set(peeked.epoch, phase, peeked.streak, now)
    }

    /// Applies a hint. A trip closes the scope, for at most `longest` microseconds.
    pub fn pushed(&mut self, news: &ScopeNews, longest: i64, now: T) -> Effect {
        let latest = self.hint.map_or(self.epoch, |hint| hint.epoch.max(self.epoch));
        match news.what {
            What::Streak if news.epoch <= latest => {
                self.streak = news.streak;
                Effect::default()
            }
            What::Tripped if news.epoch > latest => {
                self.phase = CachedPhase::Cooling(now.after(news.remaining.min(longest)));
                self.hint = Some(Hint { epoch: news.epoch, came: now });
                Effect { moved: true, confirm: true, ..Effect::default() }
            }
            What::Tripped => Effect::default(),
            What::Opened | What::Cleared | What::Due | What::Streak => {
                let closed = self.phase != CachedPhase::Open;
                let confirm = news.epoch > latest || news.epoch == latest && closed;
                Effect { confirm, ..Effect::default() }
            }
        }
    }

    /// The outcome of a probe must be read, or its ticket may be due earlier: the store was away, news were lost, or the
    /// limits have changed.
    pub fn recheck_probe(&mut self) {
        if matches!(self.phase, CachedPhase::Probing(_) | CachedPhase::Due(_)) {
            self.phase = CachedPhase::Ask;
        }
    }

    /// The probe is over: it was reported, or its request has left.
    pub fn probe_ended(&mut self) {
        self.probe = None;
    }

    /// Whether a reply with `epoch` to a call from `asked` may be older than the hinted trip.
    fn is_outdated(&self, epoch: u64, asked: T) -> bool {
        self.hint.is_some_and(|hint| asked < hint.came && epoch < hint.epoch)
    }

    fn set(&mut self, epoch: u64, phase: CachedPhase<T>, streak: f64, now: T) -> Effect {
        let late = epoch < self.epoch
            || epoch == self.epoch && self.phase == CachedPhase::Open && phase != CachedPhase::Open;
        if late {
            return Effect::default();
        }
        // A new member treats an open scope as open, and knows no earlier cooldown.
        let reopened =
            phase == CachedPhase::Open && self.phase != CachedPhase::Open && self.epoch > 0;
        if reopened {
            self.opened = Some(now);
        }
        if self.epoch != epoch || phase == CachedPhase::Open {
            self.probe = None;
        }
        let moved = self.epoch != epoch || self.phase != phase;
        self.epoch = epoch;
        self.phase = phase;
        self.hint = None;
        self.streak = streak;
        Effect { moved, reopened, ..Effect::default() }
    }
}

/// Whether a grant of `epoch` may still be used, given a [`CooldownCache::word`].
#[must_use]
pub fn allows(word: u64, epoch: u64, probe: bool) -> bool {
    word >> 1 == epoch && (probe || word & 1 == 0)
}

/// The state of a cooldown that ends at `until` on the store's clock; 0 = there is none.
fn gateway_until<T: Moment>(until: i64, store_now: i64, now: T) -> CachedPhase<T> {
    match until {
        0 => CachedPhase::Open,
        _ if until > store_now => CachedPhase::Cooling(now.after(until - store_now)),
        _ => CachedPhase::Ask,
    }
}
