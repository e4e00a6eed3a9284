//! Distinguishes local resource exhaustion from a failure of the site.

use std::{
    io,
    net::{Ipv4Addr, UdpSocket},
};

use rustix::io::Errno;

/// Whether the process has run out of descriptors, or the system of memory for connections.
pub(crate) fn is_exhausted(error: &io::Error) -> bool {
    let shortages = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    Errno::from_io_error(error).is_some_and(|errno| shortages.contains(&errno))
}

/// The error if no socket can be opened now. `getaddrinfo` reports a missing socket like an unknown name.
pub(crate) fn of_sockets() -> Option<io::Error> {
    UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).err().filter(is_exhausted)
}
