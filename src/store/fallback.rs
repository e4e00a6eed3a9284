//! The shared store: Redis while it replies, otherwise this member's share of the limits.
//!
//! - A failed call is answered here at once, according to `on_failure` (`local`, `open`, `closed`).
//!   From then on no request waits for Redis until a heartbeat succeeds.
//! - A member that has not reached the store since it started does not know its share. Under `local` it holds limited
//!   requests and reports why, unless `local_share` is given.
//! - Under `local`, a member first only uses the tickets that it holds, for three seconds, because
//!   the others may still take tokens from the store (`local`). Then it keeps each scope to its
//!   share of the limits, 1 / members, so that the whole fleet stays within the rule. The share
//!   starts empty, after the outstanding tickets. A quota continues in its window, with a share of
//!   the rest (`local_scope`).
//! - Members return one after the other. Each reports what it took, and the store reserves the
//!   shares of those that are still away (`rejoin`, `lua/lib/away.lua`). So there is no burst on
//!   either side.
//! - A learned rate stays as last known. Nothing is learned during an outage.
//! - A store that comes back without its memory grants nothing until all members have reported what they know (`recover`).
//! - A cooldown in force stays in force. Each call sends the member's knowledge of it, and repairs
//!   a store that has lost it.

mod forecast;
mod heartbeat;
mod lease;
mod local;
mod local_scope;
mod outage;
mod recover;
mod rejoin;
mod slots;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    sync::{Notify, broadcast, watch},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

pub use self::outage::Enforced;
use self::{lease::Lease, outage::Outage, recover::Recovery, rejoin::Rejoin};
pub(super) use self::{
    lease::UnansweredCalls,
    local_scope::{LocalScope, Windows},
    recover::Remembered,
    rejoin::GRACE,
};
use super::{
    Ask, Granted, Memory, News, Override, Peeked, Reported, Scope, ScopeName, SlotAsk,
    SlotsGranted, Store, StoreError,
    failure::{Failure, FailureKind},
    keys::Keys,
    redis::ServerAddress,
    redis::{BadUrl, Redis},
    scripts::{self, Call, Peek, Set},
    server::{ScriptServer, Server},
    shard::Shard,
};
use crate::{
    limiter::cooldown::Report,
    observability::{event::clean, metrics::Metrics},
    rules::{
        Rule,
        settings::{OnFailure, RedisSettings},
    },
    runtime::clock::{self, LogThrottle},
};

/// How long a starting member waits for the store's first reply. Without a reply it would consider itself the whole
/// fleet and use the whole rate. A store that is away must not prevent a start.
const FIRST_WORD: Duration = Duration::from_secs(1);

/// The store of a fleet.
#[derive(Debug)]
pub struct SharedStore {
    server: Server,
    here: Memory,
    member: Arc<str>,
    settings: RedisSettings,
    up: AtomicBool,
    members: AtomicU32,
    why: Mutex<String>,
    outage: Outage,
    unanswered: UnansweredCalls,
    lease: Lease,
    news: broadcast::Sender<News>,
    places: watch::Sender<Vec<ServerAddress>>,
    refused: LogThrottle,
    metrics: Arc<Metrics>,
    rejoin: Rejoin,
    recovery: Recovery,
    /// A call failed. The next heartbeat follows soon, so that all members that lost the store return together.
    lost: Notify,
    stopped: CancellationToken,
}

impl SharedStore {
    /// Prepares the store and starts to connect. `on_failure` decides until Redis is reached.
    ///
    /// # Errors
    /// An invalid URL.
    pub fn start(settings: RedisSettings, metrics: Arc<Metrics>) -> Result<Arc<Self>, BadUrl> {
        let server = Server::Redis(Box::new(Redis::new(&settings)?));
        Ok(Self::on(server, settings, metrics))
    }

    /// The same with a custom server. The URL in `settings` is not used.
    #[must_use]
    pub fn over(
        server: Box<dyn ScriptServer>,
        settings: RedisSettings,
        metrics: Arc<Metrics>,
    ) -> Arc<Self> {
        let timeout = settings.timeout;
        Self::on(Server::Own(server, timeout), settings, metrics)
    }

    fn on(server: Server, settings: RedisSettings, metrics: Arc<Metrics>) -> Arc<Self> {
        let store = Arc::new(Self {
            server,
            here: Memory::default(),
            member: format!("{:016x}", fastrand::u64(..)).into(),
            up: AtomicBool::new(false),
            members: AtomicU32::new(1),
            why: Mutex::new("it has not answered yet".to_owned()),
            outage: Outage::default(),
            unanswered: UnansweredCalls::default(),
            lease: Lease::new(settings.timeout),
            news: broadcast::channel(1_024).0,
            places: watch::Sender::default(),
            refused: LogThrottle::default(),
            metrics,
            rejoin: Rejoin::default(),
            recovery: Recovery::default(),
            lost: Notify::new(),
            stopped: CancellationToken::new(),
            settings,
        });
        let [listener, member, keeper, follower, watcher] = [(); 5].map(|()| Arc::clone(&store));
        store.spawn(async move {
            let listening =
                listener.server.listen(&listener.settings.prefix, listener.news.clone());
            listener.stopped.run_until_cancelled(listening).await;
        });
        tokio::spawn(async move { member.send_heartbeats().await });
        tokio::spawn(async move {
            keeper.stopped.run_until_cancelled(keeper.rejoin_when_due()).await;
        });
        tokio::spawn(async move {
            follower.stopped.run_until_cancelled(follower.follow_losses()).await;
        });
        tokio::spawn(async move {
            watcher.stopped.run_until_cancelled(watcher.watch_nodes()).await;
        });
        store
    }

    /// Runs a task on the store client's runtime.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        self.server.spawn(task)
    }

    /// The news of the fleet.
    #[must_use]
    pub fn news(&self) -> broadcast::Receiver<News> {
        self.news.subscribe()
    }

    /// The servers that this member is connected to, as they change. A cluster or a sentinel may name other servers
    /// than the URL.
    #[must_use]
    pub fn places(&self) -> watch::Receiver<Vec<ServerAddress>> {
        self.places.subscribe()
    }

    /// Waits for the store's first reply, at most a second.
    pub async fn first_word(&self) {
        let mut news = self.news();
        let word = async {
            while !self.is_up() {
                // After lost news the state must be read again.
                news.recv().await.ok();
            }
        };
        tokio::time::timeout(FIRST_WORD, word).await.ok();
    }

    /// This member's name in the store.
    #[must_use]
    pub fn member(&self) -> &Arc<str> {
        &self.member
    }

    /// The client, if the store is a real one.
    pub(super) fn redis(&self) -> Option<&Redis> {
        self.server.redis()
    }

    /// The prefix of all keys of the fleet.
    pub(super) fn prefix(&self) -> &str {
        &self.settings.prefix
    }

    /// Whether Redis replies.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.up.load(Ordering::Acquire)
    }

    /// Whether the store replies but this member does not receive its news. Its copy of a cooldown
    /// is then only as recent as the latest reply.
    #[must_use]
    pub fn is_deaf(&self) -> bool {
        self.is_up() && !self.server.hears().0
    }

    /// Why the store does not reply, as a message.
    #[must_use]
    pub fn why_down(&self) -> String {
        self.why.lock().clone()
    }

    /// `on_failure` of the rule file.
    #[must_use]
    pub fn on_failure(&self) -> OnFailure {
        self.settings.on_failure
    }

    /// Running members, as last known.
    #[must_use]
    pub fn members(&self) -> u32 {
        self.members.load(Ordering::Relaxed)
    }

    /// Records that the store is up or away, and reports a change.
    fn turn(&self, up: bool, failure: Option<&Failure>) {
        if let Some(failure) = failure {
            self.why.lock().clone_from(&failure.text);
        }
        self.metrics.member.store_up.set(i64::from(up));
        if up {
            self.report_reply();
        }
        if self.up.swap(up, Ordering::AcqRel) != up {
            if up {
                self.recovery.all_due();
            }
            self.rejoin.turned(up);
            if up {
                self.news.send(News::Resync).ok();
            }
        }
        if let Some(failure) = failure {
            if failure.kind == FailureKind::Schema {
                self.outage.starts_anew();
            }
            self.report_outage(failure);
        }
    }

    /// Runs a script if the store is up. Counts and records a failure.
    pub(super) async fn call<C: Call>(
        &self,
        keys: C::Keys,
        arguments: C::Arguments,
    ) -> Option<C::Reply> {
        if !self.is_up() {
            return None;
        }
        self.call_anyway::<C>(keys, arguments).await
    }

    /// Runs a script, even while the store is away.
    async fn call_anyway<C: Call>(
        &self,
        keys: C::Keys,
        arguments: C::Arguments,
    ) -> Option<C::Reply> {
        let (script, start) = (C::script(), clock::now());
        let (keys, arguments) = (scripts::values(keys), scripts::values(arguments));
        let result = self.server.run(script, keys, arguments).await;
        self.metrics.store_seconds(script.name).observe(start.elapsed().as_secs_f64());
        self.note_call(start, result.is_ok());
        match result.and_then(|reply| Ok(scripts::read::<C>(reply)?)) {
            Ok(reply) => Some(reply),
            Err(failure) => {
                self.failed(&failure);
                None
            }
        }
    }

    fn failed(&self, failure: &Failure) {
        self.metrics.store_errors(failure.kind.as_str()).inc();
        if failure.answered {
            if self.refused.allows() {
                let said = clean(&failure.text);
                tracing::warn!(kind = failure.kind.as_str(), "the store refused a call: {said}");
            }
        } else {
            self.turn(false, Some(failure));
            self.lost.notify_one();
        }
    }
}

impl Store for SharedStore {
    fn scope(&self, name: ScopeName) -> Scope {
        let spreads = self.server.is_clustered();
        let shard = if spreads { Shard::of(&name) } else { Shard::whole(&name.rule) };
        let keys = Keys::new(&name, self.remembered(shard));
        Scope { here: self.here.place(&name), keys: Some(Arc::new(keys)), name }
    }

    async fn take(&self, scope: &Scope, rule: &Rule, ask: &Ask) -> Result<Granted, StoreError> {
        let Some(keys) = &scope.keys else { return Ok(self.here.take_now(scope, rule, ask)) };
        let arguments = keys.arguments(rule);
        if let Some(granted) = self.ask(keys, &arguments, ask).await {
            return Ok(granted);
        }
        self.take_locally(scope, keys, rule, ask).ok_or_else(|| StoreError::Away(self.why_down()))
    }

    async fn report(
        &self,
        scope: &Scope,
        rule: &Rule,
        report: &Report,
    ) -> Result<Reported, StoreError> {
        if let Some(keys) = &scope.keys {
            let arguments = keys.arguments(rule).report(report, &self.member, keys.news());
            let reply = self.call::<scripts::Report>(keys.cooldown(), arguments).await;
            if let Some(reply) = reply {
                return Ok(reply.into());
            }
        }
        Ok(self.here.report_now(scope, rule, report))
    }

    async fn slots(&self, scope: &Scope, ask: &SlotAsk) -> Result<SlotsGranted, StoreError> {
        let Some(keys) = &scope.keys else { return self.here.slots(scope, ask).await };
        match self.ask_for_slots(scope, keys, ask).await {
            Some(granted) => Ok(granted),
            None => self.slots_locally(keys, ask),
        }
    }

    async fn set(
        &self,
        scope: &Scope,
        rule: &Rule,
        what: Override,
    ) -> Result<Reported, StoreError> {
        let (Some(keys), Some(_)) = (&scope.keys, &rule.cooldown) else {
            return self.here.set(scope, rule, what).await;
        };
        let (word, length) = match what {
            Override::Trip(length) => ("trip", length),
            Override::Clear => ("clear", 0),
        };
        let arguments = keys.arguments(rule).set(word, length, &self.member, keys.news());
        let reply = self.call::<Set>(keys.cooldown(), arguments).await;
        reply.map(Into::into).ok_or_else(|| StoreError::Away(self.why_down()))
    }

    async fn peek(&self, scope: &Scope) -> Result<Peeked, StoreError> {
        let Some(keys) = &scope.keys else { return self.here.peek(scope).await };
        let reply = self.call::<Peek>(keys.cooldown(), ()).await;
        reply.map(Into::into).ok_or_else(|| StoreError::Away(self.why_down()))
    }

    async fn close(&self) {
        self.stopped.cancel();
        if self.is_up() {
            self.announce(String::new()).await;
            self.hello(Duration::ZERO).await.ok();
        }
        self.server.quit().await;
    }
}

#[cfg(test)]
mod tests;
