//! Figures of a process from `/proc`: CPU, memory and wakeups.

use std::{collections::HashMap, fs, time::Duration};

use anyhow::Context as _;

/// Length of a tick in `/proc`: 100 a second on every Linux.
const TICK: Duration = Duration::from_millis(10);

/// CPU of a process and all its descendants so far, user and system.
pub(crate) fn cpu(root: u32) -> anyhow::Result<Duration> {
    let ticks: u32 = tree(root)?.into_iter().map(|(_, used)| used).sum();
    Ok(TICK * ticks)
}

/// A process and all its descendants, each with its used ticks.
fn tree(root: u32) -> anyhow::Result<Vec<(u32, u32)>> {
    let mut all: HashMap<u32, (u32, u32)> = HashMap::new();
    for entry in fs::read_dir("/proc")? {
        let Ok(name) = entry?.file_name().into_string() else { continue };
        let Ok(pid) = name.parse() else { continue };
        // It may have ended.
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
        // The name in brackets may contain anything; the rest is numbers.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
        let field = |at: usize| fields.get(at).and_then(|text| text.parse::<u32>().ok());
        if let (Some(parent), Some(user), Some(system)) = (field(1), field(11), field(12)) {
            all.insert(pid, (parent, user + system));
        }
    }
    let belongs = |mut pid: u32| {
        while pid > 1 && pid != root {
            pid = all.get(&pid).map_or(0, |(parent, _)| *parent);
        }
        pid == root
    };
    let own = all.iter().filter(|(pid, _)| belongs(**pid));
    Ok(own.map(|(pid, (_, used))| (*pid, *used)).collect())
}

/// The value of `name` in `/proc/PID/status` (`VmHWM:`, in KiB).
pub(crate) fn status(pid: u32, name: &str) -> anyhow::Result<u64> {
    value(&format!("/proc/{pid}/status"), name)
}

/// KiB of a process and all its descendants. Shared memory counts once.
#[allow(clippy::cast_precision_loss)]
pub(crate) fn memory(root: u32) -> anyhow::Result<f64> {
    let mut all = 0;
    for (pid, _) in tree(root)? {
        all += value(&format!("/proc/{pid}/smaps_rollup"), "Pss:")?;
    }
    Ok(all as f64)
}

/// How often threads of the process have woken up.
pub(crate) fn wakeups(pid: u32) -> anyhow::Result<u64> {
    let mut all = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let status = thread?.path().join("status");
        all += value(&status.display().to_string(), "voluntary_ctxt_switches:")?;
    }
    Ok(all)
}

fn value(file: &str, name: &str) -> anyhow::Result<u64> {
    let text = fs::read_to_string(file).with_context(|| file.to_owned())?;
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    let value = value.and_then(|value| value.split_whitespace().next());
    Ok(value.with_context(|| format!("{file} has no {name}"))?.parse()?)
}
