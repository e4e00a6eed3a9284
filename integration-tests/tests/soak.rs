//! Half a minute of `make soak`: a fleet under load while its store, its members, its sites and its clients fail.

use std::time::Duration;

use integration_tests::soak::{Plan, run};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fleet_that_is_broken_again_and_again_keeps_its_promises() {
    let report = run(Plan { length: Duration::from_secs(20), seed: 9 }).await;
    assert!(report.broken().is_empty(), "{report}");
}
