//! Waits for the head of a site's response, and for its interim responses.

use std::{
    future::poll_fn,
    pin::Pin,
    task::{Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http::{Response, StatusCode};
use hyper::{body::Incoming, client::conn::TrySendError};

use super::{Outbound, Request, Upload, failure::Failure};
use crate::{
    http1::Handle,
    observability::metrics::Reason,
    proxy::{
        Refusal,
        headers::{self, HeaderFlags},
        reply::Refused,
        upstream::{interim::TooManyInterim, upload::Progress},
    },
    runtime::clock::Instant,
};

type Sent = Result<Response<Incoming>, TrySendError<Request<Upload>>>;

/// The events before the response.
enum Before {
    Interim(Result<Bytes, TooManyInterim>),
    Silence,
}

/// Waits from `started` on for the head of the response, as long as the upload makes progress. Relays interim responses
/// to `client`.
pub(super) async fn wait(
    mut sending: Pin<&mut impl Future<Output = Sent>>,
    outbound: &mut Outbound,
    client: Option<&Handle>,
    started: Instant,
    limit: Duration,
) -> Result<Response<Incoming>, Failure> {
    let client = client.filter(|_| outbound.accepts_interim);
    let Outbound { response_timer, progress, interim, .. } = outbound;
    let uploaded = || progress.as_ref().map_or(0, Progress::frames);
    let mut before = uploaded();
    response_timer.reset_at(started, limit);
    loop {
        let event = poll_fn(|cx| {
            if let Poll::Ready(answered) = sending.as_mut().poll(cx) {
                return Poll::Ready(Ok(answered));
            }
            if let Poll::Ready(next) = interim.poll_next(cx) {
                return Poll::Ready(Err(Before::Interim(next)));
            }
            loop {
                ready!(response_timer.poll_expired(cx, limit));
                if uploaded() == before {
                    return Poll::Ready(Err(Before::Silence));
                }
                before = uploaded();
                response_timer.reset();
            }
        });
        match event.await {
            Ok(answered) => {
                relay(client, interim.rest()?).await;
                return answered.map_err(Failure::from);
            }
            Err(Before::Interim(next)) => relay(client, next?).await,
            Err(Before::Silence) => return Err(Failure::NoAnswer(limit)),
        }
    }
}

async fn relay(client: Option<&Handle>, interim: Bytes) {
    if let Some(client) = client.filter(|_| !interim.is_empty()) {
        client.interim(&interim).await;
    }
}

/// Refuses responses that no client may get: an upgrade that was not requested, or a coding that the client cannot see.
/// Returns the flags of all others.
pub(super) fn check(
    outbound: &Outbound,
    response: &mut Response<Incoming>,
) -> Result<HeaderFlags, Refused> {
    let bad = |error, sentence: &str| {
        Err(Refusal::new(StatusCode::BAD_GATEWAY, Reason::Connect, error, sentence))
    };
    if response.status() == StatusCode::SWITCHING_PROTOCOLS && !outbound.is_upgrade() {
        return bad("http_upgrade_failed", "The site changed protocols without being asked.");
    }
    if response.status() == StatusCode::SWITCHING_PROTOCOLS
        && outbound.accept.as_ref().is_some_and(|accept| !accept.is_in(response))
    {
        let sentence = "The site's 101 does not match the WebSocket handshake.";
        return bad("http_upgrade_failed", sentence);
    }
    let flags = HeaderFlags::of(response.headers());
    if flags.coding && headers::has_foreign_coding(response.headers()) {
        let sentence = "The site responded with a transfer coding that was not requested.";
        return bad("http_response_transfer_coding", sentence);
    }
    if flags.length && !headers::normalise_length(response.headers_mut()) {
        let sentence = "The site's answer has more than one length, or one that is not a number.";
        return bad("http_protocol_error", sentence);
    }
    if flags.status {
        headers::strip_our_status(response.headers_mut());
    }
    Ok(flags)
}
