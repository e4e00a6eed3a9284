//! The slots of `limits.tunnels`. A slot is taken before a CONNECT is held, and freed when its
//! tunnel ends. Otherwise concurrently held requests could all become tunnels, beyond the limit.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// The number of slots in use.
#[derive(Debug, Default)]
pub(in crate::proxy) struct TunnelSlots(Arc<AtomicUsize>);

/// One slot, freed on drop.
#[derive(Debug)]
pub(in crate::proxy) struct TunnelSlot(Arc<AtomicUsize>);

impl TunnelSlots {
    /// Takes a slot if fewer than `most` are in use. A reload may change `most`.
    pub(in crate::proxy) fn take(&self, most: usize) -> Option<TunnelSlot> {
        let one_more = |taken: usize| (taken < most).then_some(taken + 1);
        let taken = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        taken.ok().map(|_| TunnelSlot(Arc::clone(&self.0)))
    }
}

impl Drop for TunnelSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_bounded_and_come_back() {
        let places = TunnelSlots::default();
        let (first, second) = (places.take(2), places.take(2));
        assert!(first.is_some() && second.is_some() && places.take(2).is_none());
        drop(first);
        assert!(places.take(1).is_none(), "a smaller bound after a reload holds at once");
        assert!(places.take(2).is_some());
    }
}
