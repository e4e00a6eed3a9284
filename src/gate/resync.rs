//! Reads every scope again when news may have been lost: push messages arrive at most once.
//!
//! A separate task, so that news are applied in the meantime. If they arrive out of order, the
//! later epoch counts.

use std::sync::Arc;

use tokio::task::JoinSet;

use super::{Gate, lane::Lane, tell};

/// Number of scopes that are read at the same time: many in one round trip, and far fewer than the store's client
/// queues.
const READS: usize = 256;

impl Gate {
    /// Reads every scope again on each request.
    pub(super) async fn keep_in_step(self: Arc<Self>) {
        loop {
            self.shared.resync.notified().await;
            let mut reads = JoinSet::new();
            for lanes in self.lanes_by_cooldown() {
                while reads.len() >= READS {
                    reads.join_next().await;
                }
                reads.spawn(read_again(lanes));
            }
            while reads.join_next().await.is_some() {}
        }
    }

    /// The lanes, together if they share a cooldown.
    fn lanes_by_cooldown(&self) -> Vec<Vec<Arc<Lane>>> {
        let mut lanes = self.lanes();
        lanes.sort_by_key(|lane| Arc::as_ptr(&lane.view).addr());
        let shares = |one: &Arc<Lane>, other: &Arc<Lane>| Arc::ptr_eq(&one.view, &other.view);
        lanes.chunk_by(shares).map(<[_]>::to_vec).collect()
    }
}

/// Reads a cooldown again, and wakes the lanes that share it.
async fn read_again(lanes: Vec<Arc<Lane>>) {
    let Some(lane) = lanes.first() else { return };
    tell::look(lane).await;
    lane.view.doubt();
    lanes.iter().for_each(|lane| lane.queue.store_is_back());
}
