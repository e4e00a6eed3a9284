//! This member's copy of one cooldown, updated by the store's replies and the fleet's news. The
//! check directly before the first byte reads one atomic word of it.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use super::cache::{self, CachedPhase, CooldownCache, Effect};
use crate::{
    classify::site_limits::SiteLimit,
    limiter::{
        cooldown::{Cause, KnownCooldown, Named, NamedRate},
        policy::CooldownPolicy,
        refusals::{PlainRefusal, Refusals},
    },
    runtime::clock::{self, Instant, LogThrottle},
    store::{Granted, Peeked, Reported, ScopeNews},
};
use parking_lot::Mutex;
use tokio::sync::{Notify, futures::Notified};

/// How long a member without news relies on the store's latest reply.
const RECENT: Duration = Duration::from_millis(100);

/// This member's copy of one cooldown.
#[derive(Debug)]
pub(super) struct LocalCooldown {
    /// The cooldown's key.
    pub(super) key: Arc<str>,
    /// `epoch << 1 | closed`.
    word: AtomicU64,
    /// Successes that cost no call, since the last report.
    oks: AtomicU32,
    /// 1 if there is a streak to reset, else 0.
    troubled: AtomicU32,
    cache: Mutex<CooldownCache<Instant>>,
    /// The rule has no cooldown. Then the store's replies have no epoch, and a cooldown of other members, or of an
    /// earlier rule file, does not count.
    off: AtomicBool,
    /// When the store last replied.
    heard: Mutex<Instant>,
    /// When it was closed, by one cooldown or by several in a row.
    closed: Mutex<Option<Instant>>,
    /// The queues with requests of this scope. They are woken when it changes.
    queues: Mutex<Vec<Weak<Wake>>>,
    /// The latest epoch whose trip was reported as an event. News and a read may both contain it, but it is reported
    /// once.
    reported: AtomicU64,
    /// Plain refusals in a row.
    refusals: Mutex<Refusals>,
    /// Whether the latest response was a good page, so that there is no refusal to count.
    well: AtomicBool,
    /// The limit that the site names, as this member last reported it.
    site_limit: Mutex<SiteLimitReport>,
    /// Limits the events about the site's limit.
    announced: LogThrottle,
    /// Whether the current cooldown is a pause that the site requested.
    paused: AtomicBool,
    /// Addresses (hashed) whose blank page was counted since the last success.
    blank: Mutex<Vec<u64>>,
}

/// The last report of the limit that a site announces.
#[derive(Debug, Default)]
struct SiteLimitReport {
    /// The ceiling, and when it expires.
    ceiling: Option<(f64, Instant)>,
    /// The ceiling of its `robots.txt`, and when it expires.
    delay: Option<(f64, Instant)>,
}

/// A ceiling that changes by less than this share is not reported again.
const SAME: f64 = 0.1;
/// How often, at most, a limit that a site names becomes an event.
const ANNOUNCED: Duration = Duration::from_secs(3_600);

/// Number of blank addresses that are remembered: more than any sensible `after`.
const BLANKS: usize = 64;

/// Above this number of queues, dropped ones are removed each time the number has doubled.
const SWEEP_FROM: usize = 8;

impl LocalCooldown {
    /// An empty state. If it is `unknown`, requests ask first.
    pub(super) fn new(key: Arc<str>, unknown: bool, off: bool) -> Self {
        Self {
            key,
            word: u64::from(unknown).into(),
            oks: 0.into(),
            troubled: 0.into(),
            cache: Mutex::new(CooldownCache::new(unknown)),
            off: off.into(),
            heard: Mutex::new(clock::now()),
            closed: Mutex::default(),
            queues: Mutex::default(),
            reported: 0.into(),
            refusals: Mutex::default(),
            well: false.into(),
            site_limit: Mutex::default(),
            announced: LogThrottle::every(ANNOUNCED),
            paused: false.into(),
            blank: Mutex::default(),
        }
    }

    /// A reload has removed the cooldown from the rule (`off`), or added one. Nothing known before counts.
    pub(super) fn restart(&self, unknown: bool, off: bool) {
        self.off.store(off, Ordering::Relaxed);
        self.change(|cache, _| {
            *cache = CooldownCache::new(unknown);
            Effect { moved: true, ..Effect::default() }
        });
    }

    /// Whether a grant of `epoch` may still be used.
    pub(super) fn allows(&self, epoch: u64, probe: bool) -> bool {
        cache::allows(self.word.load(Ordering::Acquire), epoch, probe)
    }

    /// The epoch, if requests may go.
    pub(super) fn open_epoch(&self) -> Option<u64> {
        let word = self.word.load(Ordering::Acquire);
        (word & 1 == 0).then_some(word >> 1)
    }

    /// Whether the store's latest reply is recent enough for a member without news.
    pub(super) fn is_recent(&self) -> bool {
        self.heard.lock().elapsed() < RECENT
    }

    /// When the call with the latest reply was sent.
    pub(super) fn heard(&self) -> Instant {
        *self.heard.lock()
    }

    pub(super) fn phase(&self) -> CachedPhase<Instant> {
        self.cache.lock().phase()
    }

    /// Whether a cooldown is in force, or a probe in flight.
    pub(super) fn is_closed(&self) -> bool {
        match self.phase() {
            CachedPhase::Cooling(until) | CachedPhase::Probing(until) | CachedPhase::Due(until) => {
                until > clock::now()
            }
            CachedPhase::Open | CachedPhase::Ask => false,
        }
    }

    pub(super) fn epoch(&self) -> u64 {
        self.cache.lock().epoch()
    }

    pub(super) fn streak(&self) -> f64 {
        self.cache.lock().streak()
    }

    /// When the scope last opened after a cooldown.
    pub(super) fn opened(&self) -> Option<Instant> {
        self.cache.lock().opened()
    }

    /// How long it has been closed, by one or several cooldowns in a row; zero if it is open.
    pub(super) fn closed_for(&self) -> Duration {
        self.closed.lock().map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// The state for a store that may have lost it. `policy` says how long a store keeps a cooldown
    /// that is over.
    pub(super) fn known(&self, policy: Option<&CooldownPolicy>) -> KnownCooldown {
        let keep = policy.map_or(0, |policy| clock::micros(policy.forget_after.max(policy.max)));
        self.cache.lock().known(clock::now(), keep)
    }

    /// Whether news of a trip are not confirmed yet.
    pub(super) fn is_hinted(&self) -> bool {
        self.cache.lock().is_hinted()
    }

    /// Also wakes this queue with every change from now on.
    pub(super) fn wakes(&self, queue: &Arc<Wake>) {
        let mut queues = self.queues.lock();
        if queues.len() >= SWEEP_FROM && queues.len().is_power_of_two() {
            queues.retain(|queue| queue.strong_count() > 0);
        }
        queues.push(Arc::downgrade(queue));
    }

    /// Counts a success without a call; false if there is a streak to reset.
    pub(super) fn count_ok(&self) -> bool {
        if self.troubled.load(Ordering::Relaxed) == 1 {
            return false;
        }
        self.oks.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// A good page was returned.
    pub(super) fn answered(&self) {
        if !self.well.load(Ordering::Relaxed) {
            self.refusals.lock().answered();
            self.well.store(true, Ordering::Relaxed);
        }
    }

    /// Counts a plain refusal. Returns whether the run is a wall.
    pub(super) fn refused(&self, how: PlainRefusal, page: u64) -> bool {
        self.well.store(false, Ordering::Relaxed);
        self.refusals.lock().refused(how, page)
    }

    /// The announced limit to report to the store, if any. A request takes `cost` tokens.
    pub(super) fn name(&self, said: &SiteLimit, cost: u32) -> Option<Named> {
        let now = clock::now();
        let mut last = self.site_limit.lock();
        let hold = said.hold.map(clock::micros).filter(|_| !self.is_closed());
        let ceiling = said.ceiling.and_then(|ceiling| {
            let mut rate = ceiling.rate * f64::from(cost);
            let mut lasts = ceiling.lasts;
            if let Some((delay, until)) =
                last.delay.filter(|(delay, until)| now < *until && *delay <= rate)
            {
                (rate, lasts) = (delay, until - now);
            }
            let known = last.ceiling.filter(|(_, until)| now < *until);
            if known.is_some_and(|(known, _)| (rate - known).abs() < known * SAME) {
                return None;
            }
            last.ceiling = Some((rate, now + lasts));
            Some(NamedRate { rate, lasts: clock::micros(lasts) })
        });
        (hold.is_some() || ceiling.is_some()).then_some(Named { ceiling, hold })
    }

    /// Records the limit of a `robots.txt`. Header fields that allow more do not raise it.
    pub(super) fn note_delay(&self, said: &SiteLimit, cost: u32) {
        let Some(ceiling) = said.ceiling else { return };
        let rate = ceiling.rate * f64::from(cost);
        self.site_limit.lock().delay = Some((rate, clock::now() + ceiling.lasts));
    }

    /// The rate to report as an event: the first that a site announces, and later ones now and then.
    pub(super) fn announces(&self, named: &Named) -> Option<f64> {
        named.ceiling.filter(|_| self.announced.allows()).map(|ceiling| ceiling.rate)
    }

    /// The rate that the site announces, as far as this member knows, in tokens per second.
    pub(super) fn named(&self) -> Option<f64> {
        let last = self.site_limit.lock();
        last.ceiling.filter(|(_, until)| clock::now() < *until).map(|(rate, _)| rate)
    }

    /// Records the cause of a new cooldown.
    pub(super) fn pauses(&self, cause: Option<Cause>) {
        self.paused.store(cause.is_some_and(Cause::is_pause), Ordering::Relaxed);
    }

    /// Whether the last cooldown is a pause, which ends by itself.
    pub(super) fn is_pause(&self) -> bool {
        self.paused.load(Ordering::Relaxed)
    }

    /// Whether the last cooldown was a pause, which ends by itself. True only once.
    pub(super) fn was_paused(&self) -> bool {
        self.paused.swap(false, Ordering::Relaxed)
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

    /// Forgets the blank addresses, because the scope has returned a good page.
    pub(super) fn forget_blanks(&self) {
        let mut blank = self.blank.lock();
        if !blank.is_empty() {
            blank.clear();
        }
    }

    /// Applies the reply to a take that was sent at `asked`.
    pub(super) fn granted(&self, granted: &Granted, asked: Instant) -> Effect {
        *self.heard.lock() = asked;
        self.update(|cache, now| cache.granted(granted, asked, now))
    }

    /// Applies the reply to a report that was sent at `asked`.
    pub(super) fn reported(&self, reported: &Reported, asked: Instant) {
        *self.heard.lock() = asked;
        self.update(|cache, now| cache.reported(reported, asked, now));
    }

    /// Applies a scope that was read at `asked`.
    pub(super) fn peeked(&self, peeked: &Peeked, asked: Instant) {
        *self.heard.lock() = asked;
        self.update(|cache, now| cache.peeked(peeked, asked, now));
    }

    /// The probe is over: it was reported, or its request has left.
    pub(super) fn probe_ended(&self) {
        self.cache.lock().probe_ended();
    }

    /// Whether the trip that began `epoch` was not reported yet; marks it as reported.
    pub(super) fn reports_first(&self, epoch: u64) -> bool {
        self.reported.swap(epoch, Ordering::Relaxed) != epoch
    }

    /// Applies a hint; true if the store must be read now. A trip closes the scope for at most `longest`.
    pub(super) fn pushed(&self, news: &ScopeNews, longest: Duration) -> bool {
        self.update(|cache, now| cache.pushed(news, clock::micros(longest), now)).confirm
    }

    /// The store was away, news were lost, or the limits have changed: a scope that waits for its probe asks at once.
    pub(super) fn recheck_probe(&self) {
        self.update(|cache, _| {
            cache.recheck_probe();
            Effect { moved: true, ..Effect::default() }
        });
    }

    /// Applies what the store says, unless the rule has no cooldown.
    fn update(
        &self,
        change: impl FnOnce(&mut CooldownCache<Instant>, Instant) -> Effect,
    ) -> Effect {
        let is_off = || self.off.load(Ordering::Relaxed);
        self.change(|cache, now| if is_off() { Effect::default() } else { change(cache, now) })
    }

    fn change(
        &self,
        change: impl FnOnce(&mut CooldownCache<Instant>, Instant) -> Effect,
    ) -> Effect {
        let mut cache = self.cache.lock();
        let effect = change(&mut cache, clock::now());
        self.troubled.store(u32::from(cache.streak() > 0.0), Ordering::Relaxed);
        self.word.store(cache.word(), Ordering::Release);
        let phase = cache.phase();
        drop(cache);
        match phase {
            CachedPhase::Open => *self.closed.lock() = None,
            CachedPhase::Cooling(_) => _ = self.closed.lock().get_or_insert_with(clock::now),
            CachedPhase::Probing(_) | CachedPhase::Due(_) | CachedPhase::Ask => {}
        }
        if effect.moved {
            for queue in self.queues.lock().iter().filter_map(Weak::upgrade) {
                queue.cooldown_changed();
            }
        }
        effect
    }
}

/// Converts a time of the store's clock to this process's clock. The reply took time to arrive, so the result is
/// slightly late and never early.
pub(super) fn moment(store: i64, now: i64) -> Instant {
    clock::now() + clock::from_micros(store.saturating_sub(now))
}

/// Wakes one scheduler.
#[derive(Debug, Default)]
pub(super) struct Wake {
    notify: Notify,
    changed: AtomicBool,
}

impl Wake {
    /// Wakes the scheduler: something has happened to the queue.
    pub(super) fn now(&self) {
        self.notify.notify_one();
    }

    /// The cooldown of one of its scopes has changed.
    pub(super) fn cooldown_changed(&self) {
        self.changed.store(true, Ordering::Release);
        self.now();
    }

    /// Whether a cooldown has changed since the last look.
    pub(super) fn take_change(&self) -> bool {
        self.changed.swap(false, Ordering::Acquire)
    }

    /// Waits until something happens.
    pub(super) fn wait(&self) -> Notified<'_> {
        self.notify.notified()
    }
}
