//! Stopping a child process (SIGSTOP) and letting it go on.

use std::process::Child;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

/// Stops `child` and returns once the kernel reports that all its threads stand still: on a busy machine they run on for
/// a while after the signal was sent.
///
/// # Panics
/// If it is gone.
pub(crate) fn freeze(child: &Child) {
    let pid = Pid::from_child(child);
    kill_process(pid, Signal::STOP).expect("the process runs");
    waitid(WaitId::Pid(pid), WaitIdOptions::STOPPED).expect("a child can be waited for");
}

/// Lets it go on.
///
/// # Panics
/// If it is gone.
pub(crate) fn thaw(child: &Child) {
    kill_process(Pid::from_child(child), Signal::CONT).expect("the process runs");
}
