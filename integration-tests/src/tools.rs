//! Real clients: commands of the machine and Python programs in the tests' own environment, pointed at a proxy.

use std::{
    path::{Path, PathBuf},
    process::{Output, Stdio},
    time::Duration,
};

use tokio::{process::Command, time::timeout};

/// No client in the tests takes longer; one that does is ended.
const AT_MOST: Duration = Duration::from_secs(90);

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate is in the workspace")
}

/// The interpreter with the clients of `clients/requirements.txt`.
///
/// # Panics
/// If it is not installed (`make test` does it).
#[must_use]
pub fn python() -> PathBuf {
    let python = root().join("target/clients-venv/bin/python");
    assert!(python.is_file(), "{} is missing: run `make tools`", python.display());
    python
}

/// A program in `clients/`.
#[must_use]
pub fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("clients").join(name)
}

/// Runs a client with its usual variables (`HTTP_PROXY` and its kin, upper and lower case) set to `proxy`, and
/// returns what it wrote.
///
/// # Panics
/// If it cannot be started, takes too long or fails.
pub async fn run_through(proxy: &str, program: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"] {
        command.env(name, proxy);
    }
    command.env_remove("NO_PROXY").env_remove("no_proxy").env("PYTHONDONTWRITEBYTECODE", "1");
    let output = timeout(AT_MOST, command.output()).await;
    let output = output.expect("the client ends in time").expect("the client is installed");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{} failed: {said}", program.display());
    output
}
