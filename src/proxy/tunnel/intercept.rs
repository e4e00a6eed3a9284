//! CONNECT under a rule with `intercept: true`. The proxy terminates the client's TLS, and handles each request inside
//! like any other, with a token, a verdict and the cooldown.
//!
//! The CONNECT itself is answered at once and takes no token. A refusal goes to the request inside, where clients can
//! read it. Plain HTTP is served too. Any other protocol, such as SSH, would be a tunnel without inspection, so it is
//! refused unless the rule sets `tunnel`.

mod serve;

pub(crate) use self::serve::Activity;

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use hyper::{body::Incoming, upgrade::OnUpgrade};
use rustls::AlertDescription;
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::{LazyConfigAcceptor, server::TlsStream};

use super::{
    login::TunnelLogin,
    peek::{Protocol, peek},
};
use crate::{
    gate::Client,
    observability::{event::Event, metrics::Reason},
    proxy::{
        Body, Context, MatchedRequest, Refusal,
        access::AccessLine,
        budget::TunnelSlot,
        context::LiveConfig,
        reply::Refused,
        stream::{Peeked, Side},
        upstream::pool::GaugeGuard,
    },
    rules::TunnelCount,
    target::{Host, Scheme, Target},
    tls::ca::Ca,
};

/// How long a client may take to send its first bytes, and to finish a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The data of the CONNECT that its inner requests share.
#[derive(Debug, Clone)]
pub(crate) struct InterceptedConnect {
    /// The target of the CONNECT.
    connect: Target,
    /// The scheme inside.
    scheme: Scheme,
    /// The client of the CONNECT.
    client: Client,
    /// Its login, which a reload may revoke.
    tunnel_login: Arc<TunnelLogin>,
    /// The tunnel slot of the CONNECT; an upgrade inside uses it too.
    pub(crate) slot: Arc<TunnelSlot>,
}

impl InterceptedConnect {
    /// The target and client of an inner request. The request must stay on the site of the CONNECT. Otherwise one
    /// site's rule would judge it, and another site would receive it.
    ///
    /// # Errors
    /// The refusal: 421 (RFC 9110 section 15.5.20), 405 for a CONNECT, or 403 once its user has been removed.
    pub(crate) fn admit<B>(
        &self,
        live: &LiveConfig,
        request: &Request<B>,
    ) -> Result<(Target, Client), Refused> {
        self.tunnel_login.judge(live, &self.client)?;
        if request.method() == Method::CONNECT {
            let sentence = "A CONNECT inside a CONNECT is not supported.";
            return Err(Refusal::malformed(StatusCode::METHOD_NOT_ALLOWED, sentence));
        }
        let elsewhere = |why: String| Refusal::malformed(StatusCode::MISDIRECTED_REQUEST, why);
        let target = self
            .connect
            .inside(self.scheme, request.method(), request.uri())
            .map_err(|why| elsewhere(crate::proxy::reply::sentence(&why.to_string())))?;
        let mut hosts = request.headers().get_all(header::HOST).iter();
        if !hosts.all(|host| host.to_str().is_ok_and(|host| target.is_named_by(host))) {
            let connect = &self.connect.host;
            let sentence =
                format!("The Host field does not name {connect}, which the CONNECT is to.");
            return Err(elsewhere(sentence));
        }
        Ok((target, self.client.clone()))
    }
}

/// Answers a CONNECT, and serves the requests inside.
///
/// # Errors
/// The port is not allowed, there are too many tunnels, or there is no CA.
pub(crate) fn open(
    cx: &Arc<Context>,
    live: &Arc<LiveConfig>,
    peer: SocketAddr,
    matched: MatchedRequest,
    mut request: Request<Incoming>,
    line: &mut Option<Box<AccessLine>>,
) -> Result<Response<Body>, Refused> {
    let slot = Arc::new(super::admit(cx, live, &matched)?);
    let ca = cx.ca().map_err(|error| {
        let what = format!("rule `{}` cannot intercept: {error}", matched.entry.rule.name);
        cx.events.emit(Event::Warned { what });
        let sentence = "This proxy must intercept the request but has no CA; its log says why.";
        Refusal::new(StatusCode::BAD_GATEWAY, Reason::Tls, "proxy_internal_error", sentence)
            .under(&matched.entry)
    })?;
    let tunnel_login = Arc::new(TunnelLogin::new(request.headers(), peer.ip(), live));
    let upgrade = hyper::upgrade::on(&mut request);
    let (cx, live, end) = (Arc::clone(cx), Arc::clone(live), cx.end.clone());
    let tunnels = cx.tunnels.clone();
    let response = Response::new(Body::empty());
    let line = line.take().map(|mut line| {
        line.status(response.status());
        line.intercepted();
        line
    });
    let session = Session { cx, live, peer, matched, tunnel_login, ca, slot, line };
    tunnels.spawn(async move {
        tokio::select! {
            () = session.run(upgrade) => {}
            () = end.cancelled() => {}
        }
    });
    Ok(response)
}

/// One intercepted CONNECT.
struct Session {
    cx: Arc<Context>,
    live: Arc<LiveConfig>,
    peer: SocketAddr,
    matched: MatchedRequest,
    tunnel_login: Arc<TunnelLogin>,
    ca: Arc<Ca>,
    slot: Arc<TunnelSlot>,
    /// The access log line, written at the end.
    line: Option<Box<AccessLine>>,
}

impl Session {
    async fn run(self, upgrade: OnUpgrade) {
        let (stream, early) = match upgrade.await.map(Side::of_client) {
            Ok(Side::Tcp(stream, early)) => (stream, early),
            Ok(Side::Other(_)) => return tracing::debug!("an intercepted CONNECT is not over TCP"),
            Err(error) => {
                return tracing::debug!(%error, "the client disconnected after its \
                                                          CONNECT");
            }
        };
        if let Err(error) = self.serve(stream, early).await {
            tracing::debug!(%error, "an intercepted connection ended");
        }
    }

    async fn serve(self, stream: TcpStream, early: Bytes) -> io::Result<()> {
        let Some((protocol, stream)) = in_time(peek(stream, early)).await? else { return Ok(()) };
        match protocol {
            Protocol::Tls => {
                let _counted = GaugeGuard::new(&self.matched.entry.metrics.tunnels);
                let stream = self.terminate_tls(stream).await?;
                let is_h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                let inside = self.inside(Scheme::Https);
                if is_h2 {
                    serve::http2(&self.cx, &self.live, self.peer, inside, stream).await
                } else {
                    serve::http1(&self.cx, &self.live, self.peer, inside, stream).await
                }
            }
            Protocol::Http => {
                let _counted = GaugeGuard::new(&self.matched.entry.metrics.tunnels);
                let inside = self.inside(Scheme::Http);
                serve::http1(&self.cx, &self.live, self.peer, inside, stream).await
            }
            Protocol::Other if self.matched.entry.rule.tunnel == TunnelCount::Refuse => {
                self.matched.entry.metrics.refused(Reason::Denied).inc();
                if let Some(mut line) = self.line {
                    line.refused(&Refusal::denied(&self.matched.entry));
                }
                self.cx.warn_of_protocol(&self.matched.entry.rule);
                Ok(())
            }
            Protocol::Other => {
                let (stream, early) = stream.into_parts();
                let client = Side::Tcp(stream, early);
                super::join(&self.cx, self.matched, self.tunnel_login, client, self.line).await;
                Ok(())
            }
        }
    }

    fn inside(&self, scheme: Scheme) -> InterceptedConnect {
        let (connect, client) = (self.matched.target.clone(), self.matched.client.clone());
        let (tunnel_login, slot) = (Arc::clone(&self.tunnel_login), Arc::clone(&self.slot));
        InterceptedConnect { connect, scheme, client, tunnel_login, slot }
    }

    /// The TLS handshake with the client, for the host in its hello, or else for the CONNECT's host.
    async fn terminate_tls(
        &self,
        stream: Peeked<TcpStream>,
    ) -> io::Result<TlsStream<Peeked<TcpStream>>> {
        let acceptor = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), stream);
        let hello = in_time(acceptor).await?;
        let asked = hello.client_hello().server_name().and_then(|name| Host::parse(name).ok());
        let host = asked.unwrap_or_else(|| self.matched.target.host.clone());
        let config = self.ca.server_config(&host).map_err(io::Error::other)?;
        let handshake = in_time(hello.into_stream(config)).await;
        if let Err(error) = &handshake
            && is_distrust(error)
        {
            self.distrusted(&host, error);
        }
        handshake
    }

    /// The client rejects our certificate. Reported once per client, counted each time.
    fn distrusted(&self, host: &Host, error: &io::Error) {
        self.cx.metrics.member.tls_client_rejected.inc();
        if self.cx.is_first_distrust(self.peer.ip()) {
            let what = format!(
                "the client {} does not accept our certificate for {host} ({error}): it does not \
                 trust the CA {} yet (`tidegate env` shows how), or it accepts only the \
                 site's own certificate (pinning: then let a rule without `intercept` match the site)",
                self.peer.ip(),
                self.ca.path().display(),
            );
            self.cx.events.emit(Event::Warned { what });
        }
    }
}

async fn in_time<T>(step: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(HANDSHAKE_TIMEOUT, step).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// Whether a client broke off because of our certificate. Each TLS library has its own alert for this.
fn is_distrust(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    matches!(
        inner,
        Some(rustls::Error::AlertReceived(
            AlertDescription::UnknownCA
                | AlertDescription::BadCertificate
                | AlertDescription::CertificateUnknown
                | AlertDescription::CertificateExpired
                | AlertDescription::UnsupportedCertificate
                | AlertDescription::AccessDenied
        ))
    )
}
