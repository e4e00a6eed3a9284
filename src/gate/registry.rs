//! The scopes of one rule: found by key, made on first use, dropped when idle.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;

use super::{
    Entry, GateContext, active_scope::ActiveScope, bucket::BucketQueue,
    local_cooldown::LocalCooldown,
};
use crate::{
    limiter::policy::Split,
    rules::Rule,
    store::{ScopeName, Store},
    target::Target,
};

/// Above this number of scopes, idle ones are dropped each time the number has doubled.
const SWEEP_FROM: usize = 1_024;

/// The keys of a bucket and of a cooldown.
type Key = (Arc<str>, Arc<str>);

/// The scopes of one rule.
#[derive(Debug)]
pub(super) struct ScopeRegistry {
    shared: Arc<GateContext>,
    scopes: Mutex<HashMap<Key, Arc<ActiveScope>>>,
    /// Scopes of an earlier rule file, which end with their last requests.
    ending: Mutex<Vec<Weak<ActiveScope>>>,
    /// The queues of buckets that several scopes share.
    queues: Mutex<HashMap<Arc<str>, Weak<BucketQueue>>>,
    cooldowns: Mutex<HashMap<Arc<str>, Arc<LocalCooldown>>>,
}

impl ScopeRegistry {
    pub(super) fn new(shared: Arc<GateContext>) -> Self {
        Self {
            shared,
            scopes: Mutex::default(),
            ending: Mutex::default(),
            queues: Mutex::default(),
            cooldowns: Mutex::default(),
        }
    }

    /// The scope for a request to `target`.
    pub(super) fn find(&self, entry: &Arc<Entry>, target: &Target) -> Arc<ActiveScope> {
        let rule = &entry.rule;
        self.find_or_make(entry, keys(rule, target), || name(rule, target))
    }

    /// The scope of all requests of a rule that is not split.
    pub(super) fn whole(&self, entry: &Arc<Entry>) -> Arc<ActiveScope> {
        let all: Key = (Arc::from(""), Arc::from(""));
        self.find_or_make(entry, all, || whole_name(&entry.rule))
    }

    fn find_or_make(
        &self,
        entry: &Arc<Entry>,
        keys: Key,
        name: impl FnOnce() -> ScopeName,
    ) -> Arc<ActiveScope> {
        let mut scopes = self.scopes.lock();
        if let Some(scope) = scopes.get(&keys) {
            return Arc::clone(scope);
        }
        if scopes.len() >= SWEEP_FROM && scopes.len().is_power_of_two() {
            scopes.retain(|_, scope| Arc::strong_count(scope) > 1 || !scope.is_idle());
            let mut cooldowns = self.cooldowns.lock();
            cooldowns.retain(|_, cooldown| Arc::strong_count(cooldown) > 1);
            self.queues.lock().retain(|_, queue| queue.strong_count() > 0);
        }
        let scope = self.make(entry, name());
        scopes.insert(keys, Arc::clone(&scope));
        scope
    }

    /// The rule was removed or is split in another way, so its scopes end with their last requests.
    pub(super) fn dissolve(&self) {
        let mut ending = self.ending.lock();
        ending.retain(|scope| scope.strong_count() > 0);
        ending.extend(self.scopes.lock().drain().map(|(_, scope)| Arc::downgrade(&scope)));
        self.queues.lock().clear();
    }

    /// Whether requests of an earlier rule file use it.
    pub(super) fn is_ending(&self) -> bool {
        self.ending.lock().iter().any(|scope| scope.strong_count() > 0)
    }

    /// A scope of the cooldown with this key, if there is one.
    pub(super) fn named(&self, cooldown: &str) -> Option<Arc<ActiveScope>> {
        self.all().into_iter().find(|scope| &*scope.stored.name.cooldown == cooldown)
    }

    /// Its scopes, with those of an earlier rule file that still have requests.
    pub(super) fn all(&self) -> Vec<Arc<ActiveScope>> {
        let mut all: Vec<_> = self.scopes.lock().values().map(Arc::clone).collect();
        all.extend(self.ending.lock().iter().filter_map(Weak::upgrade));
        all
    }

    /// The scope of this name, if there is one.
    pub(super) fn known(&self, name: &ScopeName) -> Option<Arc<ActiveScope>> {
        let key = (Arc::clone(&name.bucket), Arc::clone(&name.cooldown));
        self.scopes.lock().get(&key).map(Arc::clone)
    }

    /// The known state of a cooldown, if this member has had requests for it.
    pub(super) fn cooldown(&self, key: &str) -> Option<Arc<LocalCooldown>> {
        self.cooldowns.lock().get(key).map(Arc::clone)
    }

    /// A scope with this cooldown.
    pub(super) fn of_cooldown(&self, cooldown: &Arc<LocalCooldown>) -> Option<Arc<ActiveScope>> {
        self.all().into_iter().find(|scope| Arc::ptr_eq(&scope.cooldown, cooldown))
    }

    /// Applies a reloaded rule. If its scopes are shared or spread differently, the old ones end with
    /// their last requests.
    pub(super) fn set_entry(&self, entry: &Arc<Entry>, old: Option<&Rule>) {
        let layout = |rule: &Rule| (shares_buckets(rule), rule.parts());
        let one = self.scopes.lock().values().next().map(Arc::clone);
        if one.is_some_and(|one| layout(&one.entry().rule) != layout(&entry.rule)) {
            self.dissolve();
        }
        let toggles = |old: &Rule| old.cooldown.is_some() != entry.rule.cooldown.is_some();
        let toggled = old.is_some_and(toggles);
        if toggled {
            self.cooldowns.lock().retain(|_, cooldown| Arc::strong_count(cooldown) > 1);
        }
        let has_other_limits = old.is_some_and(|old| old.limits != entry.rule.limits);
        for scope in self.all() {
            if toggled {
                let off = entry.rule.cooldown.is_none();
                let unknown = !off && self.shared.store.may_have_tripped(&scope.stored);
                scope.cooldown.restart(unknown, off);
            } else if has_other_limits {
                scope.cooldown.recheck_probe();
            }
            scope.queue.set_entry(&scope, Arc::clone(entry));
        }
    }

    /// Creates the scope of all requests of a rule, without keeping it.
    pub(super) fn make_whole(&self, entry: &Arc<Entry>) -> Arc<ActiveScope> {
        self.make(entry, whole_name(&entry.rule))
    }

    /// Creates a scope. In a fleet its cooldown is unknown until the first call. It is also unknown if an idle scope of
    /// the same name was dropped after a trip.
    fn make(&self, entry: &Arc<Entry>, name: ScopeName) -> Arc<ActiveScope> {
        let cooldown = Arc::clone(&name.cooldown);
        let stored = self.shared.store.scope(name);
        let cooldown = {
            let off = entry.rule.cooldown.is_none();
            let unknown = !off && self.shared.store.may_have_tripped(&stored);
            let mut cooldowns = self.cooldowns.lock();
            let new = || Arc::new(LocalCooldown::new(Arc::clone(&cooldown), unknown, off));
            Arc::clone(cooldowns.entry(Arc::clone(&cooldown)).or_insert_with(new))
        };
        let queue = self.queue(entry, &stored.name.bucket, &cooldown);
        ActiveScope::new(Arc::clone(&self.shared), stored, cooldown, queue)
    }

    /// The queue of a bucket.
    fn queue(
        &self,
        entry: &Arc<Entry>,
        bucket: &Arc<str>,
        cooldown: &Arc<LocalCooldown>,
    ) -> Arc<BucketQueue> {
        let new = |only| {
            BucketQueue::new(Arc::clone(&self.shared), Arc::clone(entry), Arc::clone(bucket), only)
        };
        if !shares_buckets(&entry.rule) {
            return new(Some(Arc::clone(cooldown)));
        }
        let mut queues = self.queues.lock();
        if let Some(queue) = queues.get(bucket).and_then(Weak::upgrade) {
            return queue;
        }
        let queue = new(None);
        queues.insert(Arc::clone(bucket), Arc::downgrade(&queue));
        queue
    }
}

/// Whether scopes with cooldowns of their own share a bucket.
fn shares_buckets(rule: &Rule) -> bool {
    let cooldown = cooldown_split(rule);
    let one_each = (rule.per == Split::Host && cooldown != Split::Address)
        || cooldown == Split::All
        || cooldown == rule.per;
    !one_each && rule.limits_something()
}

/// Keys of the bucket and of the cooldown of a request to `target`.
pub(super) fn keys(rule: &Rule, target: &Target) -> Key {
    (rule.per.key_of(target), cooldown_split(rule).key_of(target))
}

/// The name of the scope of all requests of a rule.
fn whole_name(rule: &Rule) -> ScopeName {
    ScopeName::plain(&rule.name, &Arc::from(""))
}

/// The name of the scope of a request to `target`.
pub(super) fn name(rule: &Rule, target: &Target) -> ScopeName {
    let (bucket, cooldown) = keys(rule, target);
    let part = rule.parts().key_of(target);
    ScopeName { rule: Arc::clone(&rule.name), bucket, cooldown, part }
}

/// How the cooldowns of a rule are split.
pub(super) fn cooldown_split(rule: &Rule) -> Split {
    rule.cooldown.as_ref().map_or(rule.per, |policy| policy.per)
}
