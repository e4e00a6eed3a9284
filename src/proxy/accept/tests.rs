//! Panics and accept errors.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use super::{doors::Full, *};
use crate::{proxy::tests::bench::Bench, settings::Bounds};

fn bounds(bench: &Bench) -> Bounds {
    bench.cx.live().settings.limits
}

#[tokio::test]
async fn a_panic_takes_one_connection_along_and_is_counted() {
    let bench = Bench::start().await;
    crate::event::watch_panics(Arc::clone(&bench.metrics));
    let doors = Doors::new();
    let peer = SocketAddr::from(([127, 0, 0, 1], 9));
    let seat = doors.enter(peer.ip(), bounds(&bench), &bench.metrics).unwrap();
    let watched = Watched { cx: Arc::clone(&bench.cx), peer, _seat: seat };
    assert_eq!(bench.metric("tidegate_client_connections"), 1.0);
    let task = tokio::spawn(async move {
        let _watched = watched;
        panic!("on purpose");
    });
    assert!(task.await.unwrap_err().is_panic());
    assert_eq!(bench.metric("tidegate_panics_total"), 1.0);
    assert_eq!(bench.metric("tidegate_client_connections"), 0.0, "its place is free again");
}

#[tokio::test]
async fn every_place_that_is_taken_is_given_back() {
    let bench = Bench::start().await;
    let doors = Doors::new();
    let limits = Bounds { connections: 3, per_client: 2, ..bounds(&bench) };
    let enter = |last| doors.enter([127, 0, 0, last].into(), limits, &bench.metrics);
    for _ in 0..100 {
        let (first, second) = (enter(1).unwrap(), enter(1).unwrap());
        assert_eq!(enter(1).unwrap_err(), Full::Client);
        let third = enter(2).unwrap();
        assert_eq!(enter(2).unwrap_err(), Full::Total);
        drop((first, second, third));
    }
}

#[test]
fn only_what_one_client_did_is_passed_over_without_a_pause() {
    let error = |kind: ErrorKind| is_one_connection(&kind.into());
    assert!(error(ErrorKind::ConnectionAborted));
    assert!(!is_one_connection(&std::io::Error::from_raw_os_error(24)), "EMFILE");
    assert!(!error(ErrorKind::OutOfMemory));
}
