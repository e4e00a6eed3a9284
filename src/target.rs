//! The target of a request: the parsed request line, normalised once.
//!
//! Every decision by host (rules, buckets, egress) uses the same spelling: lower case, no trailing
//! dot, IP literals in their canonical form. `Example.COM.`, `example.com` and `example.com:80` are
//! one site.

mod glob;

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
};

pub use glob::glob_matches;
use http::{Method, Uri};

words! {
    /// The scheme of a request.
    pub enum Scheme {
        /// Plain HTTP.
        Http = "http",
        /// HTTP over TLS.
        Https = "https",
    }
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

/// The target of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The scheme: `Https` for an intercepted CONNECT, `Http` for a CONNECT with unknown content.
    pub scheme: Scheme,
    /// The host.
    pub host: Host,
    /// The port, explicit or default.
    pub port: u16,
    /// Path and query as sent, without decoding (`/` if empty); empty for CONNECT.
    pub path: Arc<str>,
    /// The server, as a rule with `per: address` names it; `None` until it was looked up for such a rule.
    pub server: Option<Arc<str>>,
}

/// Why a target was refused; a message for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadTarget(pub String);

impl BadTarget {
    fn new<T>(why: impl Into<String>) -> Result<T, Self> {
        Err(Self(why.into()))
    }
}

impl Target {
    /// Parses the target of a request to the proxy: absolute-form, or authority-form for CONNECT
    /// (RFC 9112 sections 3.2.2 and 3.2.3). A CONNECT gets the scheme `Http`, because its content
    /// is unknown.
    ///
    /// # Errors
    /// Everything else: origin-form (the proxy is not a site), user information, other schemes, an
    /// invalid port, or a host that [`Host::parse`] rejects.
    pub fn parse(method: &Method, uri: &Uri) -> Result<Self, BadTarget> {
        if *method == Method::CONNECT {
            return Self::parse_connect(uri);
        }
        let scheme = match uri.scheme_str() {
            Some("http") => Scheme::Http,
            Some("https") => Scheme::Https,
            Some(_) => return BadTarget::new("only http and https are supported"),
            None => {
                return BadTarget::new(
                    "this is a proxy: the request line needs the whole URL (http://host/path)",
                );
            }
        };
        let (host, port) = split_authority(authority(uri)?)?;
        let port = match port {
            None | Some("") => scheme.default_port(),
            Some(digits) => parse_port(digits)?,
        };
        Ok(Self { scheme, host: Host::parse(host)?, port, path: path(method, uri), server: None })
    }

    /// Parses a whole URL as people write it. The fragment is ignored.
    ///
    /// # Errors
    /// Like [`Target::parse`].
    pub fn of_url(url: &str) -> Result<Self, BadTarget> {
        let text = url.split('#').next().unwrap_or("");
        let wrong = |why| BadTarget(format!("`{}` is not {why}", url.escape_debug()));
        if !text.contains("://") {
            return Err(wrong("a whole URL such as `http://shop.example/`"));
        }
        let uri: Uri = text.parse().map_err(|_| {
            wrong("a valid URL (write a blank as `%20`, a host in another script as `xn--...`)")
        })?;
        Self::parse(&Method::GET, &uri)
    }

    fn parse_connect(uri: &Uri) -> Result<Self, BadTarget> {
        if uri.scheme().is_some() || uri.path_and_query().is_some() {
            return BadTarget::new("CONNECT takes host:port and nothing else");
        }
        let (host, port) = split_authority(authority(uri)?)?;
        let port = match port {
            None | Some("") => return BadTarget::new("CONNECT needs a port (host:port)"),
            Some(digits) => parse_port(digits)?,
        };
        let host = Host::parse(host)?;
        Ok(Self { scheme: Scheme::Http, host, port, path: Arc::from(""), server: None })
    }

    /// Parses the target of a request inside an intercepted CONNECT: origin-form, or absolute-form
    /// (also HTTP/2) of the CONNECT's own site. `self` is the target of the CONNECT, `scheme` the
    /// scheme inside.
    ///
    /// # Errors
    /// Another host, port or scheme than the CONNECT's (status 421), or a CONNECT inside a CONNECT.
    pub fn inside(&self, scheme: Scheme, method: &Method, uri: &Uri) -> Result<Self, BadTarget> {
        if *method == Method::CONNECT {
            return BadTarget::new("a CONNECT inside a CONNECT is not served");
        }
        if uri.authority().is_some() {
            let named = Self::parse(method, uri)?;
            if named.host != self.host || named.port != self.port || named.scheme != scheme {
                return BadTarget::new(format!(
                    "the request names {}://{}:{}, but the CONNECT was to {}:{}",
                    named.scheme.as_str(),
                    named.host,
                    named.port,
                    self.host,
                    self.port
                ));
            }
        }
        let (host, port) = (self.host.clone(), self.port);
        Ok(Self { scheme, host, port, path: path(method, uri), server: None })
    }

    /// Whether a Host field names this target (RFC 9112 section 3.2). The default port may be
    /// omitted.
    #[must_use]
    pub fn is_named_by(&self, field: &str) -> bool {
        let Ok((host, port)) = split_authority(field) else { return false };
        let port = match port {
            None | Some("") => Ok(self.scheme.default_port()),
            Some(digits) => parse_port(digits),
        };
        port == Ok(self.port) && Host::parse(host).is_ok_and(|host| host == self.host)
    }

    /// `host`, or `host:port` unless the port is the default: the Host field for the site.
    #[must_use]
    pub fn authority(&self) -> String {
        if self.port == self.scheme.default_port() {
            self.host.to_string()
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

/// Path and query as sent. An OPTIONS for the whole site has the path `*` (RFC 9112 section 3.2.4).
/// The `http` crate cannot tell `http://host` from `http://host/`, so the HTTP/1 reader passes the
/// former on as `http://host?`.
fn path(method: &Method, uri: &Uri) -> Arc<str> {
    match uri.path_and_query().map_or("/", |path| path.as_str()) {
        "?" if *method == Method::OPTIONS => Arc::from("*"),
        path if path.starts_with('?') => Arc::from(format!("/{path}")),
        path => Arc::from(path),
    }
}

fn authority(uri: &Uri) -> Result<&str, BadTarget> {
    match uri.authority() {
        Some(authority) if authority.as_str().as_bytes().contains(&b'@') => BadTarget::new(
            "user information in a URL is not passed on; send an Authorization field",
        ),
        Some(authority) => Ok(authority.as_str()),
        None => BadTarget::new("the target has no host"),
    }
}

/// Splits `host`, `host:port` and `[v6]:port`; the brackets stay with the host.
fn split_authority(text: &str) -> Result<(&str, Option<&str>), BadTarget> {
    let end_of = |wanted: u8| text.bytes().position(|b| b == wanted);
    let host_end = if text.starts_with('[') {
        match end_of(b']') {
            Some(end) => end + 1,
            None => return BadTarget::new("an opening bracket is never closed"),
        }
    } else {
        end_of(b':').unwrap_or(text.len())
    };
    let (host, rest) = text.split_at(host_end);
    match (rest.is_empty(), rest.strip_prefix(':')) {
        (true, _) => Ok((host, None)),
        (false, Some(port)) => Ok((host, Some(port))),
        (false, None) => BadTarget::new("something other than a port follows the host"),
    }
}

fn parse_port(digits: &str) -> Result<u16, BadTarget> {
    let port = match digits.len() {
        1..=5 if digits.bytes().all(|b| b.is_ascii_digit()) => digits.parse().unwrap_or(0),
        _ => 0u16,
    };
    if port == 0 {
        return BadTarget::new(format!(
            "`{}` is not a valid port (1 to 65535)",
            digits.escape_default()
        ));
    }
    Ok(port)
}

impl Host {
    /// Parses a host from a URI: a name, an IPv4 address, or an IPv6 address in brackets.
    ///
    /// # Errors
    /// Any other text, including spellings that some resolvers read as an address although they are
    /// not a dotted quad (`0x7f.1`, `2130706433`, `127.1`). The egress check must judge the address
    /// that is dialled.
    pub fn parse(text: &str) -> Result<Self, BadTarget> {
        if let Some(inner) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            let ip: Ipv6Addr = inner
                .parse()
                .map_err(|_| BadTarget(format!("`{text}` is not a valid IPv6 address")))?;
            return Ok(Self::Ip(IpAddr::V6(ip).to_canonical()));
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
        let mut last: &[u8] = b"";
        for label in name.as_bytes().split(|b| *b == b'.') {
            if label.is_empty() || label.len() > 63 {
                return bad("has an empty label or one over 63 characters");
            }
            if is_fake_idn(label) {
                return bad("has an `xn--` label that spells a plain ASCII name");
            }
            last = label;
        }
        if is_numeric(last) {
            return match name.parse::<std::net::Ipv4Addr>() {
                Ok(ip) => Ok(Self::Ip(IpAddr::V4(ip))),
                Err(_) => bad("ends in a number but is not a dotted-quad IPv4 address"),
            };
        }
        if name.bytes().any(|b| b.is_ascii_uppercase()) {
            return Ok(Self::Name(name.to_ascii_lowercase().into()));
        }
        Ok(Self::Name(name.into()))
    }
}

/// Whether a label only pretends to be in another script: `xn--name-` decodes to `name`, so one
/// site would have two spellings (RUSTSEC-2024-0421). The text after the last hyphen encodes the
/// other script; without it there is none (RFC 3492 section 3.1).
fn is_fake_idn(label: &[u8]) -> bool {
    let (prefix, rest) = label.split_at_checked(4).unwrap_or((b"", label));
    prefix.eq_ignore_ascii_case(b"xn--") && (rest.is_empty() || rest.ends_with(b"-"))
}

/// Whether some resolver would read a host with this last label as an address.
fn is_numeric(label: &[u8]) -> bool {
    match label {
        [b'0', b'x' | b'X', hex @ ..] => hex.iter().all(u8::is_ascii_hexdigit),
        digits => digits.iter().all(u8::is_ascii_digit),
    }
}

#[cfg(test)]
mod tests;
