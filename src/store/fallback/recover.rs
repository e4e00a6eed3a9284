//! Recovery of a store that has lost its memory of a shard, by a flush or a failover to an empty
//! server. Such a store grants nothing of the shard until all members have reported what they know
//! (`lua/lib/memory.lua`).

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;

use super::{SharedStore, heartbeat::HEARTBEAT};
use crate::{
    limiter::policy::Split,
    rules::Rule,
    store::{
        News,
        failure::Failure,
        known_bucket::KnownBuckets,
        push::Channel,
        redis::Redis,
        scripts::{self, MemoryArguments, MemoryKeys, NewsFields},
        shard::{Shard, ShardKeys},
    },
};

/// The store's memory of one shard.
#[derive(Debug)]
pub(in crate::store) struct Remembered {
    pub(in crate::store) shard: Shard,
    /// Its keys in Redis.
    pub(in crate::store) keys: ShardKeys,
    /// This member's copies of its buckets.
    pub(in crate::store) buckets: KnownBuckets,
    channel: Channel,
    known: Mutex<KnownMemory>,
}

/// A memory is identified by the time at which it began, on the store's clock; 0 = none.
#[derive(Debug, Default)]
struct KnownMemory {
    since: i64,
    /// The previous memory, which was lost.
    before: i64,
    /// Whether this member must report its knowledge to the store.
    due: bool,
}

/// What a reply of the store says about its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Heard {
    /// The memory is unchanged.
    Same,
    /// The memory is new, so the members must report their knowledge.
    Lost,
    /// The reply belongs to a memory that has been lost since.
    Stale,
}

impl Remembered {
    fn new(shard: Shard, prefix: &str, channel: Channel) -> Self {
        let keys = ShardKeys::new(prefix, &shard);
        let buckets = KnownBuckets::default();
        Self { shard, keys, buckets, channel, known: Mutex::default() }
    }

    /// How a script publishes news of `name`.
    pub(in crate::store) fn news(&self, name: String) -> NewsFields {
        let (command, channel) = self.channel.clone();
        NewsFields { command, channel, name }
    }

    /// The memory that is known; 0 = none.
    pub(super) fn since(&self) -> i64 {
        self.known.lock().since
    }

    /// Records the memory in a reply (0 = none). `asked_with` is the memory that this member knew when it sent the
    /// call.
    pub(super) fn hears(&self, since: i64, asked_with: i64) -> Heard {
        let mut known = self.known.lock();
        if since == 0 || since == known.since {
            return Heard::Same;
        }
        if known.since != asked_with {
            return Heard::Stale;
        }
        let KnownMemory { since: before, due, .. } = *known;
        *known = KnownMemory { since, before, due: due || before > 0 };
        if before > 0 { Heard::Lost } else { Heard::Same }
    }

    fn is_due(&self) -> bool {
        std::mem::take(&mut self.known.lock().due)
    }

    /// The store did not accept the report.
    pub(super) fn is_still_due(&self) {
        self.known.lock().due = true;
    }

    /// The current memory and the previous one.
    fn known(&self) -> (i64, i64) {
        let known = self.known.lock();
        (known.since, known.before)
    }
}

/// The memories of all shards that this member uses.
#[derive(Debug, Default)]
pub(super) struct Recovery(Mutex<HashMap<Shard, Arc<Remembered>>>);

impl Recovery {
    /// Marks all shards for a report, because the store is back or may have lost everything.
    pub(super) fn all_due(&self) {
        self.0.lock().values().for_each(|memory| memory.known.lock().due = true);
    }

    /// The shards to report now.
    pub(super) fn due(&self) -> Vec<Arc<Remembered>> {
        self.0.lock().values().filter(|memory| memory.is_due()).map(Arc::clone).collect()
    }
}

impl SharedStore {
    /// The store's memory of a shard.
    pub(super) fn remembered(&self, shard: Shard) -> Arc<Remembered> {
        let mut all = self.recovery.0.lock();
        let new = |shard: &Shard| {
            let prefix = &self.settings.prefix;
            let channel = self.server.channel(prefix, shard);
            Arc::new(Remembered::new(shard.clone(), prefix, channel))
        };
        Arc::clone(all.entry(shard).or_insert_with_key(new))
    }

    /// A rule with limits is in force, so a loss of its memory must be noticed from now on, even before the first
    /// request here. The shards of a rule that is spread are recorded with their first use.
    pub(in crate::store) fn attend(&self, rule: &Rule) {
        if self.server.is_clustered() && rule.parts() != Split::All {
            return;
        }
        let memory = self.remembered(Shard::whole(&rule.name));
        let mut known = memory.known.lock();
        if known.since == 0 {
            known.due = true;
            drop(known);
            self.rejoin.report();
        }
    }

    /// Asks for the store's memory, and confirms that everything known of the previous memory was reported. False if
    /// the store does not reply.
    pub(super) async fn confirm_memory(&self, memory: &Remembered) -> bool {
        let (since, before) = memory.known();
        let (keys, arguments) = self.memory_call(memory, since, before);
        let Some(reply) = self.call::<scripts::Memory>(keys, arguments).await else {
            return false;
        };
        if memory.hears(reply.memory, since) == Heard::Lost {
            self.memory_is_lost();
        }
        true
    }

    fn memory_call(
        &self,
        memory: &Remembered,
        since: i64,
        before: i64,
    ) -> (MemoryKeys, MemoryArguments) {
        let arguments = MemoryArguments {
            member: Arc::clone(&self.member),
            memory: since,
            fleet: self.members(),
            reported: before,
            news: memory.news(memory.shard.tag()),
        };
        (MemoryKeys { memory: memory.keys.memory() }, arguments)
    }

    /// The store has lost a memory, so this member reports everything that it knows. In a Cluster a node has lost all
    /// of its shards. The heartbeat does not show that, because the list of members may be on another node.
    pub(super) fn memory_is_lost(&self) {
        if self.server.is_clustered() {
            self.recovery.all_due();
            self.news.send(News::Resync).ok();
        }
        self.rejoin.report();
    }

    /// Checks one memory on each node of a Cluster with every heartbeat.
    pub(super) async fn watch_nodes(&self) {
        let Some(redis) = self.redis().filter(|redis| redis.is_clustered()) else { return };
        let mut heartbeats = tokio::time::interval(HEARTBEAT);
        loop {
            heartbeats.tick().await;
            let mut nodes = HashMap::new();
            for memory in self.recovery.0.lock().values().filter(|memory| memory.since() > 0) {
                let node = redis.node_of(&memory.keys.memory());
                nodes.entry(node).or_insert_with(|| Arc::clone(memory));
            }
            for memory in nodes.into_values() {
                // The next call that needs the node notices that it is away.
                self.check_memory(redis, &memory).await.ok();
            }
        }
    }

    async fn check_memory(&self, redis: &Redis, memory: &Remembered) -> Result<(), Failure> {
        let since = memory.since();
        let (keys, arguments) = self.memory_call(memory, since, 0);
        let reply = redis.call::<scripts::Memory>(keys, arguments).await?;
        if memory.hears(reply.memory, since) == Heard::Lost {
            self.memory_is_lost();
        }
        Ok(())
    }

    /// Follows other members' news about the store's memory.
    pub(super) async fn follow_losses(&self) {
        let mut news = self.news();
        loop {
            match news.recv().await {
                Ok(News::Lost { shard, since }) => {
                    let memory = self.recovery.0.lock().get(&shard).map(Arc::clone);
                    // A member that knows no memory has nothing to report. One that knows a later memory has reported,
                    // or will.
                    if let Some(memory) = memory
                        && (1..since).contains(&memory.since())
                        && memory.hears(since, memory.since()) == Heard::Lost
                    {
                        self.memory_is_lost();
                    }
                }
                Ok(_) | Err(tokio::sync::broadcast::error::RecvError::Lagged(_)) => {}
                Err(tokio::sync::broadcast::error::RecvError::Closed) => return,
            }
        }
    }
}
