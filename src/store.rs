//! The store of all scopes: one trait, in memory or in Redis, with the same replies.
//!
//! All times are the store's: microseconds that only the store reads from a clock. Each reply
//! contains the store's `now`, from which a member computes how long to wait. A member's own clock
//! measures durations only.

use std::{future::Future, sync::Arc, time::Duration};

use crate::{
    classify::verdict::Verdict,
    limiter::{
        bucket::Window,
        cooldown::{Blocks, Cause, Change, KnownCooldown, Report},
        learn,
    },
    rules::Rule,
};

pub mod contact;
mod failure;
pub mod fallback;
mod forecast;
mod keys;
mod known_bucket;
pub mod memory;
mod news;
mod push;
mod rate_override;
pub mod redis;
mod roster;
mod scripts;
mod server;
mod shard;
mod survey;
mod tls;

pub use failure::FailureKind;
pub use fallback::{Enforced, SharedStore};
pub use forecast::{Forecast, Query, WaitsFor};
pub use memory::Memory;
pub use news::{News, ScopeNews, What};
pub use redis::ServerAddress;
pub use roster::Announced;
pub use scripts::argument;
pub use server::{Answering, Reply, ScriptServer};
pub use shard::Shard;
pub use survey::{Survey, Surveyed, survey};

/// The name of a bucket and a cooldown: a rule, and the keys by which it is split.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ScopeName {
    /// The rule.
    pub rule: Arc<str>,
    /// Splits the bucket (empty: one for the rule).
    pub bucket: Arc<str>,
    /// Splits the cooldown.
    pub cooldown: Arc<str>,
    /// Splits the rule into parts that share no bucket and no cooldown ([`Split::coarser`]).
    ///
    /// [`Split::coarser`]: crate::limiter::policy::Split::coarser
    pub part: Arc<str>,
}

impl ScopeName {
    /// A scope whose bucket, cooldown and part have the same key.
    #[must_use]
    pub fn plain(rule: &Arc<str>, key: &Arc<str>) -> Self {
        let [bucket, cooldown, part] = [(); 3].map(|()| Arc::clone(key));
        Self { rule: Arc::clone(rule), bucket, cooldown, part }
    }
}

/// A scope in its store: looked up once, used for every request.
#[derive(Debug, Clone)]
pub struct Scope {
    /// Its name.
    pub name: ScopeName,
    /// Its place in this process: the store itself, or the fallback while Redis is away.
    pub(crate) here: memory::LocalState,
    /// Its keys in Redis.
    pub(crate) keys: Option<Arc<keys::Keys>>,
}

impl Scope {
    /// Whether its keys are in this shard.
    pub(crate) fn is_in(&self, shard: &Shard) -> bool {
        self.keys.as_ref().is_some_and(|keys| keys.memory.shard == *shard)
    }
}

/// A wish for tickets.
#[derive(Debug, Clone, Default)]
pub struct Ask {
    /// How many.
    pub wanted: u32,
    /// How many the member holds unused.
    pub held: u32,
    /// The latest acceptable ticket, in microseconds from now.
    pub bound: i64,
    /// How long a probe may be out, in microseconds.
    pub lease: i64,
    /// Empties the bucket first, because the member returns from an outage.
    pub drain: bool,
    /// Empties the bucket and voids the tickets handed out ahead, because the limits have changed.
    pub void: bool,
    /// Tickets of cancelled requests.
    pub returned: Vec<i64>,
    /// The member's knowledge of the cooldown.
    pub known: KnownCooldown,
    /// The member's knowledge of the learned rate.
    pub learned: learn::KnownRate,
    /// Whose requests they are for, under a rule with `each_user`.
    pub user: Option<Arc<str>>,
}

/// The state of a scope in a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Requests are sent as their tickets allow.
    Open,
    /// No request is sent.
    Cooling,
    /// A probe is out.
    Probing,
    /// The next request is the probe, but it does not get a ticket in time.
    Due,
    /// The ticket in this reply is the probe.
    Probe,
}

/// A reply to an [`Ask`].
#[derive(Debug, Clone, PartialEq)]
pub struct Granted {
    /// The store's time.
    pub now: i64,
    /// The scope's state.
    pub phase: Phase,
    /// Its epoch.
    pub epoch: u64,
    /// When to ask again; 0 if everything was granted.
    pub come_back: i64,
    /// Whether nothing but the limits of the user is in the way until then.
    pub user_is_over: bool,
    /// Members that wait for the bucket.
    pub members: u32,
    /// Blocks in a row (the sum of their weights).
    pub streak: f64,
    /// The current rate, in tokens per second; 0 = none, or not requested.
    pub rate: f64,
    /// The learned rate; `turn` 0 = none, or not requested.
    pub learned: learn::KnownRate,
    /// The windows of the quotas, by length; empty without quotas or without a request for tickets.
    pub windows: Vec<Window>,
    /// When the requests may go, ascending.
    pub tickets: Vec<i64>,
    /// Whether the store was away, so that the member decided in local mode.
    pub local: bool,
}

impl Granted {
    /// Whether tickets are handed out ahead: no more is saved up.
    pub(crate) fn is_ahead(&self) -> bool {
        self.come_back > 0 || self.tickets.last() > Some(&self.now)
    }
}

/// A reply to a [`Report`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reported {
    /// The store's time.
    pub now: i64,
    /// The change.
    pub change: Change,
    /// The epoch after it.
    pub epoch: u64,
    /// End of the cooldown; 0 = open.
    pub until: i64,
    /// Blocks in a row; after a trip, those that tripped it.
    pub streak: f64,
    /// Length of the latest cooldown.
    pub length: i64,
    /// What tripped it.
    pub cause: Option<Cause>,
    /// The blocks that tripped it.
    pub blocks: Blocks,
}

impl Reported {
    /// Nothing happened: an open scope, never tripped.
    #[must_use]
    pub fn unchanged(now: i64, epoch: u64) -> Self {
        Self {
            now,
            change: Change::None,
            epoch,
            until: 0,
            streak: 0.0,
            length: 0,
            cause: None,
            blocks: Blocks::default(),
        }
    }
}

/// A request for slots: the right to have requests in flight (`parallel`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotAsk {
    /// One queue of one member.
    pub queue: Arc<str>,
    /// Most slots over the fleet.
    pub most: u32,
    /// Slots in use.
    pub under_way: u32,
    /// Slots that could be used, those included; 0 = none is needed any more.
    pub wanted: u32,
}

/// A reply to a [`SlotAsk`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotsGranted {
    /// The store's time.
    pub now: i64,
    /// This many requests may be in flight.
    pub slots: u32,
    /// Whether others are short of slots: each one that becomes free is to be given back.
    pub contended: bool,
    /// When to ask again; 0 if everything was granted.
    pub come_back: i64,
    /// Whether the store was away, so that the member decided in local mode.
    pub local: bool,
}

/// A manual change of a cooldown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Override {
    /// Starts one of this length (microseconds).
    Trip(i64),
    /// Ends it.
    Clear,
}

/// A scope, read without changing it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Peeked {
    /// The store's time.
    pub now: i64,
    /// The epoch.
    pub epoch: u64,
    /// End of the cooldown; 0 = open.
    pub until: i64,
    /// End of the probe's lease; 0 = none is out.
    pub probe_until: i64,
    /// Blocks in a row.
    pub streak: f64,
    /// The streak that tripped the latest cooldown.
    pub peak: f64,
    /// What tripped it; `None` if the store has lost it.
    pub cause: Option<Cause>,
    /// The block that tripped it; `None` for a person's hand.
    pub by: Option<Verdict>,
    /// The blocks that tripped it.
    pub blocks: Blocks,
    /// The rate that the site names, in tokens per second.
    pub named: Option<f64>,
}

/// Why a store did not reply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// It is away: no reply in time, no connection, or an error of its own.
    #[error("the store is away: {0}")]
    Away(String),
    /// It works, but not for a call about the whole fleet.
    #[error("the store does not let the fleet be read: {0}")]
    Unread(String),
}

/// A store of scopes. No method waits for a token; the gate does that, with either store.
pub trait Store: Send + Sync {
    /// Looks a scope up.
    fn scope(&self, name: ScopeName) -> Scope;

    /// Takes tickets.
    fn take(
        &self,
        scope: &Scope,
        rule: &Rule,
        ask: &Ask,
    ) -> impl Future<Output = Result<Granted, StoreError>> + Send;

    /// Reports a response.
    fn report(
        &self,
        scope: &Scope,
        rule: &Rule,
        report: &Report,
    ) -> impl Future<Output = Result<Reported, StoreError>> + Send;

    /// Requests slots under a rule with `parallel`.
    fn slots(
        &self,
        scope: &Scope,
        ask: &SlotAsk,
    ) -> impl Future<Output = Result<SlotsGranted, StoreError>> + Send;

    /// Trips or clears a cooldown manually.
    fn set(
        &self,
        scope: &Scope,
        rule: &Rule,
        what: Override,
    ) -> impl Future<Output = Result<Reported, StoreError>> + Send;

    /// Reads a scope.
    fn peek(&self, scope: &Scope) -> impl Future<Output = Result<Peeked, StoreError>> + Send;

    /// Leaves the fleet.
    fn close(&self) -> impl Future<Output = ()> + Send;
}

/// The store of the rule file.
#[derive(Debug)]
pub enum Backend {
    /// Embedded.
    Memory(Memory),
    /// Redis.
    Shared(Arc<SharedStore>),
}

impl Backend {
    /// News of other members; `None` if there are none.
    #[must_use]
    pub fn news(&self) -> Option<tokio::sync::broadcast::Receiver<News>> {
        self.shared().map(|shared| shared.news())
    }

    /// Runs a background task of the news, which must not be delayed by requests.
    pub fn spawn(
        &self,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> tokio::task::JoinHandle<()> {
        match self {
            Self::Memory(_) => tokio::spawn(task),
            Self::Shared(shared) => shared.spawn(task),
        }
    }

    /// Whether the store may know of a cooldown of `scope`. Then a new queue asks before its first
    /// request is sent.
    #[must_use]
    pub fn may_have_tripped(&self, scope: &Scope) -> bool {
        match self {
            Self::Memory(_) => scope.here.has_tripped(),
            Self::Shared(_) => true,
        }
    }

    /// Whether limited requests are held until the store is reached for the first time.
    #[must_use]
    pub fn knows_no_share(&self) -> bool {
        self.shared().is_some_and(|shared| shared.knows_no_share())
    }

    /// Whether the store is away, and the rule file says `closed`.
    #[must_use]
    pub fn refuses(&self) -> bool {
        self.shared().is_some_and(|shared| shared.enforced() == Enforced::Refuses)
    }

    /// Whether this member receives no trips of other members. Then it asks instead.
    #[must_use]
    pub fn is_deaf(&self) -> bool {
        self.shared().is_some_and(|shared| shared.is_deaf())
    }

    /// The longest time for a reply.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.shared().map_or(Duration::ZERO, |shared| shared.timeout())
    }

    /// A rule with limits is in force. If a store loses its data, it must get the members'
    /// knowledge of this rule.
    pub fn attend(&self, rule: &Rule) {
        if let Some(shared) = self.shared().filter(|_| rule.limits_something()) {
            shared.attend(rule);
        }
    }

    /// The store of a fleet, if there is one.
    #[must_use]
    pub fn shared(&self) -> Option<&Arc<SharedStore>> {
        match self {
            Self::Memory(_) => None,
            Self::Shared(shared) => Some(shared),
        }
    }

    /// Replies without waiting, from the embedded store.
    #[must_use]
    pub fn take_now(&self, scope: &Scope, rule: &Rule, ask: &Ask) -> Option<Granted> {
        match self {
            Self::Memory(memory) => Some(memory.take_now(scope, rule, ask)),
            Self::Shared(_) => None,
        }
    }
}

/// Calls the same method of either store.
macro_rules! either {
    ($backend:expr, $store:ident => $call:expr) => {
        match $backend {
            Backend::Memory($store) => $call,
            Backend::Shared($store) => $call,
        }
    };
}

impl Store for Backend {
    fn scope(&self, name: ScopeName) -> Scope {
        either!(self, store => store.scope(name))
    }

    async fn take(&self, scope: &Scope, rule: &Rule, ask: &Ask) -> Result<Granted, StoreError> {
        either!(self, store => store.take(scope, rule, ask).await)
    }

    async fn report(
        &self,
        scope: &Scope,
        rule: &Rule,
        report: &Report,
    ) -> Result<Reported, StoreError> {
        either!(self, store => store.report(scope, rule, report).await)
    }

    async fn slots(&self, scope: &Scope, ask: &SlotAsk) -> Result<SlotsGranted, StoreError> {
        either!(self, store => store.slots(scope, ask).await)
    }

    async fn set(
        &self,
        scope: &Scope,
        rule: &Rule,
        what: Override,
    ) -> Result<Reported, StoreError> {
        either!(self, store => store.set(scope, rule, what).await)
    }

    async fn peek(&self, scope: &Scope) -> Result<Peeked, StoreError> {
        either!(self, store => store.peek(scope).await)
    }

    async fn close(&self) {
        either!(self, store => store.close().await);
    }
}
