//! How the process is told to stop or to reload.
//!
//! The first SIGTERM or SIGINT drains: nothing new is accepted, what is in flight is finished. The second one, of
//! either kind, ends the process at once. SIGHUP asks for a reload.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// What everything that runs listens to.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    /// Cancelled when the drain begins.
    pub drain: CancellationToken,
    /// Cancelled when there is no more waiting.
    pub now: CancellationToken,
}

/// What the process was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// To stop, by the signal of this name.
    Stop(&'static str),
    /// To read the rule file again.
    Reload,
}

/// The signals of the process, from now on (a signal that came before has ended it).
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    /// Takes over SIGTERM, SIGINT and SIGHUP.
    ///
    /// # Errors
    /// Where the system refuses the handlers, or outside a tokio runtime.
    pub fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// The next signal. Loses none when dropped before it is done.
    pub async fn next(&mut self) -> Told {
        tokio::select! {
            _ = self.terminate.recv() => Told::Stop("SIGTERM"),
            _ = self.interrupt.recv() => Told::Stop("SIGINT"),
            _ = self.hang_up.recv() => Told::Reload,
        }
    }
}
