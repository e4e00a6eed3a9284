//! OpenTelemetry traces: one span per request and one for each step of its path, sent over OTLP if
//! the environment names a collector.
//!
//! Without a collector no request has a [`Trace`], and nothing here runs. With one, the spans of a
//! request are collected and queued when the last one has ended. A collector that is slow or away
//! costs spans, never requests.

mod export;
mod json;
mod settings;

use std::{
    fmt,
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use tokio::sync::{mpsc, oneshot};

pub use self::settings::{BadSetting, OtlpSettings};
use self::{export::Message, settings::Sampler};
use crate::{
    classify::verdict::Verdict,
    observability::{event::Access, metrics::Metrics},
    runtime::{
        background::BackgroundRuntime,
        clock::{self, Instant},
    },
};

/// Most spans of one trace. A long tunnel adds one for each hold of a flight.
const MOST_SPANS: usize = 64;
/// Finished requests that wait for export. Further ones are dropped and counted.
const QUEUE: usize = 2_048;
/// How long a stopping process waits for the last export.
const FLUSH: Duration = Duration::from_secs(2);

/// The caller of a request, from its `traceparent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parent {
    /// The trace.
    pub trace_id: u128,
    /// The client's span.
    pub span_id: u64,
    /// Whether the client records the trace.
    pub sampled: bool,
}

/// The queue for the spans of finished requests.
pub struct Traces {
    sampler: Sampler,
    queue: mpsc::Sender<Message>,
    dropped: Counter,
    /// The exporter's thread, which ends when this is dropped.
    _thread: BackgroundRuntime,
}

impl Traces {
    /// Starts the export to a collector.
    ///
    /// # Errors
    /// The roots for the collector's certificate cannot be read.
    pub fn start(settings: OtlpSettings, metrics: &Metrics) -> Result<Arc<Self>, BadSetting> {
        let (queue, messages) = mpsc::channel(QUEUE);
        let sampler = settings.sampler;
        let dropped = metrics.member.spans_dropped.clone();
        let exporter = export::Exporter::new(
            settings,
            metrics.member.spans_exported.clone(),
            dropped.clone(),
        )?;
        let thread = BackgroundRuntime::start("traces", || {});
        thread.spawn(exporter.run(messages));
        Ok(Arc::new(Self { sampler, queue, dropped, _thread: thread }))
    }

    /// The trace of a new request; `None` if the sampler skips it.
    #[must_use]
    pub fn begin(self: &Arc<Self>, parent: Option<Parent>) -> Option<Arc<Trace>> {
        let id = parent.map_or_else(|| fastrand::u128(1..), |parent| parent.trace_id);
        if !self.sampler.takes(id, parent.map(|parent| parent.sampled)) {
            return None;
        }
        Some(Arc::new(Trace {
            id,
            parent: parent.map(|parent| parent.span_id),
            span: new_span_id(),
            began: clock::now(),
            unix_ns: unix_ns(),
            gathered: Mutex::default(),
            traces: Arc::clone(self),
        }))
    }

    /// Exports the queued spans, within two seconds.
    pub async fn flush(&self) {
        let (done, wait) = oneshot::channel();
        let flushing = async {
            if self.queue.send(Message::Flush(done)).await.is_ok() {
                wait.await.ok();
            }
        };
        if tokio::time::timeout(FLUSH, flushing).await.is_err() {
            tracing::warn!("the collector did not accept the last spans in time");
        }
    }

    fn finished(&self, finished: Box<Finished>) {
        let spans = finished.count();
        if self.queue.try_send(Message::Finished(finished)).is_err() {
            self.dropped.inc_by(spans);
        }
    }
}

impl fmt::Debug for Traces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Traces").field("sampler", &self.sampler).finish_non_exhaustive()
    }
}

/// The spans of one request. They are exported when the last owner is dropped, because a verdict
/// may come after the response.
#[derive(Debug)]
pub struct Trace {
    id: u128,
    parent: Option<u64>,
    span: u64,
    began: Instant,
    unix_ns: u64,
    gathered: Mutex<Gathered>,
    traces: Arc<Traces>,
}

#[derive(Debug, Default)]
struct Gathered {
    /// The access log entry of the request, and its end.
    request: Option<(Access, u64)>,
    steps: Vec<Step>,
    left_out: u32,
}

words! {
    /// A step of a request's path.
    pub enum StepName {
        /// From the request's head to the gate: target, authentication, rule.
        Accept = "accept",
        /// In the gate.
        Hold = "hold",
        /// A new connection to the site.
        Connect = "connect",
        /// From the request to the head of the response.
        Send = "send",
        /// From the head of the response to its verdict.
        Inspect = "inspect",
    }
}

#[derive(Debug)]
struct Step {
    name: StepName,
    id: u64,
    begin_ns: u64,
    end_ns: u64,
    about: About,
}

/// The attributes of a step's span.
#[derive(Debug, Default)]
struct About {
    status: Option<u16>,
    verdict: Option<Verdict>,
    error: Option<String>,
}

impl Trace {
    /// The trace's name, as `traceparent` writes it.
    #[must_use]
    pub fn id(&self) -> String {
        format!("{:032x}", self.id)
    }

    /// When the request began.
    #[must_use]
    pub fn began(&self) -> Instant {
        self.began
    }

    /// A step that begins now.
    #[must_use]
    pub fn step(self: &Arc<Self>, name: StepName) -> OpenStep {
        self.step_since(name, clock::now())
    }

    /// A step that began earlier.
    #[must_use]
    pub fn step_since(self: &Arc<Self>, name: StepName, began: Instant) -> OpenStep {
        OpenStep { trace: Arc::clone(self), name, began, about: About::default() }
    }

    /// Records the end of the request.
    pub fn ends(&self, access: Access) {
        self.gathered.lock().request = Some((access, self.at(clock::now())));
    }

    /// Nanoseconds since 1970, by the wall clock at the start of the request.
    fn at(&self, moment: Instant) -> u64 {
        let since = moment.saturating_duration_since(self.began).as_nanos();
        self.unix_ns.saturating_add(u64::try_from(since).unwrap_or(u64::MAX))
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        let Gathered { request, steps, left_out } = std::mem::take(self.gathered.get_mut());
        // A request without an end has panicked, which has its own event.
        let Some((access, end_ns)) = request else { return };
        self.traces.finished(Box::new(Finished {
            id: self.id,
            parent: self.parent,
            span: self.span,
            begin_ns: self.unix_ns,
            end_ns,
            access,
            steps,
            left_out,
        }));
    }
}

/// A step in progress. Its span ends when this is dropped.
#[derive(Debug)]
pub struct OpenStep {
    trace: Arc<Trace>,
    name: StepName,
    began: Instant,
    about: About,
}

impl OpenStep {
    /// Records the status of the response.
    pub fn status(&mut self, status: u16) {
        self.about.status = Some(status);
    }

    /// Records the verdict.
    pub fn verdict(&mut self, verdict: Verdict) {
        self.about.verdict = Some(verdict);
    }

    /// Records a failure.
    pub fn failed(&mut self, why: &dyn fmt::Display) {
        self.about.error = Some(why.to_string());
    }
}

impl Drop for OpenStep {
    fn drop(&mut self) {
        let Self { trace, name, began, about } = self;
        let (begin_ns, end_ns) = (trace.at(*began), trace.at(clock::now()));
        let about = std::mem::take(about);
        let mut gathered = trace.gathered.lock();
        if gathered.steps.len() < MOST_SPANS {
            gathered.steps.push(Step { name: *name, id: new_span_id(), begin_ns, end_ns, about });
        } else {
            gathered.left_out += 1;
        }
    }
}

/// All spans of one request.
#[derive(Debug)]
struct Finished {
    id: u128,
    parent: Option<u64>,
    span: u64,
    begin_ns: u64,
    end_ns: u64,
    access: Access,
    steps: Vec<Step>,
    left_out: u32,
}

impl Finished {
    fn count(&self) -> u64 {
        self.steps.len() as u64 + 1
    }
}

/// An id of zeros is invalid (W3C Trace Context, section 3.2.2.4).
fn new_span_id() -> u64 {
    fastrand::u64(1..)
}

fn unix_ns() -> u64 {
    let since = clock::wall().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
