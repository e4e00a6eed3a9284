//! TLS to sites: certificates are verified against the system's roots (and `upstream_ca`), and
//! sessions are resumed.
//!
//! With an invalid certificate the client gets a 502 with the reason, unless the site's rule says
//! `verify: false`. Verified and unverified connections share nothing, not even sessions.

mod unverified;

use std::{io, path::PathBuf, sync::Arc};

use http::StatusCode;
use rustls::{
    CertificateError, ClientConfig, RootCertStore, client::Resumption, pki_types::ServerName,
};
use tokio::time::Instant;
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::{
    classify::verdict::{Judgement, Verdict},
    observability::metrics::Reason,
    proxy::{Refusal, reply::Refused, stream::Stream},
    target::Host,
    tls::roots::{self, BadRoots},
};

/// Sessions that are kept for resumption, for all sites together.
const SESSIONS: usize = 1024;
/// ALPN names (RFC 7301, RFC 9113 section 3.1).
const H2: &[u8] = b"h2";
const HTTP_1_1: &[u8] = b"http/1.1";

/// Why there is no TLS connection to a site; a message for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TlsError {
    /// Its certificate is not trusted.
    #[error("the certificate of {0} is not accepted: {1}")]
    Certificate(Host, String),
    /// There is no common version or cipher.
    #[error("the TLS handshake with {0} failed: {1}")]
    Protocol(Host, String),
    /// The connection broke in the handshake.
    #[error("{0} broke off the TLS handshake: {1}")]
    Broken(Host, String),
    /// The handshake took too long.
    #[error("the TLS handshake with {0} was not done in time")]
    Timeout(Host),
}

impl TlsError {
    /// The refusal for the client (RFC 9209 section 2.3).
    pub(crate) fn refusal(&self) -> Refused {
        let (status, reason, error) = match self {
            Self::Certificate(..) => {
                (StatusCode::BAD_GATEWAY, Reason::Tls, "tls_certificate_error")
            }
            Self::Protocol(..) => (StatusCode::BAD_GATEWAY, Reason::Tls, "tls_protocol_error"),
            Self::Broken(..) => (StatusCode::BAD_GATEWAY, Reason::Tls, "connection_terminated"),
            Self::Timeout(_) => {
                (StatusCode::GATEWAY_TIMEOUT, Reason::Timeout, "connection_timeout")
            }
        };
        Refusal::new(status, reason, error, crate::proxy::reply::sentence(&self.to_string()))
    }

    /// The verdict on the site.
    pub(crate) fn judgement(&self) -> Judgement {
        let verdict = match self {
            Self::Timeout(_) => Verdict::Timeout,
            Self::Certificate(..) | Self::Protocol(..) | Self::Broken(..) => {
                Verdict::ConnectionError
            }
        };
        Judgement::transport(verdict, &self.to_string())
    }
}

/// Makes TLS connections to sites.
#[derive(Clone)]
pub struct Connector {
    verified: TlsConnector,
    unverified: TlsConnector,
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connector").finish_non_exhaustive()
    }
}

impl Connector {
    /// Trusts the system's roots and those of the files `extra` (PEM). The first call blocks for some milliseconds.
    ///
    /// # Errors
    /// [`BadRoots`]: a file that cannot be read, or contains no certificate.
    pub fn new(extra: &[PathBuf]) -> Result<Self, BadRoots> {
        Ok(Self::trusting(roots::with(extra)?))
    }

    /// Trusts the system's roots only.
    #[must_use]
    pub fn with_system_roots() -> Self {
        Self::trusting(roots::system().clone())
    }

    fn trusting(trusted: RootCertStore) -> Self {
        let provider = roots::provider();
        let client = || roots::client(Arc::clone(&provider));
        let verified = client().with_root_certificates(trusted).with_no_client_auth();
        let unverified = client()
            .dangerous()
            .with_custom_certificate_verifier(unverified::verifier(&provider))
            .with_no_client_auth();
        let connector = |mut config: ClientConfig| {
            config.alpn_protocols = vec![H2.to_vec(), HTTP_1_1.to_vec()];
            config.resumption = Resumption::in_memory_sessions(SESSIONS);
            TlsConnector::from(Arc::new(config))
        };
        Self { verified: connector(verified), unverified: connector(unverified) }
    }

    /// Starts TLS over `stream`, which leads to `host`; `http1_only` for requests that HTTP/2
    /// cannot carry (an Upgrade).
    ///
    /// # Errors
    /// The reason, as a [`TlsError`].
    pub(crate) async fn connect<S: Stream>(
        &self,
        host: &Host,
        stream: S,
        verify: bool,
        http1_only: bool,
        deadline: Instant,
    ) -> Result<TlsStream<S>, TlsError> {
        let connector = if verify { &self.verified } else { &self.unverified };
        let protocols: &[&[u8]] = if http1_only { &[HTTP_1_1] } else { &[H2, HTTP_1_1] };
        let protocols = protocols.iter().map(|name| name.to_vec()).collect();
        let connecting = connector.with_alpn(protocols).connect(server_name(host)?, stream);
        match tokio::time::timeout_at(deadline, connecting).await {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(error)) => Err(explain(host, &error)),
            Err(_elapsed) => Err(TlsError::Timeout(host.clone())),
        }
    }
}

/// Whether the site chose HTTP/2.
pub(crate) fn is_h2<S>(stream: &TlsStream<S>) -> bool {
    stream.get_ref().1.alpn_protocol() == Some(H2)
}

fn server_name(host: &Host) -> Result<ServerName<'static>, TlsError> {
    match host {
        Host::Ip(ip) => Ok(ServerName::from(*ip)),
        Host::Name(name) => ServerName::try_from(name.to_string())
            .map_err(|error| TlsError::Protocol(host.clone(), error.to_string())),
    }
}

/// The reason of a failed handshake with the site.
fn explain(host: &Host, error: &io::Error) -> TlsError {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match inner {
        Some(rustls::Error::InvalidCertificate(why)) => {
            TlsError::Certificate(host.clone(), certificate_reason(why))
        }
        Some(rustls::Error::NoCertificatesPresented) => {
            TlsError::Certificate(host.clone(), "it shows none".to_owned())
        }
        Some(other) => TlsError::Protocol(host.clone(), other.to_string()),
        None => TlsError::Broken(host.clone(), error.to_string()),
    }
}

fn certificate_reason(error: &CertificateError) -> String {
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "it has expired".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "it is not valid yet".to_owned()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "it is for another name".to_owned()
        }
        CertificateError::UnknownIssuer => {
            "no root that is trusted here stands behind it (self-signed, an intermediate that \
             the site does not send, or a root for `upstream_ca`)"
                .to_owned()
        }
        CertificateError::Revoked => "it was revoked".to_owned(),
        CertificateError::Other(other) if other.0.to_string() == "CaUsedAsEndEntity" => {
            "it is the certificate of a CA, not of a site (for a self-signed one, write \
             `verify: false` in the rule)"
                .to_owned()
        }
        CertificateError::Other(other) => plain(&other.0.to_string()),
        other => plain(&other.to_string()),
    }
}

/// A library's name for an error (`CaUsedAsEndEntity`) as words; other text is unchanged.
fn plain(name: &str) -> String {
    if !name.bytes().all(|b| b.is_ascii_alphanumeric()) {
        return name.to_owned();
    }
    let mut words = String::new();
    for c in name.chars() {
        if c.is_ascii_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.push(c.to_ascii_lowercase());
    }
    words
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_librarys_name_for_an_error_is_words() {
        assert_eq!(super::plain("CaUsedAsEndEntity"), "ca used as end entity");
        assert_eq!(super::plain("it is bad: 5"), "it is bad: 5");
    }
}
