//! The gate: holds requests of one scope and lets them go in order.

use std::{net::IpAddr, sync::Arc, time::Duration};

use crate::{
    metrics::{Metrics, RuleMetrics},
    rules::{Rule, RuleSet},
    target::Target,
    verdict::Judgement,
};

/// Who waits: clients take turns by this.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Client {
    /// A proxy user.
    User(Arc<str>),
    /// An address, where nobody logs in.
    Address(IpAddr),
}

/// One rule with its metrics, resolved once.
#[derive(Debug)]
pub struct Entry {
    /// The rule.
    pub rule: Arc<Rule>,
    /// Its metrics.
    pub metrics: Arc<RuleMetrics>,
}

/// Why a request is not let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The wait for a token would exceed `max_wait`.
    Limit,
    /// The cooldown lasts longer than `max_wait`.
    Cooldown,
    /// The queue is full.
    Queue,
    /// The store is away and the rule file says `closed`.
    Store,
    /// The proxy stops.
    Stopping,
}

/// A refusal: a value with a time.
#[derive(Debug, Clone)]
pub struct Refused {
    /// Why.
    pub why: Why,
    /// When to come back, where that can be predicted.
    pub retry_after: Option<Duration>,
    /// How long the request was held before.
    pub held: Duration,
    /// The rule.
    pub entry: Arc<Entry>,
}

/// LOCAL STUB of branch `telling`: why a scope cannot be tripped or cleared.
#[derive(Debug, thiserror::Error)]
pub enum ScopeError {
    /// No rule has this name, or the scope is not split that way.
    #[error("there is no scope `{0}`")]
    Unknown(String),
    /// The rule has no cooldown.
    #[error("the rule of `{0}` has no cooldown")]
    NoCooldown(String),
    /// The store does not answer.
    #[error("the store is away")]
    StoreAway,
}

/// All gates of this process.
#[derive(Debug)]
pub struct Gate {
    entries: arc_swap::ArcSwap<Vec<Arc<Entry>>>,
    rules: arc_swap::ArcSwap<RuleSet>,
}

impl Gate {
    /// Gates for `rules`.
    #[must_use]
    pub fn new(rules: RuleSet, metrics: &Metrics) -> Arc<Self> {
        let entries = rules
            .as_slice()
            .iter()
            .map(|rule| {
                Arc::new(Entry { rule: Arc::clone(rule), metrics: metrics.rule(&rule.name) })
            })
            .collect::<Vec<_>>();
        Arc::new(Self { entries: Arc::new(entries).into(), rules: Arc::new(rules).into() })
    }

    /// The first rule that matches `target`.
    #[must_use]
    pub fn find(&self, target: &Target) -> Option<Arc<Entry>> {
        let at = self.rules.load().find(target)?;
        self.entries.load().get(at).cloned()
    }

    // --- LOCAL STUB of branch `telling`, until the lead's gate is there -------------------------------------------
    /// The scopes as they are now.
    #[must_use]
    pub fn snapshot(&self) -> Vec<crate::status::ScopeStatus> {
        self.entries
            .load()
            .iter()
            .map(|entry| crate::status::ScopeStatus {
                rule: entry.rule.name.to_string(),
                key: String::new(),
                rate_limit: entry.rule.limits.rate,
                rate_current: entry.rule.limits.rate,
                burst: entry.rule.limits.burst,
                tokens: None,
                held: 0,
                sent: 0,
                streak: 0.0,
                after: entry.rule.cooldown.as_ref().map(|c| c.after),
                state: crate::status::ScopeState::Open,
                remaining_ms: 0,
                epoch: 0,
                observe: false,
                verdicts: std::collections::BTreeMap::new(),
            })
            .collect()
    }

    /// Puts another rule file in force.
    pub fn reload(&self, rules: RuleSet) {
        self.rules.store(Arc::new(rules));
    }

    /// Says good-bye to the store.
    pub async fn close(&self) {}

    /// Trips a cooldown by hand.
    pub async fn trip(&self, _scope: &str, _length: Duration) -> Result<(), ScopeError> {
        Ok(())
    }

    /// Ends a cooldown by hand.
    pub async fn clear(&self, _scope: &str) -> Result<(), ScopeError> {
        Ok(())
    }

    /// Takes a verdict that a crawler reached itself.
    pub async fn report_outside(
        &self,
        _target: &Target,
        _judgement: &Judgement,
    ) -> Result<(), ScopeError> {
        Ok(())
    }
    // --- END OF LOCAL STUB ----------------------------------------------------------------------------------------

    /// Holds a request until it may go. Dropping the future leaves the queue at once and costs no token.
    ///
    /// # Errors
    /// A [`Refused`] says why not, and when to come back.
    pub async fn hold(
        &self,
        entry: &Arc<Entry>,
        _target: &Target,
        _client: &Client,
        _patience: Option<Duration>,
    ) -> Result<Permit, Refused> {
        Ok(Permit { entry: Arc::clone(entry), held: Duration::ZERO })
    }
}

/// Leave to send one request. Reports from `Drop` too, so that a client that goes away leaves no probe hanging.
#[derive(Debug)]
pub struct Permit {
    entry: Arc<Entry>,
    held: Duration,
}

impl Permit {
    /// How long the request was held.
    #[must_use]
    pub fn held(&self) -> Duration {
        self.held
    }

    /// The rule.
    #[must_use]
    pub fn entry(&self) -> &Arc<Entry> {
        &self.entry
    }

    /// False once a cooldown has tripped since the grant: the request must not go, see [`Permit::again`].
    #[must_use]
    pub fn may_send(&self) -> bool {
        true
    }

    /// Back to the head of the queue, after a trip or for a retry of a blocked answer.
    ///
    /// # Errors
    /// As [`Gate::hold`]; the time held before counts towards `max_wait`.
    pub async fn again(&mut self) -> Result<(), Refused> {
        Ok(())
    }

    /// Tells the fleet what came back; counts the verdict. Cheap where there is nothing to tell.
    pub async fn report(self, _judgement: &Judgement) {
        tokio::task::yield_now().await;
    }
}
