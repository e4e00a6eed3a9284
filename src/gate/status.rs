//! The status of the gates, and manual changes by an operator.

use std::{
    collections::BTreeMap, collections::HashSet, sync::Arc, sync::atomic::Ordering, time::Duration,
};

use super::{Entry, Gate, active_scope::ActiveScope, cache::CachedPhase, registry, reports};
use crate::{
    classify::verdict::Verdict,
    limiter::{
        learn::{KnownRate, RateOverride},
        policy::Split,
    },
    observability::{
        event::{ClearedBy, Event, clean},
        status::{
            LearnedStatus, ScopeFacts, ScopeState, ScopeStatus, StoreStatus, StoreTrouble,
            scope_name,
        },
    },
    rules::{Mode, server_network},
    runtime::clock,
    store::{Backend, Enforced, Override, SharedStore, Store, StoreError},
    target::{Host, Scheme, Target},
};

/// No rule or scope has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no scope `{name}`; the rules are: {rules}")]
pub struct NoSuchScope {
    /// The requested name.
    pub name: String,
    /// The existing rules.
    pub rules: String,
}

/// Why a scope was not changed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ScopeError {
    /// No such scope.
    #[error(transparent)]
    NoSuchScope(#[from] NoSuchScope),
    /// The rule never cools down.
    #[error("the rule `{0}` has no cooldown")]
    NoCooldown(String),
    /// The rule's rate is fixed, or it has none.
    #[error("the rule `{0}` learns no rate")]
    NotLearned(String),
    /// A rate outside of the rule file's bounds; all in tokens per second.
    #[error(
        "a rate of {rate} per second is out of bounds: the rule file says {floor} to {ceiling}"
    )]
    OutOfBounds {
        /// The requested name.
        rate: f64,
        /// The slowest.
        floor: f64,
        /// The fastest.
        ceiling: f64,
    },
    /// The store did not reply.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Gate {
    /// Every scope that this member knows.
    #[must_use]
    pub fn snapshot(&self) -> Vec<ScopeStatus> {
        let mut scopes: Vec<_> = self.scopes().iter().map(status).collect();
        let name = |scope: &ScopeStatus| (scope.facts.rule.clone(), scope.facts.key.clone());
        scopes.sort_by_cached_key(name);
        scopes
    }

    /// The store as this member sees it.
    #[must_use]
    pub fn store(&self) -> StoreStatus {
        match &self.shared.store {
            Backend::Memory(_) => StoreStatus {
                kind: "memory".to_owned(),
                up: true,
                reached: true,
                ..StoreStatus::default()
            },
            Backend::Shared(store) => StoreStatus {
                kind: "redis".to_owned(),
                up: store.is_up(),
                reached: store.has_been_reached(),
                on_failure: Some(store.on_failure().as_str().to_owned()),
                server: store.servers(),
                trouble: trouble(store),
            },
        }
    }

    /// Updates the gauges: on each scrape instead of on every request.
    pub fn refresh_metrics(&self) {
        let table = self.table.load();
        let is_gone = |entry: &&Arc<Entry>| !entry.scopes.is_ending();
        table.ending.iter().filter(is_gone).for_each(|entry| entry.metrics.rule_is_gone());
        let ending = table.ending.iter().filter(|entry| !is_gone(entry));
        for entry in table.entries.iter().chain(ending) {
            let scopes = entry.scopes.all();
            let statuses: Vec<_> = scopes.iter().map(status).collect();
            let metrics = &entry.metrics;
            let oldest =
                scopes.iter().map(|scope| scope.queue.oldest_wait()).max().unwrap_or_default();
            metrics.oldest_held.set(oldest.as_secs_f64());
            let closed_for = scopes.iter().map(|scope| scope.cooldown.closed_for()).max();
            metrics.cooldown_age.set(closed_for.unwrap_or_default().as_secs_f64());
            let allowed = statuses.iter().filter_map(|s| s.facts.rate_limit);
            metrics.rate_allowed.set(allowed.sum());
            let marks = statuses.iter().filter_map(|s| s.facts.learned.as_ref()?.mark);
            metrics.rate_mark.set(marks.reduce(f64::min).unwrap_or(0.0));
            let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
            // Several buckets may share a cooldown, which counts once.
            let cooling =
                statuses.iter().zip(&scopes).filter(|(s, _)| s.facts.state == ScopeState::Cooling);
            let closed =
                cooling.map(|(_, scope)| &scope.cooldown.key).collect::<HashSet<_>>().len();
            let remaining = statuses.iter().filter(|s| s.facts.state == ScopeState::Cooling);
            let remaining = remaining.map(|s| s.facts.remaining_ms).max().unwrap_or(0);
            let streak = statuses.iter().map(|s| s.facts.streak).fold(0.0, f64::max);
            metrics.held.set(count(statuses.iter().map(|s| s.facts.held as usize).sum()));
            // Several scopes may share a queue, which counts once.
            let mut seen = HashSet::new();
            let queues = scopes.iter().map(|scope| &scope.queue);
            let queues = queues.filter(|queue| seen.insert(Arc::as_ptr(queue)));
            metrics.under_way.set(queues.map(|queue| i64::from(queue.under_way())).sum());
            metrics.cooldown_active.set(count(closed));
            metrics.cooldown_remaining.set(Duration::from_millis(remaining).as_secs_f64());
            #[allow(clippy::cast_possible_truncation)]
            metrics.consecutive_blocks.set(streak.ceil() as i64);
            let rates = statuses.iter().filter_map(|s| s.facts.rate_current);
            let written = entry.rule.limits.rate.unwrap_or(0.0);
            metrics.rate_current.set(rates.fold(written, f64::min));
        }
    }

    /// Starts a manual cooldown for the whole fleet. `who` is the name that the operator gave.
    ///
    /// # Errors
    /// No such scope, a rule without cooldown, or a store that is away.
    pub async fn trip(
        &self,
        scope: &str,
        length: Duration,
        who: Option<Arc<str>>,
    ) -> Result<(), ScopeError> {
        let (entry, scope) = self.named(scope)?;
        let what = Override::Trip(clock::micros(length));
        let asked = clock::now();
        let reported = self.shared.store.set(&scope.stored, &entry.rule, what).await?;
        scope.cooldown.reported(&reported, asked);
        reports::tripped_by_hand(&scope, &entry, length, who);
        Ok(())
    }

    /// Draws the length of a manual cooldown from the rule of `scope`.
    ///
    /// # Errors
    /// The scope does not exist, or its rule has no cooldown.
    pub fn draw_length(&self, scope: &str) -> Result<Duration, ScopeError> {
        let (entry, _) = self.named(scope)?;
        let policy = entry.rule.cooldown.as_ref();
        let (least, most) =
            policy.ok_or_else(|| ScopeError::NoCooldown(entry.rule.name.to_string()))?.length;
        Ok(least + (most - least).mul_f64(fastrand::f64()))
    }

    /// Ends a cooldown manually, for the whole fleet.
    ///
    /// # Errors
    /// As [`Gate::trip`].
    pub async fn clear(&self, scope: &str, who: Option<Arc<str>>) -> Result<(), ScopeError> {
        let (entry, scope) = self.named(scope)?;
        let asked = clock::now();
        let reported = self.shared.store.set(&scope.stored, &entry.rule, Override::Clear).await?;
        scope.cooldown.reported(&reported, asked);
        self.shared.events.emit(Event::Cleared {
            rule: Arc::clone(&entry.rule.name),
            key: Arc::clone(&scope.cooldown.key),
            by: ClearedBy::Manual,
            who,
        });
        Ok(())
    }

    /// Sets, freezes, unfreezes or forgets the learned rate of a scope for the whole fleet, and returns the new state.
    /// `who` is the name that the operator gave.
    ///
    /// # Errors
    /// No such scope, a rule that learns no rate, a rate outside of its bounds, or a store that is away.
    pub async fn override_rate(
        &self,
        scope: &str,
        change: RateOverride,
        who: Option<Arc<str>>,
    ) -> Result<KnownRate, ScopeError> {
        let (entry, scope) = self.named(scope)?;
        let limits = &entry.rule.limits;
        let (Some(ceiling), Some(learn)) = (limits.rate, &limits.learn) else {
            return Err(ScopeError::NotLearned(entry.rule.name.to_string()));
        };
        if let RateOverride::Set { rate: Some(rate), .. } = change
            && !(learn.floor..=ceiling).contains(&rate)
        {
            return Err(ScopeError::OutOfBounds { rate, floor: learn.floor, ceiling });
        }
        let store = &self.shared.store;
        let learned =
            store.override_rate(&scope.stored, &entry.rule, scope.queue.learned(), change).await?;
        scope.queue.rate_overridden(learned, who);
        Ok(learned)
    }

    /// A manual change at another member.
    pub(super) fn rate_changed(&self, rule: &str, key: &str) {
        let table = self.table.load();
        let entry = table.entries.iter().find(|entry| &*entry.rule.name == rule);
        if let Some(scope) = entry.and_then(|entry| entry.scopes.named(key)) {
            scope.queue.ask_again();
        }
    }

    /// The scope of `rule` or `rule/key`. A rule that is not split has its scope even before the first request. For a
    /// split rule, the host name determines the scope.
    pub(super) fn named(&self, scope: &str) -> Result<(Arc<Entry>, Arc<ActiveScope>), ScopeError> {
        let (rule, key) = scope.split_once('/').unwrap_or((scope, ""));
        let table = self.table.load();
        let unknown = || NoSuchScope {
            name: scope.to_owned(),
            rules: table.rules.as_slice().iter().map(|r| &*r.name).collect::<Vec<_>>().join(", "),
        };
        let entry =
            table.entries.iter().find(|e| &*e.rule.name == rule).cloned().ok_or_else(unknown)?;
        let Some(policy) = &entry.rule.cooldown else {
            return Err(ScopeError::NoCooldown(rule.to_owned()));
        };
        if (policy.per == Split::All) != key.is_empty() {
            return Err(unknown().into());
        }
        let scope = match entry.scopes.named(key) {
            Some(scope) => scope,
            // Kept like the scope of a request, so that a manual trip applies to the first request.
            None if !key.is_empty() => {
                entry.scopes.find(&entry, &site(key, policy.per).ok_or_else(unknown)?)
            }
            None if entry.rule.per == Split::All => entry.scopes.whole(&entry),
            None => entry.scopes.make_whole(&entry),
        };
        Ok((entry, scope))
    }
}

impl Entry {
    /// The name of the scope of a request to `target`, as [`Gate::snapshot`] has it.
    #[must_use]
    pub fn scope_name(&self, target: &Target) -> String {
        let (bucket, cooldown) = registry::keys(&self.rule, target);
        scope_name(&self.rule.name, shown_key(&bucket, &cooldown))
    }
}

/// The key of a scope: the cooldown's, or the bucket's if all share one cooldown.
fn shown_key<'k>(bucket: &'k str, cooldown: &'k str) -> &'k str {
    if cooldown.is_empty() { bucket } else { cooldown }
}

/// A target whose scope has this key; `None` if no scope can have it.
fn site(key: &str, per: Split) -> Option<Target> {
    let network = server_network(key).filter(|_| per == Split::Address);
    let host = match network {
        Some(network) => Host::Ip(network.addr().into()),
        None => Host::parse(key).ok()?,
    };
    let server = match network {
        Some(network) => Arc::from(network.trunc().to_string()),
        None => Split::Host.key(&host),
    };
    let (port, path, server) = (Scheme::Http.default_port(), Arc::from("/"), Some(server));
    Some(Target { scheme: Scheme::Http, host, port, path, server })
}

fn trouble(store: &SharedStore) -> Option<StoreTrouble> {
    let kind = store.failure().filter(|_| !store.is_up())?;
    Some(StoreTrouble {
        kind: kind.as_str().to_owned(),
        reason: clean(&store.why_down()),
        advice: kind.advice().to_owned(),
        meanwhile: match store.enforced() {
            Enforced::Fleet => "the limits of the fleet are enforced".to_owned(),
            Enforced::Share(share) => format!(
                "this member alone enforces {:.0} % of each limit; cooldowns stay in force",
                share * 100.0
            ),
            Enforced::Holds => {
                "limited requests are held until the store was reached once".to_owned()
            }
            Enforced::Nothing => "no limit is enforced; cooldowns stay in force".to_owned(),
            Enforced::Refuses => "requests are refused with 503".to_owned(),
        },
    })
}

/// The currently enforced part of a rate that the fleet would share.
fn enforced(backend: &Backend, rate: Option<f64>) -> Option<f64> {
    let Backend::Shared(store) = backend else { return rate };
    match store.enforced() {
        Enforced::Fleet => rate,
        Enforced::Share(share) => rate.map(|rate| rate * share),
        Enforced::Nothing => None,
        Enforced::Refuses | Enforced::Holds => Some(0.0),
    }
}

/// The learned rate, if there is one.
fn learned(scope: &Arc<ActiveScope>) -> Option<LearnedStatus> {
    LearnedStatus::of(scope.queue.learned()).filter(|_| scope.entry().rule.limits.learn.is_some())
}

fn status(scope: &Arc<ActiveScope>) -> ScopeStatus {
    let entry = scope.entry();
    let rule = &entry.rule;
    let now = clock::now();
    let ramp = rule.cooldown.as_ref().map_or(Duration::ZERO, |policy| policy.ramp);
    let ramp_left = scope
        .cooldown
        .opened()
        .map_or(Duration::ZERO, |opened| (opened + ramp).saturating_duration_since(now));
    let closed = rule.opens_in().filter(|_| rule.mode == Mode::Enforce);
    let probes = rule.cooldown.as_ref().is_some_and(|policy| policy.probe);
    let (state, remaining) = match scope.cooldown.phase() {
        CachedPhase::Cooling(until) if until > now => (ScopeState::Cooling, until - now),
        CachedPhase::Cooling(_) if !probes || scope.cooldown.is_pause() => {
            (ScopeState::Open, Duration::ZERO)
        }
        CachedPhase::Cooling(_) => (ScopeState::Probing, Duration::ZERO),
        CachedPhase::Probing(until) | CachedPhase::Due(until) => {
            (ScopeState::Probing, until.saturating_duration_since(now))
        }
        CachedPhase::Ask if scope.cooldown.epoch() > 0 => (ScopeState::Probing, Duration::ZERO),
        CachedPhase::Open | CachedPhase::Ask if closed.is_some() => {
            (ScopeState::OutsideHours, closed.unwrap_or_default())
        }
        CachedPhase::Open if !ramp_left.is_zero() => (ScopeState::Ramping, ramp_left),
        CachedPhase::Open | CachedPhase::Ask => (ScopeState::Open, Duration::ZERO),
    };
    let factor = match state {
        ScopeState::Open => 1.0,
        ScopeState::Ramping => 1.0 - ramp_left.div_duration_f64(ramp),
        ScopeState::Cooling | ScopeState::Probing | ScopeState::OutsideHours => 0.0,
    };
    let count = |verdict: &Verdict| scope.verdicts[*verdict as usize].load(Ordering::Relaxed);
    let verdicts: BTreeMap<_, _> = Verdict::ALL
        .iter()
        .map(|verdict| (verdict.as_str().to_owned(), count(verdict)))
        .filter(|(_, count)| *count > 0)
        .collect();
    let name = &scope.stored.name;
    let key = shown_key(&name.bucket, &name.cooldown);
    let rate_current = enforced(&scope.shared.store, scope.queue.rate_in_force(rule));
    ScopeStatus {
        facts: ScopeFacts {
            state,
            remaining_ms: u64::try_from(remaining.as_millis()).unwrap_or(u64::MAX),
            streak: scope.cooldown.streak(),
            rate_current: rate_current.map(|rate| rate * factor),
            learned: learned(scope),
            site_rate: scope.cooldown.named(),
            held: scope.held() as u64,
            under_way: scope.queue.under_way().into(),
            epoch: scope.cooldown.epoch(),
            ..ScopeFacts::idle(&name.rule, key, Some(rule))
        },
        burst: rule.limits.burst,
        tokens: None,
        sent: scope.sent.load(Ordering::Relaxed),
        verdicts,
    }
}
