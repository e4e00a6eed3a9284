//! The local certificate authority, with which the proxy terminates TLS under rules with
//! `intercept: true`.
//!
//! The CA is created on first use in `ca_dir` (ECDSA P-256, 5 years, may sign server certificates
//! only), or the operator provides one. Only its owner may read the key; otherwise the proxy
//! refuses to use it. Leaf certificates are minted per host, are valid for 30 days, and share one
//! key that never leaves the process.

mod files;
mod mint;

use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, SerialNumber,
};
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::{runtime::clock, target::Host};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Validity of a CA created here.
const CA_LIFE: Duration = Duration::from_secs(5 * 365 * 24 * 60 * 60);
/// Certificates become valid this long before now, because some clients' clocks are slow.
const BACKDATE: Duration = DAY;
/// Key and certificate of a CA created here. They share one file, so that they always belong
/// together.
pub(crate) const KEY_FILE: &str = "ca.key";
/// The certificate, for clients.
const CERTIFICATE_FILE: &str = "ca.pem";
/// The system's roots and the CA, for clients that accept a single bundle only.
const BUNDLE_FILE: &str = "bundle.pem";

/// Why the CA cannot be used; the message names the file and the fix.
#[derive(Debug, thiserror::Error)]
pub enum CaError {
    /// A file cannot be read or written.
    #[error("{action} {}: {reason}", path.display())]
    File {
        /// The operation that failed.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: io::Error,
    },
    /// Others than the owner may read a secret.
    #[error(
        "{} holds the key of the CA, but others may open it (mode {mode:03o}): \
         chmod {wanted:03o} {}",
        path.display(), path.display()
    )]
    Exposed {
        /// The file or directory.
        path: PathBuf,
        /// Its mode.
        mode: u32,
        /// The mode that it should have.
        wanted: u32,
    },
    /// The files do not form a CA.
    #[error("{}: {why}", path.display())]
    Unfit {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// A certificate cannot be created.
    #[error("a certificate could not be made: {0}")]
    Mint(String),
}

/// A certificate authority.
pub struct Ca {
    path: PathBuf,
    pem: String,
    der: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
    mint: mint::Mint,
}

impl fmt::Debug for Ca {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ca").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Ca {
    /// Loads the CA of `dir`, which is created if necessary, or the given one (certificate and key
    /// file, PEM). Blocks for some milliseconds, so it should be called when the program starts.
    ///
    /// # Errors
    /// [`CaError`]: no file access, a key that others may read, or files without a valid CA.
    pub fn open(dir: &Path, given: Option<&(PathBuf, PathBuf)>) -> Result<Arc<Self>, CaError> {
        match given {
            Some((certificate, key)) => {
                let key_pem = files::read_given(key)?;
                let pem = files::read(certificate)?;
                Self::new(certificate, pem, key, &key_pem)
            }
            None => Self::open_own(dir),
        }
    }

    /// Checks the CA in `dir`, or whether one may be created there, without creating it.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn check(dir: &Path) -> Result<(), CaError> {
        if dir.join(KEY_FILE).exists() {
            return Self::open_own(dir).map(drop);
        }
        if dir.exists() { files::refuse_exposed(dir, 0o700) } else { Ok(()) }
    }

    fn open_own(dir: &Path) -> Result<Arc<Self>, CaError> {
        files::private_dir(dir)?;
        let key = dir.join(KEY_FILE);
        let found = key.try_exists().map_err(files::failed("looking for", &key))?;
        if !found {
            // If another process created the CA first, that one is used.
            files::create_private(&key, &new_authority()?)?;
        }
        let both = files::read_private(&key)?;
        let certificate = CertificateDer::from_pem_slice(both.as_bytes())
            .map_err(|error| unfit(&key, format!("no certificate in it: {error}")))?;
        let path = dir.join(CERTIFICATE_FILE);
        let pem = to_pem(&certificate);
        let ca = Self::new(&path, pem, &key, &both)?;
        files::write_public(&path, &ca.pem)?;
        files::write_public(&dir.join(BUNDLE_FILE), &bundle(&ca.pem))?;
        if !found {
            tracing::info!(certificate = %path.display(), "created a local CA");
        }
        Ok(ca)
    }

    fn new(path: &Path, pem: String, key: &Path, key_pem: &str) -> Result<Arc<Self>, CaError> {
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(pem.as_bytes())
            .collect::<Result<_, _>>()
            .map_err(|error| unfit(path, error.to_string()))?;
        let first = chain.first().ok_or_else(|| unfit(path, "no certificate in it"))?;
        let key_pair = PrivateKeyDer::from_pem_slice(key_pem.as_bytes())
            .map_err(|error| unfit(key, error.to_string()))
            .and_then(|der| {
                KeyPair::try_from(&der).map_err(|_| {
                    unfit(key, "is not a PKCS #8 key (openssl pkcs8 -topk8 -nodes makes it one)")
                })
            })?;
        check(first, &key_pair).map_err(|why| unfit(path, why))?;
        let issuer = Issuer::from_ca_cert_der(first, key_pair)
            .map_err(|error| unfit(path, error.to_string()))?;
        // Clients have the root, so it is not sent. An intermediate certificate is.
        let der = first.clone();
        let sent = if chain.len() > 1 { chain } else { Vec::new() };
        Ok(Arc::new(Self { path: path.to_owned(), pem, der, issuer, mint: mint::Mint::new(sent)? }))
    }

    /// The certificate file, for clients to trust.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The certificate, PEM.
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// The certificate, DER.
    #[must_use]
    pub fn der(&self) -> &CertificateDer<'static> {
        &self.der
    }

    /// The TLS settings for `host`. Its certificate is minted on first use, only once for
    /// concurrent calls, and again before it expires.
    ///
    /// # Errors
    /// [`CaError::Mint`].
    pub fn server_config(&self, host: &Host) -> Result<Arc<ServerConfig>, CaError> {
        self.mint.server_config(&self.issuer, host, clock::wall())
    }
}

fn unfit(path: &Path, why: impl Into<String>) -> CaError {
    CaError::Unfit { path: path.to_owned(), why: why.into() }
}

fn cannot_mint(error: impl fmt::Display) -> CaError {
    CaError::Mint(error.to_string())
}

/// Key and certificate of a new CA, PEM.
fn new_authority() -> Result<String, CaError> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(cannot_mint)?;
    let serial = random_serial()?;
    let mut params = CertificateParams::default();
    // The number distinguishes the CAs of two machines that one client trusts.
    let name = format!("Tidegate local CA {:02x}{:02x}", serial[1], serial[2]);
    params.distinguished_name.push(DnType::CommonName, name);
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    let now = clock::wall();
    params.not_before = (now - BACKDATE).into();
    params.not_after = (now + CA_LIFE).into();
    // A leaked key can sign server certificates, but no other CA, program or mail.
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let certificate = params.self_signed(&key).map_err(cannot_mint)?;
    Ok(format!("{}{}", key.serialize_pem(), certificate.pem()))
}

/// 127 random bits, never negative or zero (RFC 5280 section 4.1.2.2).
fn random_serial() -> Result<[u8; 16], CaError> {
    let mut serial = [0; 16];
    rustls::crypto::ring::default_provider()
        .secure_random
        .fill(&mut serial)
        .map_err(|_| cannot_mint("the system provides no random bytes"))?;
    serial[0] = serial[0] & 0x3f | 0x40;
    Ok(serial)
}

/// Whether this is the certificate of a valid CA that may sign, and the key belongs to it.
fn check(certificate: &CertificateDer<'_>, key: &KeyPair) -> Result<(), String> {
    let (_, parsed) = X509Certificate::from_der(certificate)
        .map_err(|error| format!("is not a certificate: {error}"))?;
    if parsed.public_key().subject_public_key.data.as_ref() != key.public_key_raw() {
        return Err("the given key belongs to another certificate".to_owned());
    }
    if !parsed.is_ca() {
        return Err("is not the certificate of a CA".to_owned());
    }
    if !parsed.validity().is_valid() {
        return Err(format!(
            "is valid from {} to {} only; a local CA is made again once ca.key is deleted, and \
             clients must trust the new one",
            parsed.validity().not_before,
            parsed.validity().not_after
        ));
    }
    Ok(())
}

/// The system's roots and the CA.
fn bundle(ca: &str) -> String {
    let system = rustls_native_certs::load_native_certs();
    system.certs.iter().map(to_pem).chain([ca.to_owned()]).collect()
}

fn to_pem(certificate: &CertificateDer<'_>) -> String {
    let encoded = STANDARD.encode(certificate);
    let mut pem = "-----BEGIN CERTIFICATE-----\n".to_owned();
    for line in encoded.as_bytes().chunks(64) {
        pem.extend(line.iter().map(|b| char::from(*b)));
        pem.push('\n');
    }
    pem.push_str("-----END CERTIFICATE-----\n");
    pem
}

#[cfg(test)]
mod tests;
