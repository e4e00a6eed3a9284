//! Free ports for processes that must know theirs before they start, or keep it over a restart.
//!
//! They are taken below the range from which the kernel gives ports away (32768 and up on Linux), so that no
//! `bind(0)` and no outgoing connection takes one while its process is down. Two test programs may still pick the same
//! one: whoever starts a process tries again with another port when it does not come up.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

const FIRST: u16 = 12_000;
const LAST: u16 = 31_999;
/// With a handful of ports in use of 20,000, a hundred misses in a row mean that something else is wrong.
const TRIES: usize = 100;

/// A loopback address nobody listens on right now.
///
/// # Panics
/// If no port is free.
#[must_use]
pub fn free_address() -> SocketAddr {
    (0..TRIES)
        .map(|_| SocketAddr::from((Ipv4Addr::LOCALHOST, fastrand::u16(FIRST..=LAST))))
        .find(|address| TcpListener::bind(address).is_ok())
        .expect("some port between 12000 and 31999 is free")
}
