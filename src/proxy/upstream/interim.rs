//! Relays interim responses (1xx) of a site to the client (RFC 9110 section 15.2).
//!
//! After `100 Continue` the request's body is sent, if the client holds it back. Other interim responses are relayed in
//! HTTP/1.1. A site that sends too many is disconnected; for HTTP/2 see [`super::pool`].

use std::{
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Request, StatusCode, header};
use parking_lot::Mutex;
use tokio::time::Sleep;

use crate::{proxy::headers, runtime::clock};

/// Most interim responses to one request. Real sites send one or two; a long-running request may get one every few
/// seconds.
const MAX_COUNT: u32 = 100;
/// Most bytes of interim responses that wait for a client that does not read.
const MAX_BYTES: usize = 64 * 1024;
/// How long a body that its client holds back waits for the site's `100 Continue`. Many sites never send one, and
/// clients do not wait longer either (RFC 9110 section 10.1.1).
const WAIT: Duration = Duration::from_secs(1);

/// The interim responses of a site to one request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Interim(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// The responses to relay, as they will be sent.
    relayed: BytesMut,
    count: u32,
    body: HeldBody,
    answering: Option<Waker>,
    uploading: Option<Waker>,
}

/// The decision about a body that its client holds back.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeldBody {
    /// No decision yet, or no body is held back.
    #[default]
    Undecided,
    /// The body is sent, now or when the client has sent it.
    Wanted,
    /// The site responded without the body, so the client keeps it.
    Unwanted,
    /// The response was relayed too, so the site's connection may end.
    Over,
}

impl State {
    fn is_too_much(&self) -> bool {
        self.count > MAX_COUNT || self.relayed.len() > MAX_BYTES
    }

    /// The responses that have not been taken yet.
    fn take(&mut self) -> Result<Bytes, TooManyInterim> {
        if self.is_too_much() {
            Err(TooManyInterim)
        } else {
            Ok(mem::take(&mut self.relayed).freeze())
        }
    }

    fn settle(&mut self, body: HeldBody) {
        self.body = body;
        wake(&mut self.uploading);
    }
}

/// A site sends too many interim responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooManyInterim;

impl Interim {
    /// Collects the site's interim responses to `request`. `via` is our entry for them. hyper does not report those of
    /// HTTP/2 (`h2`), so a body does not wait there.
    pub(crate) fn listen<B>(&self, request: &mut Request<B>, h2: bool, via: HeaderValue) {
        if h2 {
            self.0.lock().settle(HeldBody::Wanted);
            return;
        }
        let state = Arc::clone(&self.0);
        hyper::ext::on_informational(request, move |answer| {
            let mut state = state.lock();
            state.count += 1;
            if answer.status() == StatusCode::CONTINUE {
                state.settle(HeldBody::Wanted);
            } else if !state.is_too_much() {
                write(&mut state.relayed, answer.status(), answer.headers(), &via);
            }
            wake(&mut state.answering);
        });
    }

    /// The responses to relay now.
    ///
    /// # Errors
    /// There are too many of them, or too many bytes.
    pub(crate) fn poll_next(&self, cx: &Context<'_>) -> Poll<Result<Bytes, TooManyInterim>> {
        let mut state = self.0.lock();
        let next = state.take();
        if next.as_ref().is_ok_and(Bytes::is_empty) {
            state.answering = Some(cx.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(next)
    }

    /// The last interim response.
    ///
    /// # Errors
    /// There are too many of them, or too many bytes.
    pub(crate) fn rest(&self) -> Result<Bytes, TooManyInterim> {
        self.0.lock().take()
    }

    /// The response has arrived. A body that was not requested by now is not needed. Then the connection to the site
    /// must end with the returned value.
    pub(crate) fn answered(&self, waits: bool) -> Option<Unwanted> {
        let mut state = self.0.lock();
        (waits && state.body == HeldBody::Undecided).then(|| {
            state.settle(HeldBody::Unwanted);
            Unwanted(self.clone())
        })
    }

    /// Ready when the decision differs from `so_far`.
    pub(crate) fn poll_body(&self, cx: &Context<'_>, so_far: HeldBody) -> Poll<HeldBody> {
        let mut state = self.0.lock();
        if state.body == so_far {
            state.uploading = Some(cx.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(state.body)
    }
}

/// The response to a request whose body was never requested.
#[derive(Debug)]
pub(crate) struct Unwanted(Interim);

impl Drop for Unwanted {
    fn drop(&mut self) {
        self.0.0.lock().settle(HeldBody::Over);
    }
}

fn wake(waker: &mut Option<Waker>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}

/// An interim response as it is sent: without the site's hop-by-hop fields, with our entry in
/// `Via`, and without a length, because it has no body.
fn write(out: &mut BytesMut, status: StatusCode, fields: &HeaderMap, via: &HeaderValue) {
    let mut fields = fields.clone();
    headers::strip_answer(&mut fields);
    headers::strip_our_status(&mut fields);
    fields.remove(header::CONTENT_LENGTH);
    fields.append(header::VIA, via.clone());
    headers::write_head(out, status, &fields);
}

/// The wait of a request's body for the site, if the client asked for `100 Continue`.
#[derive(Debug)]
pub(crate) struct ContinueWait {
    interim: Interim,
    /// Runs from the first poll on, which is when the head has been sent.
    sleep: Option<Pin<Box<Sleep>>>,
}

impl ContinueWait {
    /// For a request with these fields; `None` if its client does not wait.
    pub(crate) fn new(fields: &HeaderMap, interim: &Interim) -> Option<Self> {
        let expects = fields.get(header::EXPECT)?;
        let is_continue = expects.as_bytes().eq_ignore_ascii_case(b"100-continue");
        is_continue.then(|| Self { interim: interim.clone(), sleep: None })
    }

    /// The decision about the body. It may be sent once the site has been silent for a while.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<HeldBody> {
        if let Poll::Ready(body) = self.interim.poll_body(cx, HeldBody::Undecided) {
            return Poll::Ready(body);
        }
        let until = || Box::pin(tokio::time::sleep_until(clock::now() + WAIT));
        ready!(self.sleep.get_or_insert_with(until).as_mut().poll(cx));
        self.interim.0.lock().body = HeldBody::Wanted;
        Poll::Ready(HeldBody::Wanted)
    }

    /// The interim responses that decide about the body.
    pub(crate) fn into_interim(self) -> Interim {
        self.interim
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn an_interim_response_is_written_without_hop_by_hop_fields() {
        let mut fields = HeaderMap::new();
        for (name, value) in [
            ("link", "</a.css>; rel=preload"),
            ("connection", "x-hop"),
            ("x-hop", "1"),
            ("content-length", "5"),
            ("tidegate-verdict", "captcha"),
        ] {
            fields.append(name, value.parse().unwrap());
        }
        let mut out = BytesMut::new();
        write(&mut out, StatusCode::EARLY_HINTS, &fields, &"1.1 me".parse().unwrap());
        assert_eq!(
            &out[..],
            b"HTTP/1.1 103 Early Hints\r\nlink: </a.css>; rel=preload\r\nvia: 1.1 me\r\n\r\n"
        );
    }
}
