//! Who may use the proxy: Basic credentials on `Proxy-Authorization` (RFC 7617, RFC 9110 section
//! 11.7), or a client network that needs none.
//!
//! Checked for every request, before anything else. The time of a refusal does not show whether a user exists or how
//! much of a password was right. `Debug` output and errors never contain credentials.

use std::{collections::HashMap, fmt, net::IpAddr, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{HeaderMap, header::PROXY_AUTHORIZATION};
use ipnet::IpNet;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::{gate::Client, rules::settings};

/// The challenge to a refused client: the `Proxy-Authenticate` field of a 407.
pub const CHALLENGE: &str = r#"Basic realm="tidegate", charset="UTF-8""#;

/// Longest `Proxy-Authorization` value that is read. Names and passwords are far shorter.
const MAX_FIELD: usize = 2048;

/// A password as SHA-256. All have the same length, so that comparisons take the same time.
type PasswordHash = [u8; 32];

/// Why a client may not use the proxy. The text is for a person and contains nothing that the client sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unauthorised {
    /// No `Proxy-Authorization` field.
    #[error("this proxy needs a user name and a password (Proxy-Authorization: Basic ...)")]
    Missing,
    /// Not exactly one well-formed Basic field.
    #[error("the Proxy-Authorization field is not one well-formed line of Basic credentials")]
    Malformed,
    /// The user or the password is wrong.
    #[error("user name or password are wrong")]
    Wrong,
    /// Only networks are allowed, and the client's address is in none of them.
    #[error("clients from this address may not use this proxy (`auth.networks`)")]
    Network,
}

/// Identifies clients.
pub struct Authenticator {
    users: HashMap<Arc<str>, PasswordHash>,
    networks: Vec<IpNet>,
    open: bool,
}

impl fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authenticator").field("open", &self.open).finish_non_exhaustive()
    }
}

impl Authenticator {
    /// Without users and networks, everyone who can connect may use the proxy.
    #[must_use]
    pub fn new(auth: &settings::Auth) -> Self {
        let users = auth
            .users
            .iter()
            .map(|(name, password)| (Arc::clone(name), stored_hash(password.expose())))
            .collect();
        Self {
            users,
            networks: auth.networks.clone(),
            open: auth.none || (auth.users.is_empty() && auth.networks.is_empty()),
        }
    }

    /// The client that sends a request with `headers` from `peer`.
    ///
    /// # Errors
    /// The client may not use the proxy; respond with 407 and [`CHALLENGE`].
    pub fn check(&self, headers: &HeaderMap, peer: IpAddr) -> Result<Client, Unauthorised> {
        let peer = peer.to_canonical();
        let free = self.open || self.networks.iter().any(|network| network.contains(&peer));
        if self.users.is_empty() {
            return if free { Ok(Client::Address(peer)) } else { Err(Unauthorised::Network) };
        }
        match self.user(headers) {
            Ok(name) => Ok(Client::User(name)),
            Err(_) if free => Ok(Client::Address(peer)),
            Err(why) => Err(why),
        }
    }

    fn user(&self, headers: &HeaderMap) -> Result<Arc<str>, Unauthorised> {
        let mut fields = headers.get_all(PROXY_AUTHORIZATION).iter();
        let field = fields.next().ok_or(Unauthorised::Missing)?;
        if fields.next().is_some() {
            return Err(Unauthorised::Malformed);
        }
        let (name, password) = basic(field.as_bytes()).ok_or(Unauthorised::Malformed)?;
        let given: PasswordHash = Sha256::digest(password.as_bytes()).into();
        // For an unknown user, the password is compared with a hash that no password has.
        let (user, stored) = match self.users.get_key_value(name.as_str()) {
            Some((user, stored)) => (Some(user), stored),
            None => (None, &[0; 32]),
        };
        let right = bool::from(given.ct_eq(stored));
        user.filter(|_| right).map(Arc::clone).ok_or(Unauthorised::Wrong)
    }
}

/// The hash of a password in the rule file, which is either plain or already `sha256:<64 hex digits>`.
fn stored_hash(password: &str) -> PasswordHash {
    password
        .strip_prefix("sha256:")
        .and_then(parse_hash)
        .unwrap_or_else(|| Sha256::digest(password.as_bytes()).into())
}

fn parse_hash(hex: &str) -> Option<PasswordHash> {
    if hex.len() != 64 || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let mut hash = [0; 32];
    for (byte, digits) in hash.iter_mut().zip(hex.as_bytes().chunks_exact(2)) {
        let digits = std::str::from_utf8(digits).ok()?;
        *byte = u8::from_str_radix(digits, 16).ok()?;
    }
    Some(hash)
}

/// User and password of `Basic <base64 of user:password>` (RFC 7617 section 2). A user name has no colon, and neither
/// part has control characters.
fn basic(field: &[u8]) -> Option<(String, String)> {
    if field.len() > MAX_FIELD {
        return None;
    }
    let (scheme, rest) = field.split_at_checked(6)?;
    if !scheme.eq_ignore_ascii_case(b"basic ") {
        return None;
    }
    let decoded = String::from_utf8(STANDARD.decode(rest.trim_ascii()).ok()?).ok()?;
    if decoded.chars().any(char::is_control) {
        return None;
    }
    let (name, password) = decoded.split_once(':')?;
    Some((name.to_owned(), password.to_owned()))
}

#[cfg(test)]
mod tests;
