//! Free ports for processes that must know theirs before they start, or keep it over a restart.
//!
//! They are taken below the range from which the kernel gives ports away (32768 and up on Linux), so that no
//! `bind(0)` and no outgoing connection takes one while its process is down. Within a test program none is given twice
//! before all have been. Two programs may still pick the same one: whoever starts a process tries again with another
//! port when it does not come up.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    sync::{
        LazyLock,
        atomic::{AtomicU16, Ordering},
    },
};

const FIRST: u16 = 12_000;
/// How many there are from there on.
const COUNT: u16 = 20_000;
/// With a handful of ports in use of 20,000, a hundred misses in a row mean that something else is wrong.
const TRIES: usize = 100;

/// Where this program goes on; it starts anywhere, so that programs seldom meet.
static NEXT: LazyLock<AtomicU16> = LazyLock::new(|| AtomicU16::new(fastrand::u16(..COUNT)));

/// A loopback address nobody listens on right now.
///
/// # Panics
/// If no port is free.
#[must_use]
pub fn free_address() -> SocketAddr {
    let step = |at| Some((at + 1) % COUNT);
    (0..TRIES)
        .filter_map(|_| NEXT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, step).ok())
        .map(|at| SocketAddr::from((Ipv4Addr::LOCALHOST, FIRST + at)))
        .find(|address| TcpListener::bind(address).is_ok())
        .expect("some port between 12000 and 31999 is free")
}
