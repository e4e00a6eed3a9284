//! One rule with 30,000 hosts on one Redis and on a Cluster of three nodes.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use integration_tests::{cluster::Cluster, redis::Redis, sim};
use tidegate::{
    limiter::policy::Split,
    observability::metrics::Metrics,
    rules::Rule,
    store::{Ask, Scope, ScopeName, SharedStore, Store as _},
};
use tokio::{runtime::Runtime, task::JoinSet};

use super::{Used, load};

const HOSTS: usize = 30_000;
const AT_ONCE: usize = 64;

/// What the members of a store did in one run, and the CPU of its nodes.
struct Run {
    /// Grants per second.
    rate: f64,
    grants: f64,
    /// Calls, and seconds of CPU, of each node.
    nodes: Vec<(f64, f64)>,
}

impl Run {
    /// Grants per second of CPU of the busiest node: the rate at which it would be full.
    fn full(&self) -> f64 {
        self.grants / self.nodes.iter().map(|(_, cpu)| *cpu).fold(0.0, f64::max)
    }

    fn row(&self, name: &str, one: &Self) -> String {
        let [mut calls, mut cpu] = [0.0; 2];
        self.nodes.iter().for_each(|node| (calls, cpu) = (calls + node.0, cpu + node.1));
        let each: Vec<_> =
            self.nodes.iter().map(|node| format!("{:.1} %", node.0 / calls * 100.0)).collect();
        format!(
            "| {name} | {:.0} | {} | {:.0} | {:.0} | {:.2} |\n",
            self.rate,
            each.join(", "),
            cpu * 1e6 / calls,
            self.full(),
            self.full() / one.full(),
        )
    }
}

/// Runs both, and returns the table.
pub(crate) fn table(time: Duration) -> anyhow::Result<String> {
    let runtime = Runtime::new()?;
    let redis = [Redis::start()];
    let cluster = runtime.block_on(Cluster::start());
    let one = runtime.block_on(run(&redis[0].url(), &redis, time))?;
    let three = runtime.block_on(run(&cluster.url(), &cluster.nodes, time))?;
    let head = "| store | grants/s | calls by node | Redis us per call | grants/s at a full node | / one Redis |\n\
                |---|---:|---|---:|---:|---:|\n";
    Ok([head, &one.row("one Redis", &one), &three.row("Cluster, three nodes", &one)].concat())
}

async fn run(url: &str, nodes: &[Redis], time: Duration) -> anyhow::Result<Run> {
    let store = SharedStore::start(sim::settings(url), Metrics::new())?;
    store.first_word().await;
    ensure!(store.is_up(), "the store does not come up: {}", store.why_down());
    let rule = Arc::new(Rule { per: Split::Host, ..load::rule() });
    let scopes: Arc<[Scope]> = (0..HOSTS)
        .map(|host| Arc::from(format!("host-{host}.example")))
        .map(|key| store.scope(ScopeName::plain(&rule.name, &key)))
        .collect();
    let used = || nodes.iter().map(Used::now).collect::<anyhow::Result<Vec<_>>>();
    let (next, mut clients) = (Arc::new(AtomicUsize::new(0)), JoinSet::new());
    let (before, start) = (used()?, Instant::now());
    for _ in 0..AT_ONCE {
        let (store, rule, scopes) = (Arc::clone(&store), Arc::clone(&rule), Arc::clone(&scopes));
        let next = Arc::clone(&next);
        clients.spawn(async move {
            let ask = Ask { wanted: 1, ..Ask::default() };
            let mut grants = 0_u32;
            while start.elapsed() < time {
                let scope = &scopes[next.fetch_add(1, Ordering::Relaxed) % HOSTS];
                let granted = store.take(scope, &rule, &ask).await?;
                ensure!(granted.tickets.len() == 1 && !granted.local, "{granted:?}");
                grants += 1;
            }
            Ok(grants)
        });
    }
    let mut grants = 0;
    while let Some(ended) = clients.join_next().await {
        grants += ended.context("a client panics")??;
    }
    let (rate, after) = (f64::from(grants) / start.elapsed().as_secs_f64(), used()?);
    let each = before.iter().zip(after);
    let nodes = each.map(|(b, a)| (a.calls - b.calls, a.redis - b.redis)).collect();
    store.close().await;
    Ok(Run { rate, grants: f64::from(grants), nodes })
}
