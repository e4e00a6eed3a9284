//! The heartbeat behind the live streams: one snapshot a second, made once and shared by all who watch; and one at once
//! when a cooldown begins or ends.

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
    event::{Event, Told},
    status::{ScopeState, ScopeStatus},
};

/// News that comes within this time shares one beat: many scopes may trip at once, and a snapshot costs.
const SETTLE: Duration = Duration::from_millis(50);
/// Streams at once: each costs a connection and a task.
const STREAMS: usize = 32;

/// What one beat sends: ready-made JSON.
#[derive(Debug, Clone, Default)]
pub(super) struct Beat {
    /// Counts beats from 1.
    pub(super) number: u64,
    /// [`crate::observability::status::Status`].
    pub(super) status: Arc<str>,
    /// Plots, renewed with every point.
    pub(super) plots: Arc<str>,
    /// Beat at which `plots` was made.
    pub(super) plotted: u64,
}

/// The shared state of the heartbeat.
#[derive(Debug)]
pub(super) struct Live {
    beats: watch::Sender<Beat>,
    /// Places of streams.
    pub(super) streams: Arc<Semaphore>,
    history: Mutex<History>,
    count: AtomicU64,
}

impl Live {
    pub(super) fn new() -> Self {
        Self {
            beats: watch::Sender::new(Beat::default()),
            streams: Arc::new(Semaphore::new(STREAMS)),
            history: Mutex::default(),
            count: AtomicU64::new(0),
        }
    }

    /// The last ten minutes of one scope, as this member saw them.
    pub(super) fn plot(&self, name: &str) -> Option<Lines> {
        self.history.lock().plot(name)
    }

    /// Beats from now on.
    pub(super) fn watch(&self) -> watch::Receiver<Beat> {
        self.beats.subscribe()
    }
}

/// Beats once a second, for as long as it is polled. Without a watcher only the history is kept.
pub(super) async fn run(cx: Arc<Context>) {
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut told = cx.events.subscribe();
    let mut seconds: u64 = 0;
    loop {
        let mut point = false;
        tokio::select! {
            _ = ticks.tick() => {
                seconds += 1;
                point = seconds % STEP_S == 1;
            }
            () = news(&mut told) => {
                tokio::time::sleep(SETTLE).await;
                told = told.resubscribe();
            }
        }
        if point || cx.live.beats.receiver_count() > 0 {
            let number = cx.live.count.fetch_add(1, Ordering::Relaxed) + 1;
            beat(&cx, number, point);
        }
    }
}

/// Waits for a cooldown to begin or end. Where events were lost, one of them may have been it.
async fn news(told: &mut broadcast::Receiver<Arc<Told>>) {
    loop {
        match told.recv().await {
            Ok(told) => {
                if matches!(told.event, Event::Tripped { .. } | Event::Cleared { .. }) {
                    return;
                }
            }
            Err(broadcast::error::RecvError::Lagged(_)) => return,
            // The events live as long as we do.
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}

fn beat(cx: &Context, number: u64, point: bool) {
    let status = cx.status();
    let mut beat = cx.live.beats.borrow().clone();
    if point {
        let mut history = cx.live.history.lock();
        history.record(&status.scopes);
        beat.plots = json(&history.plots(&status.scopes));
        beat.plotted = number;
    }
    beat.number = number;
    beat.status = json(&status);
    cx.live.beats.send_replace(beat);
}

/// Our own types, made of text, numbers and maps of text, are always JSON.
fn json(value: &impl serde::Serialize) -> Arc<str> {
    serde_json::to_string(value).unwrap_or_default().into()
}

/// Sorts what needs a person first and cuts the rest: cooling, then held, then streak, then traffic, then name.
pub(super) fn most_worrying_first(scopes: &mut Vec<ScopeStatus>, most: usize) {
    let rank = |scope: &ScopeStatus| {
        let closed = matches!(scope.state, ScopeState::Cooling | ScopeState::Probing);
        (Reverse(closed), Reverse(scope.held), Reverse(scope.streak > 0.0), Reverse(scope.sent))
    };
    scopes.sort_by(|a, b| {
        rank(a).cmp(&rank(b)).then_with(|| (&a.rule, &a.key).cmp(&(&b.rule, &b.key)))
    });
    scopes.truncate(most);
}
