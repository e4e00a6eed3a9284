//! Workers of a crawl in real time, and the limiter that each may have of its own.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use integration_tests::client::{ProxyClient, get_request};
use parking_lot::Mutex;
use tokio::{
    task::JoinSet,
    time::{sleep, sleep_until},
};

/// Requests at a time.
const SLOTS: usize = 12;
/// Workers, or members of a fleet, among which they are dealt out.
const WORKERS: usize = 3;
/// The same as a number to divide rates by.
pub(crate) const SHARES: f64 = 3.0;
/// What a limiter rests after three blocks in a row.
const REST: Duration = Duration::from_secs(30);
/// Before a connection that failed is tried again.
const AGAIN: Duration = Duration::from_millis(100);

/// A worker's own limiter; it knows only the blocks that its worker has seen.
#[derive(Debug)]
pub(crate) struct Limiter {
    gap: Duration,
    rest: Duration,
    next: Instant,
    streak: u32,
}

impl Limiter {
    /// One for each worker, which share this many requests per second.
    pub(crate) fn each(rate: f64, faster: u32) -> Vec<Arc<Mutex<Self>>> {
        let gap = Duration::from_secs(1).mul_f64(SHARES / rate);
        let new = || Self { gap, rest: REST / faster, next: Instant::now(), streak: 0 };
        (0..WORKERS).map(|_| Arc::new(Mutex::new(new()))).collect()
    }

    /// When the next request may go.
    fn take(&mut self) -> Instant {
        let at = self.next.max(Instant::now());
        self.next = at + self.gap;
        at
    }

    fn hear(&mut self, good: bool) {
        self.streak = if good { 0 } else { self.streak + 1 };
        if self.streak >= 3 {
            self.streak = 0;
            self.next = Instant::now() + self.rest;
        }
    }
}

/// Workers that ask for `url` until they are dropped; proxies and limiters (none, or one each) take turns.
pub(crate) fn start(
    workers: &mut JoinSet<()>,
    proxies: &[SocketAddr],
    url: &str,
    limiters: &[Arc<Mutex<Limiter>>],
) {
    for slot in 0..SLOTS {
        let proxy = proxies[slot % proxies.len()];
        let limiter = limiters.get(slot % WORKERS).cloned();
        workers.spawn(crawl(proxy, url.to_owned(), limiter));
    }
}

async fn crawl(proxy: SocketAddr, url: String, limiter: Option<Arc<Mutex<Limiter>>>) {
    loop {
        let Ok(mut client) = ProxyClient::try_connect(proxy).await else {
            sleep(AGAIN).await;
            continue;
        };
        loop {
            if let Some(limiter) = &limiter {
                let at = limiter.lock().take();
                sleep_until(at.into()).await;
            }
            // A hold that outlasts the client's patience, too, ends in a new connection.
            let Ok(answer) = client.send(get_request(&url)).await else { break };
            if let Some(limiter) = &limiter {
                limiter.lock().hear(answer.status == 200);
            }
            if answer.refused().is_some() {
                sleep(AGAIN).await;
            }
        }
    }
}
