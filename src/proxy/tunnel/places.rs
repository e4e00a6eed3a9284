//! The places of `limits.tunnels`. A place is taken before a request for a tunnel is held, and kept until the tunnel
//! ends: requests that are held at the same time cannot all become tunnels beyond the bound.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// How many places are taken.
#[derive(Debug, Default)]
pub(in crate::proxy) struct Places(Arc<AtomicUsize>);

/// One place; free again when it is dropped.
#[derive(Debug)]
pub(in crate::proxy) struct Place(Arc<AtomicUsize>);

impl Places {
    /// Takes a place if fewer than `most` are taken. A reload may change `most`.
    pub(in crate::proxy) fn take(&self, most: usize) -> Option<Place> {
        let one_more = |taken: usize| (taken < most).then_some(taken + 1);
        let taken = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        taken.ok().map(|_| Place(Arc::clone(&self.0)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_bounded_and_come_back() {
        let places = Places::default();
        let (first, second) = (places.take(2), places.take(2));
        assert!(first.is_some() && second.is_some() && places.take(2).is_none());
        drop(first);
        assert!(places.take(1).is_none(), "a smaller bound after a reload holds at once");
        assert!(places.take(2).is_some());
    }
}
