//! `GET /api/v1/events`: recent events as JSON, or as a stream of server-sent events for who asks for one.
//!
//! The stream first repeats what its client missed (`Last-Event-ID`), then sends each event as it happens under its
//! own name, and, with `?status`, `status` each second and `plots` every few seconds.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    Json,
    extract::{RawQuery, State},
    response::{
        IntoResponse as _, Response, Sse,
        sse::{Event as Message, KeepAlive},
    },
};
use http::{HeaderMap, StatusCode, header};
use tokio::sync::{OwnedSemaphorePermit, broadcast::error::RecvError};

use super::{Context, reply::Problem};
use crate::observability::event::Told;

/// A comment in a silent stream, so that proxies between do not cut it.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Recent events, oldest first, or the stream.
pub(super) async fn events(
    State(cx): State<Arc<Context>>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    let with_status = match query.as_deref() {
        None | Some("") => false,
        Some("status" | "status=1") => true,
        Some(_) => {
            return Problem::new(StatusCode::BAD_REQUEST, "the only parameter is `status`")
                .into_response();
        }
    };
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or("");
    if !accept.contains("text/event-stream") {
        return Json(serde_json::json!({"events": cx.events.recent()})).into_response();
    }
    let Ok(place) = Arc::clone(&cx.live.streams).try_acquire_owned() else {
        return Problem::new(StatusCode::SERVICE_UNAVAILABLE, "too many streams are open")
            .into_response();
    };
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    Sse::new(stream(cx, place, last, with_status))
        .keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
        .into_response()
}

fn stream(
    cx: Arc<Context>,
    place: OwnedSemaphorePermit,
    last: Option<u64>,
    with_status: bool,
) -> impl futures_core::Stream<Item = Result<Message, Infallible>> {
    async_stream::stream! {
        let _place = place;
        let mut told = cx.events.subscribe();
        let mut beats = cx.live.watch();
        let mut plotted = 0;
        // `told` listens already, so that nothing falls between; what came twice is sent once. An id beyond ours is
        // from a process before this one: its client gets everything.
        let recent = cx.events.recent();
        let ours = recent.last().map_or(0, |event| event.id);
        let mut newest = last.map_or(ours, |last| if last > ours { 0 } else { last });
        for event in recent {
            if event.id > newest {
                newest = event.id;
                yield Ok(message(&event));
            }
        }
        loop {
            tokio::select! {
                () = cx.stop.cancelled() => break,
                event = told.recv() => match event {
                    Ok(event) if event.id > newest => yield Ok(message(&event)),
                    Ok(_) => {}
                    Err(RecvError::Lagged(lost)) => {
                        yield Ok(Message::default().event("lost").data(lost.to_string()));
                    }
                    Err(RecvError::Closed) => break,
                },
                changed = beats.changed(), if with_status => {
                    if changed.is_err() { break }
                    let beat = beats.borrow_and_update().clone();
                    yield Ok(Message::default().event("status").data(&*beat.status));
                    if beat.plotted != plotted {
                        plotted = beat.plotted;
                        yield Ok(Message::default().event("plots").data(&*beat.plots));
                    }
                }
            }
        }
    }
}

fn message(told: &Told) -> Message {
    let data = serde_json::to_string(told).unwrap_or_default();
    Message::default().id(told.id.to_string()).event(told.event.kind()).data(data)
}
