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

/// Sends `total` GETs of `url` through `proxies`, from `clients` connections to each, and returns all answers.
///
/// # Panics
/// If one of them gets no whole response.
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

/// Starts `clients` clients of each of `proxies`; each asks for `url` as long as it `goes_on`, with a pause in between.
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

/// Between two requests of a client of a [`Crawl`]: refusals come at once.
const PAUSE: Duration = Duration::from_millis(10);

/// Clients that crawl until they are told to end.
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
        let told = Arc::clone(&ends);
        let goes_on = move || !told.load(Ordering::Relaxed);
        let crawlers = crawlers(proxies, clients, url, PAUSE, goes_on);
        Self { ends, crawlers }
    }

    /// Lets each client finish its request; all answers.
    ///
    /// # Panics
    /// If one of them got no whole response.
    pub async fn end(self) -> Vec<Answer> {
        self.ends.store(true, Ordering::Relaxed);
        self.crawlers.join_all().await.into_iter().flatten().collect()
    }
}

/// How many answers have which status.
#[must_use]
pub fn statuses(answers: &[Answer]) -> BTreeMap<u16, usize> {
    let mut counts = BTreeMap::new();
    for answer in answers {
        *counts.entry(answer.status).or_default() += 1;
    }
    counts
}
