//! Interception without any other feature: TLS is terminated with a certificate for the host, and
//! all clients share a pool of connections to sites.

use std::{collections::HashMap, convert::Infallible, path::Path, sync::Arc};

use http::{Request, StatusCode, uri};
use http_body_util::Either;
use hyper::{
    body::Incoming,
    client::conn::http1::{SendRequest, handshake},
    server::conn::http1,
    service::service_fn,
    upgrade::Upgraded,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    crypto::ring,
    pki_types::{
        CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, pem::PemObject as _,
    },
};
use tokio_rustls::{LazyConfigAcceptor, TlsConnector};

use super::{Answer, dial, empty, strip};

/// Creates certificates and keeps connections.
pub(super) struct Interceptor {
    issuer: CertifiedIssuer<'static, KeyPair>,
    /// The key of all certificates.
    key: KeyPair,
    made: Mutex<HashMap<String, Arc<ServerConfig>>>,
    sites: TlsConnector,
    kept: Mutex<HashMap<String, Vec<SendRequest<Incoming>>>>,
}

impl Interceptor {
    /// Trusts sites with this root, and writes its own root to the file `ca`.
    pub(super) fn new(root: &Path, ca: &Path) -> anyhow::Result<Self> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        std::fs::write(ca, issuer.pem())?;
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(root)?)?;
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let (key, sites) = (KeyPair::generate()?, TlsConnector::from(Arc::new(config)));
        Ok(Self { issuer, key, made: Mutex::default(), sites, kept: Mutex::default() })
    }

    /// Answers the requests in a client's tunnel `to` a site.
    pub(super) async fn serve(self: Arc<Self>, client: Upgraded, to: String) -> anyhow::Result<()> {
        let hello = LazyConfigAcceptor::new(Default::default(), TokioIo::new(client)).await?;
        let named = hello.client_hello().server_name().map(str::to_owned);
        let named = named.unwrap_or_else(|| host(&to).to_owned());
        let client = hello.into_stream(self.certificate(named)?).await?;
        let to: Arc<str> = to.into();
        let service = service_fn(move |request| {
            let (own, to) = (Arc::clone(&self), Arc::clone(&to));
            async move {
                let answer = own.forward(request, &to).await;
                Ok::<_, Infallible>(answer.unwrap_or_else(|_| empty(StatusCode::BAD_GATEWAY)))
            }
        });
        let mut builder = http1::Builder::new();
        Ok(builder.timer(TokioTimer::new()).serve_connection(TokioIo::new(client), service).await?)
    }

    fn certificate(&self, host: String) -> anyhow::Result<Arc<ServerConfig>> {
        if let Some(made) = self.made.lock().get(&host) {
            return Ok(Arc::clone(made));
        }
        let params = CertificateParams::new(vec![host.clone()])?;
        let chain = vec![params.signed_by(&self.key, &self.issuer)?.der().clone()];
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.serialize_der()));
        let made = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        let made = Arc::new(made);
        self.made.lock().insert(host, Arc::clone(&made));
        Ok(made)
    }

    async fn forward(&self, mut request: Request<Incoming>, to: &str) -> anyhow::Result<Answer> {
        strip(&mut request);
        let mut connection = match self.take(to) {
            Some(kept) => kept,
            None => self.connect(to).await?,
        };
        let path = request.uri().path_and_query().cloned();
        *request.uri_mut() = path.unwrap_or_else(|| uri::PathAndQuery::from_static("/")).into();
        let answer = connection.send_request(request).await?;
        // The connection is reused once the body is complete.
        self.kept.lock().entry(to.to_owned()).or_default().push(connection);
        Ok(answer.map(Either::Left))
    }

    fn take(&self, to: &str) -> Option<SendRequest<Incoming>> {
        let mut all = self.kept.lock();
        let kept = all.get_mut(to)?;
        kept.retain(|one| !one.is_closed());
        let ready = kept.iter().position(SendRequest::is_ready)?;
        Some(kept.swap_remove(ready))
    }

    async fn connect(&self, to: &str) -> anyhow::Result<SendRequest<Incoming>> {
        let name = ServerName::try_from(host(to).to_owned())?;
        let site = self.sites.connect(name, dial(to).await?).await?;
        let (sender, connection) = handshake(TokioIo::new(site)).await?;
        tokio::spawn(connection);
        Ok(sender)
    }
}

/// Without the port.
fn host(authority: &str) -> &str {
    authority.rsplit_once(':').map_or(authority, |(host, _)| host)
}
