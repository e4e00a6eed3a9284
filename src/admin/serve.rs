//! The listener of the admin port. Every step of a connection has a time limit, and no client can keep others out: if
//! there are too many connections, the oldest of the client with the most makes room for the next one. So a probe of
//! `/healthz` is served whoever else is connected.

mod guests;
mod limited;

use std::{net::IpAddr, sync::Arc, time::Duration};

use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::{guests::Guests, limited::Limited};
use super::{Context, live, router};

/// A request head, from the connection or from the answer before it.
const HEAD: Duration = Duration::from_secs(10);
/// Rest after a failed accept: out of descriptors, and trying again at once would only burn the CPU.
const ACCEPT_REST: Duration = Duration::from_millis(200);
/// How long running answers may take once the port closes; streams end at once by themselves.
const CLOSE: Duration = Duration::from_secs(2);

/// Serves the admin port until `stop` (which comes after the proxy's drain: `/readyz` answers 503 meanwhile).
pub async fn serve(listener: TcpListener, cx: Arc<Context>, stop: CancellationToken) {
    let router = router(&cx);
    let tasks = TaskTracker::new();
    let guests = Arc::new(Guests::default());
    tasks.spawn(stop.clone().run_until_cancelled_owned(live::run(Arc::clone(&cx))));
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = accept(&listener) => accepted,
        };
        let Some((stream, client)) = accepted else { continue };
        let service = TowerToHyperService::new(router.clone());
        let (stop, guest) = (stop.clone(), guests.enter(client));
        tasks.spawn(async move {
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD)
                .serve_connection(TokioIo::new(Limited::new(stream)), service);
            let mut connection = std::pin::pin!(connection);
            let ended = tokio::select! {
                ended = &mut connection => ended,
                () = guest.makes_room() => return,
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
    // What is late is cut off with the process.
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
