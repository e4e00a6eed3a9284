//! When requests of many scopes can be sent: read from the store in one round trip, or estimated while it is away.

use std::{collections::HashMap, sync::Arc, time::Duration};

use tokio::task::JoinSet;

use super::{LocalScope, SharedStore, local_scope::fixed};
use crate::{
    rules::{Rule, settings::OnFailure},
    store::{
        forecast::{Forecast, Query},
        scripts::{When, WhenArguments, WhenKeys, WhenScope},
    },
};

/// Scopes per script call, which blocks Redis for about a millisecond.
const BATCH: usize = 100;

impl SharedStore {
    /// When the next request of each scope can be sent. The calls are sent together and take one round trip.
    pub async fn forecast(self: &Arc<Self>, queries: &[Query]) -> Vec<Forecast> {
        let mut found: Vec<Option<Forecast>> = vec![None; queries.len()];
        let mut calls = JoinSet::new();
        for batch in batches(queries) {
            let Some((keys, arguments)) = call(queries, &batch) else { continue };
            let shared = Arc::clone(self);
            calls.spawn(async move { (batch, shared.call::<When>(keys, arguments).await) });
        }
        while let Some(done) = calls.join_next().await {
            if let Ok((batch, Some(replies))) = done {
                for (at, reply) in batch.into_iter().zip(replies) {
                    found[at] = Some(reply.into());
                }
            }
        }
        let local = |(found, query): (Option<Forecast>, &Query)| {
            found.unwrap_or_else(|| self.forecast_locally(query))
        };
        found.into_iter().zip(queries).map(local).collect()
    }

    /// This member's forecast while the store is away.
    fn forecast_locally(&self, query: &Query) -> Forecast {
        let forecast = self.limits_locally(query);
        let (Some(most), Some(keys)) = (query.rule.parallel, &query.scope.keys) else {
            return forecast;
        };
        let slots_left = if self.knows_no_share() { None } else { self.own_slots(keys, most) };
        slots_left.map_or(Forecast::away(None), |slots_left| Forecast { slots_left, ..forecast })
    }

    /// When the rule's limits allow this member a request while the store is away.
    fn limits_locally(&self, query: &Query) -> Forecast {
        let Query { scope, rule, learned, .. } = query;
        let whole = fixed(&rule.limits, learned.rate);
        match self.settings.on_failure {
            _ if whole.is_unlimited() => Forecast::NOW,
            OnFailure::Open => Forecast::NOW,
            OnFailure::Closed => Forecast::away(None),
            OnFailure::Local if self.knows_no_share() => Forecast::away(None),
            OnFailure::Local => {
                let local = scope.keys.as_ref().map(|keys| keys.known.local.lock());
                let local = local.as_ref().and_then(|local| local.as_ref());
                if let Some(local) = local.filter(|local: &&LocalScope| local.is_of(&whole)) {
                    let limits = local.limits(&whole);
                    let each_user = self.each_user_locally(rule);
                    let rule = Arc::new(Rule { limits, each_user, ..Rule::clone(rule) });
                    return self.here.forecast(&Query { rule, ..query.clone() });
                }
                // Before its first local decision, the member's share starts with an empty bucket.
                let pace = whole.rate.map(|rate| rate * self.fleet().share);
                let token = pace.map_or(0.0, |pace| f64::from(whole.cost) / pace);
                Forecast::away(Duration::try_from_secs_f64(token).ok())
            }
        }
    }
}

/// The queries of each rule, in calls of bounded size. All keys of a call share one hash tag.
fn batches(queries: &[Query]) -> Vec<Vec<usize>> {
    let mut of_rules: HashMap<String, Vec<usize>> = HashMap::new();
    for (at, query) in queries.iter().enumerate() {
        if let Some(keys) = &query.scope.keys {
            of_rules.entry(keys.memory.keys.memory()).or_default().push(at);
        }
    }
    let mut batches = Vec::new();
    for of_rule in of_rules.into_values() {
        batches.extend(of_rule.chunks(BATCH).map(<[usize]>::to_vec));
    }
    batches
}

/// Keys and arguments of the call for one batch.
fn call(queries: &[Query], batch: &[usize]) -> Option<(WhenKeys, WhenArguments)> {
    let all = batch.iter().filter_map(|at| {
        let query = &queries[*at];
        query.scope.keys.as_ref().map(|keys| (query, keys))
    });
    let (first, keys) = all.clone().next()?;
    let (memory, arguments) = (keys.memory.keys.memory(), keys.arguments(&first.rule));
    let user = first.user.as_deref();
    let scope = all.clone().map(|(_, keys)| keys.when(user.unwrap_or_default())).collect();
    let each = all.map(|(query, keys)| {
        let queue = Arc::clone(&query.queue);
        WhenScope { own: keys.own, learned: query.learned, queue }
    });
    let arguments = arguments.when(user.is_some(), first.rule.parallel, each.collect());
    Some((WhenKeys { memory, scope }, arguments))
}
