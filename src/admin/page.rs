//! The status page, whose four files are part of the program, and the CA certificate.

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse as _, Response},
};
use http::{StatusCode, header};

use super::{Context, reply::Problem};

fn file(kind: &'static str, text: &'static str) -> Response {
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}

/// `/`. If the API requires a token, the page's script asks for it before the first request.
pub(super) async fn index(State(cx): State<Arc<Context>>) -> Response {
    const PAGE: &str = include_str!("page/index.html");
    const KIND: &str = "text/html; charset=utf-8";
    if cx.token.is_none() {
        return file(KIND, PAGE);
    }
    ([(header::CONTENT_TYPE, KIND)], PAGE.replacen("<body>", "<body data-token>", 1))
        .into_response()
}

/// `/style.css`
pub(super) async fn style() -> Response {
    file("text/css; charset=utf-8", include_str!("page/style.css"))
}

/// `/script.js`
pub(super) async fn script() -> Response {
    file("text/javascript; charset=utf-8", include_str!("page/script.js"))
}

/// `/words.js`
pub(super) async fn words() -> Response {
    file("text/javascript; charset=utf-8", include_str!("page/words.js"))
}

/// `/ca.pem`. A certificate is public, so it needs no token.
pub(super) async fn ca(State(cx): State<Arc<Context>>) -> Response {
    match &**cx.ca_pem.load() {
        Some(pem) => {
            let kind = [(header::CONTENT_TYPE, "application/x-pem-file")];
            (kind, pem.clone()).into_response()
        }
        None => {
            Problem::new(StatusCode::NOT_FOUND, "no rule intercepts, so there is no CA to trust")
                .into_response()
        }
    }
}
