//! `GET /api/v1/events`: recent events as JSON, or a stream of server-sent events if the client
//! asks for one.
//!
//! The stream first repeats the events that its client missed (`Last-Event-ID`). Then it sends each
//! event under its own name.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    Json,
    extract::State,
    response::{
        IntoResponse as _, Response, Sse,
        sse::{Event as Message, KeepAlive},
    },
};
use http::{HeaderMap, StatusCode, header};
use tokio::sync::{OwnedSemaphorePermit, broadcast::error::RecvError};

use super::{Context, reply::Problem};
use crate::observability::event::EventRecord;

/// The interval of comments in an idle stream, so that proxies in between do not close it.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Recent events, oldest first, or the stream.
pub(super) async fn events(State(cx): State<Arc<Context>>, headers: HeaderMap) -> Response {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or("");
    if !accept.contains("text/event-stream") {
        return Json(serde_json::json!({"events": cx.events.recent()})).into_response();
    }
    let Ok(slot) = Arc::clone(&cx.streams).try_acquire_owned() else {
        return Problem::new(StatusCode::SERVICE_UNAVAILABLE, "too many streams are open")
            .into_response();
    };
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    Sse::new(stream(cx, slot, last))
        .keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
        .into_response()
}

fn stream(
    cx: Arc<Context>,
    slot: OwnedSemaphorePermit,
    last: Option<u64>,
) -> impl futures_core::Stream<Item = Result<Message, Infallible>> {
    async_stream::stream! {
        let _slot = slot;
        let mut subscription = cx.events.subscribe();
        // The subscription began before this list was read, so no event is missed, and duplicates
        // are skipped. A larger id comes from an earlier process, so its client gets all events.
        let recent = cx.events.recent();
        let newest_recent = recent.last().map_or(0, |event| event.id);
        let mut newest = last.map_or(newest_recent, |last| if last > newest_recent { 0 } else { last });
        for event in recent {
            if event.id > newest {
                newest = event.id;
                yield Ok(message(&event));
            }
        }
        loop {
            tokio::select! {
                () = cx.stop.cancelled() => break,
                event = subscription.recv() => match event {
                    Ok(event) if event.id > newest => yield Ok(message(&event)),
                    Ok(_) => {}
                    Err(RecvError::Lagged(lost)) => {
                        yield Ok(Message::default().event("lost").data(lost.to_string()));
                    }
                    Err(RecvError::Closed) => break,
                },
            }
        }
    }
}

fn message(record: &EventRecord) -> Message {
    let data = serde_json::to_string(record).unwrap_or_default();
    Message::default().id(record.id.to_string()).event(record.event.kind()).data(data)
}
