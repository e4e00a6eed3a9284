//! Waits for what a member knows of its store and its fleet.

use std::time::Duration;

use super::Member;
use crate::wait::wait_until;

/// A member finds its store within a second, but takes longer on a busy machine.
const SOON: Duration = Duration::from_secs(30);

impl Member {
    /// Waits until the member knows that the store is up (or down).
    ///
    /// # Panics
    /// If it does not.
    pub async fn store_is(&self, up: bool) {
        let wanted = f64::from(u8::from(up));
        wait_until(&format!("the store is up: {up}"), SOON, async || {
            (self.metric("tidegate_store_up", &[]).await - wanted).abs() < 1e-9
        })
        .await;
    }

    /// Waits until the member knows of so many members, itself included.
    ///
    /// # Panics
    /// If it does not.
    pub async fn knows_of(&self, members: u32) {
        wait_until(&format!("the member knows of {members}"), SOON, async || {
            (self.metric("tidegate_members", &[]).await - f64::from(members)).abs() < 1e-9
        })
        .await;
    }
}
