//! Runs the binary to its end: for commands, and for starts that must fail.

use std::{
    io::Read,
    path::Path,
    process::{Command, Output, Stdio},
    thread::{self, JoinHandle},
    time::Duration,
};

use super::binary_path;
use crate::wait::wait_until_blocking;

/// Longest run of a command; then it is killed.
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
    // Reads concurrently: a command that writes more than a pipe holds would never end.
    let stdout = all_of(child.stdout.take().expect("it is piped"));
    let stderr = all_of(child.stderr.take().expect("it is piped"));
    let started = std::time::Instant::now();
    wait_until_blocking("tidegate ends or time is up", AT_MOST + AT_MOST, || {
        if started.elapsed() > AT_MOST {
            child.kill().expect("it still runs");
        }
        child.try_wait().expect("a child can be asked for").is_some()
    });
    let status = child.wait().expect("it has ended");
    let text = |reader: JoinHandle<Vec<u8>>| reader.join().expect("a pipe can be read");
    Output { status, stdout: text(stdout), stderr: text(stderr) }
}

fn all_of(mut pipe: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).expect("a pipe can be read");
        bytes
    })
}
