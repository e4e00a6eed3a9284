//! `make bench-gate`: the cost of the gate compared with the minimum for any shared limiter, and
//! the cost of waiting.
//!
//! Grants: a plain blocking loop sends the same `EVALSHA` as the gate (recorded from it) over one
//! connection. One call at a time shows the limit of a round trip, and 64 in flight the limit of
//! one Redis. The same rounds measure the gate on Redis and in memory, with one request at a time
//! and with 64 at once. The rule has an unreachable rate and a cooldown, so that every grant does
//! the whole work. Each ratio compares a round with the loop of the same round; the table shows
//! medians. `EVALSHA again` repeats the loop: the distance of its ratio from 1 is the noise.
//!
//! Waiting: one real process on each store holds 10,000 requests on as many connections behind a
//! quota of one per hour. Measured are the resident memory of each, connection included, and the
//! CPU while nothing happens.
//!
//! Cluster: one rule with 30,000 hosts, first on one Redis, then on a Cluster of three nodes. All
//! of them share this machine, so the rate says little. The CPU that Redis uses for a grant shows
//! at which rate the busiest node would be full.
//!
//! The parts are `grants`, `held` and `cluster`; without an argument all run. Each takes less than
//! two minutes. `BENCH_ROUNDS` (5) and `BENCH_MILLIS` (700, per load; 10,000 in
//! `cluster`) change the length.

mod cluster;
mod floor;
mod held;
mod load;

use std::{collections::BTreeMap, io::Write as _, time::Duration};

use anyhow::Context as _;
use integration_tests::redis::Redis;

use self::{floor::Floor, held::Held, load::Load};

/// A load with fewer scripts than this has only heartbeats.
const HEARTBEATS: f64 = 10.0;

/// The loads of each round.
const LOADS: [(&str, Kind); 7] = [
    ("EVALSHA", Kind::Floor),
    ("EVALSHA again", Kind::Floor),
    ("EVALSHA, 64 at once", Kind::Flood),
    ("gate on Redis, 1 at a time", Kind::Shared(1)),
    ("gate on Redis, 64 at once", Kind::Shared(64)),
    ("gate in memory, 1 at a time", Kind::Memory(1)),
    ("gate in memory, 64 at once", Kind::Memory(64)),
];

#[derive(Clone, Copy)]
enum Kind {
    Floor,
    Flood,
    Shared(usize),
    Memory(usize),
}

/// The cost of one load in one round.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cost {
    /// Grants per second.
    rate: f64,
    /// Microseconds of CPU per grant, of this process and Redis together.
    cpu: f64,
    /// Microseconds of Redis's CPU per script; 0 if there were none.
    script: f64,
    /// Scripts per grant.
    calls: f64,
}

fn main() -> anyhow::Result<()> {
    let parts: Vec<String> = std::env::args().skip(1).collect();
    let is_wanted = |part: &str| parts.is_empty() || parts.iter().any(|one| one == part);
    let known = parts.iter().all(|part| ["grants", "held", "cluster"].contains(&part.as_str()));
    anyhow::ensure!(known, "there are `grants`, `held` and `cluster`");
    let redis = Redis::start();
    if is_wanted("grants") {
        grants(&redis)?;
    }
    if is_wanted("held") {
        for (store, file) in held::stores(&redis) {
            say(&format!("\n{store}: {}\n", Held::measure(&file)?))?;
        }
    }
    if is_wanted("cluster") {
        let time = Duration::from_millis(number("BENCH_MILLIS", 10_000)?);
        say(&format!("\n{}", cluster::table(time)?))?;
    }
    Ok(())
}

fn grants(redis: &Redis) -> anyhow::Result<()> {
    let rounds = number("BENCH_ROUNDS", 5)?;
    let time = Duration::from_millis(number("BENCH_MILLIS", 700)?);
    let mut floor = Floor::connect(redis)?;
    let mut shared = Load::on_redis(redis)?;
    let mut memory = Load::in_memory()?;
    let mut costs: BTreeMap<&str, Vec<Cost>> = BTreeMap::new();
    for round in 0..rounds {
        let mut loads = LOADS;
        // The order changes, so that no load always follows the same one.
        loads.rotate_left(usize::try_from(round)? % LOADS.len());
        for (name, kind) in loads {
            let cost = match kind {
                Kind::Floor => floor.run(redis, time)?,
                Kind::Flood => floor.flood(redis, time)?,
                Kind::Shared(tasks) => shared.run(redis, tasks, time)?,
                Kind::Memory(tasks) => memory.run(redis, tasks, time)?,
            };
            costs.entry(name).or_default().push(cost);
        }
    }
    let millis = time.as_millis();
    say(&format!("{rounds} rounds of {millis} ms each; medians; ratios of the same round\n\n"))?;
    Ok(say(&table(&costs))?)
}

fn table(costs: &BTreeMap<&str, Vec<Cost>>) -> String {
    let mut text = "| load | grants/s | / EVALSHA | CPU us per grant, Redis included | / EVALSHA | scripts per \
                    grant | Redis us per script |\n|---|---:|---:|---:|---:|---:|---:|\n"
        .to_owned();
    let floor = &costs["EVALSHA"];
    for (name, _) in LOADS {
        let own = &costs[name];
        let figure = |of: fn(&Cost) -> f64| middle(own.iter().map(of).collect());
        let ratio = |of: fn(&Cost) -> f64| {
            middle(own.iter().zip(floor).map(|(own, floor)| of(own) / of(floor)).collect())
        };
        text.push_str(&format!(
            "| {name} | {:.0} | {:.2} | {:.1} | {:.2} | {:.4} | {:.1} |\n",
            figure(|cost| cost.rate),
            ratio(|cost| cost.rate),
            figure(|cost| cost.cpu),
            ratio(|cost| cost.cpu),
            figure(|cost| cost.calls),
            figure(|cost| cost.script),
        ));
    }
    text
}

fn middle(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

fn number(variable: &str, usual: u64) -> anyhow::Result<u64> {
    match std::env::var(variable) {
        Ok(text) => text.parse().with_context(|| format!("{variable} is no number")),
        Err(_) => Ok(usual),
    }
}

fn say(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// The resources used so far by this process and Redis.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Used {
    own: Duration,
    /// Redis's CPU in seconds.
    redis: f64,
    calls: f64,
    at: std::time::Instant,
}

impl Used {
    pub(crate) fn now(redis: &Redis) -> anyhow::Result<Self> {
        let own = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        let own = Duration::new(u64::try_from(own.tv_sec)?, u32::try_from(own.tv_nsec)?);
        let info = redis.command(&["INFO", "cpu", "commandstats"]);
        Ok(Self {
            own,
            redis: field(&info, "used_cpu_user:") + field(&info, "used_cpu_sys:"),
            calls: field(&info, "cmdstat_evalsha:calls="),
            at: std::time::Instant::now(),
        })
    }

    /// The cost of `grants` since then.
    #[allow(clippy::cast_precision_loss, reason = "counts")]
    pub(crate) fn until_now(self, redis: &Redis, grants: u64) -> anyhow::Result<Cost> {
        let took = self.at.elapsed().as_secs_f64();
        let now = Self::now(redis)?;
        let grants = grants.max(1) as f64;
        let (redis, calls) = (now.redis - self.redis, now.calls - self.calls);
        let own = now.own.saturating_sub(self.own).as_secs_f64();
        Ok(Cost {
            rate: grants / took,
            cpu: (own + redis) * 1e6 / grants,
            // An idle member still sends heartbeats.
            script: if calls < HEARTBEATS { 0.0 } else { redis * 1e6 / calls },
            calls: calls / grants,
        })
    }
}

/// The number after `name` in the reply to INFO; 0 if there is none.
fn field(info: &str, name: &str) -> f64 {
    let rest = info.split(name).nth(1).unwrap_or_default();
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    rest[..end].parse().unwrap_or(0.0)
}
