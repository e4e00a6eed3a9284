//! The listener of the admin port: bounded in connections and in the time that a head may take.

use std::{sync::Arc, time::Duration};

use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{net::TcpListener, sync::Semaphore};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{Context, live, router};

/// Connections at once: some pages, a scraper, some probes. One more waits in the kernel's queue.
const CONNECTIONS: usize = 128;
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
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    tasks.spawn(stop.clone().run_until_cancelled_owned(live::run(Arc::clone(&cx))));
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = accept(&listener, &places) => accepted,
        };
        let Some((stream, place)) = accepted else { continue };
        let service = TowerToHyperService::new(router.clone());
        let stop = stop.clone();
        tasks.spawn(async move {
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD)
                .serve_connection(TokioIo::new(stream), service);
            let mut connection = std::pin::pin!(connection);
            let ended = tokio::select! {
                ended = &mut connection => ended,
                () = stop.cancelled() => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            };
            if let Err(error) = ended {
                tracing::debug!(%error, "admin connection");
            }
            drop(place);
        });
    }
    tasks.close();
    // What is late is cut off with the process.
    drop(tokio::time::timeout(CLOSE, tasks.wait()).await);
}

async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> Option<(tokio::net::TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => Some((stream, place)),
        Err(error) => {
            tracing::debug!(%error, "admin accept");
            tokio::time::sleep(ACCEPT_REST).await;
            None
        }
    }
}
