//! Metrics of the process under the standard Prometheus names, read from `/proc` on each scrape.

use std::fs;

use prometheus_client::registry::Registry;
use rustix::{
    param::{clock_ticks_per_second, page_size},
    process::{Resource, getrlimit},
};

use super::families::ProcessMetrics;
use crate::runtime::clock;

/// Values from `/proc`.
#[derive(Debug)]
pub(super) struct Process(ProcessMetrics);

impl Process {
    /// Registers the metrics, without the program's prefix in their names.
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = ProcessMetrics::register(registry);
        metrics.process_start_time_seconds.set(clock::unix_ms() as f64 / 1000.0);
        Self(metrics)
    }

    /// Updates the values.
    #[allow(clippy::cast_precision_loss, reason = "ticks of years are below 2^52")]
    pub(super) fn refresh(&self) {
        if let Some(ticks) = cpu_ticks() {
            let now = ticks as f64 / clock_ticks_per_second() as f64;
            self.0.process_cpu_seconds.inc_by((now - self.0.process_cpu_seconds.get()).max(0.0));
        }
        if let Some(pages) = resident_pages() {
            self.0.process_resident_memory_bytes.set(pages.saturating_mul(whole(page_size())));
        }
        if let Ok(entries) = fs::read_dir("/proc/self/fd") {
            // One of them is the descriptor of this directory.
            self.0.process_open_fds.set(whole(entries.count().saturating_sub(1)));
        }
        let limit = getrlimit(Resource::Nofile).current;
        self.0
            .process_max_fds
            .set(limit.and_then(|limit| i64::try_from(limit).ok()).unwrap_or(i64::MAX));
    }
}

fn whole(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// `utime` and `stime` of `/proc/self/stat`. The name before them may contain blanks and
/// parentheses.
fn cpu_ticks() -> Option<u64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let (user, system): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(user + system)
}

fn resident_pages() -> Option<i64> {
    let statm = fs::read_to_string("/proc/self/statm").ok()?;
    statm.split_whitespace().nth(1)?.parse().ok()
}
