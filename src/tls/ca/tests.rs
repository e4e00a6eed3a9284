//! Tests of the CA on disk, and of its leaves from a client's view.
#![allow(clippy::unwrap_used)]

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
};

use rustls::{
    CipherSuite, ClientConfig, ClientConnection, RootCertStore, ServerConnection,
    SupportedCipherSuite,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier as _},
    crypto::ring,
    pki_types::{ServerName, UnixTime},
};
use x509_parser::extensions::ParsedExtension;

use super::*;

/// The roots of a client that trusts only this CA.
fn roots(ca: &Ca) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca.pem().as_bytes()).unwrap()).unwrap();
    roots
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn fresh() -> (tempfile::TempDir, Arc<Ca>) {
    let dir = tempfile::tempdir().unwrap();
    let ca = Ca::open(&dir.path().join("a/b"), None).unwrap();
    (dir, ca)
}

fn host(text: &str) -> Host {
    Host::parse(text).unwrap()
}

fn leaf_of(ca: &Ca, host: &Host) -> CertificateDer<'static> {
    ca.mint.leaf(&ca.issuer, host, clock::wall() - BACKDATE).unwrap()
}

#[test]
fn a_ca_is_made_once_and_only_its_owner_may_open_it() {
    let (dir, ca) = fresh();
    let home = dir.path().join("a/b");
    assert_eq!(mode(&home), 0o700);
    assert_eq!(mode(&home.join(KEY_FILE)), 0o600);
    assert_eq!(ca.path(), home.join(CERTIFICATE_FILE));
    assert_eq!(fs::read_to_string(ca.path()).unwrap(), ca.pem());
    let again = Ca::open(&home, None).unwrap();
    assert_eq!(again.pem(), ca.pem());
    assert_eq!(fs::read_dir(&home).unwrap().count(), 3, "no temporary file stays");
    let bundle = fs::read_to_string(home.join(BUNDLE_FILE)).unwrap();
    assert!(bundle.ends_with(ca.pem()));
    assert!(!bundle.contains("PRIVATE KEY") && !ca.pem().contains("PRIVATE KEY"));
}

#[test]
fn members_that_start_together_get_one_ca() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("ca");
    let found = std::thread::scope(|scope| {
        let open = || Ca::open(&home, None).unwrap().pem().to_owned();
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(open)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(found.iter().all(|pem| *pem == found[0]));
}

#[test]
fn a_key_that_others_may_read_is_refused() {
    let (dir, _) = fresh();
    let home = dir.path().join("a/b");
    for (path, loose, right) in [(home.join(KEY_FILE), 0o640, 0o600), (home.clone(), 0o755, 0o700)]
    {
        fs::set_permissions(&path, Permissions::from_mode(loose)).unwrap();
        let error = Ca::open(&home, None).unwrap_err();
        assert!(matches!(error, CaError::Exposed { .. }), "{error}");
        assert!(error.to_string().contains(&format!("chmod {right:o}")), "{error}");
        fs::set_permissions(&path, Permissions::from_mode(right)).unwrap();
    }
    assert!(Ca::open(&home, None).is_ok());
}

#[test]
fn a_given_key_may_be_readable_by_its_group_and_not_by_others() {
    let (dir, _) = fresh();
    let home = dir.path().join("a/b");
    let given = (home.join(CERTIFICATE_FILE), home.join(KEY_FILE));
    for (mode, goes) in
        [(0o440, true), (0o400, true), (0o640, true), (0o444, false), (0o460, false)]
    {
        fs::set_permissions(&given.1, Permissions::from_mode(mode)).unwrap();
        let opened = Ca::open(Path::new(""), Some(&given));
        assert_eq!(opened.is_ok(), goes, "{mode:o}: {:?}", opened.err());
    }
}

#[test]
fn the_ca_may_sign_server_certificates_and_nothing_else() {
    let (_dir, ca) = fresh();
    let der = CertificateDer::from_pem_slice(ca.pem().as_bytes()).unwrap();
    let (_, parsed) = X509Certificate::from_der(&der).unwrap();
    let constraints = parsed.basic_constraints().unwrap().unwrap();
    assert!(constraints.critical && constraints.value.ca);
    assert_eq!(constraints.value.path_len_constraint, Some(0));
    let usage = parsed.key_usage().unwrap().unwrap();
    assert!(usage.critical && usage.value.key_cert_sign() && !usage.value.digital_signature());
    let purposes = parsed.extended_key_usage().unwrap().unwrap().value;
    assert!(purposes.server_auth && !purposes.client_auth && !purposes.code_signing);
    let days = (parsed.validity().not_after.timestamp() - parsed.validity().not_before.timestamp())
        / i64::try_from(DAY.as_secs()).unwrap();
    assert_eq!(days, 5 * 365 + 1);
}

#[test]
fn leaf_certificates_are_valid_for_their_host_only() {
    let (_dir, ca) = fresh();
    let roots = roots(&ca);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier =
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
    let long = format!("{}.example.com", "a".repeat(63));
    for name in ["example.com", "a_b.example.com", &long, "127.0.0.1", "[2001:db8::1]"] {
        let leaf = leaf_of(&ca, &host(name));
        let is_for = |name: &str| {
            let name = ServerName::try_from(name.trim_matches(['[', ']']).to_owned()).unwrap();
            verifier.verify_server_cert(&leaf, &[], &name, &[], UnixTime::now()).is_ok()
        };
        assert!(is_for(name), "{name}");
        assert!(!is_for("other.example") && !is_for("127.0.0.2"), "{name}");
    }
}

#[test]
fn a_leaf_has_everything_that_strict_clients_require() {
    let (_dir, ca) = fresh();
    let leaf = leaf_of(&ca, &host("example.com"));
    let other = leaf_of(&ca, &host("example.com"));
    let (_, leaf) = X509Certificate::from_der(&leaf).unwrap();
    let (_, other) = X509Certificate::from_der(&other).unwrap();
    assert_ne!(leaf.raw_serial(), other.raw_serial());
    assert!(leaf.raw_serial().len() >= 8);
    let days = (leaf.validity().not_after.timestamp() - leaf.validity().not_before.timestamp())
        / i64::try_from(DAY.as_secs()).unwrap();
    assert_eq!(days, 30);
    assert!(leaf.extended_key_usage().unwrap().unwrap().value.server_auth);
    let authority = leaf
        .extensions()
        .iter()
        .any(|e| matches!(e.parsed_extension(), ParsedExtension::AuthorityKeyIdentifier(_)));
    assert!(authority);
    assert!(!leaf.is_ca());
}

/// The suite of a handshake with a client that offers these suites, in its order of preference.
fn negotiated(ca: &Ca, suites: &[SupportedCipherSuite]) -> CipherSuite {
    let roots = roots(ca);
    let mut provider = ring::default_provider();
    provider.cipher_suites = suites.to_vec();
    let config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("example.com").unwrap();
    let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
    let config = ca.server_config(&host("example.com")).unwrap();
    let mut server = ServerConnection::new(config).unwrap();
    while client.is_handshaking() || server.is_handshaking() {
        let mut flight = Vec::new();
        client.write_tls(&mut flight).unwrap();
        server.read_tls(&mut &flight[..]).unwrap();
        server.process_new_packets().unwrap();
        flight.clear();
        server.write_tls(&mut flight).unwrap();
        client.read_tls(&mut &flight[..]).unwrap();
        client.process_new_packets().unwrap();
    }
    client.negotiated_cipher_suite().unwrap().suite()
}

#[test]
fn of_the_suites_that_a_client_has_the_cheapest_is_taken() {
    use ring::cipher_suite::{
        TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 as OLD_SHORT,
        TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384 as OLD_LONG, TLS13_AES_128_GCM_SHA256 as SHORT,
        TLS13_AES_256_GCM_SHA384 as LONG, TLS13_CHACHA20_POLY1305_SHA256 as CHACHA,
    };
    let (_dir, ca) = fresh();
    assert_eq!(negotiated(&ca, &[LONG, CHACHA, SHORT]), SHORT.suite());
    assert_eq!(negotiated(&ca, &[OLD_LONG, OLD_SHORT]), OLD_SHORT.suite());
    assert_eq!(negotiated(&ca, &[LONG]), LONG.suite(), "one that has no other is served");
}

#[test]
fn a_leaf_is_minted_once_and_again_before_it_expires() {
    let (_dir, ca) = fresh();
    let name = host("example.com");
    let now = clock::wall();
    let at = |time| ca.mint.server_config(&ca.issuer, &name, time).unwrap();
    let first = at(now);
    let same = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..20).map(|_| scope.spawn(|| at(now))).collect();
        threads.into_iter().all(|thread| Arc::ptr_eq(&thread.join().unwrap(), &first))
    });
    assert!(same);
    assert!(Arc::ptr_eq(&at(now + 21 * DAY), &first));
    let renewed = at(now + 23 * DAY);
    assert!(!Arc::ptr_eq(&renewed, &first));
    assert!(!Arc::ptr_eq(&at(now), &renewed), "a clock that is set back gets a leaf of its time");
}

#[test]
fn the_leaf_that_was_not_used_for_longest_makes_room() {
    let (_dir, ca) = fresh();
    let leaf = |n: usize| ca.server_config(&host(&format!("host-{n}.example"))).unwrap();
    let (first, second) = (leaf(0), leaf(1));
    for n in 2..mint::MAX_LEAVES {
        leaf(n);
    }
    assert!(Arc::ptr_eq(&leaf(0), &first));
    leaf(mint::MAX_LEAVES);
    assert_eq!(ca.mint.cached(), mint::MAX_LEAVES);
    assert!(Arc::ptr_eq(&leaf(0), &first));
    assert!(!Arc::ptr_eq(&leaf(1), &second));
}

#[test]
fn a_given_ca_is_used_and_an_invalid_one_is_refused() {
    let (dir, ca) = fresh();
    let home = dir.path().join("a/b");
    let given = |certificate: &str, key: &str| {
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
            path
        };
        let files = (write("given.pem", certificate), write("given.key", key));
        Ca::open(Path::new("/nonexistent"), Some(&files))
    };
    let key = fs::read_to_string(home.join(KEY_FILE)).unwrap();
    assert_eq!(given(ca.pem(), &key).unwrap().pem(), ca.pem());

    let other = new_authority().unwrap();
    let leaf_key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::default().self_signed(&leaf_key).unwrap().pem();
    let mut old = CertificateParams::default();
    old.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    old.not_after = (clock::wall() - DAY).into();
    let expired = old.self_signed(&leaf_key).unwrap().pem();
    let leaf_key = leaf_key.serialize_pem();
    for (certificate, key, says) in [
        (ca.pem(), other.as_str(), "belongs to another certificate"),
        (&leaf, &leaf_key, "not the certificate of a CA"),
        (&expired, &leaf_key, "is valid from"),
        ("nothing", &key, "no certificate"),
        (ca.pem(), "nothing", "given.key"),
    ] {
        let error = given(certificate, key).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}
