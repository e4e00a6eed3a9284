//! The kept-alive connections of one site, apart by the thread that each lives on.

use hyper::client::conn::http1::SendRequest;
use tokio::time::Instant;

use crate::proxy::upload::Upload;

/// A connection that waits for its next request.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) sender: SendRequest<Upload>,
    /// The worker on whose thread it lives.
    pub(super) home: usize,
    /// When it came back.
    pub(super) since: Instant,
}

/// By worker, each in the order in which they came back.
#[derive(Debug, Default)]
pub(super) struct Site {
    homes: Vec<Vec<Kept>>,
    len: usize,
}

impl Site {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Keeps one.
    pub(super) fn put(&mut self, one: Kept) {
        if self.homes.len() <= one.home {
            self.homes.resize_with(one.home + 1, Vec::new);
        }
        self.homes[one.home].push(one);
        self.len += 1;
    }

    /// The last one used that is ready for a request: of this home, or else of the one that has most.
    pub(super) fn take(&mut self, home: usize) -> Option<Kept> {
        let own = self.homes.get_mut(home).and_then(|own| last_ready(own, &mut self.len));
        own.or_else(|| {
            let most = self.homes.iter_mut().max_by_key(|kept| kept.len())?;
            last_ready(most, &mut self.len)
        })
    }

    /// The one that has waited longest.
    pub(super) fn take_oldest(&mut self) -> Option<Kept> {
        let waiting = self.homes.iter_mut().filter(|kept| !kept.is_empty());
        let oldest = waiting.min_by_key(|kept| kept[0].since)?;
        self.len -= 1;
        Some(oldest.remove(0))
    }

    /// Lets go of those that are not wanted.
    pub(super) fn keep(&mut self, wanted: impl Fn(&Kept) -> bool) {
        for kept in &mut self.homes {
            kept.retain(&wanted);
        }
        self.len = self.homes.iter().map(Vec::len).sum();
    }

    /// Since when each has waited.
    pub(super) fn ages(&self) -> impl Iterator<Item = Instant> {
        self.homes.iter().flatten().map(|one| one.since)
    }
}

/// Takes closed ones off the end on its way; those that closed longer ago stand further in front, where the sweep finds
/// them: no request pays for a look at all.
fn last_ready(kept: &mut Vec<Kept>, len: &mut usize) -> Option<Kept> {
    let before = kept.len();
    while kept.pop_if(|one| one.sender.is_closed()).is_some() {}
    let at = kept.iter().rposition(|one| one.sender.is_ready());
    let found = at.map(|at| kept.remove(at));
    *len -= before - kept.len();
    found
}
