//! The root certificates that are trusted: the system's, and those of the rule file's `upstream_ca`
//! (sites) and `store.ca` (the store).

use std::{
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use rustls::{
    ClientConfig, ConfigBuilder, RootCertStore, WantsVerifier,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, pem::PemObject as _},
};

/// A file of roots cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", path.display())]
pub struct BadRoots {
    path: PathBuf,
    why: String,
}

/// The source of the cipher suites.
#[must_use]
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// A TLS client configuration without its roots.
///
/// # Panics
/// Never with the suites of [`provider`].
#[must_use]
pub fn client(provider: Arc<CryptoProvider>) -> ConfigBuilder<ClientConfig, WantsVerifier> {
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring's provider has cipher suites for TLS 1.2 and 1.3")
}

/// The system's roots. The first call blocks for some milliseconds. They do not change while the
/// process runs.
pub fn system() -> &'static RootCertStore {
    static ROOTS: OnceLock<RootCertStore> = OnceLock::new();
    ROOTS.get_or_init(|| {
        let found = rustls_native_certs::load_native_certs();
        for error in &found.errors {
            tracing::warn!(%error, "cannot read a root certificate of the system");
        }
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(found.certs);
        if roots.is_empty() {
            tracing::warn!(
                "the system has no root certificates (package ca-certificates): no certificate will be accepted \
                 unless `upstream_ca` (of a site) or `store.ca` names its root"
            );
        }
        roots
    })
}

/// The system's roots and those of `files` (PEM).
///
/// # Errors
/// A file that cannot be read or contains no certificate.
pub fn with(files: &[PathBuf]) -> Result<RootCertStore, BadRoots> {
    let mut roots = system().clone();
    files.iter().try_for_each(|path| add(&mut roots, path))?;
    Ok(roots)
}

/// Whether a file of roots (PEM) can be used.
///
/// # Errors
/// Like [`with`].
pub fn check(path: &Path) -> Result<(), BadRoots> {
    add(&mut RootCertStore::empty(), path)
}

fn add(roots: &mut RootCertStore, path: &Path) -> Result<(), BadRoots> {
    add_pem(roots, path).map_err(|why| BadRoots { path: path.to_owned(), why: why.to_string() })
}

fn add_pem(roots: &mut RootCertStore, path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let pem = std::fs::read(path)?;
    let before = roots.len();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        roots.add(certificate?)?;
    }
    if roots.len() == before {
        return Err("no certificate in it (PEM)".into());
    }
    Ok(())
}
