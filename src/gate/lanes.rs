//! The lanes of one rule: found by key, made on first use, dropped when idle.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;

use super::{Entry, Shared, bucket::BucketQueue, lane::Lane, view::View};
use crate::{
    limiter::policy::Split,
    rules::Rule,
    store::{ScopeName, Store},
    target::Target,
};

/// Beyond this number of lanes, idle ones are dropped whenever the number has doubled.
const SWEEP_FROM: usize = 1_024;

/// The keys of a bucket and of a cooldown.
type Key = (Arc<str>, Arc<str>);

/// The lanes of one rule.
#[derive(Debug)]
pub(super) struct Lanes {
    shared: Arc<Shared>,
    /// The only lane of a rule that is not split; it needs no look-up.
    whole: ArcSwapOption<Lane>,
    split: Mutex<HashMap<Key, Arc<Lane>>>,
    /// The queues of buckets that several scopes share.
    queues: Mutex<HashMap<Arc<str>, Weak<BucketQueue>>>,
    views: Mutex<HashMap<Arc<str>, Arc<View>>>,
}

impl Lanes {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            whole: ArcSwapOption::empty(),
            split: Mutex::default(),
            queues: Mutex::default(),
            views: Mutex::default(),
        }
    }

    /// The lane for a request to `target`.
    pub(super) fn find(&self, entry: &Arc<Entry>, target: &Target) -> Arc<Lane> {
        let rule = &entry.rule;
        if rule.per == Split::All && cooldown_split(rule) == Split::All {
            return self.whole(entry);
        }
        let keys = keys(rule, target);
        let mut split = self.split.lock();
        if let Some(lane) = split.get(&keys) {
            return Arc::clone(lane);
        }
        if split.len() >= SWEEP_FROM && split.len().is_power_of_two() {
            split.retain(|_, lane| Arc::strong_count(lane) > 1 || !lane.is_idle());
            let mut views = self.views.lock();
            views.retain(|_, view| Arc::strong_count(view) > 1);
            self.queues.lock().retain(|_, queue| queue.strong_count() > 0);
        }
        let lane = self.make(entry, Arc::clone(&keys.0), Arc::clone(&keys.1));
        split.insert(keys, Arc::clone(&lane));
        lane
    }

    /// The only lane of a rule that is not split.
    pub(super) fn whole(&self, entry: &Arc<Entry>) -> Arc<Lane> {
        if let Some(lane) = &*self.whole.load() {
            return Arc::clone(lane);
        }
        // Taken so that two first requests make one lane.
        let _making = self.split.lock();
        if let Some(lane) = &*self.whole.load() {
            return Arc::clone(lane);
        }
        let lane = self.make(entry, Arc::from(""), Arc::from(""));
        self.whole.store(Some(Arc::clone(&lane)));
        lane
    }

    /// The rule was removed: its lanes end with their last request.
    pub(super) fn dissolve(&self) {
        self.whole.store(None);
        self.split.lock().clear();
        self.queues.lock().clear();
    }

    /// A lane of the cooldown with this key, if there is one.
    pub(super) fn named(&self, cooldown: &str) -> Option<Arc<Lane>> {
        self.all().into_iter().find(|lane| &*lane.scope.name.cooldown == cooldown)
    }

    pub(super) fn all(&self) -> Vec<Arc<Lane>> {
        let split = self.split.lock();
        self.whole.load_full().into_iter().chain(split.values().map(Arc::clone)).collect()
    }

    /// The lane of this name, if there is one.
    pub(super) fn known(&self, name: &ScopeName) -> Option<Arc<Lane>> {
        if name.bucket.is_empty() && name.cooldown.is_empty() {
            return self.whole.load_full();
        }
        let key = (Arc::clone(&name.bucket), Arc::clone(&name.cooldown));
        self.split.lock().get(&key).map(Arc::clone)
    }

    /// The known state of a cooldown, if this member has had requests for it.
    pub(super) fn view(&self, key: &str) -> Option<Arc<View>> {
        self.views.lock().get(key).map(Arc::clone)
    }

    /// A lane with this cooldown.
    pub(super) fn of_view(&self, view: &Arc<View>) -> Option<Arc<Lane>> {
        self.all().into_iter().find(|lane| Arc::ptr_eq(&lane.view, view))
    }

    /// Applies a reloaded rule. If its buckets are shared differently, the old lanes end with their
    /// last requests.
    pub(super) fn set_entry(&self, entry: &Arc<Entry>) {
        let lanes = self.all();
        let shares = shares_buckets(&entry.rule);
        if lanes.first().is_some_and(|lane| shares_buckets(&lane.entry().rule) != shares) {
            self.dissolve();
        }
        for lane in lanes {
            lane.queue.set_entry(Arc::clone(entry));
        }
    }

    /// Creates a lane. In a fleet its cooldown is unknown until the first call, and also if an idle
    /// lane of the same name with a trip was dropped.
    pub(super) fn make(
        &self,
        entry: &Arc<Entry>,
        bucket: Arc<str>,
        cooldown: Arc<str>,
    ) -> Arc<Lane> {
        let rule = Arc::clone(&entry.rule.name);
        let name = ScopeName { rule, bucket, cooldown: Arc::clone(&cooldown) };
        let scope = self.shared.store.scope(name);
        let view = {
            let unknown =
                entry.rule.cooldown.is_some() && self.shared.store.may_have_tripped(&scope);
            let mut views = self.views.lock();
            let new = || Arc::new(View::new(Arc::clone(&cooldown), unknown));
            Arc::clone(views.entry(Arc::clone(&cooldown)).or_insert_with(new))
        };
        let queue = self.queue(entry, &scope.name.bucket, &view);
        Lane::new(Arc::clone(&self.shared), scope, view, queue)
    }

    /// The queue of a bucket.
    fn queue(&self, entry: &Arc<Entry>, bucket: &Arc<str>, view: &Arc<View>) -> Arc<BucketQueue> {
        let new = |only| {
            BucketQueue::new(Arc::clone(&self.shared), Arc::clone(entry), Arc::clone(bucket), only)
        };
        if !shares_buckets(&entry.rule) {
            return new(Some(Arc::clone(view)));
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
pub(super) fn keys(rule: &Rule, target: &Target) -> (Arc<str>, Arc<str>) {
    (rule.per.key_of(target), cooldown_split(rule).key_of(target))
}

/// How the cooldowns of a rule are split.
pub(super) fn cooldown_split(rule: &Rule) -> Split {
    rule.cooldown.as_ref().map_or(rule.per, |policy| policy.per)
}
