//! What every request needs: the settings in force, the gate, the metrics, the connections to sites.

use std::{fmt, sync::Arc};

use arc_swap::{ArcSwap, Guard};
use tokio_util::task::TaskTracker;

use crate::{gate::Gate, metrics::Metrics, settings::Settings};

/// Shared by all connections of the process.
pub struct Context {
    settings: ArcSwap<Settings>,
    /// The gate.
    pub gate: Arc<Gate>,
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// Tunnels and upgraded connections: they outlive the HTTP connection they came from.
    pub tunnels: TaskTracker,
    /// Our name in `Via` (RFC 9110 section 7.6.3): random for each process, so that a request that comes back to us
    /// is told from one that passed another member.
    pub pseudonym: Arc<str>,
}

impl Context {
    /// The context of a process.
    #[must_use]
    pub fn new(settings: Settings, gate: Arc<Gate>, metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self {
            settings: ArcSwap::from_pointee(settings),
            gate,
            metrics,
            tunnels: TaskTracker::new(),
            pseudonym: format!("tidegate-{:08x}", fastrand::u32(..)).into(),
        })
    }

    /// The settings in force; do not keep the guard across an `await`.
    #[must_use]
    pub fn settings(&self) -> Guard<Arc<Settings>> {
        self.settings.load()
    }

    /// Puts reloaded settings in force: for the next request, and for the next connection where they shape one.
    pub fn reload(&self, settings: Settings) {
        self.settings.store(Arc::new(settings));
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("pseudonym", &self.pseudonym).finish_non_exhaustive()
    }
}
