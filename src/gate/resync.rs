//! Reads every scope again when news may have been lost: push messages arrive at most once.
//!
//! A separate task, so that news are applied in the meantime. If they arrive out of order, the
//! later epoch counts.

use std::sync::Arc;

use tokio::task::JoinSet;

use super::{Gate, active_scope::ActiveScope, reports};

/// Number of scopes that are read at the same time: many in one round trip, and far fewer than the store's client
/// queues.
const READS: usize = 256;

impl Gate {
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
    scope.cooldown.doubt();
    scopes.iter().for_each(|scope| scope.queue.store_is_back());
}
