//! One typed event is its log line, its metrics, its entry in the list of recent events and its message to whoever
//! listens at the admin port: they cannot disagree, because they are made in one place, [`Events::emit`].
//!
//! What happens to every request (a plain `ok`) is no event: metrics count it, and `log.access` gives it a line
//! ([`Access`]). Emitting never waits and never fails; the list, the listeners' queues and the log lines per second
//! are bounded.

mod access;
mod line;
mod panics;
mod text;
mod trip;
mod wire;

use std::{collections::VecDeque, net::SocketAddr, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::sync::broadcast;

pub use access::{Access, HoldCause, Outcome};
pub use panics::watch_panics;
pub use text::{QUERY_LEFT_OUT, clean, shown};
pub use trip::{Trip, Tripping};

use crate::{
    classify::verdict::Judgement,
    limiter::learn,
    observability::metrics::{Metrics, Observed},
    rules::settings::OnFailure,
    runtime::clock,
    target::Target,
};

/// Recent events kept for the status page and `GET /api/v1/events`: at well under 1 KiB each, about a megabyte.
pub const RECENT: usize = 1_000;
/// Events that a slow listener may lag behind before it loses some; it gets the number of lost ones.
const LISTENER_QUEUE: usize = 256;
/// Log lines about single blocks in a second: enough to see the pattern; the rest is counted and said in one line.
const BLOCK_LINES_PER_SECOND: u32 = 10;

/// Something worth a person's time.
#[derive(Debug, Clone)]
pub enum Event {
    /// An answer counted towards a cooldown. Counts the hit of its signature.
    Blocked {
        /// Name of the rule.
        rule: Arc<str>,
        /// The scope's key; empty where the rule is not split.
        key: Arc<str>,
        /// Where the request went; its query is never shown.
        target: Target,
        /// What the answer was judged to be, and why.
        judgement: Judgement,
    },
    /// A cooldown began. Counted where `made_by_us`, so that sums over the fleet are true.
    Tripped {
        /// Name of the rule.
        rule: Arc<str>,
        /// Key of the cooldown's scope.
        key: Arc<str>,
        /// The rest.
        trip: Box<Trip>,
    },
    /// A scope is open again.
    Cleared {
        /// Name of the rule.
        rule: Arc<str>,
        /// Key of the cooldown's scope.
        key: Arc<str>,
        /// How.
        by: ClearedBy,
        /// Who did it by hand, as they call themselves.
        who: Option<Arc<str>>,
    },
    /// This member sends the probe.
    ProbeSent {
        /// Name of the rule.
        rule: Arc<str>,
        /// Key of the cooldown's scope.
        key: Arc<str>,
        /// Where it goes; its query is never shown.
        target: Target,
    },
    /// What `mode: observe` would have done with requests, and did not. Told once in a while for each scope.
    Observed {
        /// Name of the rule.
        rule: Arc<str>,
        /// The scope's key.
        key: Arc<str>,
        /// What.
        action: Observed,
        /// With how many requests since this was last told.
        requests: u64,
        /// For how long in all, at least: each by itself, with nobody before it in a queue.
        wait: Duration,
    },
    /// This member's probe came back (or did not). Counts the probe.
    Probe {
        /// Name of the rule.
        rule: Arc<str>,
        /// Key of the cooldown's scope.
        key: Arc<str>,
        /// How it ended.
        result: ProbeResult,
    },
    /// `learn`, or a person's hand, changed the rate of a scope.
    RateLearned {
        /// Name of the rule.
        rule: Arc<str>,
        /// The scope's key.
        key: Arc<str>,
        /// Tokens per second before; 0 = this member had not heard of it.
        from: f64,
        /// What it is now, and why.
        told: learn::Known,
        /// Whether a person changed it on this member.
        ours: bool,
        /// Who did it by hand, as they call themselves.
        who: Option<Arc<str>>,
    },
    /// As many requests are under way as `parallel` allows, and others wait. Told once a minute for each scope.
    PlacesTaken {
        /// Name of the rule.
        rule: Arc<str>,
        /// The bucket's key.
        key: Arc<str>,
        /// `parallel` of the rule.
        parallel: u32,
        /// Requests of this member that are under way.
        under_way: u32,
        /// Requests that this member holds.
        held: usize,
    },
    /// A site names its limit in its answers. Told once in a while for each scope.
    SiteLimit {
        /// Name of the rule.
        rule: Arc<str>,
        /// The scope's key.
        key: Arc<str>,
        /// Where the request went; its query is never shown.
        target: Target,
        /// What the site allows, in tokens per second.
        rate: f64,
    },
    /// The store does not answer, or not as it should. Each kind of failure is reported once in an outage.
    StoreDown {
        /// The cause that an operator acts on: `unreachable`, `refused`, `timed_out` or `invalid_reply`.
        cause: &'static str,
        /// The kind of failure, as `tidegate_store_errors_total` has it.
        kind: &'static str,
        /// `host:port` of the servers that the rule file names.
        server: String,
        /// What was seen; no URL, no password.
        reason: String,
        /// What to look at first.
        advice: &'static str,
        /// What requests do meanwhile.
        mode: OnFailure,
        /// The store has not been reached since the start: limited requests are held until it is.
        holds: bool,
    },
    /// The store answers again.
    StoreUp,
    /// The news of other members reach this one again, or do not any more.
    StoreNews {
        /// Whether they do.
        hears: bool,
        /// Why not, if the store has said so.
        reason: Option<String>,
    },
    /// A changed rule file is in force.
    Reloaded {
        /// What changed, one line each.
        changes: Vec<String>,
        /// Keys that changed but need a restart.
        needs_restart: Vec<String>,
    },
    /// A changed rule file is not in force; the old one goes on.
    ReloadFailed {
        /// Each problem as a person reads it.
        problems: Vec<String>,
    },
    /// Recovered or degraded: said once, not per request.
    Warned {
        /// The thing, the place and the way out.
        what: String,
    },
    /// The task of a connection panicked; the connection is lost, all else goes on.
    Panicked {
        /// What the panic said.
        what: String,
    },
    /// The proxy accepts clients.
    Started {
        /// Where.
        listen: SocketAddr,
        /// The admin port.
        admin: Option<SocketAddr>,
        /// `memory` or the kind of the remote store.
        store: &'static str,
        /// How many rules.
        rules: usize,
    },
    /// The proxy stops: it accepts nothing more and finishes what is in flight.
    Stopping {
        /// The signal, or who asked.
        why: &'static str,
        /// For how long at most.
        drain: Duration,
    },
    /// The last line of a run.
    Stopped {
        /// Connections and tunnels that were cut off by the end of the drain.
        cut_off: usize,
    },
}

/// How a cooldown ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClearedBy {
    /// A person cleared it.
    Hand,
    /// Its probe was answered `ok`.
    Probe,
    /// It ran out, where the rule wants no probe.
    Time,
}

impl ClearedBy {
    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hand => "hand",
            Self::Probe => "probe",
            Self::Time => "time",
        }
    }
}

/// How a probe ended; the label values of `tidegate_probes_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeResult {
    /// The site answers again.
    Ok,
    /// It still blocks: the next cooldown has begun.
    Block,
    /// The probe died (its client left, its member went away): another one goes.
    Lost,
}

impl ProbeResult {
    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Block => "block",
            Self::Lost => "lost",
        }
    }
}

/// An event that happened: what [`Events::recent`] and listeners get.
#[derive(Debug)]
pub struct Told {
    /// Counts up from 1 in this process; the id of its server-sent event.
    pub id: u64,
    /// When, in milliseconds since 1970, for people only.
    pub at_ms: u64,
    /// What.
    pub event: Event,
}

/// Where events go. One per process, shared by everything that has something to tell.
#[derive(Debug)]
pub struct Events {
    metrics: Arc<Metrics>,
    recent: Mutex<Recent>,
    listeners: broadcast::Sender<Arc<Told>>,
}

#[derive(Debug)]
struct Recent {
    last_id: u64,
    told: VecDeque<Arc<Told>>,
    second: clock::Instant,
    block_lines: u32,
}

impl Events {
    /// Nothing told yet; what is told is counted in `metrics`.
    #[must_use]
    pub fn new(metrics: Arc<Metrics>) -> Arc<Self> {
        let recent = Recent {
            last_id: 0,
            told: VecDeque::with_capacity(RECENT),
            second: clock::now(),
            block_lines: 0,
        };
        let listeners = broadcast::Sender::new(LISTENER_QUEUE);
        Arc::new(Self { metrics, recent: Mutex::new(recent), listeners })
    }

    /// Tells `event` to the log, the metrics, the list of recent events and the listeners.
    pub fn emit(&self, event: Event) {
        self.count(&event);
        let (told, log) = {
            let mut recent = self.recent.lock();
            let log = recent.line_allowed(&event);
            (recent.push(event), log)
        };
        match log {
            Log::Line => line::write(&told.event),
            Log::LineAfter(left_out) => {
                line::left_out(left_out);
                line::write(&told.event);
            }
            Log::Nothing => {}
        }
        // No listener is the usual case and no error.
        drop(self.listeners.send(told));
    }

    /// The last [`RECENT`] events, oldest first.
    #[must_use]
    pub fn recent(&self) -> Vec<Arc<Told>> {
        self.recent.lock().told.iter().cloned().collect()
    }

    /// Events from now on. A listener that lags more than a few hundred behind is told how many it lost.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<Arc<Told>> {
        self.listeners.subscribe()
    }

    fn count(&self, event: &Event) {
        let metrics = &self.metrics;
        match event {
            Event::Blocked { judgement, .. } => {
                if let Some(evidence) = &judgement.evidence {
                    metrics.signature_hits(&evidence.signature).inc();
                }
            }
            Event::Tripped { rule, trip, .. } => {
                if trip.made_by_us {
                    let rule = metrics.rule(rule);
                    if let Some(by) = trip.by {
                        rule.cooldown(by).inc();
                    }
                    rule.cooldown_seconds.inc_by(trip.length.as_secs_f64());
                }
            }
            Event::Probe { rule, result, .. } => {
                let rule = metrics.rule(rule);
                match result {
                    ProbeResult::Ok => rule.probes_ok.inc(),
                    ProbeResult::Block => rule.probes_block.inc(),
                    ProbeResult::Lost => rule.probes_lost.inc(),
                };
            }
            Event::StoreDown { .. } => _ = metrics.store_up.set(0),
            Event::StoreUp => _ = metrics.store_up.set(1),
            Event::Reloaded { .. } => {
                metrics.config_reloads("ok").inc();
                metrics.reload_ok.set(1);
            }
            Event::ReloadFailed { .. } => {
                metrics.config_reloads("error").inc();
                metrics.reload_ok.set(0);
            }
            // The hook counts panics, wherever they are: see `watch_panics`.
            Event::Panicked { .. }
            | Event::Cleared { .. }
            | Event::ProbeSent { .. }
            | Event::Observed { .. }
            | Event::RateLearned { .. }
            | Event::PlacesTaken { .. }
            | Event::SiteLimit { .. }
            | Event::StoreNews { .. }
            | Event::Warned { .. }
            | Event::Started { .. }
            | Event::Stopping { .. }
            | Event::Stopped { .. } => {}
        }
    }
}

/// Whether an event gets its log line.
enum Log {
    Line,
    LineAfter(u32),
    Nothing,
}

impl Recent {
    fn push(&mut self, event: Event) -> Arc<Told> {
        self.last_id += 1;
        let told = Arc::new(Told { id: self.last_id, at_ms: clock::unix_ms(), event });
        if self.told.len() == RECENT {
            self.told.pop_front();
        }
        self.told.push_back(Arc::clone(&told));
        told
    }

    /// A wall that meets a thousand requests must not fill the disk: blocks share a few lines a second.
    fn line_allowed(&mut self, event: &Event) -> Log {
        if !matches!(event, Event::Blocked { .. }) {
            return Log::Line;
        }
        let now = clock::now();
        if now.duration_since(self.second) >= Duration::from_secs(1) {
            let left_out = self.block_lines.saturating_sub(BLOCK_LINES_PER_SECOND);
            self.second = now;
            self.block_lines = 1;
            return if left_out > 0 { Log::LineAfter(left_out) } else { Log::Line };
        }
        self.block_lines = self.block_lines.saturating_add(1);
        if self.block_lines <= BLOCK_LINES_PER_SECOND { Log::Line } else { Log::Nothing }
    }
}

#[cfg(test)]
mod tests;
