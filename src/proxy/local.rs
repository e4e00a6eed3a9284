//! `http://tidegate.local/`: a page for the proxy's own clients. It serves the CA that they must
//! trust, and shows whether a client uses the proxy, is intercepted and trusts the CA.
//!
//! The name exists only in the proxy. So a client that gets a response uses the proxy. A client that gets a response
//! over `https` trusts the CA, because no other certificate exists for the name. These requests take no token.

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use serde_json::json;

use super::{Body, ClientConn, Context, Refusal, reply::Refused};
use crate::target::{Host, Scheme, Target};

/// The name. `.local` is never resolved by the public DNS (RFC 6762).
const NAME: &str = "tidegate.local";
/// The origin of the page while it is unknown whether its client trusts the CA.
const ORIGIN: &str = "http://tidegate.local";
const PAGE: &str = include_str!("local/page.html");

/// Whether a request is to the proxy itself.
pub(crate) fn is_ours(target: &Target) -> bool {
    matches!(&target.host, Host::Name(name) if &**name == NAME)
}

/// Responds to such a request.
///
/// # Errors
/// The refusal: a method other than GET and HEAD, an unknown page, or no CA.
pub(crate) fn answer<B>(
    cx: &Context,
    client_conn: &ClientConn,
    request: &Request<B>,
    target: &Target,
) -> Result<Response<Body>, Refused> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let sentence = "This page of the proxy supports GET and HEAD only.";
        return Err(Refusal::malformed(StatusCode::METHOD_NOT_ALLOWED, sentence));
    }
    let path = target.path.split('?').next().unwrap_or_default();
    let (kind, body) = match path {
        "/" => ("text/html; charset=utf-8", Bytes::from_static(PAGE.as_bytes())),
        "/check" => ("application/json", check(cx, client_conn, target)),
        "/ca.pem" => ("application/x-pem-file", ca(cx)?.pem().to_owned().into()),
        "/ca.der" => ("application/x-x509-ca-cert", ca(cx)?.der().to_vec().into()),
        _ => {
            let sentence = format!("{NAME} has /, /check, /ca.pem and /ca.der.");
            return Err(Refusal::malformed(StatusCode::NOT_FOUND, sentence));
        }
    };
    let mut response = Response::new(Body::own(body));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // The page over `http` makes a request over `https`, which is another origin. No other page may read the client's
    // address here.
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static(ORIGIN));
    Ok(response)
}

fn check(cx: &Context, client_conn: &ClientConn, target: &Target) -> Bytes {
    let trusted = client_conn.inside.is_some() && target.scheme == Scheme::Https;
    let intercepts = cx.gate.intercepts();
    let say = match (trusted, intercepts) {
        (true, _) => "This client is proxied, and it trusts the CA: it can be intercepted.",
        (false, true) => {
            "This client is proxied. Ask https://tidegate.local/check to learn whether it trusts \
             the CA; `tidegate env` says how it can."
        }
        (false, false) => {
            "This client is proxied. No rule intercepts, so there is no CA that it would have to \
             trust."
        }
    };
    let client = client_conn.peer.ip();
    let trusts = trusted.then_some(true);
    let said = json!({
        "proxied": true, "intercepts": intercepts, "trusted": trusts, "client": client, "say": say,
    });
    format!("{said}\n").into()
}

fn ca(cx: &Context) -> Result<std::sync::Arc<crate::tls::ca::Ca>, Refused> {
    let none = |why: String| Refusal::malformed(StatusCode::NOT_FOUND, why);
    if !cx.gate.intercepts() {
        return Err(none("No rule intercepts, so there is no CA to trust.".to_owned()));
    }
    cx.ca().map_err(|error| none(super::reply::sentence(&error.to_string())))
}
