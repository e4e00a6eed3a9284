//! Real clients, configured for a proxy by their usual variables: system commands, and the crawlers
//! of `clients/`, whose libraries `clients/install.sh` installs.

use std::{
    path::{Path, PathBuf},
    process::{Output, Stdio},
    time::Duration,
};

use serde::Deserialize;
use tokio::{
    process::{Child, Command},
    time::timeout,
};

use crate::member::Member;

/// Longest run of a client; then it is killed.
const AT_MOST: Duration = Duration::from_secs(90);

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate is in the workspace")
}

/// A file that `install.sh` puts below `target/`.
fn installed(path: &str) -> PathBuf {
    let path = root().join("target").join(path);
    let fix = "run `make tools`, or `make test-clients` for all clients";
    assert!(path.exists(), "{} is missing: {fix}", path.display());
    path
}

/// The Python interpreter with the packages of `clients/requirements.txt`.
///
/// # Panics
/// If it is not installed (`make test` does it).
#[must_use]
pub fn python() -> PathBuf {
    installed("clients-venv/bin/python")
}

/// A program in `clients/`.
#[must_use]
pub fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("clients").join(name)
}

/// The report of a crawler of `clients/`: one entry per response.
#[derive(Debug, Deserialize)]
pub struct Report {
    /// The statuses.
    pub statuses: Vec<u16>,
    /// `Tidegate-Verdict` of each response.
    pub verdicts: Vec<Option<String>>,
    /// `Tidegate-Refused` of each response.
    pub refused: Vec<Option<String>>,
    /// Why a response is missing.
    pub error: Option<String>,
}

impl Report {
    /// The number of responses with this status.
    #[must_use]
    pub fn count(&self, status: u16) -> usize {
        self.statuses.iter().filter(|s| **s == status).count()
    }

    /// The number of responses with this verdict.
    #[must_use]
    pub fn judged(&self, verdict: &str) -> usize {
        self.verdicts.iter().filter(|v| v.as_deref() == Some(verdict)).count()
    }
}

/// Runs a crawler of `clients/` on `index` through `proxy` (`http://ADDRESS`), with these extra
/// variables.
///
/// # Panics
/// If it is not installed, does not end in time, fails or prints no report.
pub async fn crawl(proxy: &str, name: &str, index: &str, variables: &[(&str, &str)]) -> Report {
    let program = script(name);
    let mut command = match program.extension().and_then(|end| end.to_str()) {
        Some("py") => Command::new(python()),
        Some("sh") => Command::new("bash"),
        Some("cjs") => node(),
        Some("java") => java(proxy),
        _ => Command::new(installed("clients-go/crawl")),
    };
    if program.extension().is_some_and(|end| end != "go") {
        command.arg(&program);
    }
    command.arg(index).envs(variables.iter().copied());
    let output = run(proxy, name, command).await;
    let said = String::from_utf8_lossy(&output.stdout);
    let report = serde_json::from_str(said.trim());
    report.unwrap_or_else(|error| panic!("{name} prints no report: {error}\n{said}"))
}

/// Starts a Scrapy spider with AutoThrottle, which requests `url`, four at a time, until its handle
/// is dropped. `delay` is the least delay; the default first delay is `faster` times shorter.
/// `None` if Scrapy is not installed.
#[must_use]
pub fn throttled_spider(url: &str, delay: Duration, faster: u32) -> Option<Child> {
    let python = root().join("target/clients-venv/bin/python");
    let first = Duration::from_secs(5) / faster;
    let mut command = Command::new(python);
    command.arg(script("spider.py")).arg(url);
    command
        .env("SLOTS", "4")
        .env("AUTOTHROTTLE", "1")
        .env("DELAY", delay.as_secs_f64().to_string());
    command.env("FIRST_DELAY", first.as_secs_f64().to_string());
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"] {
        command.env_remove(name);
    }
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    // Scrapy reports its start at any log level.
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.kill_on_drop(true).spawn().ok()
}

/// The variables that make clients trust these certificates (PEM).
#[must_use]
pub fn trusting(roots: &Path) -> Vec<(&'static str, &str)> {
    let roots = roots.to_str().expect("a plain path");
    ["CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"]
        .map(|name| (name, roots))
        .to_vec()
}

/// Node, with the packages of `clients/package.json`.
fn node() -> Command {
    let mut command = Command::new("node");
    command.env("NODE_PATH", installed("clients-node/node_modules"));
    command
}

/// Java is configured by system properties. By default it does not use a proxy for loopback.
fn java(proxy: &str) -> Command {
    let (host, port) = proxy
        .strip_prefix("http://")
        .and_then(|address| address.rsplit_once(':'))
        .expect("the proxy's URL is http://HOST:PORT");
    let mut command = Command::new("java");
    for scheme in ["http", "https"] {
        command.arg(format!("-D{scheme}.proxyHost={host}"));
        command.arg(format!("-D{scheme}.proxyPort={port}"));
    }
    command.arg("-Dhttp.nonProxyHosts=");
    command
}

/// Runs a client with its proxy variables (`HTTP_PROXY` and the like, in upper and lower case) set
/// to `proxy`, and returns its output.
///
/// # Panics
/// If it cannot be started, takes too long or fails.
pub async fn run_through(proxy: &str, program: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(program);
    command.args(arguments);
    run(proxy, &program.display().to_string(), command).await
}

async fn run(proxy: &str, name: &str, mut command: Command) -> Output {
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"] {
        command.env(name, proxy);
    }
    command.env_remove("NO_PROXY").env_remove("no_proxy").env("PYTHONDONTWRITEBYTECODE", "1");
    finish(name, command).await
}

async fn finish(name: &str, mut command: Command) -> Output {
    command.stdin(Stdio::null()).kill_on_drop(true);
    let output = timeout(AT_MOST, command.output()).await;
    let output = output.expect("the client ends in time").expect("the client is installed");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} failed: {said}");
    output
}

/// Opens the status page of `member` in Chromium, acts like an operator, and returns what the page
/// showed. The program is `clients/status_page.cjs`; `other` is the member that trips the cooldown,
/// and `wall` the URL of a page that blocks.
///
/// # Panics
/// If something on the page does not appear.
pub async fn status_page(
    member: &Member,
    token: &str,
    other: &Member,
    wall: &str,
) -> serde_json::Value {
    let admin = |member: &Member| format!("http://{}/", member.admin());
    let mut command = node();
    command.arg(script("status_page.cjs")).args([&admin(member), token, &admin(other)]);
    command.args([&member.proxy_url(), wall]);
    let output = finish("status_page.cjs", command).await;
    serde_json::from_slice(&output.stdout).expect("it prints JSON")
}

/// Opens the status page of `member` and waits for so many rows and this tone of its health. The
/// program is `clients/fleet_page.cjs`.
///
/// # Panics
/// If they do not appear.
pub async fn fleet_page(member: &Member, rows: usize, tone: &str, name: &str) -> serde_json::Value {
    let mut command = node();
    command.arg(script("fleet_page.cjs")).arg(format!("http://{}/", member.admin()));
    command.args([&rows.to_string(), tone, name]);
    let output = finish("fleet_page.cjs", command).await;
    serde_json::from_slice(&output.stdout).expect("it prints JSON")
}
