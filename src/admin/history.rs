//! The last ten minutes of each scope: requests let through per second, for the plot of the status page.

use std::collections::{HashMap, VecDeque};

use serde::Serialize;

use crate::status::ScopeStatus;

/// Seconds between two points.
pub(super) const STEP_S: u64 = 5;
/// Points of a plot: ten minutes.
const POINTS: usize = 120;
/// Scopes with a plot: at half a KiB each; the most worrying ones are shown anyway.
const SCOPES: usize = 500;

/// Points of all scopes.
#[derive(Debug, Default)]
pub(super) struct History {
    scopes: HashMap<String, Track>,
}

#[derive(Debug, Default)]
struct Track {
    sent: u64,
    points: VecDeque<f32>,
    seen: bool,
}

/// What the page draws: requests a second, oldest first, one point each `step_s`.
#[derive(Debug, Serialize)]
pub(super) struct Plots<'a> {
    step_s: u64,
    points: usize,
    scopes: HashMap<&'a str, &'a VecDeque<f32>>,
}

impl History {
    /// Adds a point to each scope; scopes that are gone are forgotten.
    pub(super) fn record(&mut self, scopes: &[ScopeStatus]) {
        for scope in scopes {
            let name = scope.name();
            if self.scopes.len() >= SCOPES && !self.scopes.contains_key(&name) {
                continue;
            }
            let new = !self.scopes.contains_key(&name);
            let track = self.scopes.entry(name).or_default();
            // A scope that was dropped while idle counts from zero again.
            let from = if new || scope.sent < track.sent { scope.sent } else { track.sent };
            #[allow(clippy::cast_precision_loss, reason = "a plot needs no more than six digits")]
            let rate = (scope.sent - from) as f32 / STEP_S as f32;
            track.sent = scope.sent;
            track.seen = true;
            if track.points.len() == POINTS {
                track.points.pop_front();
            }
            track.points.push_back(rate);
        }
        self.scopes.retain(|_, track| std::mem::take(&mut track.seen));
    }

    /// The plots of `scopes`.
    pub(super) fn plots(&self, scopes: &[ScopeStatus]) -> Plots<'_> {
        let track = |scope: &ScopeStatus| self.scopes.get_key_value(&scope.name());
        let scopes = scopes.iter().filter_map(track);
        let scopes = scopes.map(|(name, track)| (name.as_str(), &track.points)).collect();
        Plots { step_s: STEP_S, points: POINTS, scopes }
    }
}
