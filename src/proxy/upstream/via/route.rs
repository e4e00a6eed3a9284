//! How a connection uses the upstream proxy, and the form of its requests.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{HeaderValue, Request, Uri, header, uri::PathAndQuery};

use crate::{
    rules::upstream::{Login, ProxyScheme, UpstreamProxy},
    target::{Scheme, Target},
};

/// How a connection uses the upstream proxy.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Route {
    pub(crate) proxy: Arc<UpstreamProxy>,
    /// Whether it is a tunnel to the site (CONNECT, SOCKS). Otherwise its requests name the site
    /// (absolute-form).
    pub(crate) tunnels: bool,
}

impl Route {
    /// The route for a request to `target`. `whole`: the request needs a connection to the site itself.
    pub(crate) fn new(proxy: &Arc<UpstreamProxy>, target: &Target, whole: bool) -> Self {
        // OPTIONS for a whole site has no absolute-form that the `http` crate can write.
        let tunnels = whole
            || target.scheme == Scheme::Https
            || proxy.scheme == ProxyScheme::Socks5
            || &*target.path == "*";
        Self { proxy: Arc::clone(proxy), tunnels }
    }

    /// A connection to the site itself.
    pub(crate) fn to_the_site(proxy: &Arc<UpstreamProxy>) -> Self {
        Self { proxy: Arc::clone(proxy), tunnels: true }
    }

    /// Makes a request name the site for the upstream proxy (RFC 9112 section 3.2.2).
    pub(crate) fn address<B>(&self, request: &mut Request<B>, target: &Target) {
        let path = request.uri().path_and_query().cloned();
        let uri = Uri::builder().scheme(target.scheme.as_str()).authority(target.authority());
        let path = path.unwrap_or_else(|| PathAndQuery::from_static("/"));
        // A parsed target is a valid URI. If not, hyper reports it.
        if let Ok(uri) = uri.path_and_query(path).build() {
            *request.uri_mut() = uri;
        }
        if let Some(login) = self.proxy.login.as_ref().and_then(basic) {
            request.headers_mut().insert(header::PROXY_AUTHORIZATION, login);
        }
    }
}

/// The login of an HTTP proxy (RFC 7617).
pub(crate) fn basic(login: &Login) -> Option<HeaderValue> {
    let Login { user, password } = login;
    let word = STANDARD.encode(format!("{user}:{}", password.expose()));
    let mut value = HeaderValue::try_from(format!("Basic {word}")).ok()?;
    value.set_sensitive(true);
    Some(value)
}
