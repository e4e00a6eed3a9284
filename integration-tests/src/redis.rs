//! A private `redis-server` on loopback, without persistence, in its own folder. It can be killed,
//! stopped and restarted.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    process::{Child, Command, Stdio},
    time::Duration,
};

use crate::{freeze, ports::free_address, wait::wait_until_blocking};

/// A start takes milliseconds, but seconds on a busy machine.
const START_AT_MOST: Duration = Duration::from_secs(10);
/// Another test program may take the port between the check and the start.
const START_TRIES: usize = 5;

/// A server, running or killed; it ends with this handle.
#[derive(Debug)]
pub struct Redis {
    address: SocketAddr,
    child: Option<Child>,
    folder: tempfile::TempDir,
    options: Vec<String>,
}

impl Redis {
    /// Whether a `redis-server` is installed.
    #[must_use]
    pub fn is_installed() -> bool {
        let version = Command::new("redis-server").arg("--version").stdout(Stdio::null()).status();
        version.is_ok_and(|status| status.success())
    }

    /// Starts one on a free port.
    ///
    /// # Panics
    /// If `redis-server` is missing (`make test` installs it) or does not start.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts one with additional options of the server (`--maxmemory`, `1mb`, ...).
    ///
    /// # Panics
    /// Like [`Redis::start`].
    #[must_use]
    pub fn start_with(options: &[&str]) -> Self {
        assert!(Self::is_installed(), "redis-server is missing; `make test` installs it");
        let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
        for _ in 0..START_TRIES {
            let folder = tempfile::tempdir().expect("the folder for temporary files is writable");
            let mut redis =
                Self { address: free_address(), child: None, folder, options: options.clone() };
            if redis.spawn() {
                return redis;
            }
        }
        panic!("redis-server did not come up in {START_TRIES} tries");
    }

    /// Starts the process and waits for its first reply; false if it ended instead.
    fn spawn(&mut self) -> bool {
        let port = self.address.port().to_string();
        let mut command = Command::new("redis-server");
        command
            .args(["--bind", "127.0.0.1", "--port", &port, "--save", "", "--appendonly", "no"])
            .args(["--enable-debug-command", "local", "--daemonize", "no"])
            .args(&self.options)
            .current_dir(self.folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut child = command.spawn().expect("redis-server is installed");
        let mut up = false;
        wait_until_blocking("redis-server answers or ends", START_AT_MOST, || {
            up = self.answers();
            up || child.try_wait().is_ok_and(|status| status.is_some())
        });
        // If our server ended, another server on the same port has replied.
        up = up && child.try_wait().is_ok_and(|status| status.is_none());
        self.child = Some(child);
        up
    }

    fn answers(&self) -> bool {
        self.try_command(&["PING"]).is_ok_and(|reply| !reply.is_empty())
    }

    /// Its address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its process id, if it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// `redis://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Sends one command and returns the raw reply (RESP), up to 64 KiB.
    ///
    /// # Panics
    /// If the server does not reply.
    pub fn command(&self, words: &[&str]) -> String {
        self.try_command(words).expect("redis-server answers")
    }

    /// Like [`Redis::command`], after sending the password.
    ///
    /// # Panics
    /// Like [`Redis::command`].
    pub fn command_as(&self, password: &str, words: &[&str]) -> String {
        let mut stream = TcpStream::connect(self.address).expect("redis-server accepts");
        let greeted = exchange(&mut stream, &["AUTH", password]).expect("redis-server answers");
        assert_eq!(greeted, "+OK\r\n");
        exchange(&mut stream, words).expect("redis-server answers")
    }

    /// Sends one command without waiting for its reply. The reply would arrive on the returned
    /// connection.
    ///
    /// # Panics
    /// If the server does not accept it.
    #[must_use]
    pub fn start_command(&self, words: &[&str]) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).expect("redis-server accepts");
        stream.write_all(resp(words).as_bytes()).expect("redis-server reads");
        stream
    }

    /// Whether the reply to a command contains `part`. False without a reply: a Sentinel that
    /// promotes a replica closes all of its connections.
    #[must_use]
    pub fn says(&self, words: &[&str], part: &str) -> bool {
        self.try_command(words).is_ok_and(|reply| reply.contains(part))
    }

    fn try_command(&self, words: &[&str]) -> std::io::Result<String> {
        exchange(&mut TcpStream::connect(self.address)?, words)
    }

    /// Kills it (SIGKILL); all its data is lost.
    ///
    /// # Panics
    /// If it is not running.
    pub fn kill(&mut self) {
        let mut child = self.child.take().expect("it runs");
        child.kill().expect("it runs");
        child.wait().expect("a killed process can be waited for");
    }

    /// Restarts it, empty, on the same port.
    ///
    /// # Panics
    /// If it still runs or does not start.
    pub fn restart(&mut self) {
        assert!(self.child.is_none(), "it still runs");
        assert!(self.spawn(), "redis-server comes back on {}", self.address);
    }

    /// Freezes it (SIGSTOP): connections stay open, but nothing replies.
    pub fn freeze(&self) {
        freeze::freeze(self.child.as_ref().expect("it runs"));
    }

    /// Resumes it (SIGCONT).
    pub fn thaw(&self) {
        freeze::thaw(self.child.as_ref().expect("it runs"));
    }
}

/// A command in the Redis protocol (RESP).
#[must_use]
pub fn resp(words: &[&str]) -> String {
    let mut request = format!("*{}\r\n", words.len());
    for word in words {
        request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    request
}

fn exchange(stream: &mut TcpStream, words: &[&str]) -> std::io::Result<String> {
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    stream.write_all(resp(words).as_bytes())?;
    let mut reply = vec![0; 64 * 1024];
    let read = stream.read(&mut reply)?;
    Ok(String::from_utf8_lossy(&reply[..read]).into_owned())
}

impl Drop for Redis {
    fn drop(&mut self) {
        if self.child.is_some() {
            self.kill();
        }
    }
}
