//! Tests of panics, accept errors and parked connections.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use tokio::io::{AsyncRead as _, AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadBuf};

use super::{connection_slots::Full, *};
use crate::{
    observability::metrics::Metrics,
    proxy::tests::bench::{Bench, settings},
    rules::settings::Bounds,
};

fn bounds(bench: &Bench) -> Bounds {
    bench.cx.live().settings.limits
}

#[tokio::test]
async fn a_panic_ends_one_connection_and_is_counted() {
    let bench = Bench::start().await;
    crate::observability::event::watch_panics(Arc::clone(&bench.metrics));
    let slots = ConnectionSlots::new();
    let peer = SocketAddr::from(([127, 0, 0, 1], 9));
    let slot = slots.enter(peer.ip(), bounds(&bench), &bench.metrics).unwrap();
    let task = ConnectionTask { cx: Arc::clone(&bench.cx), peer, _slot: slot };
    assert_eq!(bench.metric("tidegate_client_connections"), 1.0);
    let task = tokio::spawn(async move {
        let _task = task;
        panic!("on purpose");
    });
    assert!(task.await.unwrap_err().is_panic());
    assert_eq!(bench.metric("tidegate_panics_total"), 1.0);
    assert_eq!(bench.metric("tidegate_client_connections"), 0.0, "its place is free again");
}

#[tokio::test]
async fn every_taken_slot_is_freed() {
    let bench = Bench::start().await;
    let slots = ConnectionSlots::new();
    let limits = Bounds { connections: 3, per_client: 2, ..bounds(&bench) };
    let enter = |last| slots.enter([127, 0, 0, last].into(), limits, &bench.metrics);
    for _ in 0..100 {
        let (first, second) = (enter(1).unwrap(), enter(1).unwrap());
        assert_eq!(enter(1).unwrap_err(), Full::Client);
        let third = enter(2).unwrap();
        assert_eq!(enter(2).unwrap_err(), Full::Total);
        drop((first, second, third));
    }
}

#[test]
fn only_a_failure_of_one_client_causes_no_pause_of_accept() {
    let error = |kind: ErrorKind| is_of_one_connection(&kind.into());
    assert!(error(ErrorKind::ConnectionAborted));
    assert!(!is_of_one_connection(&std::io::Error::from_raw_os_error(24)), "EMFILE");
    assert!(!error(ErrorKind::OutOfMemory));
}

const GET: &[u8] = b"GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n";

/// Reads like hyper, for at most this long. Returns whether the connection may be parked.
async fn is_parkable(
    io: &mut ClientIo<DuplexStream>,
    handle: &crate::http1::Handle,
    limit: Duration,
) -> bool {
    let is_parkable = poll_fn(|cx| {
        let mut byte = [0];
        let read = Pin::new(&mut *io).poll_read(cx, &mut ReadBuf::new(&mut byte));
        assert!(read.is_pending(), "{read:?}");
        if handle.is_parkable() { Poll::Ready(()) } else { Poll::Pending }
    });
    tokio::time::timeout(limit, is_parkable).await.is_ok()
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_parked_while_its_client_is_silent_and_wakes_for_each_request() {
    let (mut client, end) = tokio::io::duplex(1 << 16);
    let settings = settings();
    let (mut io, handle) = ClientIo::new(end, &settings, &Metrics::new());
    let a_while = settings.timeouts.idle / 2;
    for _ in 0..3 {
        // However slowly the head arrives, hyper is called only for a whole one.
        for piece in GET.chunks(20) {
            let waited = tokio::time::timeout(a_while / 4, poll_fn(|cx| io.poll_request(cx))).await;
            assert!(waited.is_err(), "{waited:?}");
            client.write_all(piece).await.unwrap();
        }
        assert!(poll_fn(|cx| io.poll_request(cx)).await.unwrap() && !handle.is_parkable());
        let mut read = vec![0; GET.len()];
        io.read_exact(&mut read).await.unwrap();
        assert_eq!(read, GET);
        let answering = handle.answering();
        assert!(!is_parkable(&mut io, &handle, a_while).await, "a request is being answered");
        io.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
        drop(answering);
        assert!(!is_parkable(&mut io, &handle, a_while).await, "the answer is not out");
        io.flush().await.unwrap();
        assert!(is_parkable(&mut io, &handle, a_while).await);
    }
    let since = crate::runtime::clock::now();
    let end = poll_fn(|cx| io.poll_request(cx)).await;
    assert_eq!(end.unwrap_err().kind(), ErrorKind::TimedOut);
    let silent = since.elapsed();
    assert!(silent > a_while && silent < settings.timeouts.idle, "{silent:?}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_closes_a_parked_connection_wakes_no_task() {
    let (client, end) = tokio::io::duplex(1 << 16);
    let (mut io, _wire) = ClientIo::new(end, &settings(), &Metrics::new());
    drop(client);
    assert!(!poll_fn(|cx| io.poll_request(cx)).await.unwrap());
}
