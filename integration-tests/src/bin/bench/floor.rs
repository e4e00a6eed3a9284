//! What everything is compared with: a forward proxy of hyper and hyper-util without any feature; and the origin.

use std::{convert::Infallible, io, net::SocketAddr};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Either, Empty, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioIo, TokioTimer},
};
use tokio::net::{TcpListener, TcpStream};

use super::pages::Page;

type Answer = Response<Either<Incoming, Empty<Bytes>>>;

/// Serves as a forward proxy until the process is ended.
pub(crate) async fn proxy(at: SocketAddr) -> anyhow::Result<()> {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client = Client::builder(TokioExecutor::new()).build(connector);
    let listener = TcpListener::bind(at).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let client = client.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| forward(client.clone(), request));
            let mut builder = http1::Builder::new();
            builder.timer(TokioTimer::new());
            builder.serve_connection(TokioIo::new(stream), service).with_upgrades().await
        });
    }
}

async fn forward(
    client: Client<HttpConnector, Incoming>,
    mut request: Request<Incoming>,
) -> Result<Answer, Infallible> {
    if request.method() == Method::CONNECT {
        return Ok(connect(request).await.unwrap_or_else(|_| bad_gateway()));
    }
    request.headers_mut().remove(header::CONNECTION);
    request.headers_mut().remove("proxy-connection");
    Ok(match client.request(request).await {
        Ok(response) => response.map(Either::Left),
        Err(_) => bad_gateway(),
    })
}

/// A tunnel.
async fn connect(mut request: Request<Incoming>) -> io::Result<Answer> {
    let to = request.uri().authority().map(ToString::to_string).unwrap_or_default();
    let mut site = TcpStream::connect(to).await?;
    site.set_nodelay(true)?;
    let client = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let client = client.await.map_err(io::Error::other)?;
        tokio::io::copy_bidirectional(&mut TokioIo::new(client), &mut site).await
    });
    Ok(Response::new(Either::Right(Empty::new())))
}

fn bad_gateway() -> Answer {
    let mut response = Response::new(Either::Right(Empty::new()));
    *response.status_mut() = StatusCode::BAD_GATEWAY;
    response
}

/// Serves the pages until the process is ended.
pub(crate) async fn origin(at: SocketAddr) -> anyhow::Result<()> {
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
