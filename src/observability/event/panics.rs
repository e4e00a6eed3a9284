//! Counts and reports panics. A panic ends only its own task, usually a connection, and leaves no
//! lock behind.

use std::{panic, sync::Arc};

use super::clean;
use crate::observability::metrics::Metrics;

/// From now on counts every panic of the process, and logs its place and message.
pub fn watch_panics(metrics: Arc<Metrics>) {
    panic::set_hook(Box::new(move |info| {
        metrics.member.panics.inc();
        tracing::error!("{}", clean(&info.to_string()));
    }));
}
