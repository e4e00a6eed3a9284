//! TLS to the store: its certificate is verified against the system's roots and those of `store.ca`.

use std::{path::PathBuf, sync::Arc};

use fred::types::config::TlsConnector;
use rustls::{ClientConfig, crypto::ring};

use crate::roots;

/// Trusts the system's roots and those of the files `extra`. They were checked with the rule file; one that has gone
/// since is said, and the store is verified without.
pub(super) fn connector(extra: &[PathBuf]) -> TlsConnector {
    let roots = roots::with(extra).unwrap_or_else(|error| {
        tracing::warn!("`store.ca`: {error}; the store is verified without it");
        roots::system().clone()
    });
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring's provider has cipher suites for TLS 1.2 and 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth()
        .into()
}
