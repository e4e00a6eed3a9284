//! Many keep-alive clients at once, spread over the members of a fleet.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::task::JoinSet;

use crate::client::{Answer, ProxyClient};

/// Sends `total` GETs of `url` through `proxies`, from `clients` connections to each, and returns all answers.
///
/// # Panics
/// If one of them gets no whole response.
pub async fn crawl(proxies: &[SocketAddr], clients: usize, url: &str, total: usize) -> Vec<Answer> {
    let left = Arc::new(AtomicUsize::new(total));
    let mut crawlers = JoinSet::new();
    for proxy in proxies.iter().copied().cycle().take(clients * proxies.len()) {
        let (left, url) = (Arc::clone(&left), url.to_owned());
        crawlers.spawn(async move {
            let mut client = ProxyClient::connect(proxy).await;
            let mut answers = Vec::new();
            while take(&left) {
                answers.push(client.get(&url).await);
            }
            answers
        });
    }
    crawlers.join_all().await.into_iter().flatten().collect()
}

fn take(left: &AtomicUsize) -> bool {
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
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
