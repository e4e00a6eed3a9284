//! Checks before a rule is looked up: malformed HTTP/2 requests, and requests that the proxy answers itself.

use std::sync::Arc;

use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;

use super::{
    Body, Context, Refusal,
    budget::{MAX_HELD_MEMORY, Share, size_of_held},
    client::ClientConn,
    context::LiveConfig,
    headers::{self, HeaderFlags},
    reply::{self, Refused},
};
use crate::{gate::Entry, observability::metrics::Bound};

/// Refuses an HTTP/2 request for the violations that [`crate::http1`] detects in HTTP/1.1.
///
/// # Errors
/// More fields than `limits.headers` allows, an invalid path, or blanks around a value (RFC 9113 section 8.2.1).
pub(crate) fn admit_frames(
    cx: &Context,
    live: &LiveConfig,
    request: &Request<Incoming>,
) -> Result<(), Refused> {
    if request.headers().len() > live.settings.limits.headers {
        cx.metrics.reached(Bound::Headers);
        let sentence = "The request has more fields than `limits.headers` allows.";
        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        return Err(Refusal::malformed(status, sentence));
    }
    let path = request.uri().path_and_query().map_or("", |path| path.as_str());
    let is_path = path.is_ascii() && (path != "*" || request.method() == Method::OPTIONS);
    let is_bare = |value: &HeaderValue| value.as_bytes().trim_ascii().len() == value.len();
    if !is_path || !request.headers().values().all(is_bare) {
        let sentence = "The path is malformed, or a field has blanks around its value.";
        return Err(Refusal::malformed(StatusCode::BAD_REQUEST, sentence));
    }
    Ok(())
}

/// Reserves the memory of an HTTP/2 request before it is held; `None` for HTTP/1.1.
///
/// # Errors
/// The held requests already use too much memory.
pub(crate) fn reserve_memory(
    cx: &Context,
    client_conn: &ClientConn,
    request: &Request<Incoming>,
    entry: &Arc<Entry>,
) -> Result<Option<Share>, Refused> {
    if client_conn.activity.is_none() {
        return Ok(None);
    }
    let share = cx.held_memory.take(size_of_held(request), MAX_HELD_MEMORY);
    share.map(Some).ok_or_else(|| {
        cx.metrics.reached(Bound::Http2);
        Refusal::busy("held requests of HTTP/2").under(entry)
    })
}

/// Answers requests that are not passed to a site: one that has been in this proxy before, TRACE, and an OPTIONS whose
/// `Max-Forwards` is used up (RFC 9110 sections 7.6.3, 9.3.8 and 7.6.2).
pub(crate) fn answer_here(
    cx: &Context,
    request: &mut Request<Incoming>,
    flags: HeaderFlags,
) -> Result<Option<Response<Body>>, Refused> {
    if flags.via && headers::has_passed(request.headers(), &cx.pseudonym) {
        return Err(Refusal::looped());
    }
    match *request.method() {
        Method::TRACE => {
            let sentence = "TRACE is refused, because it would reveal a site's credentials.";
            Err(Refusal::malformed(StatusCode::METHOD_NOT_ALLOWED, sentence))
        }
        // The start of the HTTP/2 preface, which is not a request (RFC 9113 section 3.4).
        ref method if method == "PRI" => {
            let sentence = "PRI is not supported: Tidegate does not speak HTTP/2 here.";
            Err(Refusal::malformed(StatusCode::BAD_REQUEST, sentence))
        }
        Method::OPTIONS => Ok(headers::count_down(request.headers_mut()).then(options)),
        _ => Ok(None),
    }
}

/// The proxy's own response to OPTIONS.
fn options() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(reply::ALLOWED));
    response
}
