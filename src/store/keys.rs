//! One scope in Redis: its keys, its arguments, and this member's last copy of its bucket.

use std::{
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use super::{
    Granted, ScopeName,
    fallback::{Remembered, UnansweredCalls},
    known_bucket::KnownBucket,
    scripts::{
        CooldownKey, NewsFields, RateKeys, RuleArguments, SlotsKeys, TakeKeys, WhenScopeKeys,
    },
};
use crate::{
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
    /// The store's time at its latest reply, and when that came.
    time: parking_lot::Mutex<Option<(i64, Instant)>>,
    /// This member's copy of the bucket.
    pub(super) known: Arc<KnownBucket>,
    /// The calls for tickets of this scope that got no reply.
    pub(super) unanswered: UnansweredCalls,
    /// Whether the task that rejoins the store has recorded it.
    pub(super) listed: AtomicBool,
    /// The store's memory of its shard.
    pub(super) memory: Arc<Remembered>,
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
            time: parking_lot::Mutex::default(),
            known: memory.buckets.find_or_make(bucket),
            unanswered: UnansweredCalls::default(),
            listed: false.into(),
            memory,
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
        // Only its own cooldown empties the bucket.
        self.known.granted(granted, if self.own { granted.epoch } else { 0 });
    }

    /// When the latest ticket of the store is due, in microseconds from now (negative: past); `None` if there was none
    /// in this epoch.
    pub(super) fn latest_due(&self, epoch: u64) -> Option<i64> {
        let voided = self.own && self.known.epoch() != epoch;
        self.known.latest_due().filter(|_| !voided)
    }

    /// Whether a store that has lost its data needs this scope: it has quotas, or its bucket may not be full again.
    pub(super) fn matters(&self) -> bool {
        let filling = |due| due + self.fills_in() >= 0;
        self.known.heard().is_some() || self.known.latest_due().is_some_and(filling)
    }

    /// How long the bucket takes to fill, in microseconds.
    fn fills_in(&self) -> i64 {
        let rate = self.known.rate();
        let arguments = self.arguments.lock();
        let Some((rule, _)) = arguments.as_ref().filter(|_| rate > 0.0) else { return 0 };
        let ramp = rule.cooldown.as_ref().map_or(0, |policy| clock::micros(policy.ramp));
        ramp.saturating_add(clock::whole((f64::from(rule.limits.burst) / rate * 1e6).ceil()))
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
