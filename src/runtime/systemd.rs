//! Notifies systemd about a `Type=notify` service: ready, stopping, and the watchdog's keep-alive (`sd_notify(3)`).
//!
//! Without `NOTIFY_SOCKET` nothing happens.

use std::{
    env, io,
    os::{
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixDatagram},
    },
    time::Duration,
};

/// systemd's socket, if there is one.
#[derive(Debug)]
pub struct Notify(Option<UnixDatagram>);

impl Notify {
    /// From the environment.
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

    /// Reports that requests are served.
    pub fn ready(&self) {
        self.send("READY=1\n");
    }

    /// Reports that the process stops.
    pub fn stopping(&self) {
        self.send("STOPPING=1\n");
    }

    /// Sends two keep-alives per `WatchdogSec=`, for as long as it is polled. Returns at once
    /// without a watchdog.
    pub async fn watch(&self) {
        let Some(interval) = watchdog() else { return };
        let mut ticks = tokio::time::interval(interval / 2);
        loop {
            ticks.tick().await;
            self.send("WATCHDOG=1\n");
        }
    }

    fn send(&self, text: &str) {
        let Some(socket) = &self.0 else { return };
        if let Err(error) = socket.send(text.as_bytes()) {
            tracing::warn!(%error, "systemd does not receive notifications");
        }
    }
}

/// A name that begins with `@` is in the abstract namespace.
fn connect(name: &str) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    // A full queue must not block the runtime.
    socket.set_nonblocking(true)?;
    let address = match name.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(name)?,
    };
    socket.connect_addr(&address)?;
    Ok(socket)
}

/// `WATCHDOG_USEC`, if it applies to this process.
fn watchdog() -> Option<Duration> {
    let read = |name: &str| env::var(name).ok()?.parse::<u64>().ok();
    let is_ours = read("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
    let every = read("WATCHDOG_USEC").filter(|every| is_ours && *every > 0)?;
    Some(Duration::from_micros(every))
}
