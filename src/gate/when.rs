//! When a request could be sent: the store's forecast for its scope, plus the requests that wait in front of it. Takes
//! no token.

use std::{collections::HashMap, sync::Arc, time::Duration};

use super::{
    Entry, Gate, active_scope::ActiveScope, bucket::LOOK_AGAIN, cache::CachedPhase, registry,
};
use crate::{
    rules::{Action, Mode},
    runtime::clock,
    store::{Forecast, Query, ScopeName, Store as _, WaitsFor},
    target::Target,
};

/// When a request could be sent.
#[derive(Debug, Clone)]
pub struct When {
    /// Its rule; `None` if no rule matches.
    pub entry: Option<Arc<Entry>>,
    /// Its scope, as [`Entry::scope_name`] has it; empty without a rule.
    pub scope: String,
    /// How long from now; `None` if unknown, or never.
    pub wait: Option<Duration>,
    /// What it waits for; `None` if it could be sent at once.
    pub reason: Option<WaitsFor>,
}

/// One requested scope, and this member's knowledge of it.
struct ScopeQuery {
    entry: Arc<Entry>,
    scope: Option<Arc<ActiveScope>>,
    query: Query,
}

impl Gate {
    /// When a request to each of `targets` could be sent now, by `user` if one is named. Targets of one scope share a
    /// result, and a fleet's store is read for all scopes in one round trip.
    pub async fn when(&self, targets: &[Target], user: Option<&Arc<str>>) -> Vec<When> {
        let mut asked: Vec<ScopeQuery> = Vec::new();
        let mut places: HashMap<ScopeName, usize> = HashMap::new();
        let mut found = Vec::with_capacity(targets.len());
        for target in targets {
            let Some(entry) = self.find(target) else {
                found.push((None, String::new(), None));
                continue;
            };
            let scope = entry.scope_name(target);
            let limits = entry.rule.action == Action::Limit && entry.rule.mode == Mode::Enforce;
            let at = limits.then(|| {
                let name = registry::name(&entry.rule, target);
                *places.entry(name.clone()).or_insert_with(|| {
                    asked.push(self.asked(&entry, name, user));
                    asked.len() - 1
                })
            });
            found.push((Some(entry), scope, at));
        }
        let queries: Vec<Query> = asked.iter().map(|asked| asked.query.clone()).collect();
        let forecasts = self.shared.store.forecast(&queries).await;
        let next: Vec<_> =
            asked.iter().zip(forecasts).map(|(asked, forecast)| asked.next(forecast)).collect();
        let when = |(entry, scope, at): (Option<Arc<Entry>>, String, Option<usize>)| {
            let denied =
                entry.as_ref().is_none_or(|entry: &Arc<Entry>| entry.rule.action == Action::Deny);
            let (wait, reason) = match at.and_then(|at| next.get(at)) {
                Some(next) => within_hours(*next, entry.as_ref()),
                None if denied => (None, Some(WaitsFor::Denied)),
                None => (Some(Duration::ZERO), None),
            };
            When { entry, scope, wait, reason }
        };
        found.into_iter().map(when).collect()
    }

    fn asked(&self, entry: &Arc<Entry>, name: ScopeName, user: Option<&Arc<str>>) -> ScopeQuery {
        let scope = entry.scopes.known(&name);
        let stored = match &scope {
            Some(scope) => scope.stored.clone(),
            // This creates no scope, because a crawler may ask about a million sites that it never visits.
            None => self.shared.store.scope(name),
        };
        let learned = scope.as_ref().map(|scope| scope.queue.learned()).unwrap_or_default();
        let queue = scope.as_ref().map(|scope| Arc::clone(scope.queue.name())).unwrap_or_default();
        let user = user.filter(|_| entry.rule.each_user.is_some()).map(Arc::clone);
        let query = Query { scope: stored, rule: Arc::clone(&entry.rule), learned, queue, user };
        ScopeQuery { entry: Arc::clone(entry), scope, query }
    }
}

impl ScopeQuery {
    /// The wait and its reason: the store's forecast combined with this member's knowledge.
    fn next(&self, forecast: Forecast) -> (Option<Duration>, Option<WaitsFor>) {
        let mut reason = forecast.reason;
        let Some(mut wait) = forecast.wait else { return (None, reason) };
        let used_here = self.scope.as_ref().map_or(0, |scope| scope.queue.slots_used());
        let is_full = self.entry.rule.parallel.is_some() && used_here >= forecast.slots_left;
        if is_full && wait < LOOK_AGAIN {
            (wait, reason) = (LOOK_AGAIN, Some(WaitsFor::Parallel));
        }
        let Some(scope) = &self.scope else { return (Some(wait), reason) };
        // A trip that the store has lost, or whose news have just arrived.
        if let CachedPhase::Cooling(until) = scope.cooldown.phase()
            && (scope.cooldown.epoch() > forecast.epoch || scope.cooldown.is_hinted())
        {
            let left = until.saturating_duration_since(clock::now());
            if left > wait {
                (wait, reason) = (left, Some(WaitsFor::Cooldown));
            }
        }
        let held = scope.queue.unserved();
        let rate = if forecast.rate > 0.0 { Some(forecast.rate) } else { None };
        if let Some(queued) = rate.and_then(|rate| self.queued(held, rate, forecast.members)) {
            wait = wait.saturating_add(queued);
            let stays =
                |reason: &WaitsFor| matches!(reason, WaitsFor::Cooldown | WaitsFor::Parallel);
            reason = reason.filter(stays);
            reason = reason.or(Some(WaitsFor::Queue));
        }
        (Some(wait), reason)
    }

    /// How long the requests that are held here take. Members take turns.
    fn queued(&self, held: usize, rate: f64, members: u32) -> Option<Duration> {
        #[allow(clippy::cast_precision_loss)]
        let tokens = held as f64 * f64::from(self.entry.rule.limits.cost);
        let wait = tokens * f64::from(members.max(1)) / rate;
        (held > 0).then(|| Duration::try_from_secs_f64(wait).unwrap_or(Duration::MAX))
    }
}

/// Moves the end of a wait outside of the rule's hours to the next opening.
fn within_hours(
    (wait, reason): (Option<Duration>, Option<WaitsFor>),
    entry: Option<&Arc<Entry>>,
) -> (Option<Duration>, Option<WaitsFor>) {
    match (wait, entry.and_then(|entry| entry.rule.opens_in())) {
        (Some(wait), Some(opens)) if opens > wait => (Some(opens), Some(WaitsFor::Hours)),
        _ => (wait, reason),
    }
}
