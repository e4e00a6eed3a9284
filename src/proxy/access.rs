//! The log entries of a request: the ID that its lines share, and its line in the access log (`log.access`). The line
//! is collected on the request path and written at the end of the request, where its trace ends too.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode};
use parking_lot::Mutex;
use tracing::Span;

use super::{
    ClientConn, Context, Exchange, MatchedRequest, Refusal, SendPermit, headers, reply::Refused,
    upstream::upload::Progress,
};
use crate::{
    gate::{Client, Entry, Waiting},
    observability::{
        event::{Access, HoldCause, Outcome, clean, shown},
        metrics::{Reason, RuleMetrics},
        traces::{OpenStep, Parent, StepName, Trace, Traces},
    },
    rules::Action,
    runtime::clock::{self, Instant},
    target::{Scheme, Target},
};

/// The W3C trace context connects our lines with the crawler's own. It is passed to the site unchanged.
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// The client's name for its request. It is meant for the proxy and is not sent to the site.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Longest request ID that is taken from a client.
const LONGEST_ID: usize = 128;
/// A shorter hold has no cause in the log, because the proxy's own work takes as long.
const NO_HOLD: Duration = Duration::from_millis(1);

/// The ID of a request in the log, and its client's trace context.
#[derive(Debug)]
pub(crate) struct RequestIdentity {
    /// The client's ID, the trace's, or one that was made for the access log.
    id: Option<HeaderValue>,
    /// A span around all log lines of a request with an ID from its client; `None` for other requests.
    pub(crate) span: Span,
    /// Its spans, if they are exported.
    trace: Option<Arc<Trace>>,
}

impl RequestIdentity {
    /// Takes the request's ID out of its fields. If the client gave none, `make` says whether to make one.
    pub(crate) fn take(headers: &mut HeaderMap, make: bool, traces: Option<&Arc<Traces>>) -> Self {
        let named = headers.remove(REQUEST_ID).filter(is_id);
        let field = headers.get(TRACEPARENT).and_then(|value| value.to_str().ok());
        let named_trace = field.and_then(TraceParent::parse);
        let trace = traces.and_then(|traces| traces.begin(named_trace.and_then(|t| t.parent())));
        let id = named.or_else(|| HeaderValue::from_str(named_trace?.trace).ok());
        let Some(id) = id else {
            let made = match &trace {
                Some(trace) => Some(trace.id()),
                None => make.then(|| format!("{:016x}", fastrand::u64(..))),
            };
            let id = made.and_then(|made| HeaderValue::from_str(&made).ok());
            return Self { id, span: Span::none(), trace };
        };
        let request_id = id.to_str().unwrap_or_default();
        let (trace_id, parent_id) = named_trace.map(|t| (t.trace, t.parent)).unzip();
        // With level error, so that every log level includes it.
        let span = tracing::error_span!("request", request_id, trace_id, parent_id);
        Self { id: Some(id), span, trace }
    }

    /// Whether the end of the request is recorded.
    pub(crate) fn is_traced(&self) -> bool {
        self.trace.is_some()
    }

    /// Adds the request's ID to the response.
    pub(crate) fn annotate(self, headers: &mut HeaderMap) {
        if let Some(id) = self.id {
            headers.insert(headers::REQUEST_ID, id);
        }
    }

    fn text(&self) -> Option<String> {
        self.id.as_ref().and_then(|id| id.to_str().ok()).map(str::to_owned)
    }
}

/// Whether a text can be used unchanged in a log and a field.
fn is_id(value: &HeaderValue) -> bool {
    let bytes = value.as_bytes();
    (1..=LONGEST_ID).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic)
}

/// Bytes and flights of a tunnel so far, counted by its copy loop.
#[derive(Debug)]
pub(crate) struct Tally {
    metrics: Arc<RuleMetrics>,
    up: AtomicU64,
    down: AtomicU64,
    flights: AtomicU32,
    holds: Mutex<Holds>,
}

impl Tally {
    /// For a tunnel under this rule.
    pub(crate) fn new(entry: &Entry) -> Arc<Self> {
        Arc::new(Self {
            metrics: Arc::clone(&entry.metrics),
            up: AtomicU64::default(),
            down: AtomicU64::default(),
            flights: AtomicU32::default(),
            holds: Mutex::default(),
        })
    }

    /// Counts bytes to the site.
    pub(crate) fn up(&self, bytes: usize) {
        self.metrics.bytes_up.inc_by(bytes as u64);
        self.up.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts bytes from the site.
    pub(crate) fn down(&self, bytes: usize) {
        self.metrics.bytes_down.inc_by(bytes as u64);
        self.down.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts a flight and its hold.
    pub(crate) fn flight(&self, waiting: &Waiting) {
        self.flights.fetch_add(1, Ordering::Relaxed);
        self.holds.lock().note(waiting.elapsed(), || waiting.cause(None));
    }
}

/// The holds of one request or tunnel.
#[derive(Debug, Clone, Copy, Default)]
struct Holds {
    total: Duration,
    longest: Duration,
    cause: Option<HoldCause>,
}

impl Holds {
    fn note(&mut self, held: Duration, cause: impl FnOnce() -> HoldCause) {
        self.total += held;
        if held >= NO_HOLD && held > self.longest {
            (self.longest, self.cause) = (held, Some(cause()));
        }
    }
}

/// The line of one request. It is collected on the request's path and written on drop.
#[derive(Debug)]
pub(crate) struct AccessLine {
    access: Access,
    span: Span,
    /// Whether the line is written. Otherwise only the trace uses it.
    logs: bool,
    /// The request's ID for the trace, which has no log span around it.
    request_id: Option<String>,
    trace: Option<Arc<Trace>>,
    accepting: Option<OpenStep>,
    holding: Option<OpenStep>,
    started: Instant,
    /// The hold in progress.
    waiting: Option<Waiting>,
    holds: Holds,
    upload: Option<Progress>,
    tunnel: Option<Arc<Tally>>,
}

impl AccessLine {
    /// For a request of which only the head is known.
    pub(crate) fn new<B>(
        client_conn: &ClientConn,
        request: &Request<B>,
        identity: &RequestIdentity,
        logs: bool,
    ) -> Box<Self> {
        let uri = request.uri();
        // The authority without a user's name and password.
        let authority = uri
            .authority()
            .map_or("", |authority| authority.as_str().rsplit('@').next().unwrap_or_default());
        let scheme = match uri.scheme_str() {
            _ if request.method() == Method::CONNECT => "tunnel",
            Some("https") => "https",
            _ => "http",
        };
        let access = Access {
            request_id: identity.span.is_none().then(|| identity.text()).flatten(),
            client: client_conn.peer.ip().to_string(),
            method: clean(request.method().as_str()),
            scheme,
            url: clean(&format!("{authority}{}", uri.path())),
            ..Access::default()
        };
        let trace = identity.trace.clone();
        let request_id = trace.as_ref().and_then(|_| identity.text());
        let accepting =
            trace.as_ref().map(|trace| trace.step_since(StepName::Accept, trace.began()));
        Box::new(Self {
            access,
            span: identity.span.clone(),
            logs,
            request_id,
            trace,
            accepting,
            holding: None,
            started: clock::now(),
            waiting: None,
            holds: Holds::default(),
            upload: None,
            tunnel: None,
        })
    }

    /// Records the client and the target.
    pub(crate) fn admitted(&mut self, client: &Client, target: &Target) {
        if let Client::User(name) = client {
            self.access.client = clean(name);
        }
        self.access.url = shown(target);
        if self.access.scheme != "tunnel" {
            self.access.scheme = match target.scheme {
                Scheme::Http => "http",
                Scheme::Https => "https",
            };
        }
    }

    /// Records the rule and the scope.
    pub(crate) fn rule_found(&mut self, matched: &MatchedRequest) {
        self.access.rule = Some(matched.entry.rule.name.to_string());
        self.access.scope = Some(matched.entry.scope_name(&matched.target));
        self.accepting = None;
    }

    /// The request's spans, if they are exported.
    pub(crate) fn trace(&self) -> Option<Arc<Trace>> {
        self.trace.clone()
    }

    /// The request enters the gate; `upload` counts the bytes of its body.
    pub(crate) fn hold_began(
        &mut self,
        cx: &Context,
        matched: &MatchedRequest,
        upload: Option<&Progress>,
    ) {
        self.upload = upload.cloned();
        if matched.entry.rule.action == Action::Limit {
            self.waiting = Some(cx.gate.watch_hold(&matched.entry, &matched.target));
            self.holding = matched.step(StepName::Hold);
        }
    }

    /// The gate has decided.
    pub(crate) fn hold_ended(&mut self, held: &Result<SendPermit, Refused>) {
        if let (Some(mut holding), Err(refusal)) = (self.holding.take(), held) {
            holding.failed(refusal);
        }
        let Some(waiting) = self.waiting.take() else { return };
        let cause = |refusal: &Refusal| match refusal.reason {
            Reason::Cooldown => HoldCause::Cooldown,
            Reason::Hours => HoldCause::Hours,
            Reason::Queue => HoldCause::Queue,
            Reason::Store => HoldCause::Store,
            _ => waiting.cause(refusal.retry_after),
        };
        match held {
            Ok(permit) => self.holds.note(permit.held(), || waiting.cause(None)),
            Err(refusal) => {
                self.holds.note(waiting.elapsed(), || cause(refusal));
                // An immediate refusal has a cause too.
                self.holds.cause = self.holds.cause.or_else(|| Some(cause(refusal)));
            }
        }
    }

    /// The request has become a tunnel, which counts its own bytes and flights.
    pub(crate) fn tunnel_opened(&mut self, status: StatusCode, tally: &Arc<Tally>) {
        self.status(status);
        self.access.outcome = Outcome::Tunnelled;
        self.access.attempts = 1;
        self.tunnel = Some(Arc::clone(tally));
    }

    /// The request is a CONNECT whose inner requests have their own lines.
    pub(crate) fn intercepted(&mut self) {
        self.access.outcome = Outcome::Intercepted;
    }

    /// Records the result for the client.
    pub(crate) fn status(&mut self, status: StatusCode) {
        self.access.status = Some(status.as_u16());
    }

    /// The request is refused.
    pub(crate) fn refused(&mut self, refusal: &Refusal) {
        self.access.outcome = Outcome::Refused;
        self.access.reason = Some(refusal.reason);
        self.access.status = Some(refusal.status.as_u16());
    }

    /// The head of the response is sent to the client.
    pub(super) fn answered(&mut self, status: StatusCode, exchange: &Exchange) {
        let access = &mut self.access;
        access.status = Some(status.as_u16());
        access.verdict = exchange.verdict;
        access.upstream = exchange.took;
        access.attempts = exchange.sent;
        if exchange.held > self.holds.total {
            // The request was held again after its grant. Only a trip, or a retry after a cooldown, does that.
            let more = exchange.held - self.holds.total;
            self.holds.note(more, || HoldCause::Cooldown);
        }
    }

    /// Counts bytes of the response. `is_last`: the response is complete.
    pub(crate) fn bytes_sent(&mut self, bytes: usize, is_last: bool) {
        self.access.bytes_down += bytes as u64;
        if is_last && self.access.outcome == Outcome::Abandoned {
            let by_site = self.access.attempts > 0;
            self.access.outcome = if by_site { Outcome::Relayed } else { Outcome::Answered };
        }
    }

    /// The site closed the connection within its response.
    pub(crate) fn cut_off(&mut self) {
        self.access.outcome = Outcome::CutOff;
    }
}

impl Drop for AccessLine {
    fn drop(&mut self) {
        let Self { access, span, started, waiting, holds, upload, tunnel, .. } = self;
        if let Some(waiting) = waiting {
            holds.note(waiting.elapsed(), || waiting.cause(None));
        }
        if let Some(tally) = tunnel {
            let in_tunnel = *tally.holds.lock();
            holds.note(in_tunnel.longest, || in_tunnel.cause.unwrap_or(HoldCause::Rate));
            holds.total += in_tunnel.total - in_tunnel.longest;
            access.bytes_up = tally.up.load(Ordering::Relaxed);
            access.bytes_down = tally.down.load(Ordering::Relaxed);
            // The first flight uses the permit of its CONNECT.
            access.flights = Some(1 + tally.flights.load(Ordering::Relaxed));
        }
        access.bytes_up += upload.as_ref().map_or(0, Progress::bytes);
        (access.held, access.held_by) = (holds.total, holds.cause);
        access.duration = started.elapsed();
        if self.logs {
            span.in_scope(|| access.log());
        }
        if let Some(trace) = &self.trace {
            (self.accepting, self.holding) = (None, None);
            self.access.request_id = self.request_id.take();
            trace.ends(std::mem::take(&mut self.access));
        }
    }
}

/// A `traceparent` (W3C Trace Context, section 3.2.2): `00-TRACE-PARENT-FLAGS` in lower-case hex, where neither ID is
/// all zeros. Later versions may append more fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TraceParent<'a> {
    trace: &'a str,
    parent: &'a str,
    flags: &'a str,
}

impl<'a> TraceParent<'a> {
    fn parse(field: &'a str) -> Option<Self> {
        let mut parts = field.split('-');
        let (version, trace, parent, flags) =
            (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let hex = |part: &str, digits: usize| {
            part.len() == digits && part.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        };
        let id = |part: &str, digits: usize| hex(part, digits) && part.bytes().any(|b| b != b'0');
        let known =
            hex(version, 2) && version != "ff" && (version != "00" || parts.next().is_none());
        let good = known && id(trace, 32) && id(parent, 16) && hex(flags, 2);
        good.then_some(Self { trace, parent, flags })
    }

    /// As numbers.
    fn parent(self) -> Option<Parent> {
        Some(Parent {
            trace_id: u128::from_str_radix(self.trace, 16).ok()?,
            span_id: u64::from_str_radix(self.parent, 16).ok()?,
            sampled: u8::from_str_radix(self.flags, 16).ok()? & 1 == 1,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::TraceParent;

    #[test]
    fn only_a_well_formed_traceparent_counts() {
        let (id, parent) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
        for good in [format!("00-{id}-{parent}-01"), format!("cc-{id}-{parent}-00-later")] {
            let read = TraceParent::parse(&good).expect(&good);
            assert_eq!((read.trace, read.parent), (id, parent), "{good}");
            let numbers = read.parent().expect(&good);
            assert_eq!(
                format!("{:032x}-{:016x}", numbers.trace_id, numbers.span_id),
                format!("{id}-{parent}")
            );
            assert_eq!(numbers.sampled, good.starts_with("00"), "{good}");
        }
        for bad in [
            String::new(),
            format!("00-{id}-{parent}"),
            format!("00-{id}-{parent}-01-more"),
            format!("ff-{id}-{parent}-01"),
            format!("00-{}-{parent}-01", id.to_uppercase()),
            format!("00-{}-{parent}-01", "0".repeat(32)),
            format!("00-{id}-{}-01", "0".repeat(16)),
            format!("00-{id}x-{parent}-01"),
        ] {
            assert_eq!(TraceParent::parse(&bad), None, "{bad}");
        }
    }
}
