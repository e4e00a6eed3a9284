//! The store loses its memory: the members' knowledge is restored, and everything else is new.

use std::{cell::RefCell, collections::BTreeMap, sync::Arc};

use integration_tests::sim::{line::Line, redis::VirtualRedis, settings};
use tidegate::{
    limiter::policy::Limits,
    observability::metrics::Metrics,
    rules::Rule,
    store::{Ask, Granted, Scope, ScopeName, SharedStore, Store},
};

use super::*;

const MINUTE: Duration = Duration::from_secs(60);

/// A member, and the scopes that it knows.
pub(super) struct Member {
    pub(super) store: Arc<SharedStore>,
    scopes: RefCell<BTreeMap<String, Scope>>,
}

impl Member {
    pub(super) fn start(redis: &Arc<VirtualRedis>, number: usize) -> Self {
        let line = Line::new(redis, &Arc::default(), number, Duration::from_millis(4), 1);
        let store =
            SharedStore::over(Box::new(line), settings("redis://simulated"), Metrics::new());
        Self { store, scopes: RefCell::default() }
    }

    fn scope(&self, rule: &Rule, key: &str) -> Scope {
        let new = || {
            let (rule, key) = (Arc::clone(&rule.name), Arc::from(key));
            self.store.scope(ScopeName::plain(&rule, &key))
        };
        self.scopes.borrow_mut().entry(key.to_owned()).or_insert_with(new).clone()
    }

    /// Takes as many tickets of the scope `key` as are due now.
    pub(super) async fn take(&self, rule: &Rule, key: &str, wanted: u32) -> Granted {
        let ask = Ask { wanted, ..Ask::default() };
        self.store.take(&self.scope(rule, key), rule, &ask).await.expect("the store is there")
    }

    /// How many it gets.
    pub(super) async fn gets(&self, rule: &Rule, key: &str, wanted: u32) -> usize {
        self.take(rule, key, wanted).await.tickets.len()
    }
}

/// Two members that know of each other.
pub(super) async fn members(redis: &Arc<VirtualRedis>) -> [Member; 2] {
    let members = [0, 1].map(|number| Member::start(redis, number));
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(members.iter().all(|member| member.store.members() == 2), "they know of each other");
    members
}

/// The rule of a plan with these limits.
pub(super) fn rule(limits: Limits) -> Rule {
    Rule { limits, ..Plan::new(1, 1.0, 0).rule() }
}

/// A story in virtual time.
pub(super) fn play(story: impl AsyncFnOnce(&Arc<VirtualRedis>)) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime needs nothing but memory");
    fastrand::seed(1);
    runtime.block_on(async { story(&VirtualRedis::start(1_790_000_000_000_000)).await });
}

#[test]
fn a_scope_that_no_member_knows_is_full_a_minute_after_the_loss_and_any_other_is_not() {
    play(async |redis| {
        let [first, second] = members(redis).await;
        let limits =
            Limits { rate: Some(1.0 / 3_600.0), burst: 5, quotas: vec![], cost: 1, learn: None };
        let rule = rule(limits);
        assert_eq!(first.gets(&rule, "old", 100).await, 5);
        assert_eq!(second.gets(&rule, "other", 100).await, 5);
        redis.flush_all();
        assert_eq!(first.gets(&rule, "old", 100).await, 0);
        tokio::time::sleep(MINUTE / 4).await;
        let early = first.take(&rule, "new", 100).await;
        assert_eq!(early.tickets.len(), 0, "somebody may still report it");
        let wait =
            Duration::from_micros(u64::try_from(early.come_back - early.now).expect("later"));
        assert!(wait <= MINUTE, "{wait:?}");
        tokio::time::sleep(wait).await;
        assert_eq!(first.gets(&rule, "new", 100).await, 5);
        assert_eq!(second.gets(&rule, "new", 100).await, 0, "once");
        assert_eq!(second.gets(&rule, "newer", 100).await, 5);
        // The member that took them has reported it, so they are not granted again.
        assert_eq!(second.gets(&rule, "old", 100).await, 0);
        assert_eq!(first.gets(&rule, "other", 100).await, 0);
    });
}

#[test]
fn a_scope_that_no_member_knows_fills_from_the_loss_on() {
    play(async |redis| {
        let [first, second] = members(redis).await;
        let limits = Limits { rate: Some(2.0), burst: 5, quotas: vec![], cost: 1, learn: None };
        let rule = rule(limits);
        assert_eq!(first.gets(&rule, "old", 100).await, 5);
        redis.flush_all();
        assert_eq!(first.gets(&rule, "old", 100).await, 0);
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(second.gets(&rule, "new", 100).await, 5);
    });
}
