//! The servers by which `per: address` splits a rule into scopes.
//!
//! One server may serve thousands of small hosts, and all their requests load it. The hosts of a
//! content delivery network share an address without sharing a server, so each of them keeps its
//! own scope. So do hosts in the networks of the rule's `address_except`.

use std::{
    net::IpAddr,
    sync::{Arc, LazyLock},
};

use ipnet::{IpNet, Ipv6Net};

use super::Rule;
use crate::{limiter::policy::Split, target::Host};

/// The bits of an IPv6 address that identify a server. The rest names an interface (RFC 4291
/// section 2.5.1), and many servers give each of their hosts one.
const SERVER_BITS: u8 = 64;

/// The networks of content delivery networks, as text.
static BUILT_IN: &str = include_str!("../../config/shared-addresses.txt");

static SHARED: LazyLock<Vec<IpNet>> = LazyLock::new(|| {
    let lines = BUILT_IN.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| line.parse().expect("a test reads each line as a network")).collect()
});

impl Rule {
    /// Whether its scopes are named by addresses. A name is then looked up before its request is
    /// held.
    #[must_use]
    pub fn is_per_address(&self) -> bool {
        let cooldown = self.cooldown.as_ref().map(|cooldown| cooldown.per);
        self.per == Split::Address || cooldown == Some(Split::Address)
    }

    /// The name of the server of `host` at `ip`: the address, its /64 network, or the host if hosts
    /// at that address keep their own scopes.
    #[must_use]
    pub fn server(&self, host: &Host, ip: IpAddr) -> Arc<str> {
        server(host, ip.to_canonical(), &self.address_except)
    }
}

/// A server that is named by its network; `None` if no server has this name.
#[must_use]
pub fn server_network(name: &str) -> Option<Ipv6Net> {
    let network: Ipv6Net = name.parse().ok()?;
    (network.prefix_len() == SERVER_BITS).then_some(network)
}

fn server(host: &Host, ip: IpAddr, except: &[IpNet]) -> Arc<str> {
    if except.iter().chain(&*SHARED).any(|network| network.contains(&ip)) {
        return Split::Host.key(host);
    }
    match ip {
        IpAddr::V4(ip) => Arc::from(ip.to_string()),
        IpAddr::V6(ip) => Arc::from(Ipv6Net::new_assert(ip, SERVER_BITS).trunc().to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(ip: &str, except: &[&str]) -> String {
        let host = Host::parse("shop.example").expect("a host");
        let except: Vec<_> = except.iter().map(|net| net.parse().expect("a network")).collect();
        super::server(&host, ip.parse().expect("an address"), &except).to_string()
    }

    #[test]
    fn each_built_in_network_is_one_and_none_is_written_twice() {
        assert!(SHARED.len() > 100, "{}", SHARED.len());
        for (at, network) in SHARED.iter().enumerate() {
            assert_eq!(network.trunc(), *network, "bits after its prefix");
            let twice = SHARED[..at].iter().find(|other| other.contains(network));
            assert_eq!(twice, None, "{network}");
        }
    }

    #[test]
    fn a_server_is_an_address_or_a_network_of_64_bits() {
        assert_eq!(server("198.51.100.7", &[]), "198.51.100.7");
        assert_eq!(server("2001:db8:1:2::1", &[]), "2001:db8:1:2::/64");
        assert_eq!(server("2001:db8:1:2:ffff::9", &[]), "2001:db8:1:2::/64");
        assert_eq!(server("2001:db8:1:3::1", &[]), "2001:db8:1:3::/64");
    }

    #[test]
    fn hosts_behind_a_content_delivery_network_or_in_an_excepted_network_are_kept_apart() {
        let except = ["198.51.100.0/24", "2001:db8::/32"];
        for ip in ["104.16.1.1", "151.101.1.1", "13.32.0.9", "2606:4700::1", "2001:db8::7"] {
            assert_eq!(server(ip, &except), "shop.example", "{ip}");
        }
        assert_eq!(server("198.51.100.7", &except), "shop.example");
        assert_eq!(server("198.51.101.7", &except), "198.51.101.7");
    }
}
