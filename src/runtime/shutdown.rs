//! The signals that stop or reload the process.
//!
//! The first SIGTERM or SIGINT drains: the process accepts nothing more and finishes the requests
//! in flight. The second one, of either kind, ends the process at once. SIGHUP reloads the rule
//! file.

use std::io;

use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
};

/// Signals that may wait. More of them would change nothing.
const WAITING: usize = 8;

/// A signal to the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// Stop; the name of the signal.
    Stop(&'static str),
    /// Read the rule file again.
    Reload,
}

/// The signals of the process from now on, until the receiver is dropped.
///
/// # Errors
/// The system refuses the handlers. Needs a tokio runtime.
pub fn signals() -> io::Result<mpsc::Receiver<Signal>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    let (sender, signals) = mpsc::channel(WAITING);
    tokio::spawn(async move {
        loop {
            let signal = tokio::select! {
                _ = terminate.recv() => Signal::Stop("SIGTERM"),
                _ = interrupt.recv() => Signal::Stop("SIGINT"),
                _ = hang_up.recv() => Signal::Reload,
            };
            if sender.send(signal).await.is_err() {
                break;
            }
        }
    });
    Ok(signals)
}
