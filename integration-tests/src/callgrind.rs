//! A proxy below callgrind: how many instructions a request takes, user mode only.
//!
//! Counted from one moment to another, so that its start and what is made once stay out. One worker thread, or the count
//! would change from run to run.

use std::{
    net::{SocketAddr, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{ports::free_address, wait::wait_until_blocking};

/// A start below callgrind takes seconds, and a minute where the machine builds at the same time.
const AT_MOST: Duration = Duration::from_secs(240);
/// Another test program may take a port between our look and the start.
const START_TRIES: usize = 5;

/// A program below callgrind; it ends with this handle.
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
    /// Starts what `program` makes of an address and a folder, and waits until it listens there.
    ///
    /// # Panics
    /// If it does not, or valgrind is missing.
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

    /// Where it listens.
    #[must_use]
    pub fn at(&self) -> SocketAddr {
        self.at
    }

    /// Instructions while `work` is done; then it is asked to end.
    ///
    /// # Panics
    /// If valgrind cannot be told to count, or counted nothing.
    pub fn during(mut self, work: impl FnOnce()) -> u64 {
        self.tell("on");
        work();
        self.tell("off");
        kill_process(Pid::from_child(&self.child), Signal::TERM).expect("it runs");
        wait_until_blocking("the proxy ends", AT_MOST, || self.has_ended());
        let counts = self.folder.path().join("out");
        let counts = std::fs::read_to_string(counts).expect("callgrind writes at its end");
        let totals = counts.lines().filter_map(|line| line.strip_prefix("totals: "));
        let all = totals.map(|total| total.trim().parse::<u64>().expect("a number")).sum();
        assert!(all > 0, "nothing was counted");
        all
    }

    fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("it is a child").is_some()
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
            told = vgdb.try_wait().expect("it is a child");
            told.is_some()
        });
        let told = told.is_some_and(|status| status.success());
        assert!(told, "vgdb cannot tell valgrind to count");
    }
}

/// Where valgrind is spoken to.
fn prefix(folder: &Path) -> String {
    format!("--vgdb-prefix={}/vgdb", folder.display())
}
