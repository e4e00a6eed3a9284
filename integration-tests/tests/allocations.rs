//! Counts the allocations of a request. The number does not depend on time or load, and the test
//! fails if it grows by a tenth.
//!
//! The proxy runs in this process. Client and site are threads that allocate nothing while it is
//! measured.
#![allow(clippy::unwrap_used)]

use std::{alloc::System, net::SocketAddr, sync::Arc};

use integration_tests::counting::{Asker, IMAGE, PAGE, site};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tidegate::{
    cli::app::App,
    config,
    observability::{event::Events, metrics::Metrics},
};
use tokio::{runtime::Runtime, sync::mpsc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Requests before the count: connections, pools and tables are made then.
const FIRST: usize = 300;
/// Requests that are counted.
const COUNTED: usize = 1_000;

/// A proxy with this rule, on a runtime of one thread.
fn proxy(rule: &str) -> (SocketAddr, Runtime) {
    let text = format!(
        "listen: 127.0.0.1:0\nadmin: off\negress: {{allow: [loopback]}}\nrules:\n  - {{name: all, match: \"*\", {rule}}}\n"
    );
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let loaded = config::parse(&text, "test.yaml", &|_| None).unwrap();
    let metrics = Metrics::new();
    let events = Events::new(Arc::clone(&metrics));
    let (overrides, no_log) = (config::Overrides::default(), Box::new(|_: &str| Ok(())));
    let app = runtime.block_on(App::build(loaded, overrides, metrics, events, no_log));
    let app = app.unwrap();
    let at = app.listen().unwrap();
    let (stop, signals) = mpsc::channel(1);
    runtime.spawn(async move {
        let _stop = stop;
        app.serve(signals).await
    });
    (at, runtime)
}

/// Allocations of one request, on a kept-alive connection.
fn allocations(rule: &str, answer: &'static [u8]) -> f64 {
    let site = site(answer);
    let (at, _runtime) = proxy(rule);
    let mut client = Asker::connect(at, site);
    client.ask(FIRST);
    let region = Region::new(ALLOCATOR);
    client.ask(COUNTED);
    let counted = region.change();
    (counted.allocations + counted.reallocations) as f64 / COUNTED as f64
}

/// One test: two at a time would count each other's.
#[test]
fn a_request_allocates_no_more_than_it_did() {
    const FULL: &str = "rate: 1000000/s, burst: 1000000, cooldown: {after: 1000}";
    let grown: Vec<String> = [
        ("nothing limited", "action: bypass", IMAGE, 14.0),
        ("limited, an image", FULL, IMAGE, 16.0),
        ("limited, a page", FULL, PAGE, 23.0),
    ]
    .into_iter()
    .map(|(what, rule, answer, bound)| (what, allocations(rule, answer), bound))
    .filter(|(_, counted, bound)| *counted > bound * 1.1)
    .map(|(what, counted, bound)| format!("{what}: {counted} allocations per request, not {bound}"))
    .collect();
    assert!(grown.is_empty(), "{}", grown.join("\n"));
}
