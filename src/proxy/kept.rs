//! What held requests of HTTP/2 keep in memory, all together. A client of HTTP/1.1 has a connection for each; one of
//! HTTP/2 may hold hundreds of requests with the few bytes that refer to fields it has sent before (RFC 7541).

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use http::{HeaderMap, Request};

/// Most bytes that all held requests of HTTP/2 may keep: some 30,000 of the usual kind.
const MOST: usize = 128 * 1024 * 1024;
/// What a request keeps beside its fields: its stream, its task, its place in the queue.
const REQUEST: usize = 2 * 1024;
/// What a field keeps beside its name and value: its place in a map that doubles as it grows.
const FIELD: usize = 200;

/// Bytes that are kept now.
#[derive(Debug, Default)]
pub(super) struct Kept(Arc<AtomicUsize>);

/// The part of one request; given back when it is dropped.
#[derive(Debug)]
pub(super) struct Share {
    size: usize,
    kept: Arc<AtomicUsize>,
}

impl Kept {
    /// The part of a request that is to be held; `None` if there is no room for it.
    pub(super) fn take<B>(&self, request: &Request<B>) -> Option<Share> {
        let target = request.uri().path_and_query().map_or(0, |path| path.as_str().len());
        let size = REQUEST + target + size_of_fields(request.headers());
        let more = |now: usize| now.checked_add(size).filter(|sum| *sum <= MOST);
        let taken = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.ok().map(|_| Share { size, kept: Arc::clone(&self.0) })
    }
}

fn size_of_fields(fields: &HeaderMap) -> usize {
    fields.iter().map(|(name, value)| FIELD + name.as_str().len() + value.len()).sum()
}

impl Drop for Share {
    fn drop(&mut self) {
        self.kept.fetch_sub(self.size, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn only_so_much_is_kept_and_all_of_it_is_given_back() {
        let kept = Kept::default();
        let request = Request::get("/").header("x", "a".repeat(16 * 1024)).body(()).unwrap();
        let shares: Vec<_> = std::iter::from_fn(|| kept.take(&request)).collect();
        let size = shares[0].size;
        assert!(size > 18 * 1024 && shares.len() == MOST / size, "{} of {size}", shares.len());
        drop(shares);
        assert_eq!(kept.0.load(Ordering::Relaxed), 0);
        assert!(kept.take(&request).is_some());
    }
}
