//! The kept-alive connections of one site, by thread.

use hyper::client::conn::http1::SendRequest;
use tokio::time::Instant;

use crate::proxy::upstream::upload::Upload;

/// An idle connection.
#[derive(Debug)]
pub(super) struct IdleConn {
    pub(super) sender: SendRequest<Upload>,
    /// The worker on whose thread it was made.
    pub(super) worker: usize,
    /// When it became idle.
    pub(super) since: Instant,
}

/// By worker, each in the order of their return.
#[derive(Debug, Default)]
pub(super) struct SiteConns {
    by_worker: Vec<Vec<IdleConn>>,
    len: usize,
}

impl SiteConns {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Whether it is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Keeps one.
    pub(super) fn put(&mut self, one: IdleConn) {
        if self.by_worker.len() <= one.worker {
            self.by_worker.resize_with(one.worker + 1, Vec::new);
        }
        self.by_worker[one.worker].push(one);
        self.len += 1;
    }

    /// The most recently used connection that is ready: one of this worker, or else one of the worker with the most
    /// connections.
    pub(super) fn take(&mut self, worker: usize) -> Option<IdleConn> {
        let own = self.by_worker.get_mut(worker).and_then(|own| last_ready(own, &mut self.len));
        own.or_else(|| {
            let most = self.by_worker.iter_mut().max_by_key(|kept| kept.len())?;
            last_ready(most, &mut self.len)
        })
    }

    /// The one that has waited longest.
    pub(super) fn take_oldest(&mut self) -> Option<IdleConn> {
        let waiting = self.by_worker.iter_mut().filter(|kept| !kept.is_empty());
        let oldest = waiting.min_by_key(|kept| kept[0].since)?;
        self.len -= 1;
        Some(oldest.remove(0))
    }

    /// Closes all connections but the `wanted` ones.
    pub(super) fn keep(&mut self, wanted: impl Fn(&IdleConn) -> bool) {
        for kept in &mut self.by_worker {
            kept.retain(&wanted);
        }
        self.len = self.by_worker.iter().map(Vec::len).sum();
    }

    /// When each became idle.
    pub(super) fn ages(&self) -> impl Iterator<Item = Instant> {
        self.by_worker.iter().flatten().map(|one| one.since)
    }
}

/// Removes closed connections at the end of the list. Connections that closed earlier are nearer to the front, where
/// the sweep finds them, so no request scans the whole list.
fn last_ready(kept: &mut Vec<IdleConn>, len: &mut usize) -> Option<IdleConn> {
    let before = kept.len();
    while kept.pop_if(|one| one.sender.is_closed()).is_some() {}
    let at = kept.iter().rposition(|one| one.sender.is_ready());
    let found = at.map(|at| kept.remove(at));
    *len -= before - kept.len();
    found
}
