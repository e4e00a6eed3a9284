//! The compared proxies, and how each is started.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::Context as _;
use integration_tests::{
    member::{Member, RuleFile, binary_path},
    ports::free_address,
    redis::Redis,
};

/// A rule with every feature that never holds a request.
pub(crate) const FULL: &str = "rate: 1000000/s, burst: 1000000, cooldown: {after: 1000}";

/// Enough for all connections of a load, which come from one client.
pub(crate) const ROOMY: &str = "limits: {connections: 20000, per_client: 20000}";

/// A running proxy; it ends with this value.
pub(crate) struct Peer {
    pub(crate) at: SocketAddr,
    running: Running,
}

enum Running {
    Process { process: Process, folder: tempfile::TempDir, redis: Option<Redis> },
    Tidegate { member: Box<Member>, redis: Option<Redis> },
}

/// A child process that ends with its handle.
pub(crate) struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // SIGTERM first, because a proxy with workers stops them.
        if let Ok(pid) = i32::try_from(self.0.id())
            && let Some(pid) = rustix::process::Pid::from_raw(pid)
        {
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).ok();
        }
        drop(self.0.wait());
    }
}

/// All that there are; `floor-redis` calls a script for each request, `tidegate-bare` limits nothing and looks at
/// nothing, `tidegate-blind` does all but look at bodies, `tidegate-static` is the program of `make static`.
const ALL: [&str; 12] = [
    "floor",
    "floor-aa",
    "floor-redis",
    "tidegate",
    "tidegate-bare",
    "tidegate-blind",
    "tidegate-redis",
    "tidegate-static",
    "haproxy",
    "nginx",
    "squid",
    "tinyproxy",
];

/// The proxies that are installed and selected.
pub(crate) fn installed() -> Vec<&'static str> {
    let only = std::env::var("BENCH_ONLY").unwrap_or_default();
    let is_wanted = |name: &str| only.is_empty() || only.split(',').any(|one| one == name);
    let is_here = |name: &str| match name {
        "tidegate-redis" | "floor-redis" => Redis::is_installed(),
        "haproxy" | "nginx" | "squid" | "tinyproxy" => is_installed(name),
        "tidegate-static" => static_program().is_ok_and(|program| program.is_file()),
        _ => true,
    };
    ALL.into_iter().filter(|name| is_wanted(name) && is_here(name)).collect()
}

fn is_installed(program: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths).any(|folder| folder.join(program).is_file())
}

/// The program of `make static`, in the profile of this one.
fn static_program() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe()?;
    let profile = own.parent().context("a program is in a folder")?;
    let (target, name) = (profile.parent(), profile.file_name());
    let (target, name) = target.zip(name).context("the folder is cargo's")?;
    let triple = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    Ok(target.join(triple).join(name).join("tidegate"))
}

/// This program in another role.
pub(crate) fn this_program(part: &str, at: SocketAddr) -> anyhow::Result<Process> {
    own(&[part, &at.to_string()])
}

fn own(arguments: &[&str]) -> anyhow::Result<Process> {
    spawn(Command::new(std::env::current_exe()?).args(arguments))
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
            let program = match name {
                "tidegate-static" => static_program()?,
                _ => binary_path().to_owned(),
            };
            return Ok(Self::start_member(&program, &file, redis).await);
        }
        let (at, folder) = (free_address(), tempfile::tempdir()?);
        let redis = (name == "floor-redis").then(Redis::start);
        let process = match (name, &redis) {
            ("haproxy" | "nginx" | "squid" | "tinyproxy", _) => {
                other(name, at, origin, folder.path())?
            }
            (_, Some(redis)) => {
                own(&["floor", &at.to_string(), "redis", &redis.address().to_string()])?
            }
            (_, None) => this_program("floor", at)?,
        };
        Ok(Self { at, running: Running::Process { process, folder, redis } })
    }

    /// The intercepting floor, which trusts this root.
    pub(crate) fn intercepting(root: &Path) -> anyhow::Result<Self> {
        let (at, folder) = (free_address(), tempfile::tempdir()?);
        let (root, ca) = (root.display().to_string(), ca_file(folder.path()).display().to_string());
        let process = own(&["floor", &at.to_string(), "intercept", &root, &ca])?;
        Ok(Self { at, running: Running::Process { process, folder, redis: None } })
    }

    /// A member with this rule file.
    pub(crate) async fn tidegate(file: &RuleFile, redis: Option<Redis>) -> Self {
        Self::start_member(binary_path(), file, redis).await
    }

    async fn start_member(program: &Path, file: &RuleFile, redis: Option<Redis>) -> Self {
        let file = file.clone().with("log: {level: error}");
        let member = Member::start_program(program, &file).await;
        let at = member.proxy();
        Self { at, running: Running::Tidegate { member: Box::new(member), redis } }
    }

    pub(crate) fn pid(&self) -> u32 {
        match &self.running {
            Running::Process { process, .. } => process.0.id(),
            Running::Tidegate { member, .. } => member.pid(),
        }
    }

    /// The process id of its Redis, if it has one.
    pub(crate) fn redis_pid(&self) -> Option<u32> {
        match &self.running {
            Running::Process { redis, .. } | Running::Tidegate { redis, .. } => {
                redis.as_ref()?.pid()
            }
        }
    }

    /// The member, if it is one.
    pub(crate) fn member(&self) -> Option<&Member> {
        match &self.running {
            Running::Process { .. } => None,
            Running::Tidegate { member, .. } => Some(member),
        }
    }

    /// The certificate of its CA, if it intercepts.
    pub(crate) fn ca_file(&self) -> PathBuf {
        match &self.running {
            Running::Process { folder, .. } => ca_file(folder.path()),
            Running::Tidegate { member, .. } => member.ca_file(),
        }
    }
}

/// The file to which an intercepting floor writes its certificate.
fn ca_file(folder: &Path) -> PathBuf {
    folder.join("ca.pem")
}

/// Starts another proxy: with two threads or workers if possible, no logs, no cache, and kept-alive
/// connections.
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
