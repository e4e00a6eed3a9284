//! Workers of a crawl in real time, and their pace: unlimited, a limiter in each worker, or a
//! bucket in Redis.

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

use super::bucket::Bucket;

/// Concurrent requests.
const SLOTS: usize = 12;
/// Workers, or members of a fleet, which share them.
const WORKERS: usize = 3;
/// The same as a number to divide rates by.
pub(crate) const SHARES: f64 = 3.0;
/// The pause of a limiter after three blocks in a row.
const REST: Duration = Duration::from_secs(30);
/// The pause before a failed connection is retried.
const AGAIN: Duration = Duration::from_millis(100);

/// A worker's own limiter. It only knows the blocks that its worker has seen.
#[derive(Debug)]
pub(crate) struct Limiter {
    gap: Duration,
    rest: Duration,
    next: Instant,
    streak: u32,
}

impl Limiter {
    /// One worker's share of this many requests per second.
    fn new(rate: f64, faster: u32) -> Self {
        let gap = Duration::from_secs(1).mul_f64(SHARES / rate);
        Self { gap, rest: REST / faster, next: Instant::now(), streak: 0 }
    }

    /// The time of the next request.
    fn take(&mut self) -> Instant {
        let at = self.next.max(Instant::now());
        self.next = at + self.gap;
        at
    }

    fn report(&mut self, good: bool) {
        self.streak = if good { 0 } else { self.streak + 1 };
        if self.streak >= 3 {
            self.streak = 0;
            self.next = Instant::now() + self.rest;
        }
    }
}

/// Sets the pace of a worker without a proxy.
#[derive(Debug, Clone)]
pub(crate) enum Pacer {
    /// Its own limiter.
    Own(Arc<Mutex<Limiter>>),
    /// The bucket that it shares with the others.
    Shared(Arc<Bucket>),
}

impl Pacer {
    /// A limiter for each worker, with a total of this many requests per second.
    pub(crate) fn own(rate: f64, faster: u32) -> Vec<Self> {
        let limiter = || Arc::new(Mutex::new(Limiter::new(rate, faster)));
        (0..WORKERS).map(|_| Self::Own(limiter())).collect()
    }

    /// A connection for each worker to a bucket with this many requests per second.
    pub(crate) async fn shared(
        redis: SocketAddr,
        name: &str,
        rate: f64,
    ) -> std::io::Result<Vec<Self>> {
        let mut pacers = Vec::new();
        for _ in 0..WORKERS {
            pacers.push(Self::Shared(Arc::new(Bucket::connect(redis, name, rate).await?)));
        }
        Ok(pacers)
    }

    /// Waits for the next request's time.
    async fn turn(&self) {
        match self {
            Self::Own(limiter) => {
                let at = limiter.lock().take();
                sleep_until(at.into()).await;
            }
            Self::Shared(bucket) => sleep(bucket.take().await.unwrap_or(AGAIN)).await,
        }
    }

    fn report(&self, good: bool) {
        if let Self::Own(limiter) = self {
            limiter.lock().report(good);
        }
    }
}

/// Workers that request `url` until they are dropped. Proxies and pacers (none, or one each) are
/// assigned in turn.
pub(crate) fn start(
    workers: &mut JoinSet<()>,
    proxies: &[SocketAddr],
    url: &str,
    pacers: &[Pacer],
) {
    for slot in 0..SLOTS {
        let proxy = proxies[slot % proxies.len()];
        let pacer = pacers.get(slot % WORKERS).cloned();
        workers.spawn(crawl(proxy, url.to_owned(), pacer));
    }
}

async fn crawl(proxy: SocketAddr, url: String, pacer: Option<Pacer>) {
    loop {
        let Ok(mut client) = ProxyClient::try_connect(proxy).await else {
            sleep(AGAIN).await;
            continue;
        };
        loop {
            if let Some(pacer) = &pacer {
                pacer.turn().await;
            }
            // If a hold lasts longer than the client's timeout, the client reconnects.
            let Ok(answer) = client.send(get_request(&url)).await else { break };
            if let Some(pacer) = &pacer {
                pacer.report(answer.status == 200);
            }
            if answer.refused().is_some() {
                sleep(AGAIN).await;
            }
        }
    }
}
