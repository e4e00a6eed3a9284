//! The part of a scope that a member uses without its store.

use super::{LocalState, Memory};
use crate::limiter::{
    bucket::{Bucket, Window},
    policy::Limits,
};

impl Memory {
    /// Begins the member's own part of a scope: nothing is sent before `from`, and of each quota
    /// only what `windows` leave.
    pub(in crate::store) fn begin(
        &self,
        place: &LocalState,
        limits: &Limits,
        from: i64,
        windows: Vec<Window>,
        steady: bool,
    ) {
        let mut kept = place.bucket.lock();
        let bucket = kept.state.get_or_insert_with(|| Bucket::full(self.now(), limits));
        bucket.drain(from);
        bucket.windows = windows;
        bucket.steady = steady;
        bucket.filling = None;
    }

    /// The windows of the quotas as they are there.
    pub(in crate::store) fn windows(&self, place: &LocalState) -> Vec<Window> {
        place.bucket.lock().state.as_ref().map_or_else(Vec::new, |bucket| bucket.windows.clone())
    }
}
