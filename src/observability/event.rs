//! Each event becomes a log line, metrics, an entry in the list of recent events, and a message to
//! the listeners at the admin port. All are made in one place, [`Events::emit`], so they cannot
//! disagree.
//!
//! An ordinary response (a plain `ok`) is not an event: metrics count it, and `log.access` gives it
//! a line ([`Access`]). Emitting never waits and never fails. The list, the listeners' queues and
//! the log lines per second are bounded.

mod access;
mod json;
mod line;
mod text;
mod trip;

use std::{collections::VecDeque, net::SocketAddr, panic, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::sync::broadcast;

pub use access::{Access, HoldCause, Outcome};
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

/// Recent events kept for the status page and `GET /api/v1/events`. At well under 1 KiB each, they
/// take about a megabyte.
pub const RECENT: usize = 1_000;
/// Events that may queue up for a slow listener. After that it loses events and receives their
/// number.
const LISTENER_QUEUE: usize = 256;
/// Log lines about single blocks per second. The rest is counted and summarised in one line.
const BLOCK_LINES_PER_SECOND: u32 = 10;

/// A change or problem that operators should see.
#[derive(Debug, Clone)]
pub enum Event {
    /// A response counted towards a cooldown. Counts the hit of its signature.
    Blocked {
        /// Name of the rule.
        rule: Arc<str>,
        /// The scope's key; empty if the rule is not split.
        key: Arc<str>,
        /// The requested target; its query is never shown.
        target: Target,
        /// The verdict and its evidence.
        judgement: Judgement,
    },
    /// A cooldown began. Metrics count it only if `made_by_us`, so that sums over the fleet are
    /// correct.
    Tripped {
        /// Name of the rule.
        rule: Arc<str>,
        /// Key of the cooldown's scope.
        key: Arc<str>,
        /// The details.
        trip: Box<Trip>,
    },
    /// A scope is open again.
    Cleared {
        /// Name of the rule.
        rule: Arc<str>,
        /// Key of the cooldown's scope.
        key: Arc<str>,
        /// How it opened.
        by: ClearedBy,
        /// The name that the operator gave, after a manual clear.
        who: Option<Arc<str>>,
    },
    /// This member sends the probe.
    ProbeSent {
        /// Name of the rule.
        rule: Arc<str>,
        /// Key of the cooldown's scope.
        key: Arc<str>,
        /// The requested target; its query is never shown.
        target: Target,
    },
    /// `mode: observe` would have held or refused requests. Reported at intervals for each scope.
    Observed {
        /// Name of the rule.
        rule: Arc<str>,
        /// The scope's key.
        key: Arc<str>,
        /// What it would have done.
        action: Observed,
        /// The number of requests since the last report.
        requests: u64,
        /// The total time that it would have held them, at least. Each request counts by itself,
        /// without a queue.
        wait: Duration,
    },
    /// This member's probe ended. Counts the probe.
    Probe {
        /// Name of the rule.
        rule: Arc<str>,
        /// Key of the cooldown's scope.
        key: Arc<str>,
        /// How it ended.
        result: ProbeResult,
    },
    /// `learn` or an operator changed the rate of a scope.
    RateLearned {
        /// Name of the rule.
        rule: Arc<str>,
        /// The scope's key.
        key: Arc<str>,
        /// Tokens per second before the change; 0 = unknown to this member.
        from: f64,
        /// The new rate and its reason.
        learned: learn::KnownRate,
        /// Whether an operator changed it on this member.
        ours: bool,
        /// The name that the operator gave.
        who: Option<Arc<str>>,
    },
    /// Long bans have shown a site's limit by count, or a limit that they showed is dropped.
    Wall {
        /// Name of the rule.
        rule: Arc<str>,
        /// The scope's key.
        key: Arc<str>,
        /// The limit; `None` = it is dropped.
        wall: Option<learn::NamedWall>,
    },
    /// As many requests are under way as `parallel` allows, and others wait. Reported at most once a
    /// minute per scope.
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
    /// A user has no token left, so its requests wait or are refused. Reported at most once a minute
    /// per user and scope.
    UserOver {
        /// Name of the rule.
        rule: Arc<str>,
        /// The bucket's key.
        key: Arc<str>,
        /// The name of the user.
        user: Arc<str>,
        /// When the user has its next token.
        wait: Duration,
        /// Requests of the user that this member holds.
        held: usize,
    },
    /// Requests came outside of a rule's hours. Reported at most once an hour per rule.
    OutsideHours {
        /// Name of the rule.
        rule: Arc<str>,
        /// How long until the hours begin.
        wait: Duration,
    },
    /// A site announces its limit in its responses. Reported at intervals for each scope.
    SiteLimit {
        /// Name of the rule.
        rule: Arc<str>,
        /// The scope's key.
        key: Arc<str>,
        /// The requested target; its query is never shown.
        target: Target,
        /// The rate that the site allows, in tokens per second.
        rate: f64,
    },
    /// The store fails. Each kind of failure is reported once per outage.
    StoreDown {
        /// The cause, from an operator's view: `unreachable`, `refused`, `timed_out` or
        /// `invalid_reply`.
        cause: &'static str,
        /// The kind of failure, as `tidegate_store_errors_total` has it.
        kind: &'static str,
        /// `host:port` of the servers in the rule file.
        server: String,
        /// The error, without URL and password.
        reason: String,
        /// What to check first.
        advice: &'static str,
        /// What happens to requests during the outage.
        mode: OnFailure,
        /// The store has not been reached since the start, so limited requests are held.
        holds: bool,
    },
    /// The store works again.
    StoreUp,
    /// This member began or stopped receiving the fleet's news.
    StoreNews {
        /// Whether it receives them.
        hears: bool,
        /// The store's error, if it sent one.
        reason: Option<String>,
    },
    /// A changed rule file is in force.
    Reloaded {
        /// What changed, one line each.
        changes: Vec<String>,
        /// Keys that changed but need a restart.
        needs_restart: Vec<String>,
    },
    /// A changed rule file is invalid; the previous one stays in force.
    ReloadFailed {
        /// The problems, as messages for people.
        problems: Vec<String>,
    },
    /// A problem that the proxy works around. Reported once, not per request.
    Warned {
        /// The thing, the place and the fix.
        what: String,
    },
    /// The task of a connection panicked. Its connection is lost; nothing else is affected.
    Panicked {
        /// The panic's message.
        what: String,
    },
    /// The proxy accepts clients.
    Started {
        /// Its address.
        listen: SocketAddr,
        /// The admin port.
        admin: Option<SocketAddr>,
        /// `memory`, or the kind of the remote store.
        store: &'static str,
        /// The number of rules.
        rules: usize,
    },
    /// The proxy stops. It accepts no more connections and finishes the requests in flight.
    Stopping {
        /// The signal or command.
        why: &'static str,
        /// The longest time to wait for requests in flight.
        drain: Duration,
    },
    /// The last line of a run.
    Stopped {
        /// Connections and tunnels that were closed at the end of the drain.
        cut_off: usize,
    },
}

words! {
    /// How a cooldown ended.
    pub enum ClearedBy {
        /// An operator cleared it.
        Manual = "hand",
        /// Its probe got an `ok`.
        Probe = "probe",
        /// It ran out, under a rule without probes.
        Time = "time",
    }
}

words! {
    /// How a probe ended; the label values of `tidegate_probes_total`.
    pub enum ProbeResult {
        /// The site answers again.
        Ok = "ok",
        /// The site still blocks, and the next cooldown has begun.
        Block = "block",
        /// The probe got no response, because its client or its member went away. Another one follows.
        Lost = "lost",
    }
}

/// An emitted event, as listeners and [`Events::recent`] get it.
#[derive(Debug)]
pub struct EventRecord {
    /// Its number in this process, from 1; the id of its server-sent event.
    pub id: u64,
    /// The time in milliseconds since 1970, for display only.
    pub at_ms: u64,
    /// The event.
    pub event: Event,
}

/// The destination of all events of a process.
#[derive(Debug)]
pub struct Events {
    metrics: Arc<Metrics>,
    recent: Mutex<Recent>,
    listeners: broadcast::Sender<Arc<EventRecord>>,
}

#[derive(Debug)]
struct Recent {
    last_id: u64,
    records: VecDeque<Arc<EventRecord>>,
    second: clock::Instant,
    block_lines: u32,
}

impl Events {
    /// An empty list. `metrics` counts the events.
    #[must_use]
    pub fn new(metrics: Arc<Metrics>) -> Arc<Self> {
        let recent = Recent {
            last_id: 0,
            records: VecDeque::with_capacity(RECENT),
            second: clock::now(),
            block_lines: 0,
        };
        let listeners = broadcast::Sender::new(LISTENER_QUEUE);
        Arc::new(Self { metrics, recent: Mutex::new(recent), listeners })
    }

    /// Sends `event` to the log, the metrics, the list of recent events and the listeners.
    pub fn emit(&self, event: Event) {
        self.count(&event);
        let (record, log) = {
            let mut recent = self.recent.lock();
            let log = recent.line_allowed(&event);
            (recent.push(event), log)
        };
        match log {
            Log::Line => line::write(&record.event),
            Log::LineAfter(left_out) => {
                line::left_out(left_out);
                line::write(&record.event);
            }
            Log::Nothing => {}
        }
        // Usually there is no listener, which is not an error.
        drop(self.listeners.send(record));
    }

    /// The last [`RECENT`] events, oldest first.
    #[must_use]
    pub fn recent(&self) -> Vec<Arc<EventRecord>> {
        self.recent.lock().records.iter().cloned().collect()
    }

    /// Events from now on. A listener that is more than a few hundred behind gets the number that
    /// it lost.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<Arc<EventRecord>> {
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
            Event::Tripped { rule, trip, .. } if trip.made_by_us => {
                let rule = metrics.rule(rule);
                if let Some(by) = trip.by {
                    rule.cooldown(by).inc();
                }
                rule.cooldown_seconds.inc_by(trip.length.as_secs_f64());
            }
            Event::Probe { rule, result, .. } => {
                let rule = metrics.rule(rule);
                match result {
                    ProbeResult::Ok => rule.probes_ok.inc(),
                    ProbeResult::Block => rule.probes_block.inc(),
                    ProbeResult::Lost => rule.probes_lost.inc(),
                };
            }
            Event::StoreDown { .. } => _ = metrics.member.store_up.set(0),
            Event::StoreUp => _ = metrics.member.store_up.set(1),
            Event::Reloaded { .. } => {
                metrics.config_reloads("ok").inc();
                metrics.member.config_last_reload_ok.set(1);
            }
            Event::ReloadFailed { .. } => {
                metrics.config_reloads("error").inc();
                metrics.member.config_last_reload_ok.set(0);
            }
            // `watch_panics` counts panics, including those outside of connections.
            _ => {}
        }
    }
}

/// From now on counts and logs every panic of the process. A panic ends only its own task, usually a
/// connection, and leaves no lock behind.
pub fn watch_panics(metrics: Arc<Metrics>) {
    panic::set_hook(Box::new(move |info| {
        metrics.member.panics.inc();
        tracing::error!("{}", clean(&info.to_string()));
    }));
}

/// Whether an event is logged.
enum Log {
    Line,
    LineAfter(u32),
    Nothing,
}

impl Recent {
    fn push(&mut self, event: Event) -> Arc<EventRecord> {
        self.last_id += 1;
        let record = Arc::new(EventRecord { id: self.last_id, at_ms: clock::unix_ms(), event });
        if self.records.len() == RECENT {
            self.records.pop_front();
        }
        self.records.push_back(Arc::clone(&record));
        record
    }

    /// A wall that meets a thousand requests must not fill the disk, so blocks share a few lines
    /// per second.
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
