//! HTTP inside an intercepted CONNECT, in either version, through the same [`handle`].

use std::{
    convert::Infallible,
    error::Error as _,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{self, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::{server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};

use super::{Context, InterceptedConnect, LiveConfig};
use crate::{
    observability::metrics::Bound,
    proxy::{
        Body, ClientConn,
        client::accept::{ClientIo, builder},
        handle,
        stream::Stream,
        upstream::upload::BodyError,
    },
};

/// Streams that a client may make us reset ("made you reset", CVE-2025-8671).
const MAX_LOCAL_RESETS: usize = 100;
/// Largest list of request fields; bounds CONTINUATION frames as well.
const MAX_HEADER_LIST: u32 = 16 * 1024;
/// Bytes that a stream and a connection may send ahead.
const STREAM_WINDOW: u32 = 64 * 1024;
const CONNECTION_WINDOW: u32 = 1024 * 1024;
/// Most buffered bytes of a response for a client that does not read.
const MAX_SEND_BUFFER: usize = 64 * 1024;
/// The interval of pings to a client.
const PING: Duration = Duration::from_secs(20);

/// Serves HTTP/1.1.
pub(super) async fn http1<S: Stream + 'static>(
    cx: &Arc<Context>,
    live: &LiveConfig,
    peer: SocketAddr,
    inside: InterceptedConnect,
    stream: S,
) -> io::Result<()> {
    let (mut io, connection) = ClientIo::new(stream, &live.settings, &cx.metrics);
    io.log_refusals(peer.ip(), live.settings.log.access);
    let client_conn = ClientConn::new(peer, Some(connection), Some(inside));
    let service = service_fn(|request| handle(cx, &client_conn, request));
    let connection = builder(&live.settings).serve_connection(TokioIo::new(io), service);
    let mut connection = std::pin::pin!(connection.with_upgrades());
    let served = tokio::select! {
        served = connection.as_mut() => served,
        () = cx.stopping.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    served.map_err(io::Error::other)
}

/// Serves HTTP/2. Each stream passes the gate separately, so a held stream does not delay the others.
pub(super) async fn http2<S: Stream + 'static>(
    cx: &Arc<Context>,
    live: &LiveConfig,
    peer: SocketAddr,
    inside: InterceptedConnect,
    stream: S,
) -> io::Result<()> {
    let activity = Arc::new(Activity::default());
    let mut client_conn = ClientConn::new(peer, None, Some(inside));
    client_conn.activity = Some(Arc::clone(&activity));
    let client_conn = Arc::new(client_conn);
    let service = {
        let (cx, activity) = (Arc::clone(cx), Arc::clone(&activity));
        service_fn(move |request| {
            let (cx, client_conn) = (Arc::clone(&cx), Arc::clone(&client_conn));
            let active = activity.begin();
            async move {
                let response = handle(&cx, &client_conn, request).await;
                let response = response.unwrap_or_else(|never| match never {});
                Ok::<_, Infallible>(response.map(|body| active.track(body)))
            }
        })
    };
    let limits = live.settings.limits;
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams)
        .max_pending_accept_reset_streams(limits.resets)
        .max_local_error_reset_streams(MAX_LOCAL_RESETS)
        .max_header_list_size(MAX_HEADER_LIST)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(MAX_SEND_BUFFER)
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING)
        .enable_connect_protocol();
    let idle = live.settings.timeouts.idle;
    let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
    let served = tokio::select! {
        served = connection.as_mut() => served,
        inactivity = activity.inactive_for(idle) => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                served = connection.as_mut() => served,
                () = activity.stays_idle(inactivity, idle) => {
                    cx.metrics.reached(Bound::IdleAnswer);
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
        }
        () = cx.stopping.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    served.map_err(|error| {
        if is_abuse(&error) {
            cx.metrics.reached(Bound::Http2);
        }
        io::Error::other(error)
    })
}

/// Whether a connection ended because its client caused useless work (`ENHANCE_YOUR_CALM`, RFC 9113 section 7).
fn is_abuse(error: &hyper::Error) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<h2::Error>());
    cause.and_then(h2::Error::reason) == Some(h2::Reason::ENHANCE_YOUR_CALM)
}

/// Activity on a connection.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    /// Requests without a complete response, and open WebSockets.
    active: AtomicUsize,
    /// Responses being sent.
    responding: AtomicUsize,
    /// Requests and pieces of responses so far.
    progress: AtomicUsize,
}

/// Why a connection makes no progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inactivity {
    /// No request is open.
    Idle,
    /// The client does not read its responses.
    Stalled,
}

impl Activity {
    /// Counts a request or a WebSocket until the value is dropped.
    pub(crate) fn begin(self: &Arc<Self>) -> Active {
        self.active.fetch_add(1, Ordering::Relaxed);
        self.progress.fetch_add(1, Ordering::Relaxed);
        Active(Arc::clone(self))
    }

    /// Ready after `idle` without activity, unless a request is held or at its site. (The body detects a site that
    /// stops within a response.)
    async fn inactive_for(&self, idle: Duration) -> Inactivity {
        loop {
            let before = self.progress.load(Ordering::Relaxed);
            tokio::time::sleep(idle).await;
            if self.progress.load(Ordering::Relaxed) != before {
                continue;
            }
            if self.responding.load(Ordering::Relaxed) > 0 {
                return Inactivity::Stalled;
            }
            if self.active.load(Ordering::Relaxed) == 0 {
                return Inactivity::Idle;
            }
        }
    }

    /// Waits again for an idle connection. Returns at once if the client does not read.
    async fn stays_idle(&self, inactivity: Inactivity, idle: Duration) {
        if inactivity == Inactivity::Idle {
            self.inactive_for(idle).await;
        }
    }
}

pub(crate) struct Active(Arc<Activity>);

impl Active {
    fn track(self, body: Body) -> TrackedBody {
        self.0.responding.fetch_add(1, Ordering::Relaxed);
        TrackedBody { body, active: self }
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.0.active.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The body of a response. hyper does not poll it while the client's window is closed, so the
/// body's own timer does not run then.
struct TrackedBody {
    body: Body,
    active: Active,
}

impl HttpBody for TrackedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut task::Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        self.active.0.progress.fetch_add(1, Ordering::Relaxed);
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for TrackedBody {
    fn drop(&mut self) {
        self.active.0.responding.fetch_sub(1, Ordering::Relaxed);
    }
}
