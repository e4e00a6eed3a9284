//! Applies the fleet's news at the gate: events of other members, and whether the store is reachable.
//!
//! Push messages arrive at most once. If some may have been lost, a separate task reads every scope again while further
//! news are applied; the later epoch counts.

use std::sync::Arc;

use tokio::{
    sync::broadcast::{self, error::RecvError},
    task::JoinSet,
};

use super::{Gate, active_scope::ActiveScope, bucket::BucketQueue, reports};
use crate::{
    observability::event::Event,
    store::{Backend, News, ScopeNews, Shard, What},
};

/// Number of scopes that are read at the same time: many per round trip, and far fewer than the store's client queues.
const READS: usize = 256;

impl Gate {
    /// Follows the fleet's news for as long as the store lives.
    pub(super) async fn follow(self: Arc<Self>, mut news: broadcast::Receiver<News>) {
        loop {
            match news.recv().await {
                Ok(News::Scope(news)) => self.hear(news),
                Ok(News::Rate { rule, key, member }) => {
                    if member != self.shared.member {
                        self.rate_changed(&rule, &key);
                    }
                }
                Ok(News::Slots { rule, key, queue }) => {
                    for one in self.queues_of(&rule).filter(|one| one.serves(&key)) {
                        one.hear_of_slots(&queue);
                    }
                }
                Ok(News::Recovered { shard }) => {
                    self.queues_in(&shard).for_each(|queue| queue.ask_again());
                }
                Ok(News::Lost { shard, .. }) => {
                    self.queues_in(&shard).for_each(|queue| queue.report_slots());
                }
                Ok(News::Resync) | Err(RecvError::Lagged(_)) => {
                    self.shared.resync.notify_one();
                    self.scopes().iter().for_each(|scope| scope.queue.report_slots());
                }
                Ok(News::Up(up)) => self.report_store(up),
                Ok(News::Heard { hears, reason }) => {
                    self.shared.events.emit(Event::StoreNews { hears, reason });
                }
                Err(RecvError::Closed) => return,
            }
        }
    }

    /// Applies a hint about a scope, reads the scope, and emits the event, even if this member has no requests for it.
    /// A member's own news often arrive before the reply to its report: a trip closes the scope at once, and the reply
    /// confirms it.
    fn hear(&self, news: ScopeNews) {
        let table = self.table.load();
        let Some(entry) = table.all().find(|entry| entry.rule.name == news.rule) else {
            return;
        };
        let ours = news.member == self.shared.member;
        let cooldown = entry.scopes.cooldown(&news.key);
        if let (Some(cooldown), Some(policy)) = (&cooldown, &entry.rule.cooldown)
            && (!ours || news.what == What::Tripped)
            && cooldown.pushed(&news, policy.max)
            && !ours
            && let Some(scope) = entry.scopes.of_cooldown(cooldown)
        {
            self.shared.store.spawn(async move { reports::look(&scope).await });
        }
        if !ours {
            reports::heard(&self.shared.events, entry, cooldown.as_deref(), news);
        }
    }

    /// The queues of a rule.
    fn queues_of(&self, rule: &str) -> impl Iterator<Item = Arc<BucketQueue>> {
        self.scopes_of(rule).into_iter().map(|scope| Arc::clone(&scope.queue))
    }

    /// The queues of a shard.
    fn queues_in(&self, shard: &Shard) -> impl Iterator<Item = Arc<BucketQueue>> {
        let scopes = self.scopes_of(shard.rule()).into_iter();
        scopes.filter(|scope| scope.stored.is_in(shard)).map(|scope| Arc::clone(&scope.queue))
    }

    fn scopes_of(&self, rule: &str) -> Vec<Arc<ActiveScope>> {
        let table = self.table.load();
        let entry = table.all().find(|entry| *entry.rule.name == *rule);
        entry.map(|entry| entry.scopes.all()).unwrap_or_default()
    }

    fn report_store(&self, up: bool) {
        let Backend::Shared(store) = &self.shared.store else { return };
        self.shared.events.emit(if up {
            Event::StoreUp
        } else {
            let Some(kind) = store.failure() else { return };
            Event::StoreDown {
                kind: kind.as_str(),
                cause: kind.cause(),
                server: store.servers(),
                reason: store.why_down(),
                advice: kind.advice(),
                mode: store.on_failure(),
                holds: store.knows_no_share(),
            }
        });
    }

    /// Reads every scope again on each request.
    pub(super) async fn keep_in_step(self: Arc<Self>) {
        loop {
            self.shared.resync.notified().await;
            let mut reads = JoinSet::new();
            for scopes in self.scopes_by_cooldown() {
                while reads.len() >= READS {
                    reads.join_next().await;
                }
                reads.spawn(read_again(scopes));
            }
            while reads.join_next().await.is_some() {}
        }
    }

    /// The scopes, together if they share a cooldown.
    fn scopes_by_cooldown(&self) -> Vec<Vec<Arc<ActiveScope>>> {
        let mut scopes = self.scopes();
        scopes.sort_by_key(|scope| Arc::as_ptr(&scope.cooldown).addr());
        let shares = |one: &Arc<ActiveScope>, other: &Arc<ActiveScope>| {
            Arc::ptr_eq(&one.cooldown, &other.cooldown)
        };
        scopes.chunk_by(shares).map(<[_]>::to_vec).collect()
    }
}

/// Reads a cooldown again, and wakes the scopes that share it.
async fn read_again(scopes: Vec<Arc<ActiveScope>>) {
    let Some(scope) = scopes.first() else { return };
    reports::look(scope).await;
    scope.cooldown.recheck_probe();
    scopes.iter().for_each(|scope| scope.queue.store_is_back());
}
