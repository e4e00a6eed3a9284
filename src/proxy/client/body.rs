//! Response bodies for the client: a site's, streamed with back-pressure, and the proxy's own.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::Response;
use http_body::{Body as HttpBody, Frame, SizeHint};

use crate::{
    gate::Entry,
    http1::Answering,
    observability::metrics::{Metrics, RuleMetrics},
    proxy::{access::AccessLine, inspect::SiteBody, reply::Refusal, upstream::upload::BodyError},
};

/// The body of a response to a client.
#[derive(Debug)]
pub struct Body {
    from: From,
    /// Notifies the connection when the response is complete.
    answering: Option<Answering>,
    /// The access log line, which ends with the body.
    line: Option<Box<AccessLine>>,
    /// The rule whose bytes are counted.
    counted: Option<Arc<RuleMetrics>>,
}

#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "nearly every answer is a site's: a box for each costs more"
)]
enum From {
    /// The proxy's own text; may be empty.
    Own(Bytes),
    /// The site's body.
    Site(SiteBody),
}

impl Body {
    pub(crate) fn empty() -> Self {
        Self::own(Bytes::new())
    }

    pub(crate) fn own(words: Bytes) -> Self {
        Self { from: From::Own(words), answering: None, line: None, counted: None }
    }

    pub(crate) fn site(body: SiteBody, entry: &Arc<Entry>) -> Self {
        let counted = Some(Arc::clone(&entry.metrics));
        Self { from: From::Site(body), answering: None, line: None, counted }
    }

    /// Keeps `answering` until the last byte has been given to hyper.
    pub(crate) fn set_answering(&mut self, answering: Option<Answering>) {
        self.answering = answering;
    }

    /// Writes `line` once the body has ended.
    pub(crate) fn set_access_line(&mut self, line: Option<Box<AccessLine>>) {
        self.line = line;
        self.count(0);
    }

    /// Counts bytes that go to the client.
    fn count(&mut self, bytes: usize) {
        if let Some(metrics) = &self.counted {
            metrics.bytes_down.inc_by(bytes as u64);
        }
        if self.line.is_some() {
            let is_last = self.is_end_stream();
            self.line.iter_mut().for_each(|line| line.bytes_sent(bytes, is_last));
        }
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        let frame = match &mut this.from {
            From::Own(bytes) if bytes.is_empty() => Poll::Ready(None),
            From::Own(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            From::Site(body) => body.poll_frame(cx),
        };
        match (&frame, &mut this.line) {
            (Poll::Ready(Some(Err(_))), Some(line)) => line.cut_off(),
            (Poll::Ready(Some(Ok(frame))), _) => {
                this.count(frame.data_ref().map_or(0, Bytes::len));
            }
            (Poll::Ready(None), _) => this.count(0),
            _ => {}
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        match &self.from {
            From::Own(bytes) => bytes.is_empty(),
            From::Site(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.from {
            From::Own(bytes) => SizeHint::with_exact(bytes.len() as u64),
            From::Site(body) => body.size_hint(),
        }
    }
}

impl Refusal {
    /// Counts the response and returns it.
    pub(crate) fn into_response(self, metrics: &Metrics) -> Response<Body> {
        self.count(metrics);
        let mut response = Response::new(Body::own(self.document()));
        *response.status_mut() = self.status;
        self.fields(response.headers_mut());
        response
    }
}
