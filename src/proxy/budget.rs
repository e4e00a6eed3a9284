//! Budgets that requests share: the tunnels of `limits.tunnels`, and the memory of held HTTP/2
//! requests.
//!
//! A tunnel's share is taken before its CONNECT is held. Otherwise all held requests could become tunnels and exceed
//! the limit. An HTTP/1.1 client needs one connection for each held request. An HTTP/2 client can make the proxy hold
//! hundreds with a few bytes each, by references to earlier fields (RFC 7541).

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use http::Request;

/// Most bytes for all held HTTP/2 requests: about 30,000 typical ones.
pub(crate) const MAX_HELD_MEMORY: usize = 128 * 1024 * 1024;
/// Bytes of a request without its fields: its stream, its task and its entry in the queue.
const REQUEST: usize = 2 * 1024;
/// Bytes of a field without its name and value: its entry in a map that doubles as it grows.
const FIELD: usize = 200;

/// The amount in use.
#[derive(Debug, Default)]
pub(crate) struct Budget(Arc<AtomicUsize>);

/// A part of a budget, given back on drop.
#[derive(Debug)]
pub(crate) struct Share {
    size: usize,
    used: Arc<AtomicUsize>,
}

/// The share of one tunnel.
pub(crate) type TunnelSlot = Share;

impl Budget {
    /// Takes `size` unless that would exceed `most`. A reload may change `most`.
    pub(crate) fn take(&self, size: usize, most: usize) -> Option<Share> {
        let more = |used: usize| used.checked_add(size).filter(|sum| *sum <= most);
        let taken = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.ok().map(|_| Share { size, used: Arc::clone(&self.0) })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.used.fetch_sub(self.size, Ordering::Relaxed);
    }
}

/// The approximate memory of a held request.
pub(crate) fn size_of_held<B>(request: &Request<B>) -> usize {
    let target = request.uri().path_and_query().map_or(0, |path| path.as_str().len());
    let fields = request.headers().iter();
    REQUEST
        + target
        + fields.map(|(name, value)| FIELD + name.as_str().len() + value.len()).sum::<usize>()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn tunnels_are_bounded_and_come_back() {
        let tunnels = Budget::default();
        let (first, second) = (tunnels.take(1, 2), tunnels.take(1, 2));
        assert!(first.is_some() && second.is_some() && tunnels.take(1, 2).is_none());
        drop(first);
        assert!(tunnels.take(1, 1).is_none(), "a smaller bound after a reload holds at once");
        assert!(tunnels.take(1, 2).is_some());
    }

    #[test]
    fn only_so_much_memory_is_kept_and_all_of_it_is_given_back() {
        let memory = Budget::default();
        let request = Request::get("/").header("x", "a".repeat(16 * 1024)).body(()).unwrap();
        let size = size_of_held(&request);
        let take = || memory.take(size, MAX_HELD_MEMORY);
        let shares: Vec<_> = std::iter::from_fn(take).collect();
        assert!(size > 18 * 1024 && shares.len() == MAX_HELD_MEMORY / size, "{}", shares.len());
        drop(shares);
        assert_eq!(memory.0.load(Ordering::Relaxed), 0);
        assert!(take().is_some());
    }
}
