//! Many keep-alive clients at once, spread over the members of a fleet.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::task::JoinSet;

use crate::client::{Answer, ProxyClient};

/// Sends `total` GETs of `url` through `proxies`, over `clients` connections to each, and returns
/// all responses.
///
/// # Panics
/// If a response is incomplete.
pub async fn crawl(proxies: &[SocketAddr], clients: usize, url: &str, total: usize) -> Vec<Answer> {
    let left = Arc::new(AtomicUsize::new(total));
    let goes_on = move || take(&left);
    crawlers(proxies, clients, url, Duration::ZERO, goes_on)
        .join_all()
        .await
        .into_iter()
        .flatten()
        .collect()
}

/// Starts `clients` clients for each of `proxies`. Each requests `url` while `goes_on` returns
/// true, with a pause after each response.
fn crawlers(
    proxies: &[SocketAddr],
    clients: usize,
    url: &str,
    pause: Duration,
    goes_on: impl Fn() -> bool + Clone + Send + 'static,
) -> JoinSet<Vec<Answer>> {
    let mut crawlers = JoinSet::new();
    for proxy in proxies.iter().copied().cycle().take(clients * proxies.len()) {
        let (goes_on, url) = (goes_on.clone(), url.to_owned());
        crawlers.spawn(async move {
            let mut client = ProxyClient::connect(proxy).await;
            let mut answers = Vec::new();
            while goes_on() {
                answers.push(client.get(&url).await);
                if !pause.is_zero() {
                    tokio::time::sleep(pause).await;
                }
            }
            answers
        });
    }
    crawlers
}

fn take(left: &AtomicUsize) -> bool {
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
}

/// The pause of a client between two requests, because refusals come at once.
const PAUSE: Duration = Duration::from_millis(10);

/// Clients that crawl until they are stopped.
#[derive(Debug)]
pub struct Crawl {
    ends: Arc<AtomicBool>,
    crawlers: JoinSet<Vec<Answer>>,
}

impl Crawl {
    /// GETs of `url` through `proxies`, over `clients` connections to each.
    #[must_use]
    pub fn start(proxies: &[SocketAddr], clients: usize, url: &str) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&ends);
        let goes_on = move || !ended.load(Ordering::Relaxed);
        let crawlers = crawlers(proxies, clients, url, PAUSE, goes_on);
        Self { ends, crawlers }
    }

    /// Lets each client finish its request, and returns all responses.
    ///
    /// # Panics
    /// If a response was incomplete.
    pub async fn end(self) -> Vec<Answer> {
        self.ends.store(true, Ordering::Relaxed);
        self.crawlers.join_all().await.into_iter().flatten().collect()
    }
}

/// The number of responses by status.
#[must_use]
pub fn statuses(answers: &[Answer]) -> BTreeMap<u16, usize> {
    let mut counts = BTreeMap::new();
    for answer in answers {
        *counts.entry(answer.status).or_default() += 1;
    }
    counts
}
