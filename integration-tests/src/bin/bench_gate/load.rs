//! Requests that pass the real gate as fast as possible, many at once.

use std::{
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use integration_tests::{
    redis::Redis,
    sim::{self, Plan},
};
use tidegate::{
    classify::verdict::Judgement,
    gate::{Client, Gate, Preferences},
    observability::{event::Events, metrics::Metrics},
    rules::{Rule, RuleSet},
    store::{Backend, Memory, SharedStore},
};
use tokio::{runtime::Runtime, task::JoinSet};

use super::{Cost, Used};

/// Tokens per second and in the bucket; never exhausted.
const RATE: f64 = 1e9;
const BURST: u32 = 1_000_000;

/// The rule of all loads: a rate, a burst and a cooldown.
pub(crate) fn rule() -> Rule {
    let mut plan = Plan::new(1, RATE, 0);
    plan.burst = BURST;
    plan.rule()
}

/// A gate with its store.
#[derive(Debug)]
pub(crate) struct Load {
    runtime: Runtime,
    gate: Arc<Gate>,
}

impl Load {
    pub(crate) fn on_redis(redis: &Redis) -> anyhow::Result<Self> {
        let runtime = Runtime::new()?;
        let gate = runtime.block_on(async {
            let metrics = Metrics::new();
            let store = SharedStore::start(sim::settings(&redis.url()), Arc::clone(&metrics))?;
            store.first_word().await;
            ensure!(store.is_up(), "the store does not come up: {}", store.why_down());
            Ok(gate(Backend::Shared(store), metrics))
        })?;
        Ok(Self { runtime, gate })
    }

    pub(crate) fn in_memory() -> anyhow::Result<Self> {
        let runtime = Runtime::new()?;
        let gate = {
            let _inside = runtime.enter();
            gate(Backend::Memory(Memory::default()), Metrics::new())
        };
        Ok(Self { runtime, gate })
    }

    /// Runs `tasks` clients for this long, each with one request after the other.
    pub(crate) fn run(
        &mut self,
        redis: &Redis,
        tasks: usize,
        time: Duration,
    ) -> anyhow::Result<Cost> {
        let before = Used::now(redis)?;
        let until = Instant::now() + time;
        let grants = self.runtime.block_on(async {
            let mut clients = JoinSet::new();
            for n in 0..tasks {
                clients.spawn(crawl(Arc::clone(&self.gate), n, until));
            }
            let mut grants = 0;
            while let Some(ended) = clients.join_next().await {
                grants += ended.context("a client panics")??;
            }
            anyhow::Ok(grants)
        })?;
        before.until_now(redis, grants)
    }
}

fn gate(store: Backend, metrics: Arc<Metrics>) -> Arc<Gate> {
    let events = Events::new(Arc::clone(&metrics));
    Gate::new(RuleSet::new(vec![rule()]), store, metrics, events, Duration::from_secs(90))
}

async fn crawl(gate: Arc<Gate>, n: usize, until: Instant) -> anyhow::Result<u64> {
    let target = sim::target();
    let client = Client::Address(IpAddr::from([10, 0, 0, u8::try_from(n)?]));
    let entry = gate.find(&target).context("the rule matches everything")?;
    let mut grants = 0;
    while Instant::now() < until {
        let permit = gate.hold(&entry, &target, &client, Preferences::default()).await;
        let mut permit = permit.map_err(|refused| anyhow::anyhow!("refused: {:?}", refused.why))?;
        ensure!(permit.may_send(), "nothing trips here");
        permit.report(&Judgement::ok(200)).await;
        grants += 1;
    }
    Ok(grants)
}
