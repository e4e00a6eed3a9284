//! Free ports for processes that must know their port before the start, or keep it over a restart.
//!
//! The ports are below the range of the kernel (32768 and up on Linux). So no `bind(0)` and no
//! outgoing connection takes one while its process is down. Within a test program, a port is reused
//! only after all others. Two programs may still pick the same port, so the caller retries with
//! another one if its process does not start.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    sync::{
        LazyLock,
        atomic::{AtomicU16, Ordering},
    },
};

const FIRST: u16 = 12_000;
/// The number of ports in the range.
const COUNT: u16 = 20_000;
/// A handful of 20,000 ports are in use, so a hundred misses in a row have another cause.
const TRIES: usize = 100;

/// The next port of this program. It starts at a random port, so that programs rarely collide.
static NEXT: LazyLock<AtomicU16> = LazyLock::new(|| AtomicU16::new(fastrand::u16(..COUNT)));

/// A loopback address on which nothing listens.
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
