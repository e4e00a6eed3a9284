//! The addresses of the proxy itself: its listeners and its store, which may name new servers at
//! run time.

use std::net::{IpAddr, SocketAddr};

use arc_swap::ArcSwap;

/// Most addresses. Beyond that, the oldest added ones are dropped. Clusters are far smaller, but the number grows if
/// each restart of a node brings a new address.
const MOST: usize = 1_024;

/// Addresses that must not be reachable through the proxy. An unspecified one (`0.0.0.0`) stands for every address of
/// this machine.
#[derive(Debug)]
pub struct OwnAddresses {
    at_start: usize,
    all: ArcSwap<Vec<SocketAddr>>,
}

impl From<Vec<SocketAddr>> for OwnAddresses {
    fn from(own: Vec<SocketAddr>) -> Self {
        let all: Vec<_> = own.into_iter().map(canonical).collect();
        Self { at_start: all.len(), all: ArcSwap::from_pointee(all) }
    }
}

impl OwnAddresses {
    /// Adds an address, for every guard that shares this list.
    pub fn add(&self, more: Vec<SocketAddr>) {
        let more: Vec<_> = more.into_iter().map(canonical).collect();
        self.all.rcu(|all| {
            let mut all = all.to_vec();
            all.extend(more.iter().filter(|addr| !all.contains(addr)).copied().collect::<Vec<_>>());
            let surplus = all.len().saturating_sub(MOST.max(self.at_start));
            all.drain(self.at_start..self.at_start + surplus);
            all
        });
    }

    /// Whether a connection to `ip` and `port` reaches one of them. A connection to the unspecified address reaches
    /// this machine.
    pub(super) fn is_at(&self, ip: IpAddr, port: u16) -> bool {
        let here = ip.is_loopback() || ip.is_unspecified();
        self.all.load().iter().any(|own| {
            own.port() == port
                && (own.ip() == ip
                    || (own.ip().is_unspecified() && here)
                    || (own.ip().is_loopback() && ip.is_unspecified()))
        })
    }

    /// Whether one of them listens at `port` on every address of this machine.
    pub(super) fn is_everywhere_at(&self, port: u16) -> bool {
        self.all.load().iter().any(|own| own.ip().is_unspecified() && own.port() == port)
    }
}

fn canonical(at: SocketAddr) -> SocketAddr {
    SocketAddr::new(at.ip().to_canonical(), at.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(port: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 9], port))
    }

    #[test]
    fn later_addresses_apply_at_once_and_never_replace_the_listeners() {
        let own = OwnAddresses::from(vec![addr(1)]);
        assert!(!own.is_at(addr(2).ip(), 2));
        own.add(vec![addr(2), addr(1)]);
        assert!(own.is_at(addr(2).ip(), 2));
        for port in 3..3 + 2 * MOST {
            own.add(vec![addr(u16::try_from(port).unwrap_or(u16::MAX))]);
        }
        assert_eq!(own.all.load().len(), MOST);
        assert!(own.is_at(addr(1).ip(), 1), "the listener stays");
        assert!(!own.is_at(addr(2).ip(), 2), "the oldest made room");
    }
}
