//! Bounds the memory that held HTTP/2 requests use together.
//!
//! An HTTP/1.1 client needs one connection for each held request. An HTTP/2 client can make the
//! proxy hold hundreds with a few bytes each, by references to earlier fields (RFC 7541).

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use http::{HeaderMap, Request};

/// Most bytes for all held HTTP/2 requests: about 30,000 usual ones.
const MOST: usize = 128 * 1024 * 1024;
/// Bytes of a request without its fields: its stream, its task and its place in the queue.
const REQUEST: usize = 2 * 1024;
/// Bytes of a field without its name and value: its entry in a map that doubles as it grows.
const FIELD: usize = 200;

/// The bytes that are in use.
#[derive(Debug, Default)]
pub(super) struct HeldMemory(Arc<AtomicUsize>);

/// The bytes of one request, given back on drop.
#[derive(Debug)]
pub(super) struct MemoryShare {
    size: usize,
    total: Arc<AtomicUsize>,
}

impl HeldMemory {
    /// Reserves memory for a request that is about to be held; `None` if the limit is reached.
    pub(super) fn take<B>(&self, request: &Request<B>) -> Option<MemoryShare> {
        let target = request.uri().path_and_query().map_or(0, |path| path.as_str().len());
        let size = REQUEST + target + size_of_fields(request.headers());
        let more = |now: usize| now.checked_add(size).filter(|sum| *sum <= MOST);
        let taken = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.ok().map(|_| MemoryShare { size, total: Arc::clone(&self.0) })
    }
}

fn size_of_fields(fields: &HeaderMap) -> usize {
    fields.iter().map(|(name, value)| FIELD + name.as_str().len() + value.len()).sum()
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        self.total.fetch_sub(self.size, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn only_so_much_is_kept_and_all_of_it_is_given_back() {
        let kept = HeldMemory::default();
        let request = Request::get("/").header("x", "a".repeat(16 * 1024)).body(()).unwrap();
        let shares: Vec<_> = std::iter::from_fn(|| kept.take(&request)).collect();
        let size = shares[0].size;
        assert!(size > 18 * 1024 && shares.len() == MOST / size, "{} of {size}", shares.len());
        drop(shares);
        assert_eq!(kept.0.load(Ordering::Relaxed), 0);
        assert!(kept.take(&request).is_some());
    }
}
