//! Real servers read every message of the proxy alike. `make soak` does the same with 100,000
//! mutations.

use integration_tests::differential::run;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_servers_read_forwarded_requests_alike() {
    let report = run(2_000, 18).await;
    assert!(report.conflicts.is_empty(), "{report}");
    assert!(report.distinct > 100, "too few were forwarded: {report}");
    assert!(report.refused.len() >= 7, "too few servers: {report}");
    let most = report.refused.values().max().copied().unwrap_or_default();
    assert!(
        most < report.distinct / 2,
        "a server that refuses nearly all judges nothing: {report}"
    );
}
