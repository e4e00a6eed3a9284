//! One run of the binary to its end: for commands, and for starts that must fail.

use std::{
    path::Path,
    process::{Command, Output, Stdio},
    time::Duration,
};

use super::binary_path;
use crate::wait::wait_until_blocking;

/// No command takes longer; one that serves by mistake is ended.
const AT_MOST: Duration = Duration::from_secs(15);

/// Runs `tidegate` with these arguments in `folder` and returns what it wrote and how it ended.
///
/// # Panics
/// If it does not end in time.
#[must_use]
pub fn run(folder: &Path, arguments: &[&str]) -> Output {
    let mut child = Command::new(binary_path())
        .args(arguments)
        .env_clear()
        .env("HOME", folder)
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary can be started");
    let started = std::time::Instant::now();
    wait_until_blocking("tidegate ends or time is up", AT_MOST + AT_MOST, || {
        if started.elapsed() > AT_MOST {
            child.kill().expect("it still runs");
        }
        child.try_wait().expect("a child can be asked for").is_some()
    });
    child.wait_with_output().expect("it has ended")
}
