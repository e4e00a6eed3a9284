//! A thread with a runtime of its own.
//!
//! The store's client and the fleet's news have one: on a machine that is busy on every core, a task waits in line
//! behind hundreds of requests, but a thread that mostly sleeps is run at once, and what closes a scope must not wait.
//! The proxy has one for each core, so that a connection and what it talks to never change cores.

use std::future::Future;

use tokio::{
    runtime::{Builder, Handle},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

/// The thread; it ends with this handle.
#[derive(Debug)]
pub struct Apart {
    handle: Handle,
    end: CancellationToken,
}

impl Apart {
    /// Starts a thread of this name, which does `first` before all else. Where the machine has no thread left, what is
    /// spawned there runs in this runtime.
    #[must_use]
    pub fn start(name: &str, first: impl FnOnce() + Send + 'static) -> Self {
        let end = CancellationToken::new();
        let handle = thread(name, first, end.clone()).unwrap_or_else(|error| {
            tracing::warn!(%error, name, "cannot start a thread; its work runs on the shared \
                                          runtime");
            Handle::current()
        });
        Self { handle, end }
    }

    /// Runs a task there.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        self.handle.spawn(task)
    }

    /// Its runtime.
    #[must_use]
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Ends the thread and what still runs there.
    pub fn end(&self) {
        self.end.cancel();
    }
}

fn thread(
    name: &str,
    first: impl FnOnce() + Send + 'static,
    end: CancellationToken,
) -> std::io::Result<Handle> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        first();
        runtime.block_on(end.cancelled());
    })?;
    Ok(handle)
}

impl Drop for Apart {
    fn drop(&mut self) {
        self.end();
    }
}
