//! Waiting for a condition, at most so long: the only way in which a test waits.

use std::time::{Duration, Instant};

/// How often a condition is looked at; short beside every limit that tests give.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Waits until `condition` holds.
///
/// # Panics
/// After `at_most`, naming `what` was waited for.
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
/// After `at_most`, naming `what` was waited for.
pub fn wait_until_blocking(what: &str, at_most: Duration, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < at_most, "{what}: not within {at_most:?}");
        std::thread::sleep(LOOK_EVERY);
    }
}
