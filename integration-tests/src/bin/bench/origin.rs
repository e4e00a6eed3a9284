//! The origin that all proxies use: it serves the pages.

use std::{convert::Infallible, net::SocketAddr};

use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use super::pages::Page;

/// Serves the pages until the process ends.
pub(crate) async fn serve(at: SocketAddr) -> anyhow::Result<()> {
    let pages = Page::ALL.map(|page| (page, Bytes::from(page.body())));
    let listener = TcpListener::bind(at).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let pages = pages.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request: Request<Incoming>| {
                let found = pages.iter().find(|(page, _)| page.path() == request.uri().path());
                let (page, body) = found.unwrap_or(&pages[0]).clone();
                async move {
                    drop(request.into_body().collect().await);
                    let mut response = Response::new(Full::new(body));
                    let kind = header::HeaderValue::from_static(page.kind());
                    response.headers_mut().insert(header::CONTENT_TYPE, kind);
                    Ok::<_, Infallible>(response)
                }
            });
            http1::Builder::new().serve_connection(TokioIo::new(stream), service).await
        });
    }
}
