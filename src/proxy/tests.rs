//! Tests of the request path over real sockets: a client that writes bytes, the proxy, and a site
//! that records them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod answers;
pub(crate) mod bench;
mod connect;
mod forward;
mod gate;
mod hostile;
mod inspect;
mod intercept;
mod limits;
mod pool;
mod reload;
mod sealed;
mod secure;
mod tls;
mod websocket;

use bench::{Bench, Site};

#[tokio::test]
async fn an_absolute_form_request_reaches_the_site_in_origin_form() {
    let site = Site::answering("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi").await;
    let bench = Bench::start().await;
    let answer = bench.get(&site.url("/a//b/../c;d%2f?q=%20")).await;
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.body(), "hi");
    let seen = site.request(0).await;
    assert!(seen.starts_with("GET /a//b/../c;d%2f?q=%20 HTTP/1.1\r\n"), "{seen}");
}
