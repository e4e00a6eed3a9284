//! Inspects responses. A bounded prefix is read ahead for the verdict, and the original bytes are passed on unchanged.
//! If the verdict is not clear in time, the rest is scanned while the body passes.
//!
//! A verdict is reported even if the client disconnects. Then a separate task reads the rest, within the same bounds.

use std::{
    collections::VecDeque,
    future::poll_fn,
    pin::pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, header};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;

use super::{
    SendPermit,
    upstream::{
        pool::Conn,
        upload::{BodyError, IdleTimer},
    },
};
use crate::{
    classify::{BodyEnd, Scan, verdict::Judgement},
    gate::Slot,
};

/// Most received bytes that are read ahead of the client. The scan is bounded in *decoded* bytes. This bound applies if
/// nothing can be decoded.
const MAX_AHEAD: usize = 256 * 1024;

/// A site's body for the client, with the part that was read ahead.
#[derive(Debug)]
pub struct SiteBody {
    ahead: VecDeque<Bytes>,
    /// The site closed the connection while we read ahead. The client gets this error after the bytes that arrived
    /// before.
    broken: Option<BodyError>,
    /// `None` once the body was read to its end.
    rest: Option<Incoming>,
    idle: IdleTimer,
    /// Returned to the pool once the site's response is complete.
    conn: Option<Conn>,
    watch: Option<Box<Watch>>,
    /// Counts the request as in flight (`parallel`).
    slot: Option<Box<Slot>>,
}

/// A body being scanned, and the permit for its report.
#[derive(Debug)]
struct Watch {
    scan: Box<Scan>,
    permit: SendPermit,
}

impl Watch {
    /// Scans the next bytes, which may be the last ones. False once the result is certain.
    fn push(&mut self, data: &[u8], last: bool) -> bool {
        if last {
            self.scan.push_last(data);
            return false;
        }
        self.scan.push(data)
    }
}

impl SiteBody {
    /// A body that is not scanned. `slot` is kept until it is over.
    pub(crate) fn new(rest: Incoming, conn: Conn, idle: Duration, slot: Option<Box<Slot>>) -> Self {
        let idle = IdleTimer::new(idle);
        let (ahead, broken, watch) = (VecDeque::new(), None, None);
        Self { ahead, broken, rest: Some(rest), idle, conn: Some(conn), watch, slot }
    }

    /// Frees the slot, because another attempt takes the request's place.
    pub(crate) fn end_slot(&mut self) {
        self.slot = None;
    }

    /// Scans the body while it passes.
    pub(crate) fn watch(&mut self, scan: Box<Scan>, permit: SendPermit) {
        self.watch = Some(Box::new(Watch { scan, permit }));
    }

    /// The permit of a body that is scanned.
    pub(crate) fn permit(&self) -> Option<&SendPermit> {
        self.watch.as_ref().map(|watch| &watch.permit)
    }

    /// Reads ahead until the verdict is clear, for at most `delay`. `None` if it is not clear by then.
    ///
    /// Dropping the future loses nothing, see [`SiteBody::drop`].
    pub(crate) async fn look(&mut self, delay: Duration) -> Option<(Judgement, SendPermit)> {
        let end = {
            let mut ahead = pin!(self.read_ahead(MAX_AHEAD));
            // Usually the whole body has arrived, and no timer is needed.
            match poll_fn(|cx| Poll::Ready(ahead.as_mut().poll(cx))).await {
                Poll::Ready(end) => end,
                Poll::Pending => tokio::time::timeout(delay, ahead).await.ok()?,
            }
        };
        let Watch { scan, permit } = *self.watch.take()?;
        Some((scan.finish(end), permit))
    }

    /// Reads ahead until the end, for at most this many bytes and `delay`. Returns the bytes that have arrived.
    pub(crate) async fn read(&mut self, most: usize, delay: Duration) -> Vec<u8> {
        tokio::time::timeout(delay, self.read_ahead(most)).await.ok();
        self.ahead.iter().flatten().copied().take(most).collect()
    }

    /// Whether the site closed the connection before any byte was passed on, so that the client can still get an error.
    pub(crate) fn is_cut_off(&self) -> bool {
        self.broken.is_some()
    }

    /// Reads until the end, or until more than `most` bytes are ahead or the scan is certain.
    async fn read_ahead(&mut self, most: usize) -> BodyEnd {
        let mut size: usize = self.ahead.iter().map(Bytes::len).sum();
        while let Some(rest) = self.rest.as_mut().filter(|_| size <= most) {
            let data = match rest.frame().await {
                None => {
                    self.rest = None;
                    continue;
                }
                Some(Err(error)) => {
                    self.broken = Some(error.into());
                    return BodyEnd::CutOff;
                }
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => data,
                    Err(_trailers) => continue,
                },
            };
            size += data.len();
            let last = self.is_read();
            let more = self.watch.as_mut().is_none_or(|watch| watch.push(&data, last));
            self.ahead.push_back(data);
            if last || !more {
                break;
            }
        }
        if self.is_read() { BodyEnd::Complete } else { BodyEnd::Open }
    }

    /// The next frame for the client.
    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some(data) = self.ahead.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        if let Some(error) = self.broken.take() {
            return Poll::Ready(Some(Err(error)));
        }
        let Some(rest) = &mut self.rest else { return Poll::Ready(None) };
        let frame = ready!(self.idle.poll(cx, rest));
        match &frame {
            Ok(Some(frame)) => self.notice(frame),
            Ok(None) => {
                self.rest = None;
                self.conclude(BodyEnd::Complete);
            }
            Err(_) => self.conclude(BodyEnd::CutOff),
        }
        Poll::Ready(frame.transpose())
    }

    fn notice(&mut self, frame: &Frame<Bytes>) {
        let (Some(watch), Some(data)) = (&mut self.watch, frame.data_ref()) else { return };
        let last = self.rest.as_ref().is_none_or(Incoming::is_end_stream);
        let more = watch.push(data, last);
        if last {
            self.conclude(BodyEnd::Complete);
        } else if !more {
            self.conclude(BodyEnd::Open);
        }
    }

    /// Reports the verdict at the end of the scan.
    fn conclude(&mut self, end: BodyEnd) {
        if let Some(watch) = self.watch.take() {
            tokio::spawn(async move {
                let Watch { scan, mut permit } = *watch;
                permit.report(&mut scan.finish(end)).await;
            });
        }
    }

    /// Whether the body has ended.
    pub(crate) fn is_end_stream(&self) -> bool {
        self.ahead.is_empty() && self.is_read()
    }

    /// The remaining bytes, exact if the site announced them.
    pub(crate) fn size_hint(&self) -> SizeHint {
        if self.broken.is_some() {
            return SizeHint::default();
        }
        let ahead: u64 = self.ahead.iter().map(|data| data.len() as u64).sum();
        match self.rest.as_ref().map_or(Some(0), |rest| rest.size_hint().exact()) {
            Some(rest) => SizeHint::with_exact(ahead + rest),
            None => SizeHint::default(),
        }
    }

    fn is_read(&self) -> bool {
        self.broken.is_none() && self.rest.as_ref().is_none_or(Incoming::is_end_stream)
    }
}

impl Drop for SiteBody {
    /// Keeps the connection if the response was read completely, and finishes the scan if the
    /// client disconnected.
    fn drop(&mut self) {
        if self.is_read() {
            self.conclude(BodyEnd::Complete);
            if let Some(conn) = self.conn.take() {
                conn.release();
            }
        } else if self.broken.is_some() {
            self.conclude(BodyEnd::CutOff);
        } else if self.watch.is_some() && tokio::runtime::Handle::try_current().is_ok() {
            let mut left = Self {
                ahead: VecDeque::new(),
                broken: None,
                rest: self.rest.take(),
                idle: IdleTimer::new(LEFT),
                conn: self.conn.take(),
                watch: self.watch.take(),
                slot: self.slot.take(),
            };
            tokio::spawn(async move {
                match left.look(LEFT).await {
                    Some((mut judgement, mut permit)) => permit.report(&mut judgement).await,
                    None => left.conclude(BodyEnd::Open),
                }
            });
        }
    }
}

/// How long a response is read for its verdict after its client has disconnected.
const LEFT: Duration = Duration::from_secs(2);

/// Whether a response may be delayed for its verdict: documents, but not streams.
pub(crate) fn may_wait(headers: &HeaderMap) -> bool {
    let Some(kind) = headers.get(header::CONTENT_TYPE) else { return true };
    let Ok(kind) = kind.to_str() else { return true };
    let kind = kind.split(';').next().unwrap_or("").trim();
    let (family, form) = kind.split_once('/').unwrap_or((kind, ""));
    let is = |word: &str| family.eq_ignore_ascii_case(word);
    if is("text") {
        return !form.eq_ignore_ascii_case("event-stream");
    }
    let form = form.to_ascii_lowercase();
    let streams = form.contains("ndjson") || form.contains("stream") || form.contains("grpc");
    is("application")
        && !streams
        && ["json", "xml", "html", "javascript", "x-www-form-urlencoded"]
            .iter()
            .any(|text| form.contains(text))
}
