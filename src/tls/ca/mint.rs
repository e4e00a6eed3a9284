//! Mints leaf certificates per host and caches them.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, SystemTime},
};

use parking_lot::Mutex;
use rcgen::{
    CertificateParams, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, SanType, SerialNumber,
};
use rustls::{
    ServerConfig, SupportedCipherSuite,
    crypto::{CryptoProvider, hash::HashAlgorithm, ring},
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
    server::{NoServerSessionStorage, ProducesTickets},
    sign::{CertifiedKey, SigningKey, SingleCertAndKey},
};

use super::{BACKDATE, CaError, cannot_mint, random_serial};
use crate::target::Host;

/// Validity of a leaf, including the time before now. Clients reject more than 199 days, and a
/// shorter one is enough.
const LIFE: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// A leaf is replaced this long before its end, so that no client meets an expired one.
const RENEW_BEFORE: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// Leaves in the cache. The least recently used one is dropped.
pub(super) const MAX_LEAVES: usize = 1000;
/// Longest common name (RFC 5280, ub-common-name). Clients check the subject alternative name.
const MAX_COMMON_NAME: usize = 64;

struct Minted {
    config: Arc<ServerConfig>,
    valid_from: SystemTime,
    renew: SystemTime,
}

/// One host. The lock is held while its leaf is minted, so that concurrent calls wait for it.
type LeafSlot = Arc<Mutex<Option<Minted>>>;

/// Mints leaves.
pub(super) struct Mint {
    key: KeyPair,
    signing_key: Arc<dyn SigningKey>,
    chain: Vec<CertificateDer<'static>>,
    suites: Arc<CryptoProvider>,
    tickets: Arc<dyn ProducesTickets>,
    leaves: Mutex<Leaves>,
}

#[derive(Default)]
struct Leaves {
    slots: HashMap<Host, (LeafSlot, u64)>,
    uses: u64,
}

impl Leaves {
    fn slot(&mut self, host: &Host) -> LeafSlot {
        self.uses += 1;
        if let Some((slot, used)) = self.slots.get_mut(host) {
            *used = self.uses;
            return Arc::clone(slot);
        }
        if self.slots.len() >= MAX_LEAVES {
            let oldest = self.slots.iter().min_by_key(|(_, (_, used))| *used);
            if let Some(oldest) = oldest.map(|(host, _)| host.clone()) {
                self.slots.remove(&oldest);
            }
        }
        let slot = LeafSlot::default();
        self.slots.insert(host.clone(), (Arc::clone(&slot), self.uses));
        slot
    }
}

/// The cipher suites in our order of preference. Suites with SHA-256 come before those with
/// SHA-384, which few processors accelerate: SHA-384 took a tenth of the cost of a new connection.
fn suites() -> CryptoProvider {
    let mut provider = ring::default_provider();
    provider.cipher_suites.sort_by_key(|suite| {
        let common = match suite {
            SupportedCipherSuite::Tls13(suite) => &suite.common,
            SupportedCipherSuite::Tls12(suite) => &suite.common,
        };
        common.hash_provider.algorithm() != HashAlgorithm::SHA256
    });
    provider
}

impl Mint {
    /// `chain` is sent after each leaf.
    pub(super) fn new(chain: Vec<CertificateDer<'static>>) -> Result<Self, CaError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(cannot_mint)?;
        let der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        Ok(Self {
            signing_key: ring::sign::any_ecdsa_type(&der).map_err(cannot_mint)?,
            key,
            chain,
            suites: Arc::new(suites()),
            tickets: ring::Ticketer::new().map_err(cannot_mint)?,
            leaves: Mutex::default(),
        })
    }

    pub(super) fn server_config(
        &self,
        issuer: &Issuer<'_, KeyPair>,
        host: &Host,
        now: SystemTime,
    ) -> Result<Arc<ServerConfig>, CaError> {
        let slot = self.leaves.lock().slot(host);
        let mut slot = slot.lock();
        if let Some(minted) = &*slot
            && (minted.valid_from..minted.renew).contains(&now)
        {
            return Ok(Arc::clone(&minted.config));
        }
        let valid_from = now - BACKDATE;
        let leaf = self.leaf(issuer, host, valid_from)?;
        let config = self.config(leaf)?;
        let renew = valid_from + LIFE - RENEW_BEFORE;
        *slot = Some(Minted { config: Arc::clone(&config), valid_from, renew });
        Ok(config)
    }

    pub(super) fn leaf(
        &self,
        issuer: &Issuer<'_, KeyPair>,
        host: &Host,
        valid_from: SystemTime,
    ) -> Result<CertificateDer<'static>, CaError> {
        let mut params = CertificateParams::default();
        let (name, common_name) = match host {
            Host::Ip(ip) => (SanType::IpAddress(*ip), ip.to_string()),
            Host::Name(name) => {
                let dns = name.to_string().try_into().map_err(cannot_mint)?;
                (SanType::DnsName(dns), name.to_string())
            }
        };
        params.subject_alt_names = vec![name];
        let fits = common_name.len() <= MAX_COMMON_NAME;
        let common_name = if fits { common_name } else { "tidegate".to_owned() };
        params.distinguished_name.push(DnType::CommonName, common_name);
        params.serial_number = Some(SerialNumber::from_slice(&random_serial()?));
        params.not_before = valid_from.into();
        params.not_after = (valid_from + LIFE).into();
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let leaf = params.signed_by(&self.key, issuer).map_err(cannot_mint)?;
        Ok(leaf.der().clone())
    }

    fn config(&self, leaf: CertificateDer<'static>) -> Result<Arc<ServerConfig>, CaError> {
        let mut chain = vec![leaf];
        chain.extend(self.chain.iter().cloned());
        let certified = CertifiedKey::new(chain, Arc::clone(&self.signing_key));
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&self.suites))
            .with_safe_default_protocol_versions()
            .map_err(cannot_mint)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
        config.ignore_client_order = true;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        // Clients keep the tickets, and one set of keys (rotated by rustls) serves all hosts.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.ticketer = Arc::clone(&self.tickets);
        Ok(Arc::new(config))
    }

    #[cfg(test)]
    pub(super) fn cached(&self) -> usize {
        self.leaves.lock().slots.len()
    }
}
