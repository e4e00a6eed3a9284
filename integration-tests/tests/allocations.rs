//! How often a request allocates: a number that no clock and no load of the machine changes, with a bound that fails
//! when it grows by a tenth.
//!
//! The proxy runs in this very process; client and site are threads that allocate nothing while it is counted.
#![allow(clippy::unwrap_used)]

use std::{
    alloc::System,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::Arc,
    thread,
};

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tidegate::{app::App, config, event::Events, metrics::Metrics};
use tokio::{runtime::Runtime, sync::mpsc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Requests before the count: connections, pools and tables are made then.
const FIRST: usize = 300;
/// Requests that are counted.
const COUNTED: usize = 1_000;

/// A site that answers every request on every connection with `answer`.
fn site(answer: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 4096];
            // A head comes in one piece here.
            while stream.read(&mut request).is_ok_and(|read| read > 0) {
                stream.write_all(answer).unwrap();
            }
        }
    });
    at
}

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
    let (stop, told) = mpsc::channel(1);
    runtime.spawn(async move {
        let _stop = stop;
        app.serve(told).await
    });
    (at, runtime)
}

/// Allocations of one request, on a kept-alive connection.
fn allocations(rule: &str, answer: &'static [u8]) -> f64 {
    let site = site(answer);
    let (at, _runtime) = proxy(rule);
    let mut client = TcpStream::connect(at).unwrap();
    let request = format!(
        "GET http://{site}/ HTTP/1.1\r\nHost: {site}\r\nUser-Agent: test\r\nAccept: */*\r\n\r\n"
    );
    let mut buffer = [0; 16 * 1024];
    let mut ask = |times: usize| {
        for _ in 0..times {
            client.write_all(request.as_bytes()).unwrap();
            let mut filled = 0;
            while !buffer[..filled].ends_with(END) {
                let read = client.read(&mut buffer[filled..]).unwrap();
                assert!(read > 0, "the connection was closed");
                filled += read;
            }
            assert!(buffer.starts_with(b"HTTP/1.1 200"));
        }
    };
    ask(FIRST);
    let region = Region::new(ALLOCATOR);
    ask(COUNTED);
    let counted = region.change();
    (counted.allocations + counted.reallocations) as f64 / COUNTED as f64
}

/// How every answer ends.
const END: &[u8] = b"</html>";

const PAGE: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: text/html; charset=utf-8\r\ncontent-length: 83\r\n\r\n\
    <html><title>A page</title><p>A few words</p><p>and a few &amp; more</p><br></html>";

const IMAGE: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: image/png\r\ncontent-length: 13\r\n\r\n\
    123456</html>";

/// One test: two at a time would count each other's.
#[test]
fn a_request_allocates_no_more_than_it_did() {
    const FULL: &str = "rate: 1000000/s, burst: 1000000, cooldown: {after: 1000}";
    let grown: Vec<String> = [
        ("nothing limited", "action: bypass", IMAGE, 27.0),
        ("limited, an image", FULL, IMAGE, 29.0),
        ("limited, a page", FULL, PAGE, 43.0),
    ]
    .into_iter()
    .map(|(what, rule, answer, bound)| (what, allocations(rule, answer), bound))
    .filter(|(_, counted, bound)| *counted > bound * 1.1)
    .map(|(what, counted, bound)| format!("{what}: {counted} allocations per request, not {bound}"))
    .collect();
    assert!(grown.is_empty(), "{}", grown.join("\n"));
}
