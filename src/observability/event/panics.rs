//! Panics: each is counted and told, wherever it happens. A task that panics takes down itself, and with it one
//! connection as a rule; nothing that others wait for is left locked.

use std::{panic, sync::Arc};

use super::clean;
use crate::observability::metrics::Metrics;

/// Counts every panic of the process from now on, and says where it was and what it said as a line of the log.
pub fn watch_panics(metrics: Arc<Metrics>) {
    panic::set_hook(Box::new(move |info| {
        metrics.panics.inc();
        tracing::error!("{}", clean(&info.to_string()));
    }));
}
