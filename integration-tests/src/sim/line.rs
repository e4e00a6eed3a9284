//! A member's connection to the virtual Redis, with a latency. It can be interrupted and cut.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tidegate::store::{Answering, Reply, ScriptServer, argument};
use tokio::sync::broadcast;

use super::{
    figures::Ledger,
    health::{Health, HealthState},
    redis::VirtualRedis,
};

/// A member's connection to the virtual Redis.
#[derive(Debug, Clone)]
pub struct Line(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    redis: Arc<VirtualRedis>,
    ledger: Arc<Ledger>,
    member: usize,
    /// Mean latency in one direction.
    one_way: Duration,
    random: Mutex<fastrand::Rng>,
    cut: AtomicBool,
    health: HealthState,
}

impl Line {
    /// A connection whose round trips take `round_trip` on average. Half of each direction is
    /// fixed, half is drawn from an exponential distribution (a queue).
    #[must_use]
    pub fn new(
        redis: &Arc<VirtualRedis>,
        ledger: &Arc<Ledger>,
        member: usize,
        round_trip: Duration,
        seed: u64,
    ) -> Self {
        Self(Arc::new(Inner {
            redis: Arc::clone(redis),
            ledger: Arc::clone(ledger),
            member,
            one_way: round_trip / 2,
            random: Mutex::new(fastrand::Rng::with_seed(seed)),
            cut: AtomicBool::new(false),
            health: HealthState::default(),
        }))
    }

    /// Cuts the connection in both directions. To the rest of the fleet, the member is dead.
    pub fn cut(&self) {
        self.0.cut.store(true, Ordering::Relaxed);
    }

    /// Sets whether calls of this member get through.
    pub fn set(&self, health: Health) {
        self.0.health.set(health);
    }

    async fn one_way(&self) {
        let drawn = -(1.0 - self.0.random.lock().f64()).ln();
        tokio::time::sleep(self.0.one_way.mul_f64(0.5 + drawn / 2.0)).await;
        if self.0.cut.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    }
}

impl ScriptServer for Line {
    fn run<'a>(
        &'a self,
        name: &'static str,
        text: &'static str,
        keys: Vec<String>,
        arguments: Vec<String>,
    ) -> Answering<'a> {
        let line = self.clone();
        // A call that was sent is executed even if the caller has given up.
        let there = tokio::spawn(async move {
            line.one_way().await;
            line.0.health.takes_calls().await;
            line.0.redis.health.takes_calls().await;
            let returned = argument(name, "returned").map(|at| arguments[at].clone());
            let reply = line.0.redis.run(name, text, keys, arguments);
            if let (true, Ok(Reply::List(reply))) = (name == "take", &reply) {
                line.0.ledger.taken(line.0.member, reply, &returned.unwrap_or_default());
            }
            reply
        });
        Box::pin(async move {
            let reply = there.await.map_err(|error| error.to_string())?;
            self.0.redis.health.answers().await;
            self.0.health.answers().await;
            self.one_way().await;
            reply
        })
    }

    fn subscribe(&self, channel: &str) -> broadcast::Receiver<String> {
        self.0.redis.subscribe(channel)
    }
}
