//! The last ten minutes of each scope, for the plot of the status page: requests sent per second,
//! and the learned rate.

use std::collections::{HashMap, VecDeque};

use serde::Serialize;

use super::most_urgent_first;
use crate::observability::status::ScopeStatus;

/// Seconds between two points.
pub(super) const STEP_S: u64 = 5;
/// Points of a plot: ten minutes.
pub(super) const POINTS: usize = 120;
/// Most scopes with a plot, which takes 2.5 KiB each.
const SCOPES: usize = 500;

/// Points of all scopes.
#[derive(Debug, Default)]
pub(super) struct History {
    scopes: HashMap<String, Track>,
}

#[derive(Debug, Default)]
struct Track {
    sent: u64,
    lines: Lines,
    seen: bool,
}

/// The lines of one plot, oldest point first.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Lines {
    /// Requests per second.
    sent: VecDeque<f32>,
    /// The learned rate in tokens per second; `None` if the rate is not learned.
    rate: VecDeque<Option<f32>>,
    /// The rate that the site is known to tolerate; `None` if no limit has been met.
    mark: VecDeque<Option<f32>>,
}

impl History {
    /// Adds a point to the most urgent scopes and forgets the others.
    pub(super) fn record(&mut self, mut scopes: Vec<ScopeStatus>) {
        most_urgent_first(&mut scopes, SCOPES);
        for scope in scopes {
            let name = scope.facts.name();
            let new = !self.scopes.contains_key(&name);
            let track = self.scopes.entry(name).or_default();
            // A scope that was dropped while idle counts from zero again.
            let from = if new || scope.sent < track.sent { scope.sent } else { track.sent };
            #[allow(clippy::cast_precision_loss, reason = "a plot needs no more than six digits")]
            let sent = (scope.sent - from) as f32 / STEP_S as f32;
            track.sent = scope.sent;
            track.seen = true;
            #[allow(clippy::cast_possible_truncation, reason = "as above")]
            let single = |rate: f64| rate as f32;
            let learned = scope.facts.learned.as_ref();
            push(&mut track.lines.sent, sent);
            push(&mut track.lines.rate, learned.map(|learned| single(learned.rate)));
            push(&mut track.lines.mark, learned.and_then(|learned| learned.mark).map(single));
        }
        self.scopes.retain(|_, track| std::mem::take(&mut track.seen));
    }

    /// The plot of one scope.
    pub(super) fn plot(&self, name: &str) -> Option<Lines> {
        self.scopes.get(name).map(|track| track.lines.clone())
    }
}

fn push<T>(line: &mut VecDeque<T>, point: T) {
    if line.len() == POINTS {
        line.pop_front();
    }
    line.push_back(point);
}
