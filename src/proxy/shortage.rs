//! What is lacking on this machine, told from what is wrong with a site: nobody else is to blame for it.

use std::{
    io,
    net::{Ipv4Addr, UdpSocket},
};

use rustix::io::Errno;

/// Whether the process has run out of descriptors, or the system of what a connection takes.
pub(super) fn is_shortage(error: &io::Error) -> bool {
    let shortages = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    Errno::from_io_error(error).is_some_and(|errno| shortages.contains(&errno))
}

/// Why no socket can be had now, where that is so. `getaddrinfo` has one word for a name that is none and for a resolver
/// that it had no socket to ask by.
pub(super) fn of_sockets() -> Option<io::Error> {
    UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).err().filter(is_shortage)
}
