//! Access control: the checks before any handler.
//!
//! Without a token the port trusts every local client, but a web page in the operator's browser
//! must not reach it. So the Host field must be an address or `localhost` (DNS rebinding needs
//! another name), and a change must come from our own page or from no page at all. With a token,
//! other pages are harmless because they do not know it.

use std::{sync::Arc, time::Duration};

use axum::{
    body::{Body, to_bytes},
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use http::{HeaderMap, Method, StatusCode, Version, header};

use super::{Context, reply::Problem};
use crate::target::Host;

/// Longest time for the body of a request.
const BODY_TIME: Duration = Duration::from_secs(10);

/// Rejects host names other than `localhost`, which DNS rebinding could use, and clients that take
/// this port for the proxy: they would get the status page as the response of each site.
pub(super) async fn host(State(cx): State<Arc<Context>>, request: Request, next: Next) -> Response {
    if request.version() <= Version::HTTP_11 && request.uri().authority().is_some() {
        let why = "this is the admin port, not the proxy: send requests for sites to `listen`";
        return Problem::new(StatusCode::MISDIRECTED_REQUEST, why).into_response();
    }
    let named = host_of(&request).is_some_and(|host| is_local_name(&host));
    if cx.token.is_none() && !named {
        let why =
            "the Host field must be an IP address or `localhost`, unless `admin.token` is set";
        return Problem::new(StatusCode::MISDIRECTED_REQUEST, why).into_response();
    }
    next.run(request).await
}

/// Requires the token, if one is set.
pub(super) async fn token(
    State(cx): State<Arc<Context>>,
    request: Request,
    next: Next,
) -> Response {
    if let Some(token) = &cx.token
        && !bearer(request.headers()).is_some_and(|given| token.matches(given))
    {
        let why = "the token of the rule file is required (`Authorization: Bearer ...`)";
        return Problem::new(StatusCode::UNAUTHORIZED, why).into_response();
    }
    next.run(request).await
}

/// Accepts changes only from our own page or from programs.
pub(super) async fn writes(request: Request, next: Next) -> Response {
    if matches!(*request.method(), Method::GET | Method::HEAD) {
        return next.run(request).await;
    }
    let headers = request.headers();
    let site = headers.get("sec-fetch-site").map(http::HeaderValue::as_bytes);
    let own_site = matches!(site, None | Some(b"same-origin" | b"none"));
    let own_origin = headers.get(header::ORIGIN).is_none_or(|origin| {
        let host = host_of(&request);
        let origin = origin.to_str().ok().and_then(|o| o.split_once("://")).map(|(_, host)| host);
        host.is_some() && origin == host.as_deref()
    });
    if !own_site || !own_origin {
        let why = "a page of another origin cannot make changes";
        return Problem::new(StatusCode::FORBIDDEN, why).into_response();
    }
    if *request.method() == Method::POST && !is_json(headers) {
        let why = "send JSON, with `Content-Type: application/json`";
        return Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, why).into_response();
    }
    next.run(request).await
}

/// Reads the body before the handler: at most `most` bytes, within a time limit.
pub(super) async fn body(State(most): State<usize>, request: Request, next: Next) -> Response {
    let (head, body) = request.into_parts();
    match tokio::time::timeout(BODY_TIME, to_bytes(body, most)).await {
        Ok(Ok(body)) => next.run(Request::from_parts(head, Body::from(body))).await,
        Ok(Err(_)) => {
            let why = format!("the body may have at most {most} bytes");
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, why).into_response()
        }
        Err(_elapsed) => {
            let why = "the body of the request did not arrive in time";
            Problem::new(StatusCode::REQUEST_TIMEOUT, why).into_response()
        }
    }
}

/// Host and port as the client named them.
fn host_of(request: &Request) -> Option<String> {
    let field = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    let authority = request.uri().authority().map(http::uri::Authority::as_str);
    authority.or(field).map(str::to_ascii_lowercase)
}

fn is_local_name(authority: &str) -> bool {
    let bare = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) => host,
        _ => authority,
    };
    bare == "localhost" || matches!(Host::parse(bare), Ok(Host::Ip(_)))
}

fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let field = headers.get(header::AUTHORIZATION)?.as_bytes();
    let (scheme, token) = field.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

fn is_json(headers: &HeaderMap) -> bool {
    let field = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = field.and_then(|value| value.split(';').next());
    essence.is_some_and(|essence| essence.trim().eq_ignore_ascii_case("application/json"))
}
