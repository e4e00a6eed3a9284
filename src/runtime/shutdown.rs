//! The signals that stop or reload the process.
//!
//! The first SIGTERM or SIGINT drains: nothing new is accepted, what is in flight is finished. The second one, of
//! either kind, ends the process at once. SIGHUP asks for a reload.

use std::io;

use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
};

/// Signals that may wait; more of them would say nothing new.
const WAITING: usize = 8;

/// What the process was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// To stop, by the signal of this name.
    Stop(&'static str),
    /// To read the rule file again.
    Reload,
}

/// The signals of the process from now on, for as long as the receiver lives.
///
/// # Errors
/// Where the system refuses the handlers. Needs a tokio runtime.
pub fn signals() -> io::Result<mpsc::Receiver<Told>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    let (sender, told) = mpsc::channel(WAITING);
    tokio::spawn(async move {
        loop {
            let what = tokio::select! {
                _ = terminate.recv() => Told::Stop("SIGTERM"),
                _ = interrupt.recv() => Told::Stop("SIGINT"),
                _ = hang_up.recv() => Told::Reload,
            };
            if sender.send(what).await.is_err() {
                break;
            }
        }
    });
    Ok(told)
}
