//! The only difference between HTTP/1.1 and HTTP/2 requests: where they name the site.

use http::{HeaderValue, Request, Uri, Version, header, uri::PathAndQuery};
use http_body::Body as _;

use crate::{
    proxy::upstream::{upload::Upload, via::route::Route},
    target::Target,
};

/// Adapts a request to its connection. May be called again for another connection. `via` is the upstream proxy for
/// which the request names its site.
///
/// HTTP/1.1 has an origin-form target and a Host field, HTTP/2 has `:scheme` and `:authority` and
/// no framing fields (RFC 9113 sections 8.2.2 and 8.3.1).
pub(super) fn fit(request: &mut Request<Upload>, target: &Target, h2: bool, via: Option<&Route>) {
    match (h2, request.uri().authority().is_some()) {
        (true, false) => to_h2(request, target),
        (false, true) => to_http1(request, target),
        (true, true) | (false, false) => {}
    }
    if let Some(via) = via {
        via.address(request, target);
    }
}

fn to_h2(request: &mut Request<Upload>, target: &Target) {
    let uri = Uri::builder()
        .scheme(target.scheme.as_str())
        .authority(target.authority())
        .path_and_query(path(request))
        .build();
    // A parsed target is a valid URI. If not, hyper reports it.
    if let Ok(uri) = uri {
        *request.uri_mut() = uri;
    }
    *request.version_mut() = Version::HTTP_2;
    request.headers_mut().remove(header::HOST);
    request.headers_mut().remove(header::TRANSFER_ENCODING);
}

fn to_http1(request: &mut Request<Upload>, target: &Target) {
    *request.uri_mut() = Uri::from(path(request));
    *request.version_mut() = Version::HTTP_11;
    request.headers_mut().remove(header::PROXY_AUTHORIZATION);
    if let Ok(host) = HeaderValue::try_from(target.authority()) {
        request.headers_mut().insert(header::HOST, host);
    }
    let body = request.body();
    if !body.is_end_stream() && body.size_hint().exact().is_none() {
        let chunked = HeaderValue::from_static("chunked");
        request.headers_mut().insert(header::TRANSFER_ENCODING, chunked);
    }
}

fn path(request: &Request<Upload>) -> PathAndQuery {
    request.uri().path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use http::Method;

    use super::*;

    #[test]
    fn a_request_changes_between_the_versions_and_back() {
        let target = Target::parse(&Method::GET, &"https://h:8443/a?b".parse().unwrap()).unwrap();
        let mut request = Request::builder()
            .uri("/a?b")
            .header("host", "h:8443")
            .header("x", "y")
            .body(Upload::Empty)
            .unwrap();
        fit(&mut request, &target, true, None);
        assert_eq!(request.uri(), "https://h:8443/a?b");
        assert!(!request.headers().contains_key("host"));
        fit(&mut request, &target, false, None);
        assert_eq!(
            (request.uri().to_string(), request.version()),
            ("/a?b".into(), Version::HTTP_11)
        );
        assert_eq!(request.headers()["host"], "h:8443");
    }

    #[test]
    fn a_request_for_the_whole_site_stays_one() {
        let target = Target::parse(&Method::OPTIONS, &"https://h?".parse().unwrap()).unwrap();
        let mut request = Request::builder().uri("*").body(Upload::Empty).unwrap();
        fit(&mut request, &target, true, None);
        assert_eq!(request.uri().path(), "*");
        assert_eq!(request.uri().authority().unwrap(), "h");
    }
}
