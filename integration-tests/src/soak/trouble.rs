//! The faults of the soak, one every few seconds.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::time::sleep;

use super::{Ordering, World, rule_file};
use crate::{
    member::{Member, RuleFile},
    redis::Redis,
};

/// A member that stops needs longer than its drain time.
const ENDS: Duration = Duration::from_secs(20);

/// The store and the members, and the choice of faults.
pub(super) struct Trouble {
    world: Arc<World>,
    redis: Redis,
    pub(super) fleet: Vec<Member>,
    file: RuleFile,
    random: fastrand::Rng,
}

impl Trouble {
    pub(super) fn new(world: Arc<World>, redis: Redis, fleet: Vec<Member>, seed: u64) -> Self {
        let file = rule_file(&redis);
        Self { world, redis, fleet, file, random: fastrand::Rng::with_seed(seed) }
    }

    /// Injects faults for this long.
    pub(super) async fn make(&mut self, length: Duration) {
        let start = Instant::now();
        while start.elapsed() < length {
            let pause = Duration::from_millis(self.random.u64(2_000..6_000));
            sleep(pause.min(length.saturating_sub(start.elapsed()))).await;
            if start.elapsed() < length {
                self.one().await;
            }
        }
    }

    async fn one(&mut self) {
        let begun = Instant::now();
        let short = Duration::from_millis(self.random.u64(100..1_500));
        // The first member runs all the time, so that leaks accumulate in it.
        let victim = self.random.usize(1..self.fleet.len());
        let (name, disturbs) = match self.random.u8(..9) {
            0 => {
                self.redis.kill();
                sleep(short).await;
                self.redis.restart();
                ("redis ends and comes back empty", true)
            }
            1 => {
                self.redis.freeze();
                sleep(short).await;
                self.redis.thaw();
                ("redis stalls", true)
            }
            2 => {
                self.redis.command(&["FLUSHALL"]);
                ("redis forgets everything", true)
            }
            3 => {
                self.redis.command(&["SCRIPT", "FLUSH"]);
                ("redis forgets its scripts", false)
            }
            4 => {
                self.redis.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
                ("subscriptions are cut", false)
            }
            5 => {
                self.redis.command(&["CLIENT", "KILL", "TYPE", "normal"]);
                ("connections to redis are cut", true)
            }
            6 => {
                self.replace(victim, true, short).await;
                ("a member is killed", false)
            }
            7 => {
                self.replace(victim, false, short).await;
                ("a member is restarted", false)
            }
            _ => {
                self.fleet[victim].freeze();
                sleep(short).await;
                self.fleet[victim].thaw();
                ("a member stalls", true)
            }
        };
        let mut tally = self.world.tally.lock();
        *tally.troubles.entry(name).or_default() += 1;
        if disturbs {
            tally.disturbed.push((begun, Instant::now()));
        }
    }

    /// Stops a member, with SIGKILL or SIGTERM, and starts another one in its place.
    async fn replace(&mut self, victim: usize, at_once: bool, pause: Duration) {
        self.ask(victim).await;
        self.world.tally.lock().ended += 1;
        let slot = &self.world.slots[victim];
        slot.generation.fetch_add(1, Ordering::SeqCst);
        let member = &mut self.fleet[victim];
        if at_once {
            member.kill();
        } else {
            member.terminate();
            let code = member.exit_code(ENDS).await;
            assert_eq!(code, 0, "a member that is asked to stop says {code}:\n{}", member.log());
        }
        sleep(pause).await;
        self.fleet[victim] = Member::start(&self.file).await;
        *slot.proxy.lock() = self.fleet[victim].proxy();
        slot.generation.fetch_add(1, Ordering::SeqCst);
    }

    /// Reads a member's metrics before it stops.
    async fn ask(&self, n: usize) {
        let metrics = self.fleet[n].metrics().await;
        let mut tally = self.world.tally.lock();
        tally.granted += metrics.sum("tidegate_tokens_granted_total", &[("rule", "even")]);
        tally.panics += metrics.sum("tidegate_panics_total", &[]);
    }

    /// The fleet at the end.
    pub(super) async fn end(self) -> (Vec<Member>, Redis) {
        for n in 0..self.fleet.len() {
            self.ask(n).await;
        }
        (self.fleet, self.redis)
    }
}
