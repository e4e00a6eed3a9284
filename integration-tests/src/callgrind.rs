//! A proxy under callgrind, to count the instructions of a request in user mode.
//!
//! The count covers only the work between two points, without the start of the process. There is
//! one worker thread, because more would make the count vary.

use std::{
    net::{SocketAddr, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{ports::free_address, wait::wait_until_blocking};

/// A start under callgrind takes seconds, and up to a minute on a busy machine.
const AT_MOST: Duration = Duration::from_secs(240);
/// Another test program may take the port between the check and the start.
const START_TRIES: usize = 5;

/// A program under callgrind; it ends with this handle.
#[derive(Debug)]
pub struct Counted {
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
    /// Starts the command that `program` makes from an address and a folder, and waits until it
    /// listens there.
    ///
    /// # Panics
    /// If it does not listen in time, or valgrind is missing.
    #[must_use]
    pub fn start(program: impl Fn(SocketAddr, &Path) -> Command) -> Self {
        for _ in 0..START_TRIES {
            let (at, folder) = (free_address(), tempfile::tempdir().expect("a folder"));
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
                serves || started.has_ended()
            });
            if serves {
                return started;
            }
        }
        panic!("a proxy does not start below valgrind");
    }

    /// The address that it listens on.
    #[must_use]
    pub fn at(&self) -> SocketAddr {
        self.at
    }

    /// The instructions during `work`. The program is terminated afterwards.
    ///
    /// # Panics
    /// If valgrind cannot switch the count, or counted nothing.
    pub fn during(self, work: impl FnOnce()) -> u64 {
        self.control(&["instrumentation", "on"]);
        work();
        self.control(&["instrumentation", "off"]);
        self.end()
    }

    /// The least number of instructions of `times` rounds of `work`. The program is terminated afterwards.
    ///
    /// # Panics
    /// If valgrind cannot write its counts, or counted nothing.
    pub fn least_of(self, times: usize, mut work: impl FnMut()) -> u64 {
        self.control(&["instrumentation", "on"]);
        for _ in 0..times {
            work();
            self.control(&["dump"]);
        }
        let counts = (1..=times).map(|round| self.total(&format!("out.{round}")));
        counts.min().expect("a round")
    }

    /// Ends the program and returns the count that it leaves.
    fn end(mut self) -> u64 {
        kill_process(Pid::from_child(&self.child), Signal::TERM).expect("it runs");
        wait_until_blocking("the proxy ends", AT_MOST, || self.has_ended());
        self.total("out")
    }

    /// The count in one file of callgrind's.
    fn total(&self, file: &str) -> u64 {
        let counts = self.folder.path().join(file);
        let counts = std::fs::read_to_string(counts).expect("callgrind has written it");
        let totals = counts.lines().filter_map(|line| line.strip_prefix("totals: "));
        let all = totals.map(|total| total.trim().parse::<u64>().expect("a number")).sum();
        assert!(all > 0, "nothing was counted");
        all
    }

    fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("it is a child").is_some()
    }

    /// Sends valgrind a command.
    fn control(&self, command: &[&str]) {
        let mut vgdb = Command::new("vgdb")
            .arg(format!("--pid={}", self.child.id()))
            .arg(prefix(self.folder.path()))
            .args(command)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("vgdb comes with valgrind");
        let mut accepted = None;
        wait_until_blocking(
            "valgrind accepts the command (it needs the ptrace permission)",
            AT_MOST,
            || {
                accepted = vgdb.try_wait().expect("it is a child");
                accepted.is_some()
            },
        );
        let accepted = accepted.is_some_and(|status| status.success());
        assert!(accepted, "vgdb cannot control valgrind");
    }
}

/// The path prefix of valgrind's control socket.
fn prefix(folder: &Path) -> String {
    format!("--vgdb-prefix={}/vgdb", folder.display())
}
