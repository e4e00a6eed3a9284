//! Buckets of users (`each_user`) in the embedded store.

use std::sync::Arc;

use parking_lot::Mutex;

use super::{Kept, Memory, find_or_make};
use crate::{
    limiter::{
        bucket::{Bucket, Pace},
        policy::Limits,
    },
    rules::Rule,
    store::{Ask, Scope},
};

/// The bucket of one user, and its limits.
pub(super) struct UserBucket<'r> {
    bucket: Arc<Mutex<Kept<Bucket>>>,
    limits: &'r Limits,
}

impl UserBucket<'_> {
    fn pace(&self) -> Pace {
        Pace { rate: self.limits.rate, ramp: 0 }
    }

    /// When its next token is available.
    pub(super) fn next(&self, now: i64) -> i64 {
        let mut kept = self.bucket.lock();
        let bucket = kept.state.get_or_insert_with(|| Bucket::full(now, self.limits));
        bucket.observe(now, self.limits);
        bucket.fill_by(now, self.limits, self.pace());
        bucket.next(now, self.limits, self.pace())
    }

    pub(super) fn take(&self, moment: i64, now: i64) {
        let mut kept = self.bucket.lock();
        let Kept { state: Some(bucket), forget_at, .. } = &mut *kept else { return };
        bucket.take(moment, self.limits, self.pace());
        let forget = bucket.forgettable_in(now, self.limits, self.pace(), 0);
        *forget_at = now.saturating_add(forget);
    }
}

impl Memory {
    /// When the next token of a user is available. Changes nothing.
    pub(super) fn next_of_user(&self, scope: &Scope, rule: &Rule, user: &str, now: i64) -> i64 {
        let Some(limits) = &rule.each_user else { return now };
        let bucket = self.users.lock().get(&name_of(scope, user)).map(Arc::clone);
        let state = bucket.and_then(|bucket| bucket.lock().state.clone());
        let copy = Kept { state, forget_at: 0, waited_until: 0 };
        UserBucket { bucket: Arc::new(Mutex::new(copy)), limits }.next(now)
    }

    /// The bucket of the user of a request, if the rule limits users.
    pub(super) fn user<'r>(
        &self,
        scope: &Scope,
        rule: &'r Rule,
        ask: &Ask,
        now: i64,
    ) -> Option<UserBucket<'r>> {
        let (user, limits) = ask.user.as_deref().zip(rule.each_user.as_ref())?;
        let bucket = find_or_make(&mut self.users.lock(), name_of(scope, user), now);
        Some(UserBucket { bucket, limits })
    }
}

/// The rule, and the user with the bucket.
fn name_of(scope: &Scope, user: &str) -> (Arc<str>, Arc<str>) {
    (Arc::clone(&scope.name.rule), Arc::from(format!("{user}:{}", scope.name.bucket)))
}
