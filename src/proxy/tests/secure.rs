//! TLS sites, with certificates of every kind, and clients that trust a CA.

use std::{
    convert::Infallible,
    fs,
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use base64::Engine as _;
use bytes::Bytes;
use http::{Request, Response, StatusCode, Version};
use http_body_util::Full;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    pki_types::{
        CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, pem::PemObject as _,
    },
};
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_rustls::{TlsAcceptor, TlsConnector, client::TlsStream};

use super::bench::{Bench, Client, rule, settings};
use crate::rules::{Rule, settings::Settings};

/// The defect of a site's certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flaw {
    None,
    Expired,
    OtherName,
    SelfSigned,
    UnknownRoot,
}

/// The root of the sites' certificates, as a file for `upstream_ca`.
pub(super) struct Root {
    issuer: CertifiedIssuer<'static, KeyPair>,
    pub(super) dir: tempfile::TempDir,
}

impl Root {
    pub(super) fn new() -> Self {
        let issuer = authority("the tests' root");
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("root.pem"), issuer.pem()).unwrap();
        Self { issuer, dir }
    }

    pub(super) fn file(&self) -> PathBuf {
        self.dir.path().join("root.pem")
    }

    /// Its own certificate.
    pub(super) fn certificate_der(&self) -> CertificateDer<'static> {
        self.issuer.der().clone()
    }

    /// For a TLS site with its own handler.
    pub(super) fn acceptor(&self, alpn: &[&str]) -> TlsAcceptor {
        let (certificate, key) = self.certificate(Flaw::None);
        TlsAcceptor::from(Arc::new(server_config(certificate, key, alpn)))
    }

    /// Certificate and key for `localhost` and 127.0.0.1.
    fn certificate(&self, flaw: Flaw) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
        let names = match flaw {
            Flaw::OtherName => vec!["other.example".to_owned()],
            _ => vec!["localhost".to_owned(), "127.0.0.1".to_owned()],
        };
        let mut params = CertificateParams::new(names).unwrap();
        if flaw == Flaw::Expired {
            params.not_after = rcgen::date_time_ymd(2020, 1, 1);
        }
        let key = KeyPair::generate().unwrap();
        let certificate = match flaw {
            Flaw::SelfSigned => params.self_signed(&key).unwrap(),
            Flaw::UnknownRoot => params.signed_by(&key, &authority("nobody's root")).unwrap(),
            _ => params.signed_by(&key, &self.issuer).unwrap(),
        };
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        (certificate.der().clone(), key)
    }
}

fn server_config(
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
    alpn: &[&str],
) -> ServerConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    config
}

fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A TLS site.
pub(super) struct SecureSite {
    pub(super) addr: SocketAddr,
    pub(super) connections: Arc<AtomicUsize>,
    pub(super) requests: Arc<Mutex<Vec<Seen>>>,
    task: JoinHandle<()>,
}

/// A request as received by the site.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) version: Version,
    pub(super) authority: String,
    pub(super) fields: http::HeaderMap,
}

impl SecureSite {
    pub(super) async fn start(root: &Root, flaw: Flaw, alpn: &[&str]) -> Self {
        let (certificate, key) = root.certificate(flaw);
        let acceptor = TlsAcceptor::from(Arc::new(server_config(certificate, key, alpn)));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (connections, requests) = (Arc::new(AtomicUsize::new(0)), Arc::default());
        let (count, log) = (Arc::clone(&connections), Arc::clone(&requests));
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, log) = (acceptor.clone(), Arc::clone(&log));
                count.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                    let service = service_fn(move |request| {
                        let log = Arc::clone(&log);
                        async move { Ok::<_, Infallible>(answer(request, &log).await) }
                    });
                    let io = TokioIo::new(stream);
                    // A disconnected client does not fail the test.
                    if h2 {
                        let builder =
                            hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                        drop(builder.serve_connection(io, service).await);
                    } else {
                        let builder = hyper::server::conn::http1::Builder::new();
                        drop(builder.serve_connection(io, service).with_upgrades().await);
                    }
                });
            }
        });
        Self { addr, connections, requests, task }
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.addr.port())
    }

    /// The target of a CONNECT.
    pub(super) fn authority(&self) -> String {
        format!("localhost:{}", self.addr.port())
    }
}

impl Drop for SecureSite {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Echoes the path; below `/ws` an Upgrade becomes an echo of bytes.
async fn answer(mut request: Request<Incoming>, log: &Mutex<Vec<Seen>>) -> Response<Full<Bytes>> {
    let host = request.headers().get("host").and_then(|host| host.to_str().ok());
    let authority = request.uri().authority().map(ToString::to_string);
    log.lock().push(Seen {
        version: request.version(),
        authority: authority.or(host.map(str::to_owned)).unwrap_or_default(),
        fields: request.headers().clone(),
    });
    if request.headers().contains_key("upgrade") && request.uri().path().starts_with("/ws") {
        let upgrade = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let (mut from, mut to) = tokio::io::split(TokioIo::new(upgrade.await.unwrap()));
            tokio::io::copy(&mut from, &mut to).await.unwrap();
        });
        let answer = Response::builder().status(StatusCode::SWITCHING_PROTOCOLS);
        let mut answer = answer.header("connection", "upgrade").header("upgrade", "echo");
        if let Some(key) = request.headers().get("sec-websocket-key") {
            let key = if request.uri().path() == "/ws/of-another" { b"x" } else { key.as_bytes() };
            answer = answer.header("sec-websocket-accept", accept(key));
        }
        return answer.body(Full::default()).unwrap();
    }
    let page = format!("<html><body><p>You asked for {}</p></body></html>", request.uri().path());
    Response::builder()
        .header("content-type", "text/html")
        .header("alt-svc", "h3=\":443\"")
        .body(Full::new(page.into()))
        .unwrap()
}

/// The reply to a key (RFC 6455 section 4.2.2).
fn accept(key: &[u8]) -> String {
    let all = [key, b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"].concat();
    let hash = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, &all);
    base64::engine::general_purpose::STANDARD.encode(hash)
}

/// A proxy that trusts `root`, with its own CA and these rules.
pub(super) async fn proxy(root: &Root, change: impl Fn(&mut Rule)) -> Bench {
    proxy_with(root, change, |_| {}).await
}

/// The same, with settings of its own.
pub(super) async fn proxy_with(
    root: &Root,
    change: impl Fn(&mut Rule),
    settle: impl Fn(&mut Settings),
) -> Bench {
    let mut settings = settings();
    settle(&mut settings);
    settings.upstream_ca = vec![root.file()];
    settings.ca_dir = root.dir.path().join("ca");
    let mut rule = rule();
    change(&mut rule);
    Bench::with(settings, vec![rule]).await
}

/// A client's TLS connection through an intercepted CONNECT to `authority`, trusting the proxy's
/// CA.
pub(super) async fn tls_through(
    bench: &Bench,
    authority: &str,
    name: &str,
    alpn: &[&str],
) -> std::io::Result<TlsStream<tokio::net::TcpStream>> {
    let client = connected(bench, authority).await;
    let ca = bench.cx.ca().unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca.pem().as_bytes()).unwrap()).unwrap();
    let connector = client_config(roots, alpn);
    connector.connect(ServerName::try_from(name.to_owned()).unwrap(), client.stream).await
}

/// A connection after a successful CONNECT.
pub(super) async fn connected(bench: &Bench, authority: &str) -> Client {
    let mut client = bench.connect().await;
    client.send(&format!("CONNECT {authority} HTTP/1.1\r\nhost: {authority}\r\n\r\n")).await;
    let answer = client.head().await;
    assert_eq!(answer.status(), 200, "{}", answer.head);
    client
}

pub(super) fn client_config(roots: RootCertStore, alpn: &[&str]) -> TlsConnector {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    TlsConnector::from(Arc::new(config))
}
