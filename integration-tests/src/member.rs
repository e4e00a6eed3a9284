//! One running `tidegate`: a process with its own rule file, its metrics, its status and its log.

use std::{
    io::{BufRead as _, BufReader, Read},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};

use crate::{client, freeze, ports::free_address, wait::wait_until};

mod binary;
mod fleet;
mod process;
mod rule_file;
mod run;
mod scrape;

pub use binary::path as binary_path;
pub use rule_file::RuleFile;
pub use run::run;
pub use scrape::Metrics;

/// A start takes milliseconds, but seconds on a busy machine.
const START_AT_MOST: Duration = Duration::from_secs(15);
/// Another test program may take the port between the check and the start.
const START_TRIES: usize = 5;
/// Most lines of the log that are kept and printed when a test fails; older ones are dropped.
const LOG_LINES: usize = 500;

/// A running member. The process ends with this handle, and its log is printed if the test failed.
#[derive(Debug)]
pub struct Member {
    proxy: SocketAddr,
    admin: SocketAddr,
    child: Child,
    log: Arc<Mutex<Vec<String>>>,
    folder: tempfile::TempDir,
}

impl Member {
    /// Starts one member and waits until it serves.
    ///
    /// # Panics
    /// If it does not start; the message contains its log.
    pub async fn start(file: &RuleFile) -> Self {
        Self::start_program(binary_path(), file).await
    }

    /// Starts another build of `tidegate`.
    ///
    /// # Panics
    /// Like [`Member::start`].
    pub async fn start_program(program: &Path, file: &RuleFile) -> Self {
        Self::start_by(file, || Command::new(program)).await
    }

    /// Starts one member in a shell in which `command` was run (`ulimit -Sn 64`).
    ///
    /// # Panics
    /// Like [`Member::start`].
    pub async fn start_after(command: &str, file: &RuleFile) -> Self {
        Self::start_by(file, || {
            let mut shell = Command::new("/bin/sh");
            shell.arg("-c").arg(format!("{command} && exec \"$0\" \"$@\"")).arg(binary_path());
            shell
        })
        .await
    }

    async fn start_by(file: &RuleFile, command: impl Fn() -> Command) -> Self {
        let mut last = String::new();
        for _ in 0..START_TRIES {
            let mut member = Self::spawn(file, command());
            if member.comes_up().await {
                return member;
            }
            last = member.log();
            assert!(last.to_lowercase().contains("in use"), "tidegate does not start:\n{last}");
        }
        panic!("tidegate finds no free port in {START_TRIES} tries:\n{last}");
    }

    /// Starts `n` members with the same rules.
    ///
    /// # Panics
    /// As [`Member::start`].
    pub async fn fleet(n: usize, file: &RuleFile) -> Vec<Self> {
        let mut members = Vec::with_capacity(n);
        for _ in 0..n {
            members.push(Self::start(file).await);
        }
        members
    }

    fn spawn(file: &RuleFile, mut command: Command) -> Self {
        // Private, because it may contain the key of a CA.
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        let folder = tempfile::Builder::new().permissions(private).tempdir();
        let folder = folder.expect("the folder for temporary files is writable");
        let (proxy, admin) = (free_address(), free_address());
        let path = folder.path().join("tidegate.yaml");
        std::fs::write(&path, file.render(proxy, admin, folder.path()))
            .expect("a temporary folder is writable");
        let mut child = command
            .arg("--config")
            .arg(&path)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", folder.path())
            .envs(file.roots_file().map(|roots| ("SSL_CERT_FILE", roots)))
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary can be started");
        let log = Arc::default();
        keep(child.stdout.take(), &log);
        keep(child.stderr.take(), &log);
        Self { proxy, admin, child, log, folder }
    }

    /// True once it serves on both ports; false if it ended instead.
    async fn comes_up(&mut self) -> bool {
        let mut up = false;
        wait_until("tidegate serves or ends", START_AT_MOST, async || {
            up = client::try_get_direct(self.admin, "/healthz").await.is_ok()
                && tokio::net::TcpStream::connect(self.proxy).await.is_ok();
            up || self.exit_status().is_some()
        })
        .await;
        up && self.exit_status().is_none()
    }

    /// The proxy's address.
    #[must_use]
    pub fn proxy(&self) -> SocketAddr {
        self.proxy
    }

    /// The proxy's URL: `http://127.0.0.1:PORT`.
    #[must_use]
    pub fn proxy_url(&self) -> String {
        format!("http://{}", self.proxy)
    }

    /// The admin port.
    #[must_use]
    pub fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// Its rule file.
    #[must_use]
    pub fn rule_file(&self) -> PathBuf {
        self.folder.path().join("tidegate.yaml")
    }

    /// The folder that holds its files.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The certificate of its CA, which exists once a rule intercepts.
    #[must_use]
    pub fn ca_file(&self) -> PathBuf {
        self.folder.path().join("ca/ca.pem")
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Overwrites its rule file; the addresses stay.
    ///
    /// # Panics
    /// If the file cannot be written.
    pub fn rewrite(&self, file: &RuleFile) {
        let text = file.render(self.proxy, self.admin, self.folder.path());
        self.rewrite_with(&text);
    }

    /// Overwrites its rule file with exactly this text.
    ///
    /// # Panics
    /// If the file cannot be written.
    pub fn rewrite_with(&self, text: &str) {
        std::fs::write(self.rule_file(), text).expect("a temporary folder is writable");
    }

    /// Its current metrics.
    ///
    /// # Panics
    /// If `/metrics` does not return 200.
    pub async fn metrics(&self) -> Metrics {
        let answer = client::get_direct(self.admin, "/metrics").await;
        assert_eq!(answer.status, 200, "/metrics: {}", answer.text());
        Metrics::parse(&answer.text())
    }

    /// The sum of one metric over the series with these labels.
    ///
    /// # Panics
    /// Like [`Member::metrics`].
    pub async fn metric(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.metrics().await.sum(name, labels)
    }

    /// `GET /api/v1/status`.
    ///
    /// # Panics
    /// If it does not return 200 with JSON.
    pub async fn status(&self) -> serde_json::Value {
        let answer = client::get_direct(self.admin, "/api/v1/status").await;
        assert_eq!(answer.status, 200, "/api/v1/status: {}", answer.text());
        serde_json::from_slice(&answer.body).expect("the status is JSON")
    }

    /// Its events of one kind, oldest first.
    ///
    /// # Panics
    /// If `GET /api/v1/events` does not return 200 with a list.
    pub async fn events(&self, kind: &str) -> Vec<serde_json::Value> {
        let answer = client::get_direct(self.admin, "/api/v1/events").await;
        assert_eq!(answer.status, 200, "/api/v1/events: {}", answer.text());
        let mut all: serde_json::Value =
            serde_json::from_slice(&answer.body).expect("the events are JSON");
        let serde_json::Value::Array(mut events) = all["events"].take() else {
            panic!("not a list: {}", answer.text())
        };
        events.retain(|event| event["event"] == kind);
        events
    }

    /// Its standard output and error so far.
    #[must_use]
    pub fn log(&self) -> String {
        self.log.lock().join("\n")
    }

    /// Stops it (SIGTERM).
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Sends a signal.
    ///
    /// # Panics
    /// If it has ended.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("the process runs");
    }

    /// Freezes it (SIGSTOP). Returns once all its threads are stopped.
    ///
    /// # Panics
    /// If it has ended.
    pub fn freeze(&self) {
        freeze::freeze(&self.child);
    }

    /// Resumes it (SIGCONT).
    ///
    /// # Panics
    /// If it has ended.
    pub fn thaw(&self) {
        freeze::thaw(&self.child);
    }

    /// Kills it (SIGKILL).
    ///
    /// # Panics
    /// If it has ended.
    pub fn kill(&mut self) {
        self.child.kill().expect("the process runs");
        self.child.wait().expect("a killed process can be waited for");
    }

    /// Its exit status, if it has ended.
    ///
    /// # Panics
    /// If the system does not report it.
    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child can be asked for")
    }

    /// Waits for its end and returns the exit code.
    ///
    /// # Panics
    /// If it does not end in time, or is killed by a signal.
    pub async fn exit_code(&mut self, at_most: Duration) -> i32 {
        let mut status = None;
        wait_until("tidegate ends", at_most, async || {
            status = self.exit_status();
            status.is_some()
        })
        .await;
        status.and_then(|status| status.code()).expect("it ends by itself")
    }
}

impl Drop for Member {
    #[allow(clippy::print_stderr, reason = "the log belongs to the report of a failed test")]
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        if std::thread::panicking() {
            eprintln!("--- log of tidegate {} ---\n{}", self.proxy, self.log());
        }
    }
}

/// Keeps the last lines of a process's output.
fn keep(stream: Option<impl Read + Send + 'static>, log: &Arc<Mutex<Vec<String>>>) {
    let Some(stream) = stream else { return };
    let log = Arc::clone(log);
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            let mut log = log.lock();
            if log.len() >= LOG_LINES {
                log.remove(0);
            }
            log.push(line);
        }
    });
}
