//! Connects to a site through the upstream proxy of its rule (`via`).
//!
//! The guard judges the address of the upstream proxy, which is dialled. It also judges the name of the site, because
//! the upstream proxy resolves it. A failure before the site is reached is the upstream proxy's (`via`). It says
//! nothing about the site and is not reported to the fleet.

pub(crate) mod route;

use std::{net::SocketAddr, sync::Arc};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, Version, header};
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::{
    net::TcpStream,
    time::{Instant, timeout_at},
};
use tokio_rustls::client::TlsStream;
use tokio_socks::tcp::Socks5Stream;
use tokio_util::either::Either;

use self::route::{Route, basic};
use super::{egress::DialError, tls::TlsError};
use crate::{
    observability::metrics::Reason,
    proxy::{
        Context, MatchedRequest, Refusal, SendPermit,
        context::LiveConfig,
        reply::{Refused, sentence},
        stream::{Peeked, Side},
    },
    rules::upstream::{Login, ProxyScheme, UpstreamProxy},
    runtime::clock,
    target::{Host, Target},
};

/// The field of Squid's own pages.
const SQUID_ERROR: &str = "x-squid-error";
/// The field of another Tidegate's refusals.
const REFUSED: &str = "tidegate-refused";

/// A connection to an upstream proxy.
type ProxyLink = Either<TcpStream, Box<TlsStream<TcpStream>>>;

/// A connection to a site, with the bytes that were already read.
pub(crate) type ProxiedStream = Peeked<ProxyLink>;

/// Judges the site by its name, and connects to it through the upstream proxy.
///
/// # Errors
/// The refusal: the guard denies the site, or the upstream proxy does not connect to it.
pub(crate) async fn connect(
    route: &Route,
    cx: &Context,
    live: &LiveConfig,
    matched: &MatchedRequest,
    permit: &SendPermit,
    deadline: Instant,
) -> Result<ProxiedStream, Refused> {
    let rule = &permit.entry().rule;
    let target = &matched.target;
    let judged = live.egress.judge_unseen(&target.host, target.port);
    judged.map_err(|denied| Refused::from(&DialError::Denied(denied)).under(permit.entry()))?;
    let connecting = async {
        let link = dial(&route.proxy, live, matched, deadline).await?;
        if route.tunnels {
            open_tunnel(&route.proxy, cx, live, link, matched).await
        } else {
            Ok(link.into())
        }
    };
    let connected = timeout_at(deadline, connecting).await.unwrap_or(Err(ViaError::TimedOut));
    match &connected {
        Ok(_) if route.tunnels => cx.upstream_works(rule),
        Ok(_) | Err(ViaError::Dial(DialError::Short(_))) => {}
        Err(error) => cx.upstream_failed(rule, error),
    }
    connected.map_err(|error| error.refusal().under(permit.entry()))
}

/// A connection to the upstream proxy.
async fn dial(
    proxy: &UpstreamProxy,
    live: &LiveConfig,
    matched: &MatchedRequest,
    deadline: Instant,
) -> Result<ProxyLink, ViaError> {
    let UpstreamProxy { scheme, host, port, .. } = proxy;
    let limit = deadline.saturating_duration_since(clock::now());
    let stream = live.egress.connect_upstream(host, *port, &matched.client, limit).await?;
    if *scheme != ProxyScheme::Https {
        return Ok(Either::Left(stream));
    }
    // `verify: false` applies to the rule's sites, not to the upstream proxy.
    let stream = live.tls.connect(host, stream, true, true, deadline).await?;
    Ok(Either::Right(Box::new(stream)))
}

/// Makes the upstream proxy connect `link` to the site.
async fn open_tunnel(
    proxy: &UpstreamProxy,
    cx: &Context,
    live: &LiveConfig,
    link: ProxyLink,
    matched: &MatchedRequest,
) -> Result<ProxiedStream, ViaError> {
    match (proxy.scheme, link) {
        (ProxyScheme::Socks5, Either::Left(stream)) => {
            socks(stream, &matched.target, proxy.login.as_ref()).await
        }
        (_, link) => connect_method(proxy, cx, live, link, matched).await,
    }
}

/// CONNECT.
async fn connect_method(
    proxy: &UpstreamProxy,
    cx: &Context,
    live: &LiveConfig,
    link: ProxyLink,
    matched: &MatchedRequest,
) -> Result<ProxiedStream, ViaError> {
    let authority = format!("{}:{}", matched.target.host, matched.target.port);
    let mut request = Request::builder()
        .method(Method::CONNECT)
        .uri(authority.as_str())
        .header(header::HOST, &authority)
        .body(Empty::<Bytes>::new())
        .map_err(|error| ViaError::Broken(error.to_string()))?;
    // Lets two proxies that lead to each other detect the loop.
    let ours = cx.via.of(Version::HTTP_11);
    for passed in matched.passed.iter().flatten().chain([&ours]) {
        request.headers_mut().append(header::VIA, passed.clone());
    }
    if let Some(login) = proxy.login.as_ref().and_then(basic) {
        request.headers_mut().insert(header::PROXY_AUTHORIZATION, login);
    }
    let (mut sender, connection) = http1::Builder::new()
        .title_case_headers(true)
        .max_header_size(live.settings.limits.header_bytes)
        .handshake(TokioIo::new(link))
        .await?;
    // This task ends with `sender`, or when the connection becomes a tunnel.
    tokio::spawn(connection.with_upgrades());
    let mut response = sender.send_request(request).await?;
    match response.status() {
        StatusCode::PROXY_AUTHENTICATION_REQUIRED => return Err(ViaError::Login),
        status if !status.is_success() => return Err(ViaError::Refused(status, None)),
        _ => {}
    }
    let upgraded = hyper::upgrade::on(&mut response).await?;
    let parts = upgraded.downcast::<TokioIo<ProxyLink>>();
    let parts = parts.map_err(|_| ViaError::Broken("another connection came back".into()))?;
    Ok(Peeked::new(parts.io.into_inner(), parts.read_buf))
}

/// SOCKS 5. The proxy resolves names.
async fn socks(
    stream: TcpStream,
    target: &Target,
    login: Option<&Login>,
) -> Result<ProxiedStream, ViaError> {
    let port = target.port;
    let opened = match (&target.host, login) {
        (Host::Name(name), None) => {
            Socks5Stream::connect_with_socket(stream, (&**name, port)).await
        }
        (Host::Ip(ip), None) => {
            Socks5Stream::connect_with_socket(stream, SocketAddr::new(*ip, port)).await
        }
        (Host::Name(name), Some(Login { user, password })) => {
            let (place, password) = ((&**name, port), password.expose());
            Socks5Stream::connect_with_password_and_socket(stream, place, user, password).await
        }
        (Host::Ip(ip), Some(Login { user, password })) => {
            let (place, password) = (SocketAddr::new(*ip, port), password.expose());
            Socks5Stream::connect_with_password_and_socket(stream, place, user, password).await
        }
    };
    Ok(ProxyLink::Left(opened?.into_inner()).into())
}

/// A connection for a tunnel, ready to be copied.
pub(crate) async fn tunnel_side(
    cx: &Context,
    live: &LiveConfig,
    matched: &MatchedRequest,
    permit: &SendPermit,
    proxy: &Arc<UpstreamProxy>,
) -> Result<Side, Refused> {
    let deadline = clock::now() + live.settings.timeouts.connect;
    let route = Route::to_the_site(proxy);
    let (link, early) = connect(&route, cx, live, matched, permit, deadline).await?.into_parts();
    Ok(match link {
        Either::Left(stream) => Side::Tcp(stream, early),
        Either::Right(stream) => Side::other(Peeked::new(*stream, early)),
    })
}

/// Checks the response to a request that names the site.
///
/// # Errors
/// A failure that the upstream proxy reports itself.
pub(crate) fn judge_answer<B>(
    cx: &Context,
    response: &Response<B>,
    permit: &SendPermit,
) -> Result<(), Refused> {
    let entry = permit.entry();
    match own_answer(response) {
        None => {
            cx.upstream_works(&entry.rule);
            Ok(())
        }
        Some(error) => {
            cx.upstream_failed(&entry.rule, &error);
            Err(error.refusal().under(entry))
        }
    }
}

fn own_answer<B>(response: &Response<B>) -> Option<ViaError> {
    let status = response.status();
    let said = |name: &str| {
        let text = response.headers().get(name)?.to_str().ok()?;
        Some(text.chars().take(60).collect::<String>())
    };
    if status == StatusCode::PROXY_AUTHENTICATION_REQUIRED {
        return Some(ViaError::Login);
    }
    let why = said(REFUSED).or_else(|| said(SQUID_ERROR))?;
    Some(ViaError::Refused(status, Some(why)))
}

/// Why the upstream proxy does not connect to the site; a message for people.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ViaError {
    /// It cannot be reached.
    #[error("{0}")]
    Dial(#[from] DialError),
    /// No TLS with it.
    #[error("{0}")]
    Tls(#[from] TlsError),
    /// It requires another login.
    #[error("it does not accept the user and the password of `via`, or `via` has none")]
    Login,
    /// It refuses the connection.
    #[error("it answered {}{}", .0.as_u16(), .1.as_ref().map(|why| format!(" ({why})")).unwrap_or_default())]
    Refused(StatusCode, Option<String>),
    /// It refuses with a SOCKS error.
    #[error("it answered: {0}")]
    Socks(String),
    /// It closed the connection, or does not follow its protocol.
    #[error("it broke off the connection, or does not speak the protocol of `via`: {0}")]
    Broken(String),
    /// It did not respond in time.
    #[error("it did not connect to the site in time")]
    TimedOut,
}

impl From<hyper::Error> for ViaError {
    fn from(error: hyper::Error) -> Self {
        Self::Broken(error.to_string())
    }
}

impl From<tokio_socks::Error> for ViaError {
    fn from(error: tokio_socks::Error) -> Self {
        use tokio_socks::Error;
        match error {
            Error::PasswordAuthFailure(_)
            | Error::NoAcceptableAuthMethods
            | Error::AuthorizationRequired => Self::Login,
            Error::Io(_) | Error::InvalidResponseVersion | Error::UnknownAuthMethod => {
                Self::Broken(error.to_string())
            }
            other => Self::Socks(other.to_string()),
        }
    }
}

impl ViaError {
    /// The refusal for the client (RFC 9209 section 2.3).
    pub(crate) fn refusal(&self) -> Refused {
        let bad = StatusCode::BAD_GATEWAY;
        let (status, error) = match self {
            // This process has no descriptor left.
            Self::Dial(error @ DialError::Short(_)) => return error.into(),
            Self::Dial(DialError::Denied(denied)) => (bad, denied.proxy_error()),
            Self::Dial(error) => {
                let (status, _, proxy_error) = error.response();
                (status, proxy_error)
            }
            Self::Tls(error) => (error.refusal().status, error.refusal().error),
            Self::Login => (bad, "proxy_configuration_error"),
            Self::Refused(..) | Self::Socks(_) => (bad, "destination_unavailable"),
            Self::Broken(_) => (bad, "connection_terminated"),
            Self::TimedOut => (StatusCode::GATEWAY_TIMEOUT, "connection_timeout"),
        };
        let text = sentence(&format!("the upstream proxy of this rule failed: {self}"));
        Refusal::new(status, Reason::Via, error, text)
    }
}
