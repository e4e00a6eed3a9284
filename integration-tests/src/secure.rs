//! Certificates of test sites: valid ones, and each kind of invalid one.

use std::{path::PathBuf, sync::Arc};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};
use tempfile::TempDir;

use crate::member::{Member, RuleFile};

/// The names in the certificates.
const NAMES: [&str; 2] = ["localhost", "127.0.0.1"];

/// A defect of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// Valid.
    None,
    /// Expired in 2020.
    Expired,
    /// Valid from 2099.
    NotYetValid,
    /// Issued for `other.example`.
    OtherName,
    /// Self-signed.
    SelfSigned,
    /// Issued by an unknown root.
    UnknownRoot,
}

/// The root of the sites' certificates.
pub struct Root {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: TempDir,
}

impl std::fmt::Debug for Root {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Root").field("file", &self.file()).finish_non_exhaustive()
    }
}

impl Root {
    /// A new one.
    ///
    /// # Panics
    /// If the folder for temporary files is not writable.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "each one is another")]
    pub fn new() -> Self {
        let issuer = authority("the tests' root");
        let folder = tempfile::tempdir().expect("the folder for temporary files is writable");
        std::fs::write(folder.path().join("root.pem"), issuer.pem()).expect("it is writable");
        Self { issuer, folder }
    }

    /// Its certificate, for `upstream_ca` and for clients in a tunnel.
    #[must_use]
    pub fn file(&self) -> PathBuf {
        self.folder.path().join("root.pem")
    }

    /// The certificate and key of a server at `localhost` and 127.0.0.1, as PEM files.
    ///
    /// # Panics
    /// If the folder for temporary files is not writable.
    #[must_use]
    pub fn files(&self) -> (String, String) {
        let key = KeyPair::generate().expect("the system gives random bytes");
        let params = CertificateParams::new(NAMES.map(str::to_owned)).expect("plain names");
        let made = params.signed_by(&key, &self.issuer).expect("a certificate");
        let file = |name: &str, text: String| {
            let path = self.folder.path().join(name);
            std::fs::write(&path, text).expect("the folder is writable");
            path.display().to_string()
        };
        (file("cert.pem", made.pem()), file("key.pem", key.serialize_pem()))
    }

    /// A member that trusts it, with one rule of these keys in flow form.
    pub async fn member(&self, keys: &str) -> Member {
        let known = format!("upstream_ca: [\"{}\"]", self.file().display());
        Member::start(&RuleFile::one_rule(keys).with(&known)).await
    }

    /// The TLS settings of a site at `localhost` and 127.0.0.1, with HTTP/2 and HTTP/1.1.
    ///
    /// # Panics
    /// Never, because the names are fixed.
    #[must_use]
    pub fn server(&self, flaw: Flaw) -> Arc<ServerConfig> {
        let names = match flaw {
            Flaw::OtherName => vec!["other.example".to_owned()],
            _ => NAMES.map(str::to_owned).to_vec(),
        };
        let mut params = CertificateParams::new(names).expect("plain names");
        match flaw {
            Flaw::Expired => params.not_after = rcgen::date_time_ymd(2020, 1, 1),
            Flaw::NotYetValid => params.not_before = rcgen::date_time_ymd(2099, 1, 1),
            _ => {}
        }
        let key = KeyPair::generate().expect("the system gives random bytes");
        let made = match flaw {
            Flaw::SelfSigned => params.self_signed(&key),
            Flaw::UnknownRoot => params.signed_by(&key, &authority("nobody's root")),
            _ => params.signed_by(&key, &self.issuer),
        };
        let chain = vec![made.expect("a certificate").der().clone()];
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
            .expect("certificate and key belong together");
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Arc::new(config)
    }
}

fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("the system gives random bytes");
    CertifiedIssuer::self_signed(params, key).expect("a certificate")
}
