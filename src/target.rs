//! Where a request wants to go: the parsed request line, normalised once.
//!
//! Everything that decides by host (rules, buckets, egress) sees the same spelling: lower case, no trailing dot,
//! IP literals in their canonical form. `Example.COM.`, `example.com` and `example.com:80` are one site.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
};

/// The scheme of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// Plain HTTP.
    Http,
    /// HTTP over TLS.
    Https,
}

impl Scheme {
    /// The port that the scheme implies (RFC 9110 section 4.2).
    #[must_use]
    pub const fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }

    /// `http` or `https`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

/// A host: a DNS name or an address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Host {
    /// A DNS name: ASCII, lower case, no trailing dot.
    Name(Arc<str>),
    /// An IP literal.
    Ip(IpAddr),
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Ip(IpAddr::V6(ip)) => write!(f, "[{ip}]"),
            Self::Ip(IpAddr::V4(ip)) => write!(f, "{ip}"),
        }
    }
}

/// Where one request wants to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The scheme; `Https` for a CONNECT to be intercepted, `Http` where nothing is known.
    pub scheme: Scheme,
    /// The host.
    pub host: Host,
    /// The port, written or implied.
    pub port: u16,
    /// Path and query as sent (`/` where empty), nothing decoded; empty for CONNECT.
    pub path: Arc<str>,
}

/// Why a target was refused; the text is for a person.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadTarget(pub String);

impl Target {
    /// Reads a whole URL, as people write it; what stands behind `#` is left out.
    ///
    /// # Errors
    /// Anything but `http://` or `https://` with a host.
    pub fn of_url(url: &str) -> Result<Self, BadTarget> {
        let bad = |why: &str| BadTarget(format!("`{}` {why}", url.escape_debug()));
        let text = url.split('#').next().unwrap_or("");
        let uri: http::Uri = text.parse().map_err(|_| bad("is no URL"))?;
        let scheme = match uri.scheme_str() {
            Some("http") => Scheme::Http,
            Some("https") => Scheme::Https,
            _ => return Err(bad("is no URL with http:// or https://")),
        };
        let host = Host::parse(uri.host().ok_or_else(|| bad("names no host"))?)?;
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let port = uri.port_u16().unwrap_or(scheme.default_port());
        Ok(Self { scheme, host, port, path: path.into() })
    }
}

impl Host {
    /// Reads a host as it stands in a URI: a name, an IPv4 address, or an IPv6 address in brackets.
    ///
    /// # Errors
    /// Anything that is not plainly one of these, and every spelling that some resolver would read as an address
    /// though it is not in dotted-quad form (`0x7f.1`, `2130706433`, `127.1`): the guard must judge what is dialled.
    pub fn parse(text: &str) -> Result<Self, BadTarget> {
        if let Some(inner) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            let ip: Ipv6Addr =
                inner.parse().map_err(|_| BadTarget(format!("`{text}` is no IPv6 address")))?;
            return Ok(Self::Ip(IpAddr::V6(ip)));
        }
        let name = text.strip_suffix('.').unwrap_or(text);
        let bad = |why: &str| Err(BadTarget(format!("the host `{}` {why}", name.escape_default())));
        if name.is_empty() || name.len() > 253 {
            return bad("is empty or longer than 253 characters");
        }
        if !name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.')) {
            return bad(
                "has characters that no host name has (names in other scripts are sent as `xn--`)",
            );
        }
        if name.split('.').any(|label| label.is_empty() || label.len() > 63) {
            return bad("has an empty label or one over 63 characters");
        }
        if let Ok(ip) = name.parse::<std::net::Ipv4Addr>() {
            return Ok(Self::Ip(IpAddr::V4(ip)));
        }
        let last = name.rsplit('.').next().unwrap_or(name);
        let numeric = last.bytes().all(|b| b.is_ascii_digit())
            || last
                .strip_prefix("0x")
                .or(last.strip_prefix("0X"))
                .is_some_and(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()));
        if numeric {
            return bad("ends in a number but is no dotted-quad IPv4 address");
        }
        Ok(Self::Name(name.to_ascii_lowercase().into()))
    }
}
