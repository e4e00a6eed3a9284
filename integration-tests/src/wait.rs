//! Waiting for a condition with a time limit: the only kind of wait in a test.

use std::time::{Duration, Instant};

/// The interval between two checks, short compared with every limit.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Waits until `condition` holds.
///
/// # Panics
/// After `at_most`, with `what` in the message.
pub async fn wait_until(what: &str, at_most: Duration, mut condition: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !condition().await {
        assert!(start.elapsed() < at_most, "{what}: not within {at_most:?}");
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// [`wait_until`] for code without a runtime.
///
/// # Panics
/// After `at_most`, with `what` in the message.
pub fn wait_until_blocking(what: &str, at_most: Duration, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < at_most, "{what}: not within {at_most:?}");
        std::thread::sleep(LOOK_EVERY);
    }
}
