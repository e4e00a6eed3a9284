//! One scope in Redis: its keys, its arguments, and this member's last copy of it, which repairs a store that lost its
//! data.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64},
    },
    time::Duration,
};

use super::{
    Granted, ScopeName,
    fallback::{LocalScope, Remembered, UnansweredCalls, Windows},
    scripts::{
        CooldownKey, NewsFields, RateKeys, RuleArguments, SlotsKeys, TakeKeys, WhenScopeKeys,
    },
};
use crate::{
    limiter::bucket::Window,
    rules::Rule,
    runtime::clock::{self, Instant},
};

/// The keys of one scope, and its arguments that only change with the rule.
#[derive(Debug)]
pub(crate) struct Keys {
    take: TakeKeys,
    bucket: Arc<str>,
    pub(super) own: bool,
    /// The scope's name in the news.
    news: String,
    arguments: parking_lot::Mutex<Option<(Arc<RuleIdentity>, Arc<RuleArguments>)>>,
    /// The latest ticket from the store. If the store loses its data, the bucket continues from this ticket.
    latest: parking_lot::Mutex<Latest>,
    /// The store's time at its latest reply, and when that came.
    time: parking_lot::Mutex<Option<(i64, Instant)>>,
    /// The windows of its quotas as last known. A trip does not clear them.
    windows: parking_lot::Mutex<Option<Windows>>,
    /// The decisions without the store since its last reply.
    pub(super) local: parking_lot::Mutex<Option<LocalScope>>,
    /// The latest time without the store that was reported for this scope.
    pub(super) reported: AtomicU64,
    /// The calls for tickets of this scope that got no reply.
    pub(super) unanswered: UnansweredCalls,
    /// Whether the task that rejoins the store has recorded it.
    pub(super) listed: AtomicBool,
    /// The store's memory of its shard.
    pub(super) memory: Arc<Remembered>,
    /// Whether requests under `parallel` have started without the store since its last reply.
    pub(super) slots_local: AtomicBool,
}

#[derive(Debug, Clone, Copy)]
struct Latest {
    ticket: i64,
    /// The store's time at the reply.
    as_of: i64,
    members: u32,
    /// The rate in force, in tokens per second; 0 = none.
    rate: f64,
    epoch: u64,
    heard: Instant,
}

impl Latest {
    fn none(epoch: u64) -> Self {
        Self { ticket: 0, as_of: 0, members: 0, rate: 0.0, epoch, heard: clock::now() }
    }
}

/// A rule's limits and policy, to notice that a reload changed them.
#[derive(Debug, PartialEq)]
struct RuleIdentity {
    limits: crate::limiter::policy::Limits,
    each_user: Option<crate::limiter::policy::Limits>,
    cooldown: Option<crate::limiter::policy::CooldownPolicy>,
}

impl Keys {
    pub(super) fn new(name: &ScopeName, memory: Arc<Remembered>) -> Self {
        let ScopeName { rule, bucket, cooldown, .. } = name;
        let keys = &memory.keys;
        Self {
            take: TakeKeys {
                bucket: keys.bucket(bucket),
                cooldown: keys.cooldown(cooldown),
                waiting: keys.waiting(bucket),
                back: keys.back(bucket),
                memory: keys.memory(),
                user: None,
            },
            bucket: Arc::clone(bucket),
            own: bucket == cooldown,
            news: format!("{rule}\x1f{cooldown}"),
            arguments: parking_lot::Mutex::new(None),
            latest: parking_lot::Mutex::new(Latest::none(0)),
            time: parking_lot::Mutex::default(),
            windows: parking_lot::Mutex::default(),
            local: parking_lot::Mutex::default(),
            reported: 0.into(),
            unanswered: UnansweredCalls::default(),
            listed: false.into(),
            memory,
            slots_local: false.into(),
        }
    }

    /// The keys of a call for tickets, with the user's bucket if users have their own limits.
    pub(super) fn of_user(&self, user: Option<&str>) -> TakeKeys {
        let user = user.map(|user| self.memory.keys.user(user, &self.bucket));
        TakeKeys { user, ..self.take.clone() }
    }

    /// Bucket and cooldown.
    pub(super) fn both(&self) -> RateKeys {
        let TakeKeys { bucket, cooldown, .. } = self.take.clone();
        RateKeys { bucket, cooldown }
    }

    /// For a forecast of several scopes.
    pub(super) fn when(&self, user: &str) -> WhenScopeKeys {
        let TakeKeys { bucket, cooldown, waiting, .. } = self.take.clone();
        let keys = &self.memory.keys;
        let (slots, user) = (keys.slots(&self.bucket), keys.user(user, &self.bucket));
        WhenScopeKeys { bucket, cooldown, waiting, slots, user }
    }

    pub(super) fn cooldown(&self) -> CooldownKey {
        CooldownKey { cooldown: self.take.cooldown.clone() }
    }

    /// The slots of its bucket.
    pub(super) fn slots(&self) -> SlotsKeys {
        let keys = &self.memory.keys;
        SlotsKeys { slots: keys.slots(&self.bucket), memory: keys.memory() }
    }

    /// How a script publishes news of the cooldown.
    pub(super) fn news(&self) -> NewsFields {
        self.memory.news(self.news.clone())
    }

    /// How a script publishes news of the slots.
    pub(super) fn slots_news(&self, rule: &str) -> NewsFields {
        self.memory.news(format!("{rule}\x1f{}", self.bucket))
    }

    /// Records the store's time in a reply.
    pub(super) fn note_time(&self, now: i64) {
        *self.time.lock() = Some((now, clock::now()));
    }

    /// The store's time after `wait`, according to its latest reply; 0 if there was none. If the store's clock was set
    /// forward since then, the store treats one call as expired.
    pub(super) fn time_after(&self, wait: Duration) -> i64 {
        let time = *self.time.lock();
        time.map_or(0, |(now, heard)| now + clock::micros(heard.elapsed() + wait))
    }

    /// Records a reply of the store.
    pub(super) fn granted(&self, granted: &Granted) {
        let (as_of, heard) = (granted.now, clock::now());
        if !granted.windows.is_empty() {
            *self.windows.lock() = Some(Windows { as_of, heard, each: granted.windows.clone() });
        }
        let mut latest = self.latest.lock();
        if granted.epoch > latest.epoch {
            *latest = Latest::none(granted.epoch);
        }
        if let Some(ticket) = granted.tickets.last() {
            let Granted { members, rate, .. } = *granted;
            let epoch = latest.epoch;
            *latest = Latest { ticket: *ticket, as_of, members, rate, epoch, heard };
        }
    }

    /// The latest ticket and its epoch, for a store that may have lost its data. A trip voids the ticket.
    pub(super) fn latest_ticket(&self) -> (String, u64) {
        let Latest { ticket, as_of, members, epoch, .. } = *self.latest.lock();
        let text = if ticket == 0 { String::new() } else { format!("{ticket}:{as_of}:{members}") };
        (text, epoch)
    }

    /// Whether a store that has lost its data needs this scope: it has quotas, or its bucket may not be full again.
    pub(super) fn matters(&self) -> bool {
        let filling = |due| due + self.fills_in() >= 0;
        self.windows.lock().is_some() || self.latest_due(self.epoch()).is_some_and(filling)
    }

    /// How long the bucket takes to fill, in microseconds.
    fn fills_in(&self) -> i64 {
        let rate = self.latest.lock().rate;
        let arguments = self.arguments.lock();
        let Some((rule, _)) = arguments.as_ref().filter(|_| rate > 0.0) else { return 0 };
        let ramp = rule.cooldown.as_ref().map_or(0, |policy| clock::micros(policy.ramp));
        ramp.saturating_add(clock::whole((f64::from(rule.limits.burst) / rate * 1e6).ceil()))
    }

    /// When the latest ticket of the store is due, in microseconds from now (negative: past); `None` if there was none
    /// in this epoch.
    pub(super) fn latest_due(&self, epoch: u64) -> Option<i64> {
        let Latest { ticket, as_of, epoch: of, heard, .. } = *self.latest.lock();
        (ticket > 0 && of == epoch).then(|| ticket - as_of - clock::micros(heard.elapsed()))
    }

    /// The epoch of the latest reply.
    pub(super) fn epoch(&self) -> u64 {
        self.latest.lock().epoch
    }

    /// The windows of its quotas, as last known.
    pub(super) fn heard(&self) -> Option<Windows> {
        self.windows.lock().clone()
    }

    /// The tokens taken in the windows of its quotas, as last known.
    pub(super) fn windows(&self) -> String {
        let windows = self.windows.lock();
        let Some(Windows { as_of, each, .. }) = &*windows else { return String::new() };
        let each =
            each.iter().map(|Window { length, start, taken }| format!("{length}:{start}:{taken}"));
        format!("{as_of};{}", each.collect::<Vec<_>>().join(","))
    }

    /// The arguments of the latest call.
    pub(super) fn latest_arguments(&self) -> Option<Arc<RuleArguments>> {
        self.arguments.lock().as_ref().map(|(_, arguments)| Arc::clone(arguments))
    }

    pub(super) fn arguments(&self, rule: &Rule) -> Arc<RuleArguments> {
        let mut cached = self.arguments.lock();
        if let Some((identity, arguments)) = &*cached
            && identity.limits == rule.limits
            && identity.each_user == rule.each_user
            && identity.cooldown == rule.cooldown
        {
            return Arc::clone(arguments);
        }
        let identity = RuleIdentity {
            limits: rule.limits.clone(),
            each_user: rule.each_user.clone(),
            cooldown: rule.cooldown.clone(),
        };
        let arguments = Arc::new(RuleArguments::new(rule, self.own));
        *cached = Some((Arc::new(identity), Arc::clone(&arguments)));
        arguments
    }
}
