//! The updates of the live streams. One snapshot per second is shared by all streams; another one
//! follows at once when a cooldown begins or ends.

use std::{
    cmp::Reverse,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::{Semaphore, broadcast, watch};

use super::{
    Context,
    history::{History, Lines, STEP_S},
};
use crate::observability::{
    event::{Event, EventRecord},
    status::{ScopeState, ScopeStatus},
};

/// Changes within this time share one update. Many scopes may trip at once, and a snapshot is
/// expensive.
const SETTLE: Duration = Duration::from_millis(50);
/// Most streams at once. Each costs a connection and a task.
const STREAMS: usize = 32;

/// One update as JSON.
#[derive(Debug, Clone, Default)]
pub(super) struct Update {
    /// Its number, from 1.
    pub(super) number: u64,
    /// [`crate::observability::status::Status`].
    pub(super) status: Arc<str>,
    /// The plots, which change with every new point.
    pub(super) plots: Arc<str>,
    /// The number of the update that changed `plots`.
    pub(super) plotted: u64,
}

/// The shared state of all streams.
#[derive(Debug)]
pub(super) struct Live {
    updates: watch::Sender<Update>,
    /// Limits the number of streams.
    pub(super) streams: Arc<Semaphore>,
    history: Mutex<History>,
    count: AtomicU64,
}

impl Live {
    pub(super) fn new() -> Self {
        Self {
            updates: watch::Sender::new(Update::default()),
            streams: Arc::new(Semaphore::new(STREAMS)),
            history: Mutex::default(),
            count: AtomicU64::new(0),
        }
    }

    /// The last ten minutes of one scope, as seen by this member.
    pub(super) fn plot(&self, name: &str) -> Option<Lines> {
        self.history.lock().plot(name)
    }

    /// Future updates.
    pub(super) fn watch(&self) -> watch::Receiver<Update> {
        self.updates.subscribe()
    }
}

/// Sends an update every second, for as long as it is polled. Without a stream it only records the
/// history.
pub(super) async fn run(cx: Arc<Context>) {
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut events = cx.events.subscribe();
    let mut seconds: u64 = 0;
    loop {
        let mut point = false;
        tokio::select! {
            _ = ticks.tick() => {
                seconds += 1;
                point = seconds % STEP_S == 1;
            }
            () = next_transition(&mut events) => {
                tokio::time::sleep(SETTLE).await;
                events = events.resubscribe();
            }
        }
        if point || cx.live.updates.receiver_count() > 0 {
            let number = cx.live.count.fetch_add(1, Ordering::Relaxed) + 1;
            update(&cx, number, point);
        }
    }
}

/// Waits for a cooldown to begin or end. A lost event counts as one.
async fn next_transition(events: &mut broadcast::Receiver<Arc<EventRecord>>) {
    loop {
        match events.recv().await {
            Ok(record) => {
                if matches!(record.event, Event::Tripped { .. } | Event::Cleared { .. }) {
                    return;
                }
            }
            Err(broadcast::error::RecvError::Lagged(_)) => return,
            // The sender lives as long as this task.
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}

fn update(cx: &Context, number: u64, point: bool) {
    let status = cx.status();
    let mut update = cx.live.updates.borrow().clone();
    if point {
        let mut history = cx.live.history.lock();
        history.record(&status.scopes);
        update.plots = json(&history.plots(&status.scopes));
        update.plotted = number;
    }
    update.number = number;
    update.status = json(&status);
    cx.live.updates.send_replace(update);
}

/// Cannot fail: the types contain only text, numbers, and maps with text keys.
fn json(value: &impl serde::Serialize) -> Arc<str> {
    serde_json::to_string(value).unwrap_or_default().into()
}

/// Sorts the most urgent scopes first (cooling, held, streak, traffic, name) and drops the rest.
pub(super) fn most_urgent_first(scopes: &mut Vec<ScopeStatus>, most: usize) {
    let rank = |scope: &ScopeStatus| {
        let closed = matches!(scope.state, ScopeState::Cooling | ScopeState::Probing);
        (Reverse(closed), Reverse(scope.held), Reverse(scope.streak > 0.0), Reverse(scope.sent))
    };
    scopes.sort_by(|a, b| {
        rank(a).cmp(&rank(b)).then_with(|| (&a.rule, &a.key).cmp(&(&b.rule, &b.key)))
    });
    scopes.truncate(most);
}
