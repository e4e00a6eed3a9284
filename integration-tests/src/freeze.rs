//! Stops and resumes a child process (SIGSTOP, SIGCONT).

use std::process::Child;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

/// Stops `child` and returns once the kernel reports that all its threads are stopped, which can
/// take a while on a busy machine.
///
/// # Panics
/// If the process has ended.
pub(crate) fn freeze(child: &Child) {
    let pid = Pid::from_child(child);
    kill_process(pid, Signal::STOP).expect("the process runs");
    waitid(WaitId::Pid(pid), WaitIdOptions::STOPPED).expect("a child can be waited for");
}

/// Resumes it.
///
/// # Panics
/// If the process has ended.
pub(crate) fn thaw(child: &Child) {
    kill_process(Pid::from_child(child), Signal::CONT).expect("the process runs");
}
