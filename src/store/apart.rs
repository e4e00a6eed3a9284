//! A thread of its own for the store's client and the fleet's news. On a machine that is busy on every core, a task waits
//! in line behind hundreds of requests; a thread that mostly sleeps is run at once. What closes a scope must not wait.

use std::future::Future;

use tokio::{
    runtime::{Builder, Handle},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

/// The thread; it ends with this handle.
#[derive(Debug)]
pub(super) struct Apart {
    handle: Handle,
    end: CancellationToken,
}

impl Apart {
    /// Starts it. Where the machine has no thread left, everything runs beside the requests.
    pub(super) fn start() -> Self {
        let end = CancellationToken::new();
        let handle = Self::thread(end.clone()).unwrap_or_else(|error| {
            tracing::warn!(%error, "the store gets no thread of its own");
            Handle::current()
        });
        Self { handle, end }
    }

    fn thread(end: CancellationToken) -> std::io::Result<Handle> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        std::thread::Builder::new()
            .name("store".to_owned())
            .spawn(move || runtime.block_on(end.cancelled()))?;
        Ok(handle)
    }

    /// Runs a task there.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        self.handle.spawn(task)
    }

    /// Ends the thread and what still runs there.
    pub(super) fn end(&self) {
        self.end.cancel();
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        self.end();
    }
}
