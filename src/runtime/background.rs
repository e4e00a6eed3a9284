//! A thread with its own runtime.
//!
//! The store's client and the fleet's news have one, because on a busy machine a task waits behind
//! hundreds of requests, while the kernel runs a mostly idle thread at once, and news that close a
//! scope must not wait. The proxy has one per core, so that a connection never changes cores.

use std::future::Future;

use tokio::{
    runtime::{Builder, Handle},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

/// The thread; it ends with this handle.
#[derive(Debug)]
pub struct BackgroundRuntime {
    handle: Handle,
    end: CancellationToken,
}

impl BackgroundRuntime {
    /// Starts a thread of this name, which runs `first` before anything else. If no thread can be
    /// started, tasks run in the current runtime.
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

    /// Runs a task on the thread.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        self.handle.spawn(task)
    }

    /// Its runtime.
    #[must_use]
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Ends the thread and its tasks.
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

impl Drop for BackgroundRuntime {
    fn drop(&mut self) {
        self.end();
    }
}
