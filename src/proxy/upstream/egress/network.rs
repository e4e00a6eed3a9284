//! Which addresses are public, by the special-purpose registries of IANA (RFC 6890 and its
//! successors).

use super::{EgressPattern, IpAddr, Ipv4Addr, Ipv6Addr};

/// IPv4 networks that are not public, and their names in a refusal.
const NOT_PUBLIC_V4: [(Ipv4Addr, u8, &str); 16] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8, "an address of this machine (RFC 1122)"),
    (Ipv4Addr::new(10, 0, 0, 0), 8, "a private address (RFC 1918)"),
    (Ipv4Addr::new(100, 64, 0, 0), 10, "a shared address of a provider (RFC 6598)"),
    (Ipv4Addr::new(127, 0, 0, 0), 8, "a loopback address"),
    (Ipv4Addr::new(169, 254, 0, 0), 16, "a link-local address (cloud metadata lives there)"),
    (Ipv4Addr::new(172, 16, 0, 0), 12, "a private address (RFC 1918)"),
    (Ipv4Addr::new(192, 0, 0, 0), 24, "an address for protocols (RFC 6890)"),
    (Ipv4Addr::new(192, 0, 2, 0), 24, "an address for documentation (RFC 5737)"),
    (Ipv4Addr::new(192, 88, 99, 0), 24, "a 6to4 relay (RFC 7526)"),
    (Ipv4Addr::new(192, 168, 0, 0), 16, "a private address (RFC 1918)"),
    (Ipv4Addr::new(198, 18, 0, 0), 15, "an address for benchmarks (RFC 2544)"),
    (Ipv4Addr::new(198, 51, 100, 0), 24, "an address for documentation (RFC 5737)"),
    (Ipv4Addr::new(203, 0, 113, 0), 24, "an address for documentation (RFC 5737)"),
    (Ipv4Addr::new(224, 0, 0, 0), 4, "a multicast address"),
    (Ipv4Addr::new(240, 0, 0, 0), 4, "a reserved address"),
    (Ipv4Addr::new(168, 63, 129, 16), 32, "the host agent of a cloud (Azure)"),
];

/// IPv6 networks that are not public although they are in 2000::/3, the only public part (RFC 4291 section 2.4).
const NOT_PUBLIC_V6: [(Ipv6Addr, u8, &str); 6] = [
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 32, "a Teredo address (RFC 4380)"),
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23, "an address for protocols (RFC 2928)"),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32, "an address for documentation"),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16, "a 6to4 address (RFC 3056)"),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20, "an address for documentation"),
    (Ipv6Addr::new(0x3ffe, 0, 0, 0, 0, 0, 0, 0), 16, "an address of the former 6bone"),
];

/// The NAT64 prefix for any network (RFC 6052 section 2.1). A connection to it reaches an IPv4
/// address.
const NAT64: Ipv6Addr = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0);

/// The address that a connection to `ip` finally reaches: the IPv4 address inside a mapped or NAT64 one.
#[must_use]
pub fn reached(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(v6) if within_v6(v6, NAT64, 96) => {
            let [.., a, b, c, d] = v6.octets();
            IpAddr::V4(Ipv4Addr::new(a, b, c, d))
        }
        ip => ip,
    }
}

/// The name of a network that contains `ip` and is not public; `None` if `ip` is public.
pub(super) fn not_public(ip: IpAddr) -> Option<&'static str> {
    match ip {
        IpAddr::V4(v4) => NOT_PUBLIC_V4
            .iter()
            .find(|(network, bits, _)| within_v4(v4, *network, *bits))
            .map(|(_, _, kind)| *kind),
        IpAddr::V6(v6) => NOT_PUBLIC_V6
            .iter()
            .find(|(network, bits, _)| within_v6(v6, *network, *bits))
            .map(|(_, _, kind)| *kind)
            .or_else(|| not_global_unicast(v6)),
    }
}

/// The kind of a name that no public site has, and the word of `egress.allow` that covers it: special-use names (RFC
/// 6761, RFC 6762, RFC 8375, ICANN's `internal`), and names without a dot.
pub(super) fn not_public_name(name: &str) -> Option<(&'static str, EgressPattern)> {
    let below = |parent: &str| {
        name.strip_suffix(parent).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    if below("localhost") {
        return Some(("a name of the upstream proxy's own machine", EgressPattern::Loopback));
    }
    let private = !name.contains('.') || ["local", "internal", "home.arpa"].into_iter().any(below);
    private.then_some(("a name of a private network", EgressPattern::Private))
}

/// Everything outside 2000::/3, with its name if it has one.
fn not_global_unicast(v6: Ipv6Addr) -> Option<&'static str> {
    if v6.segments()[0] & 0xe000 == 0x2000 {
        None
    } else if v6.is_loopback() {
        Some("a loopback address")
    } else if v6.is_unspecified() {
        Some("an address of this machine")
    } else if v6.is_unique_local() {
        Some("a private address (RFC 4193)")
    } else if v6.is_unicast_link_local() {
        Some("a link-local address")
    } else if v6.is_multicast() {
        Some("a multicast address")
    } else {
        Some("no public address")
    }
}

/// `private` of the rule file: RFC 1918, RFC 4193, RFC 6598.
pub(super) fn is_private(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => v4.is_private() || within_v4(v4, Ipv4Addr::new(100, 64, 0, 0), 10),
        IpAddr::V6(v6) => v6.is_unique_local(),
    }
}

/// `link_local` of the rule file: 169.254.0.0/16 and fe80::/10.
pub(super) fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

fn within_v4(ip: Ipv4Addr, network: Ipv4Addr, bits: u8) -> bool {
    (ip.to_bits() ^ network.to_bits()).leading_zeros() >= u32::from(bits)
}

fn within_v6(ip: Ipv6Addr, network: Ipv6Addr, bits: u8) -> bool {
    (ip.to_bits() ^ network.to_bits()).leading_zeros() >= u32::from(bits)
}
