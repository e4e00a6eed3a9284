//! Interim answers (1xx) of a site, on their way to the client (RFC 9110 section 15.2).
//!
//! `100 Continue` opens the way for the request's body, where its client holds it back; the others
//! are relayed, in HTTP/1.1. A site that sends them without end is cut off; in HTTP/2 by
//! [`super::pool`].

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use bytes::{BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Request, StatusCode, header};
use parking_lot::Mutex;
use tokio::time::Sleep;

use super::headers;
use crate::runtime::clock;

/// Interim answers to one request; real sites send one or two, one that works for long sends one
/// every few seconds.
const MAX_COUNT: u32 = 100;
/// Bytes of them that wait for a client that does not read.
const MAX_BYTES: usize = 64 * 1024;
/// How long a body that its client holds back waits for the site's `100 Continue`: many sites never
/// send one, and clients that ask for one wait no longer either (RFC 9110 section 10.1.1).
const WAIT: Duration = Duration::from_secs(1);

/// What a site said before its answer to one request.
#[derive(Debug, Clone, Default)]
pub(super) struct Interim(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// What is to be relayed, as it will stand on the wire.
    relayed: BytesMut,
    count: u32,
    body: Body,
    answering: Option<Waker>,
    uploading: Option<Waker>,
}

/// What becomes of a body that its client holds back.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Body {
    /// Nothing is known yet, or nothing is held back.
    #[default]
    Waits,
    /// It may go.
    Goes,
    /// The site has answered without it. It stays with its client.
    Unwanted,
    /// The answer has been relayed too: the site's connection may end.
    Over,
}

impl State {
    fn is_too_much(&self) -> bool {
        self.count > MAX_COUNT || self.relayed.len() > MAX_BYTES
    }

    fn settle(&mut self, body: Body) {
        self.body = body;
        wake(&mut self.uploading);
    }
}

/// A site sends interim answers without end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Endless;

impl Interim {
    /// Listens to what the site says before its answer to `request`; `via` is our entry for it. Of
    /// HTTP/2 (`h2`) hyper tells nothing, so a body waits for nothing there.
    pub(super) fn listen<B>(&self, request: &mut Request<B>, h2: bool, via: HeaderValue) {
        if h2 {
            self.0.lock().settle(Body::Goes);
            return;
        }
        let state = Arc::clone(&self.0);
        hyper::ext::on_informational(request, move |answer| {
            let mut state = state.lock();
            state.count += 1;
            if answer.status() == StatusCode::CONTINUE {
                state.settle(Body::Goes);
            } else if !state.is_too_much() {
                write(&mut state.relayed, answer.status(), answer.headers(), &via);
            }
            wake(&mut state.answering);
        });
    }

    /// What is to be relayed now.
    ///
    /// # Errors
    /// There is too much of it.
    pub(super) fn poll_next(&self, cx: &Context<'_>) -> Poll<Result<Bytes, Endless>> {
        let mut state = self.0.lock();
        if state.is_too_much() {
            return Poll::Ready(Err(Endless));
        }
        if state.relayed.is_empty() {
            state.answering = Some(cx.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(Ok(state.relayed.split().freeze()))
    }

    /// What came last, before the answer itself.
    ///
    /// # Errors
    /// There is too much of it.
    pub(super) fn rest(&self) -> Result<Bytes, Endless> {
        let mut state = self.0.lock();
        if state.is_too_much() {
            return Err(Endless);
        }
        // Nearly always nothing, for which no buffer is split.
        Ok(if state.relayed.is_empty() { Bytes::new() } else { state.relayed.split().freeze() })
    }

    /// The answer is there. Where the body was never asked for, it is not wanted any more; the
    /// connection to the site must end with the value.
    pub(super) fn answered(&self, waits: bool) -> Option<Unwanted> {
        let mut state = self.0.lock();
        (waits && state.body == Body::Waits).then(|| {
            state.settle(Body::Unwanted);
            Unwanted(self.clone())
        })
    }

    /// Ready when more is known than `so_far`.
    pub(super) fn poll_body(&self, cx: &Context<'_>, so_far: Body) -> Poll<Body> {
        let mut state = self.0.lock();
        if state.body == so_far {
            state.uploading = Some(cx.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(state.body)
    }
}

/// The answer to a request whose body was never asked for, on its way to the client.
#[derive(Debug)]
pub(super) struct Unwanted(Interim);

impl Drop for Unwanted {
    fn drop(&mut self) {
        self.0.0.lock().settle(Body::Over);
    }
}

fn wake(waker: &mut Option<Waker>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}

/// An interim answer as it stands on the wire: nothing of the site's hop, our entry in `Via`, and
/// never a length, since it has no body.
fn write(out: &mut BytesMut, status: StatusCode, fields: &HeaderMap, via: &HeaderValue) {
    let mut fields = fields.clone();
    headers::strip_answer(&mut fields);
    headers::strip_our_status(&mut fields);
    fields.remove(header::CONTENT_LENGTH);
    fields.append(header::VIA, via.clone());
    out.put_slice(b"HTTP/1.1 ");
    out.put_slice(status.as_str().as_bytes());
    out.put_u8(b' ');
    out.put_slice(status.canonical_reason().unwrap_or_default().as_bytes());
    out.put_slice(b"\r\n");
    for (name, value) in &fields {
        out.put_slice(name.as_str().as_bytes());
        out.put_slice(b": ");
        out.put_slice(value.as_bytes());
        out.put_slice(b"\r\n");
    }
    out.put_slice(b"\r\n");
}

/// The wait of a request's body for its site, where the client asked for `100 Continue`.
#[derive(Debug)]
pub(super) struct Wait {
    interim: Interim,
    /// Runs from the first look on, which is when the head has gone out.
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Wait {
    /// For a request with these fields; none where nobody waits.
    pub(super) fn new(fields: &HeaderMap, interim: &Interim) -> Option<Self> {
        let expects = fields.get(header::EXPECT)?;
        let is_continue = expects.as_bytes().eq_ignore_ascii_case(b"100-continue");
        is_continue.then(|| Self { interim: interim.clone(), sleep: None })
    }

    /// What becomes of the body; it may go once the site has said nothing for a while.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Body> {
        if let Poll::Ready(body) = self.interim.poll_body(cx, Body::Waits) {
            return Poll::Ready(body);
        }
        let until = || Box::pin(tokio::time::sleep_until(clock::now() + WAIT));
        ready!(self.sleep.get_or_insert_with(until).as_mut().poll(cx));
        self.interim.0.lock().body = Body::Goes;
        Poll::Ready(Body::Goes)
    }

    /// What it waits for.
    pub(super) fn into_interim(self) -> Interim {
        self.interim
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn an_interim_answer_is_written_without_what_belongs_to_its_hop() {
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
