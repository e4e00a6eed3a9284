//! How many instructions a request costs: a number that no clock and no load of the machine changes, with a bound that
//! fails when it grows by a tenth.
//!
//! Counted by callgrind, user mode only. Compilers differ, so the bound is a ratio to a bare hyper proxy (`bench floor`),
//! which the same compiler has built and the same run has counted. Client and site are threads of this program.
#![allow(clippy::unwrap_used)]

use std::{
    net::{SocketAddr, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use integration_tests::{
    counting::{Asker, PAGE, site},
    member::{RuleFile, binary_path},
    ports::free_address,
    wait::wait_until_blocking,
};
use rustix::process::{Pid, Signal, kill_process};

/// Requests before the count: connections, pools and tables are made then.
const FIRST: usize = 50;
/// Requests that are counted; from one to the next the number hardly differs.
const COUNTED: usize = 100;
/// A start below callgrind takes seconds, and a minute where the machine builds at the same time.
const AT_MOST: Duration = Duration::from_secs(240);
/// Another test program may take a port between our look and the start.
const START_TRIES: usize = 5;

struct Counted {
    child: Child,
    at: SocketAddr,
    folder: tempfile::TempDir,
}

impl Drop for Counted {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Counted {
    /// Starts what `program` makes of an address and a folder.
    fn start(program: impl Fn(SocketAddr, &Path) -> Command) -> Self {
        for _ in 0..START_TRIES {
            let (at, folder) = (free_address(), tempfile::tempdir().unwrap());
            let program = program(at, folder.path());
            let child = Command::new("valgrind")
                .args(["--tool=callgrind", "--instr-atstart=no", "--quiet"])
                .arg(format!("--callgrind-out-file={}/out", folder.path().display()))
                .arg(prefix(folder.path()))
                .arg(program.get_program())
                .args(program.get_args())
                .env("TOKIO_WORKER_THREADS", "1")
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("valgrind is installed (`make tools` does it)");
            let mut started = Self { child, at, folder };
            let mut serves = false;
            wait_until_blocking("a proxy serves or ends", AT_MOST, || {
                serves = TcpStream::connect(at).is_ok();
                serves || started.child.try_wait().unwrap().is_some()
            });
            if serves {
                return started;
            }
        }
        panic!("a proxy does not start below valgrind");
    }

    /// Instructions of one request, on a kept-alive connection.
    fn per_request(mut self, site: SocketAddr) -> f64 {
        let mut client = Asker::connect(self.at, site);
        client.ask(FIRST);
        self.tell("on");
        client.ask(COUNTED);
        self.tell("off");
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        wait_until_blocking("the proxy ends", AT_MOST, || self.child.try_wait().unwrap().is_some());
        let counts = std::fs::read_to_string(self.folder.path().join("out")).unwrap();
        let totals = counts.lines().filter_map(|line| line.strip_prefix("totals: "));
        let all: u64 = totals.map(|total| total.trim().parse::<u64>().unwrap()).sum();
        assert!(all > 0, "nothing was counted");
        #[allow(clippy::cast_precision_loss)]
        let all = all as f64;
        all / COUNTED as f64
    }

    /// Begins or ends the count.
    fn tell(&self, count: &str) {
        let mut vgdb = Command::new("vgdb")
            .arg(format!("--pid={}", self.child.id()))
            .arg(prefix(self.folder.path()))
            .args(["instrumentation", count])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("vgdb comes with valgrind");
        let mut told = None;
        wait_until_blocking("valgrind is told (it must be allowed to ptrace)", AT_MOST, || {
            told = vgdb.try_wait().unwrap();
            told.is_some()
        });
        assert!(told.unwrap().success(), "vgdb cannot tell valgrind to count");
    }
}

/// Where valgrind is spoken to.
fn prefix(folder: &Path) -> String {
    format!("--vgdb-prefix={}/vgdb", folder.display())
}

fn floor(site: SocketAddr) -> f64 {
    let floor = |at: SocketAddr, _: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bench"));
        command.args(["floor", &at.to_string()]);
        command
    };
    Counted::start(floor).per_request(site)
}

fn tidegate(rule: &str, site: SocketAddr) -> f64 {
    let file = RuleFile::one_rule(rule).with("log: {level: error}");
    let tidegate = |at: SocketAddr, folder: &Path| {
        let path = folder.join("tidegate.yaml");
        std::fs::write(&path, file.render(at, free_address(), folder)).unwrap();
        let mut command = Command::new(binary_path());
        command.arg("--config").arg(path);
        command
    };
    Counted::start(tidegate).per_request(site)
}

#[test]
fn a_request_takes_no_more_instructions_than_it_did() {
    const FULL: &str = "rate: 1000000/s, burst: 1000000, cooldown: {after: 1000}";
    // Without optimisation other things cost most than with it.
    let (bare, full) = if cfg!(debug_assertions) { (1.81, 2.83) } else { (1.41, 3.3) };
    let site = site(PAGE);
    let ratios = thread::scope(|scope| {
        let floor = scope.spawn(|| floor(site));
        let kinds = [("nothing limited", "action: bypass", bare), ("limited, a page", FULL, full)];
        let counts = kinds
            .map(|(what, rule, bound)| (what, bound, scope.spawn(move || tidegate(rule, site))));
        let floor = floor.join().unwrap();
        counts.map(|(what, bound, count)| (what, bound, count.join().unwrap() / floor))
    });
    let grown: Vec<String> = ratios
        .into_iter()
        .filter(|(_, bound, ratio)| *ratio > bound * 1.1)
        .map(|(what, bound, ratio)| {
            format!("{what}: {ratio:.2} times a bare proxy's instructions, not {bound}")
        })
        .collect();
    assert!(grown.is_empty(), "{}", grown.join("\n"));
}
