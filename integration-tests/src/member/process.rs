//! Facts about a member's process, and limits on its resources.

use std::fs;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

use super::Member;

/// Clock ticks per second in `/proc` (USER_HZ), the same on every Linux.
const TICKS: f64 = 100.0;

impl Member {
    /// Resident memory in bytes.
    ///
    /// # Panics
    /// If the process has ended or the machine has no `/proc`.
    #[must_use]
    pub fn resident_bytes(&self) -> u64 {
        let status = fs::read_to_string(self.proc("status")).expect("the process runs");
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("it has memory");
        let kib = line.split_whitespace().nth(1).expect("VmRSS has a value");
        kib.parse::<u64>().expect("VmRSS is a number") * 1024
    }

    /// Processor time in seconds.
    ///
    /// # Panics
    /// If the process has ended or the machine has no `/proc`.
    #[must_use]
    pub fn cpu_seconds(&self) -> f64 {
        let stat = fs::read_to_string(self.proc("stat")).expect("the process runs");
        // The name in brackets may contain anything. User and system time are the 14th and 15th
        // word of the line.
        let (_, rest) = stat.rsplit_once(')').expect("the name is in brackets");
        let words: Vec<&str> = rest.split_whitespace().collect();
        let ticks = |at: usize| words[at].parse::<f64>().expect("times are numbers");
        (ticks(11) + ticks(12)) / TICKS
    }

    /// Descriptors that it has open.
    ///
    /// # Panics
    /// If the process has ended or the machine has no `/proc`.
    #[must_use]
    pub fn descriptors(&self) -> usize {
        fs::read_dir(self.proc("fd")).expect("the process runs").count()
    }

    /// Limits its open descriptors to `n` (`ulimit -Sn`). Returns the previous limit.
    ///
    /// # Panics
    /// If the process has ended.
    pub fn limit_descriptors(&self, n: u64) -> u64 {
        let process = Some(Pid::from_child(&self.child));
        let maximum = getrlimit(Resource::Nofile).maximum;
        let limit = Rlimit { current: Some(n), maximum };
        let before =
            prlimit(process, Resource::Nofile, limit).expect("a process may limit its child");
        before.current.expect("every system limits descriptors")
    }

    /// Prevents it from opening another descriptor. Returns the previous limit.
    ///
    /// # Panics
    /// If the process has ended or the machine has no `/proc`.
    pub fn take_free_descriptors(&self) -> u64 {
        // The next descriptor gets the lowest free number, which must be below the limit.
        let free = |n: &u64| !fs::exists(self.proc(&format!("fd/{n}"))).is_ok_and(|there| there);
        let lowest = (0..).find(free).expect("numbers do not end");
        self.limit_descriptors(lowest)
    }

    /// Its limit of descriptors.
    ///
    /// # Panics
    /// If the process has ended or the machine has no `/proc`.
    #[must_use]
    pub fn descriptors_at_most(&self) -> u64 {
        let limits = fs::read_to_string(self.proc("limits")).expect("the process runs");
        let line = limits.lines().find(|line| line.starts_with("Max open files"));
        let soft = line.and_then(|line| line.split_whitespace().nth(3)).expect("it has a limit");
        soft.parse().expect("the limit is a number")
    }

    /// Stops reading its output until the result is dropped. [`Member::log`] waits for that too.
    #[must_use]
    pub fn stop_reading(&self) -> impl Drop + '_ {
        self.log.lock()
    }

    fn proc(&self, what: &str) -> String {
        format!("/proc/{}/{what}", self.pid())
    }
}
