//! Notifies systemd about a `Type=notify` service: ready, stopping, and the watchdog's keep-alive (`sd_notify(3)`).
//!
//! Nothing happens where no `NOTIFY_SOCKET` is set.

use std::{
    env, io,
    os::{
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixDatagram},
    },
    time::Duration,
};

/// Where systemd listens.
#[derive(Debug)]
pub struct Notify(Option<UnixDatagram>);

impl Notify {
    /// As the environment says.
    #[must_use]
    pub fn of_process() -> Self {
        let Ok(name) = env::var("NOTIFY_SOCKET") else { return Self(None) };
        match connect(&name) {
            Ok(socket) => Self(Some(socket)),
            Err(error) => {
                tracing::warn!(%error, name, "NOTIFY_SOCKET cannot be used");
                Self(None)
            }
        }
    }

    /// Requests are served from now on.
    pub fn ready(&self) {
        self.send("READY=1\n");
    }

    /// The process has been told to stop.
    pub fn stopping(&self) {
        self.send("STOPPING=1\n");
    }

    /// Says twice in each `WatchdogSec=` that the process lives, for as long as it is polled; returns at once where
    /// there is no watchdog.
    pub async fn watch(&self) {
        let Some(interval) = watchdog() else { return };
        let mut beat = tokio::time::interval(interval / 2);
        loop {
            beat.tick().await;
            self.send("WATCHDOG=1\n");
        }
    }

    fn send(&self, text: &str) {
        let Some(socket) = &self.0 else { return };
        if let Err(error) = socket.send(text.as_bytes()) {
            tracing::warn!(%error, "systemd does not listen");
        }
    }
}

/// A name that begins with `@` is an abstract one.
fn connect(name: &str) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    // A full queue must not hold up the runtime.
    socket.set_nonblocking(true)?;
    let address = match name.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(name)?,
    };
    socket.connect_addr(&address)?;
    Ok(socket)
}

/// `WATCHDOG_USEC`, if it is meant for this process.
fn watchdog() -> Option<Duration> {
    let read = |name: &str| env::var(name).ok()?.parse::<u64>().ok();
    let is_ours = read("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
    let every = read("WATCHDOG_USEC").filter(|every| is_ours && *every > 0)?;
    Some(Duration::from_micros(every))
}
