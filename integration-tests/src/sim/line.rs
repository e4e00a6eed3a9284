//! A member's line to the virtual Redis: it takes its time, it can be interrupted, and it can be cut.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tidegate::store::{Answering, Reply, ScriptServer};
use tokio::sync::broadcast;

use super::{
    figures::Ledger,
    health::{Health, Way},
    redis::VirtualRedis,
};

/// A member's line.
#[derive(Debug, Clone)]
pub struct Line(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    redis: Arc<VirtualRedis>,
    ledger: Arc<Ledger>,
    member: usize,
    /// Mean time of one way.
    one_way: Duration,
    random: Mutex<fastrand::Rng>,
    cut: AtomicBool,
    way: Way,
}

impl Line {
    /// A line whose round trips take `round_trip` on average: half of each way is fixed, half is drawn from an
    /// exponential distribution (a queue on the way).
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
            way: Way::default(),
        }))
    }

    /// Nothing passes any more, in either direction: to the rest of the fleet, the member is dead.
    pub fn cut(&self) {
        self.0.cut.store(true, Ordering::Relaxed);
    }

    /// Lets calls of this member through, or not.
    pub fn set(&self, health: Health) {
        self.0.way.set(health);
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
        // What has been sent is run though the caller may have given up.
        let there = tokio::spawn(async move {
            line.one_way().await;
            line.0.way.takes_calls().await;
            line.0.redis.way.takes_calls().await;
            let returned = if name == "take" { arguments[6].clone() } else { Default::default() };
            let reply = line.0.redis.run(name, text, keys, arguments);
            if let (true, Ok(Reply::List(reply))) = (name == "take", &reply) {
                line.0.ledger.taken(line.0.member, reply, &returned);
            }
            reply
        });
        Box::pin(async move {
            let reply = there.await.map_err(|error| error.to_string())?;
            self.0.redis.way.answers().await;
            self.0.way.answers().await;
            self.one_way().await;
            reply
        })
    }

    fn subscribe(&self, channel: &str) -> broadcast::Receiver<String> {
        self.0.redis.subscribe(channel)
    }
}
