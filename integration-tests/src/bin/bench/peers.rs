//! The proxies side by side: how each is started, and the CPU that it uses.

use std::{
    collections::HashMap,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::Context as _;
use integration_tests::{
    member::{Member, RuleFile},
    ports::free_address,
    redis::Redis,
};

/// Length of a tick in `/proc`: 100 a second on every Linux.
const TICK: Duration = Duration::from_millis(10);
/// A rule that never makes anybody wait, with everything that a rule can have.
pub(crate) const FULL: &str = "rate: 1000000/s, burst: 1000000, cooldown: {after: 1000}";

/// A running proxy; it ends with this value.
pub(crate) struct Peer {
    pub(crate) at: SocketAddr,
    running: Running,
}

enum Running {
    Process { process: Process, _folder: tempfile::TempDir },
    Tidegate { member: Box<Member>, _redis: Option<Redis> },
}

/// A child process that ends with its handle.
pub(crate) struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // Asked first: one that has workers tells them.
        if let Ok(pid) = i32::try_from(self.0.id())
            && let Some(pid) = rustix::process::Pid::from_raw(pid)
        {
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).ok();
        }
        drop(self.0.wait());
    }
}

/// All that there are; `tidegate-bare` limits nothing and looks at nothing, `tidegate-blind` does all but look at
/// bodies.
const ALL: [&str; 10] = [
    "floor",
    "floor-aa",
    "tidegate",
    "tidegate-bare",
    "tidegate-blind",
    "tidegate-redis",
    "haproxy",
    "nginx",
    "squid",
    "tinyproxy",
];

/// What can be measured here and is wanted.
pub(crate) fn installed() -> Vec<&'static str> {
    let only = std::env::var("BENCH_ONLY").unwrap_or_default();
    let is_wanted = |name: &str| only.is_empty() || only.split(',').any(|one| one == name);
    let is_here = |name: &str| match name {
        "tidegate-redis" => Redis::is_installed(),
        "haproxy" | "nginx" | "squid" | "tinyproxy" => is_installed(name),
        _ => true,
    };
    ALL.into_iter().filter(|name| is_wanted(name) && is_here(name)).collect()
}

fn is_installed(program: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths).any(|folder| folder.join(program).is_file())
}

/// This very program in another part.
pub(crate) fn this_program(part: &str, at: SocketAddr) -> anyhow::Result<Process> {
    spawn(Command::new(std::env::current_exe()?).arg(part).arg(at.to_string()))
}

fn spawn(command: &mut Command) -> anyhow::Result<Process> {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let child = quiet.spawn().with_context(|| format!("{command:?} cannot be started"))?;
    Ok(Process(child))
}

impl Peer {
    pub(crate) async fn start(name: &str, origin: SocketAddr) -> anyhow::Result<Self> {
        let rule = match name {
            "tidegate-bare" => "action: bypass",
            _ => FULL,
        };
        if name.starts_with("tidegate") {
            let mut file = RuleFile::one_rule(rule);
            if name == "tidegate-blind" {
                file = file.with("inspect: {bytes: 0B, error_bytes: 0B}");
            }
            let redis = (name == "tidegate-redis").then(Redis::start);
            let file = redis.as_ref().map_or(file.clone(), |redis| file.redis(redis));
            return Ok(Self::tidegate(&file, redis).await);
        }
        let (at, folder) = (free_address(), tempfile::tempdir()?);
        let process = match name {
            "haproxy" | "nginx" | "squid" | "tinyproxy" => other(name, at, origin, folder.path())?,
            _ => this_program("floor", at)?,
        };
        Ok(Self { at, running: Running::Process { process, _folder: folder } })
    }

    /// A member with this rule file.
    pub(crate) async fn tidegate(file: &RuleFile, redis: Option<Redis>) -> Self {
        let member = Member::start(&file.clone().with("log: {level: error}")).await;
        let at = member.proxy();
        Self { at, running: Running::Tidegate { member: Box::new(member), _redis: redis } }
    }

    pub(crate) fn pid(&self) -> u32 {
        match &self.running {
            Running::Process { process, .. } => process.0.id(),
            Running::Tidegate { member, .. } => member.pid(),
        }
    }

    /// The certificate of its CA, where it has one.
    pub(crate) fn ca_file(&self) -> Option<PathBuf> {
        match &self.running {
            Running::Process { .. } => None,
            Running::Tidegate { member, .. } => Some(member.ca_file()),
        }
    }
}

/// Two threads or workers where there is the setting; no logs, no cache, connections kept.
fn other(name: &str, at: SocketAddr, origin: SocketAddr, folder: &Path) -> anyhow::Result<Process> {
    let (file, place) = (folder.join("conf"), folder.display());
    let (text, flags): (String, &[&str]) = match name {
        "haproxy" => (
            format!(
                "global\n nbthread 2\ndefaults\n mode http\n timeout connect 5s\n timeout client 60s\n \
                 timeout server 60s\n http-reuse always\nfrontend f\n bind {at}\n default_backend o\n\
                 backend o\n server s {origin}\n"
            ),
            &["-f"],
        ),
        "nginx" => (
            format!(
                "daemon off; pid {place}/pid; error_log {place}/log crit; worker_processes 2;\n\
                 events {{ worker_connections 4096; }}\n\
                 http {{ access_log off; keepalive_requests 1000000000;\n\
                 client_body_temp_path {place}; proxy_temp_path {place}; fastcgi_temp_path {place};\n\
                 uwsgi_temp_path {place}; scgi_temp_path {place};\n\
                 upstream o {{ server {origin}; keepalive 512; keepalive_requests 1000000000; }}\n\
                 server {{ listen {at}; location / {{ proxy_pass http://o; proxy_http_version 1.1;\n\
                 proxy_set_header Connection \"\"; }} }} }}\n"
            ),
            &["-c"],
        ),
        "tinyproxy" => (
            format!(
                "Port {}\nListen {}\nTimeout 60\nMaxClients 600\nLogLevel Critical\n\
                 PidFile \"{place}/pid\"\nLogFile \"{place}/log\"\n",
                at.port(),
                at.ip()
            ),
            &["-d", "-c"],
        ),
        _ => (
            format!(
                "http_port {at}\nhttp_access allow all\ncache deny all\naccess_log none\n\
                 cache_log /dev/null\npid_filename none\ncoredump_dir /\nshutdown_lifetime 0 seconds\n"
            ),
            &["-N", "-f"],
        ),
    };
    std::fs::write(&file, text)?;
    spawn(Command::new(name).args(flags).arg(&file))
}

/// CPU of a process and all its descendants so far, user and system.
pub(crate) fn cpu(root: u32) -> anyhow::Result<Duration> {
    let mut all: HashMap<u32, (u32, u32)> = HashMap::new();
    for entry in std::fs::read_dir("/proc")? {
        let Ok(name) = entry?.file_name().into_string() else { continue };
        let Ok(pid) = name.parse() else { continue };
        // It may have ended since.
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
        // The name in brackets may hold anything; what follows it does not.
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
    let ticks: u32 = all.iter().filter(|(pid, _)| belongs(**pid)).map(|(_, (_, used))| used).sum();
    Ok(TICK * ticks)
}

/// What `/proc` says of a process's memory under this name, in KiB.
pub(crate) fn memory(pid: u32, name: &str) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let value = status.lines().find_map(|line| line.strip_prefix(name));
    let value = value.and_then(|value| value.split_whitespace().next()).context("no such line")?;
    Ok(value.parse()?)
}
