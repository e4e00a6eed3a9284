//! `via`: the upstream proxy for the requests of a rule.

use std::{
    fmt,
    hash::{Hash, Hasher},
};

use super::secret::Secret;
use crate::target::Host;

words! {
    /// The protocol of the upstream proxy.
    pub enum ProxyScheme {
        /// HTTP.
        Http = "http",
        /// HTTP over TLS, with a verified certificate.
        Https = "https",
        /// SOCKS 5 (RFC 1928). The proxy resolves the names.
        Socks5 = "socks5",
    }
}

/// User and password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Login {
    /// The user.
    pub user: String,
    /// The password.
    pub password: Secret,
}

/// An upstream proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamProxy {
    /// Its protocol.
    pub scheme: ProxyScheme,
    /// Its host.
    pub host: Host,
    /// Its port.
    pub port: u16,
    /// The login, if it requires one.
    pub login: Option<Login>,
}

impl Hash for UpstreamProxy {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.scheme, &self.host, self.port).hash(state);
    }
}

/// Without the login.
impl fmt::Display for UpstreamProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}:{}", self.scheme.as_str(), self.host, self.port)
    }
}
