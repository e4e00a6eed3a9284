//! Applies the fleet's news at the gate: what other members did, and whether the store is reachable.

use std::sync::Arc;

use tokio::sync::broadcast::{self, error::RecvError};

use super::{Gate, bucket::BucketQueue, reports};
use crate::{
    observability::event::Event,
    store::{Backend, News, ScopeNews, What},
};

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
                Ok(News::Recovered { rule }) => {
                    self.queues_of(&rule).for_each(|queue| queue.ask_again());
                }
                Ok(News::Lost { rule, .. }) => {
                    self.queues_of(&rule).for_each(|queue| queue.report_slots());
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

    /// Applies a hint about a scope, reads the scope, and emits the event, even if this member has
    /// no requests for it. This member's own news often arrive before the reply to the report that
    /// caused them: a trip closes the scope at once, and the reply confirms it.
    fn hear(&self, news: ScopeNews) {
        let table = self.table.load();
        let Some(entry) = table.entries.iter().find(|entry| entry.rule.name == news.rule) else {
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
        let table = self.table.load();
        let entry = table.entries.iter().find(|entry| *entry.rule.name == *rule);
        let scopes = entry.map(|entry| entry.scopes.all()).unwrap_or_default();
        scopes.into_iter().map(|scope| Arc::clone(&scope.queue))
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
}
