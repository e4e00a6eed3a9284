//! Large responses stream: memory does not grow with them, neither in a tunnel nor in an
//! intercepted connection.

use std::path::Path;

use integration_tests::{member::Member, site::Page, tools::run_through};

use crate::secure_site;

/// Enough to be seen if it were kept; a gigabyte would show the same and take eight times as long.
const MEBIBYTES: u64 = 128;
/// The buffers of a connection, plus what the allocator keeps.
const GROWTH_AT_MOST: u64 = 24 << 20;

async fn fetch(keys: &str, certificate: impl Fn(&Member, &Path) -> String) {
    let (site, root) = secure_site();
    site.on("/large", Page::Mebibytes(MEBIBYTES));
    let member = root.member(keys).await;
    let certificate = certificate(&member, &root.file());
    let (small, large) = (site.url("/"), site.url("/large"));
    let curl = async |version: &str, url: &str| {
        let said = "%{size_download}";
        let arguments = [
            version,
            "--silent",
            "--show-error",
            "--fail",
            "--cacert",
            &certificate,
            "--output",
            "/dev/null",
            "--write-out",
            said,
            url,
        ];
        let output = run_through(&member.proxy_url(), Path::new("curl"), &arguments).await;
        String::from_utf8_lossy(&output.stdout).parse::<u64>().expect("a size")
    };
    for version in ["--http1.1", "--http2"] {
        curl(version, &small).await;
        let before = member.resident_bytes();
        assert_eq!(curl(version, &large).await, MEBIBYTES << 20);
        let growth = member.resident_bytes().saturating_sub(before);
        assert!(growth < GROWTH_AT_MOST, "{keys}, {version}: {} MiB more", growth >> 20);
    }
}

#[tokio::test]
async fn a_large_answer_in_a_tunnel_takes_no_memory() {
    fetch("tunnel: flights", |_, root| root.display().to_string()).await;
}

#[tokio::test]
async fn a_large_answer_through_interception_takes_no_memory() {
    fetch("intercept: true", |member, _| member.ca_file().display().to_string()).await;
}
