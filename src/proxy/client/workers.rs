//! The threads that serve clients, one per core, each with its own runtime.
//!
//! A client's connection stays on its thread, and so do the connections to sites that were made for that client: the
//! [pool](crate::proxy::upstream::pool) prefers them there. So hardly any step of a request wakes another core. A bare
//! hyper proxy needs a quarter less CPU this way than with tasks that move between cores.

use std::{cell::Cell, io};

use tokio::{
    net::{TcpListener, TcpStream},
    runtime::Handle,
};

use crate::runtime::background::BackgroundRuntime;

thread_local! {
    /// The worker number of this thread; 0 for any other thread.
    static WORKER: Cell<usize> = const { Cell::new(0) };
}

/// The worker number of this thread, less than [`Workers::count`]; 0 if it is not a worker.
pub(crate) fn current() -> usize {
    WORKER.get()
}

/// The worker threads. They end when this is dropped. By default there are none, and the accepting runtime serves the
/// clients.
#[derive(Debug, Default)]
pub struct Workers(Vec<BackgroundRuntime>);

impl Workers {
    /// Starts as many workers as the current runtime has threads.
    #[must_use]
    pub fn start() -> Self {
        let count = Handle::current().metrics().num_workers();
        Self(
            (0..count).map(|n| BackgroundRuntime::start("worker", move || WORKER.set(n))).collect(),
        )
    }

    /// Moves a listener to the worker that accepts. A connection that stays on that worker wakes no other thread.
    ///
    /// # Errors
    /// The system's error, for lack of memory.
    pub fn entrance(&self, listener: TcpListener) -> io::Result<(Handle, TcpListener)> {
        let entrance = self.0.first().map_or_else(Handle::current, |first| first.handle().clone());
        let listener = listener.into_std()?;
        let there = entrance.enter();
        let listener = TcpListener::from_std(listener)?;
        drop(there);
        Ok((entrance, listener))
    }

    /// The runtime with the fewest tasks. Each connection, to a client or to a site, has about one task.
    pub(crate) fn least_busy(&self) -> Handle {
        let tasks = |handle: &&Handle| handle.metrics().num_alive_tasks();
        let least_busy = self.0.iter().map(BackgroundRuntime::handle).min_by_key(tasks);
        least_busy.cloned().unwrap_or_else(Handle::current)
    }
}

/// Moves a connection that was accepted in the current runtime to `runtime`, often the same one.
///
/// # Errors
/// The system's error, for lack of memory.
pub(crate) fn move_to(stream: TcpStream, runtime: &Handle) -> io::Result<TcpStream> {
    if runtime.id() == Handle::current().id() {
        return Ok(stream);
    }
    let stream = stream.into_std()?;
    let _there = runtime.enter();
    TcpStream::from_std(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 3)]
    async fn connections_are_spread_over_the_threads_and_know_where_they_are() {
        let workers = Workers::start();
        let (sender, mut receiver) = tokio::sync::mpsc::channel(12);
        for _ in 0..12 {
            let sender = sender.clone();
            workers.least_busy().spawn(async move {
                sender.send(current()).await.expect("the test listens");
                std::future::pending::<()>().await;
            });
        }
        let mut places = Vec::new();
        for _ in 0..12 {
            places.push(receiver.recv().await.expect("each task sends"));
        }
        places.sort_unstable();
        assert_eq!(places, [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]);
    }

    #[tokio::test]
    async fn without_threads_all_runs_where_it_is_accepted() {
        let here = Handle::current();
        assert_eq!(Workers::default().least_busy().id(), here.id());
    }
}
