//! WebSocket over HTTP/2: extended CONNECT (RFC 8441), translated to the handshake of HTTP/1.1 that
//! sites use.
//!
//! The CONNECT is first translated to the equivalent GET with `Upgrade`, so that rule, gate and verdict see a single
//! kind of WebSocket. Finally the site's 101 becomes a 200. HTTP/2 has no key for the handshake, so the proxy creates
//! one and checks the site's reply.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{HeaderValue, Method, Request, Response, StatusCode, Version, header};
use hyper::ext::Protocol;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

use super::{Body, Refusal, headers, reply::Refused};

/// A site hashes this constant together with the key (RFC 6455 section 1.3).
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The header field with which a site's 101 replies to our key.
#[derive(Debug, Clone)]
pub(crate) struct Accept(HeaderValue);

impl Accept {
    /// For a key (RFC 6455 section 4.2.2).
    fn of(key: &str) -> Option<Self> {
        let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, format!("{key}{GUID}").as_bytes());
        HeaderValue::try_from(STANDARD.encode(hash)).ok().map(Self)
    }

    /// Whether a site's 101 replies correctly to the key.
    pub(crate) fn is_in<B>(&self, response: &Response<B>) -> bool {
        response.headers().get(header::SEC_WEBSOCKET_ACCEPT) == Some(&self.0)
    }
}

/// Whether a request is an extended CONNECT, for any protocol.
pub(crate) fn is_asked_by<B>(request: &Request<B>) -> bool {
    request.version() == Version::HTTP_2 && request.extensions().get::<Protocol>().is_some()
}

/// Translates an extended CONNECT to the handshake of HTTP/1.1, with [`Accept`] among its extensions.
///
/// # Errors
/// 501 for another protocol than WebSocket (RFC 9220 section 3).
pub(crate) fn unfold<B>(request: &mut Request<B>) -> Result<(), Refused> {
    if !is_asked_by(request) {
        return Ok(());
    }
    let Some(protocol) = request.extensions_mut().remove::<Protocol>() else { return Ok(()) };
    if protocol.as_str() != "websocket" {
        let sentence = "WebSocket is the only supported protocol over extended CONNECT.";
        return Err(Refusal::malformed(StatusCode::NOT_IMPLEMENTED, sentence));
    }
    *request.method_mut() = Method::GET;
    let key = STANDARD.encode(fastrand::u128(..).to_ne_bytes());
    if let Some(accept) = Accept::of(&key) {
        request.extensions_mut().insert(accept);
    }
    let headers = request.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    if let Ok(key) = HeaderValue::try_from(key) {
        headers.insert(header::SEC_WEBSOCKET_KEY, key);
    }
    Ok(())
}

/// The response to an extended CONNECT. It is a success only if the site switched protocols,
/// because the client would take any other 2xx for an open WebSocket.
pub(crate) fn fold(response: &mut Response<Body>) {
    let status = response.status();
    if status == StatusCode::SWITCHING_PROTOCOLS {
        *response.status_mut() = StatusCode::OK;
        for name in [header::CONNECTION, header::UPGRADE, header::SEC_WEBSOCKET_ACCEPT] {
            response.headers_mut().remove(name);
        }
    } else if status.is_success() {
        *response.status_mut() = StatusCode::BAD_GATEWAY;
        let why =
            format!("tidegate; error=http_upgrade_failed; received-status={}", status.as_u16());
        if let Ok(why) = HeaderValue::try_from(why) {
            response.headers_mut().insert(headers::PROXY_STATUS, why);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_key_has_its_answer() {
        // RFC 6455 section 1.3.
        let accept = Accept::of("dGhlIHNhbXBsZSBub25jZQ==").unwrap();
        let answer = |text: &str| Response::builder().header("sec-websocket-accept", text).body(());
        assert!(accept.is_in(&answer("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=").unwrap()));
        assert!(!accept.is_in(&answer("HSmrc0sMlYUkAGmm5OPpG2HaGWk=").unwrap()));
        assert!(!accept.is_in(&Response::new(())));
    }

    #[test]
    fn each_handshake_has_a_key_of_its_own() {
        let key = || {
            let connect = Request::connect("https://h/chat").version(Version::HTTP_2);
            let mut request = connect.body(()).unwrap();
            request.extensions_mut().insert(Protocol::from_static("websocket"));
            unfold(&mut request).unwrap();
            assert_eq!((request.method(), request.uri().path()), (&Method::GET, "/chat"));
            request.headers()[header::SEC_WEBSOCKET_KEY].clone()
        };
        assert_ne!(key(), key());
    }
}
