//! The listener of the admin port. Each step of a connection has a time limit. If there are too
//! many connections, the oldest one of the client with the most is closed for a new one, so that no
//! client can lock out others or a probe of `/healthz`.

mod connections;
mod limited;

use std::{net::IpAddr, sync::Arc, time::Duration};

use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::{connections::ConnectionTable, limited::Limited};
use super::{Context, router};

/// Longest time for a request head, from the connection or the previous response on.
const HEAD: Duration = Duration::from_secs(10);
/// The pause after a failed accept. The process is out of descriptors, and an immediate retry would
/// fail too.
const ACCEPT_REST: Duration = Duration::from_millis(200);
/// How long running responses may take when the port closes. Streams end at once.
const CLOSE: Duration = Duration::from_secs(2);

/// Serves the admin port until `stop`, which comes after the proxy's drain. Until then `/readyz`
/// returns 503.
pub async fn serve(listener: TcpListener, cx: Arc<Context>, stop: CancellationToken) {
    let router = router(&cx);
    let tasks = TaskTracker::new();
    let table = Arc::new(ConnectionTable::default());
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = accept(&listener) => accepted,
        };
        let Some((stream, client)) = accepted else { continue };
        let service = TowerToHyperService::new(router.clone());
        let (stop, open) = (stop.clone(), table.add(client));
        tasks.spawn(async move {
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD)
                .serve_connection(TokioIo::new(Limited::new(stream)), service);
            let mut connection = std::pin::pin!(connection);
            let ended = tokio::select! {
                ended = &mut connection => ended,
                () = open.must_close() => return,
                () = stop.cancelled() => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            };
            if let Err(error) = ended {
                tracing::debug!(%error, "admin connection");
            }
        });
    }
    tasks.close();
    // Connections that are still open end with the process.
    drop(tokio::time::timeout(CLOSE, tasks.wait()).await);
}

async fn accept(listener: &TcpListener) -> Option<(TcpStream, IpAddr)> {
    match listener.accept().await {
        Ok((stream, peer)) => Some((stream, peer.ip().to_canonical())),
        Err(error) => {
            tracing::debug!(%error, "admin accept");
            tokio::time::sleep(ACCEPT_REST).await;
            None
        }
    }
}
