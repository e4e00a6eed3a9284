//! The baseline: a forward proxy of hyper and hyper-util without any feature, or with one: a script
//! call to Redis per request, or interception.

mod intercept;
mod redis;

use std::{convert::Infallible, io, net::SocketAddr, path::Path, sync::Arc};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{Either, Empty};
use hyper::{body::Incoming, server::conn::http1, service::service_fn, upgrade::Upgraded};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioIo, TokioTimer},
};
use tokio::net::{TcpListener, TcpStream};

use self::{intercept::Interceptor, redis::Limiter};

type Answer = Response<Either<Incoming, Empty<Bytes>>>;

/// A baseline with at most one of the two features.
#[derive(Clone)]
pub(crate) struct Floor {
    client: Client<HttpConnector, Incoming>,
    limiter: Option<Limiter>,
    interceptor: Option<Arc<Interceptor>>,
}

impl Floor {
    /// Without any feature.
    pub(crate) fn bare() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new()).build(connector);
        Self { client, limiter: None, interceptor: None }
    }

    /// With a script call to this server for each request.
    pub(crate) async fn limited(redis: SocketAddr) -> anyhow::Result<Self> {
        Ok(Self { limiter: Some(Limiter::connect(redis).await?), ..Self::bare() })
    }

    /// With interception. It trusts sites with this root and writes its own root to `ca`.
    pub(crate) fn intercepting(root: &Path, ca: &Path) -> anyhow::Result<Self> {
        Ok(Self { interceptor: Some(Arc::new(Interceptor::new(root, ca)?)), ..Self::bare() })
    }

    /// Serves until the process ends.
    pub(crate) async fn serve(self, at: SocketAddr) -> anyhow::Result<()> {
        let listener = TcpListener::bind(at).await?;
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let floor = self.clone();
            tokio::spawn(async move {
                let service = service_fn(move |request| floor.clone().answer(request));
                let mut builder = http1::Builder::new();
                builder.timer(TokioTimer::new());
                builder.serve_connection(TokioIo::new(stream), service).with_upgrades().await
            });
        }
    }

    async fn answer(self, mut request: Request<Incoming>) -> Result<Answer, Infallible> {
        if request.method() == Method::CONNECT {
            return Ok(self
                .connect(request)
                .await
                .unwrap_or_else(|_| empty(StatusCode::BAD_GATEWAY)));
        }
        if let Some(limiter) = &self.limiter
            && !limiter.allows(request.uri().host().unwrap_or_default()).await
        {
            return Ok(empty(StatusCode::TOO_MANY_REQUESTS));
        }
        strip(&mut request);
        Ok(match self.client.request(request).await {
            Ok(response) => response.map(Either::Left),
            Err(_) => empty(StatusCode::BAD_GATEWAY),
        })
    }

    async fn connect(self, mut request: Request<Incoming>) -> io::Result<Answer> {
        let to = request.uri().authority().map(ToString::to_string).unwrap_or_default();
        let client = hyper::upgrade::on(&mut request);
        if let Some(interceptor) = self.interceptor {
            tokio::spawn(async move { interceptor.serve(client.await?, to).await });
        } else {
            let site = dial(&to).await?;
            tokio::spawn(
                async move { tunnel(client.await.map_err(io::Error::other)?, site).await },
            );
        }
        Ok(empty(StatusCode::OK))
    }
}

async fn dial(to: &str) -> io::Result<TcpStream> {
    let site = TcpStream::connect(to).await?;
    site.set_nodelay(true)?;
    Ok(site)
}

async fn tunnel(client: Upgraded, mut site: TcpStream) -> io::Result<(u64, u64)> {
    tokio::io::copy_bidirectional(&mut TokioIo::new(client), &mut site).await
}

fn strip(request: &mut Request<Incoming>) {
    request.headers_mut().remove(header::CONNECTION);
    request.headers_mut().remove("proxy-connection");
}

fn empty(status: StatusCode) -> Answer {
    let mut response = Response::new(Either::Right(Empty::new()));
    *response.status_mut() = status;
    response
}
