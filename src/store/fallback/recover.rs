//! Recovery of a store that has lost its memory of a rule, by a flush or a failover to an empty server. Such a store
//! grants nothing of the rule until all members have reported what they know (`lua/lib/memory.lua`).

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;

use super::SharedStore;
use crate::store::{
    News,
    push::Channel,
    rule_keys::RuleKeys,
    scripts::{self, MemoryArguments, MemoryKeys, NewsFields},
};

/// The store's memory of one rule.
#[derive(Debug)]
pub(in crate::store) struct Remembered {
    rule: Arc<str>,
    /// Its keys in Redis.
    pub(in crate::store) keys: RuleKeys,
    channel: Channel,
    known: Mutex<KnownMemory>,
}

/// Memories are known by when they began, on the store's clock; 0 = none.
#[derive(Debug, Default)]
struct KnownMemory {
    since: i64,
    /// The one before, which was lost.
    before: i64,
    /// Whether the store must get it.
    due: bool,
}

/// What a reply of the store says about its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Heard {
    /// Nothing new.
    Same,
    /// It is a new one: the store must get the members' knowledge.
    Lost,
    /// The reply belongs to a memory that was lost since.
    Stale,
}

impl Remembered {
    fn new(rule: &Arc<str>, prefix: &str, channel: Channel) -> Self {
        let keys = RuleKeys::new(prefix, rule);
        Self { rule: Arc::clone(rule), keys, channel, known: Mutex::default() }
    }

    /// The memory that is known; 0 = none.
    pub(super) fn since(&self) -> i64 {
        self.known.lock().since
    }

    /// Records the memory in a reply (0 = none) to a call that was sent with the knowledge of
    /// `asked_with`.
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

    /// The store did not take it.
    pub(super) fn is_still_due(&self) {
        self.known.lock().due = true;
    }

    /// Memory, and the previous one.
    fn known(&self) -> (i64, i64) {
        let known = self.known.lock();
        (known.since, known.before)
    }
}

/// The memories of all rules.
#[derive(Debug, Default)]
pub(super) struct Recovery(Mutex<HashMap<Arc<str>, Arc<Remembered>>>);

impl Recovery {
    /// All rules must be reported, because the store is back or may have lost everything.
    pub(super) fn all_due(&self) {
        self.0.lock().values().for_each(|memory| memory.known.lock().due = true);
    }

    /// The rules to report now.
    pub(super) fn due(&self) -> Vec<Arc<Remembered>> {
        self.0.lock().values().filter(|memory| memory.is_due()).map(Arc::clone).collect()
    }
}

impl SharedStore {
    /// The store's memory of a rule.
    pub(super) fn remembered(&self, rule: &Arc<str>) -> Arc<Remembered> {
        let mut all = self.recovery.0.lock();
        let new = || {
            let prefix = &self.settings.prefix;
            Arc::new(Remembered::new(rule, prefix, self.server.channel(prefix, rule)))
        };
        Arc::clone(all.entry(Arc::clone(rule)).or_insert_with(new))
    }

    /// A rule with limits is in force: from now on, a loss of its memory must be noticed, even
    /// before the first request here.
    pub(in crate::store) fn attend(&self, rule: &Arc<str>) {
        let memory = self.remembered(rule);
        let mut known = memory.known.lock();
        if known.since == 0 {
            known.due = true;
            drop(known);
            self.rejoin.tell();
        }
    }

    /// Gets the store's memory, and confirms that everything known of the previous one was
    /// reported. False if the store does not reply.
    pub(super) async fn confirm_memory(&self, memory: &Remembered) -> bool {
        let (since, before) = memory.known();
        let (command, channel) = memory.channel.clone();
        let arguments = MemoryArguments {
            member: Arc::clone(&self.member),
            memory: since,
            fleet: self.members(),
            reported: before,
            news: NewsFields { command, channel, name: memory.rule.to_string() },
        };
        let keys = MemoryKeys { memory: memory.keys.memory() };
        let Some(reply) = self.call::<scripts::Memory>(keys, arguments).await else {
            return false;
        };
        if memory.hears(reply.memory, since) == Heard::Lost {
            self.rejoin.tell();
        }
        true
    }

    /// Follows other members' news about the store's memory.
    pub(super) async fn follow_losses(&self) {
        let mut news = self.news();
        loop {
            match news.recv().await {
                Ok(News::Lost { rule, since }) => {
                    let memory = self.recovery.0.lock().get(&rule).map(Arc::clone);
                    // A member that knows of none has nothing to report; one that knows a later one
                    // has reported, or will.
                    if let Some(memory) = memory
                        && (1..since).contains(&memory.since())
                        && memory.hears(since, memory.since()) == Heard::Lost
                    {
                        self.rejoin.tell();
                    }
                }
                Ok(_) | Err(tokio::sync::broadcast::error::RecvError::Lagged(_)) => {}
                Err(tokio::sync::broadcast::error::RecvError::Closed) => return,
            }
        }
    }
}
