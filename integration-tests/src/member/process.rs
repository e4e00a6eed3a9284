//! What the machine says of a member's process, and what it can be made to lack.

use std::fs;

use rustix::process::{Pid, Resource, Rlimit, prlimit};

use super::Member;

/// Clock ticks a second in `/proc` (USER_HZ), the same on every Linux that there is.
const TICKS: f64 = 100.0;

impl Member {
    /// Resident memory in bytes.
    ///
    /// # Panics
    /// If the process is gone or the machine has no `/proc`.
    #[must_use]
    pub fn resident_bytes(&self) -> u64 {
        let status = fs::read_to_string(self.proc("status")).expect("the process runs");
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("it has memory");
        let kib = line.split_whitespace().nth(1).expect("VmRSS has a value");
        kib.parse::<u64>().expect("VmRSS is a number") * 1024
    }

    /// Seconds of processor time that it has used.
    ///
    /// # Panics
    /// If the process is gone or the machine has no `/proc`.
    #[must_use]
    pub fn cpu_seconds(&self) -> f64 {
        let stat = fs::read_to_string(self.proc("stat")).expect("the process runs");
        // The name before the bracket may hold anything; user and system time are the 14th and 15th word of the line.
        let (_, rest) = stat.rsplit_once(')').expect("the name is in brackets");
        let words: Vec<&str> = rest.split_whitespace().collect();
        let ticks = |at: usize| words[at].parse::<f64>().expect("times are numbers");
        (ticks(11) + ticks(12)) / TICKS
    }

    /// Descriptors that it has open.
    ///
    /// # Panics
    /// If the process is gone or the machine has no `/proc`.
    #[must_use]
    pub fn descriptors(&self) -> usize {
        fs::read_dir(self.proc("fd")).expect("the process runs").count()
    }

    /// From now on it may have at most `n` descriptors open (`ulimit -n`).
    ///
    /// # Panics
    /// If the process is gone.
    pub fn limit_descriptors(&self, n: u64) {
        let limit = Rlimit { current: Some(n), maximum: Some(n) };
        prlimit(Some(Pid::from_child(&self.child)), Resource::Nofile, limit)
            .expect("a process may limit its child");
    }

    /// Reads nothing of what it writes, until the answer is dropped; [`Member::log`] waits for that too.
    #[must_use]
    pub fn stop_reading(&self) -> impl Drop + '_ {
        self.log.lock()
    }

    fn proc(&self, what: &str) -> String {
        format!("/proc/{}/{what}", self.pid())
    }
}
