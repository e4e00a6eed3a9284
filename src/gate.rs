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
