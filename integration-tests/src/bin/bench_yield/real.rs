//! The same comparison with real processes: sites behind walls on loopback, and real crawlers.
//!
//! `bench_yield real [SECONDS [FASTER [NAME]]]`: one policy after another crawls the five walls of
//! one seed, all at the same time, for SECONDS (60). Time runs FASTER (10) times as fast: ten
//! minutes of crawl in one. Each wall gets twelve concurrent requests: four from each of three
//! workers or members. Every policy gets its own sites. NAME selects policies by a part of their
//! names.
//!
//! The settings of the rule file are scaled too: the length of cooldowns, their ramp, the first
//! patience. Fixed times are not, to Tidegate's disadvantage: the minute of counting for the
//! learned rate and its steps, and the five seconds within which blocks count as one. So at ten
//! times the speed a learned rate takes ten times as long, in the walls' time. A smaller FASTER
//! with more SECONDS shows the difference (1 is unscaled). A requested wait is at least a whole
//! second for every policy.

use std::time::{Duration, Instant};

use integration_tests::{
    member::{Member, RuleFile},
    redis::Redis,
    site::{Arrival, Site},
    tools,
    wait::wait_until,
    walls::{Kind, SECOND, Wall},
};
use tokio::{process::Child, task::JoinSet, time::sleep};

use super::{
    FIRST_SEED, RIGHT, Runs, Tally, oracle, text,
    workers::{self, Pacer},
};

/// Members of the fleet.
const MEMBERS: usize = 3;
/// Python may start slowly on a busy machine.
const FIRST_REQUEST_AT_MOST: Duration = Duration::from_secs(60);

/// The kind of crawler.
#[derive(Debug, Clone, Copy)]
enum Crawler {
    WithoutProxy,
    LimiterEach(f64),
    BareBucket(f64),
    Autothrottle(f64),
    Fixed(f64),
    Learned(f64),
    Auto,
}

const CRAWLERS: [(&str, Crawler); 9] = [
    ("no proxy", Crawler::WithoutProxy),
    ("a limiter per worker, 2x / 3 each", Crawler::LimiterEach(2.0)),
    ("bare Redis bucket, 2x", Crawler::BareBucket(2.0)),
    ("Scrapy with AutoThrottle, 2x", Crawler::Autothrottle(2.0)),
    ("Tidegate, fixed, 0.95x", Crawler::Fixed(RIGHT)),
    ("Tidegate, fixed, 2x", Crawler::Fixed(2.0)),
    ("Tidegate, learned, written 2x", Crawler::Learned(2.0)),
    ("Tidegate, learned, written 5x", Crawler::Learned(5.0)),
    ("Tidegate, rate: auto", Crawler::Auto),
];

/// A running crawl; it ends when dropped.
#[derive(Default)]
struct Traffic {
    workers: JoinSet<()>,
    spiders: Vec<Child>,
    members: Vec<Member>,
    redis: Option<Redis>,
}

/// The length, and how many times faster time runs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// Seconds of real time for each policy.
    pub(crate) seconds: u64,
    /// Seconds of crawl per second of real time.
    pub(crate) faster: u32,
}

/// Runs one policy after another (those with `named` in their names), and prints their results.
#[allow(clippy::print_stdout, reason = "the report is this program's output")]
pub(crate) async fn run(pace: Pace, named: &str) -> anyhow::Result<()> {
    let crawled = i64::try_from(pace.seconds)? * i64::from(pace.faster) * SECOND;
    let walls = || Kind::ALL.map(|kind| Wall::new(kind, FIRST_SEED.into()));
    let oracles = walls().map(|wall| oracle(&wall, crawled));
    println!(
        "{} s each, {} times as fast: pages %, blocks per 100 pages, time blocked %\n\noracle",
        pace.seconds, pace.faster
    );
    for (kind, pages) in Kind::ALL.into_iter().zip(oracles) {
        println!("  {:>9} {pages:5.0} pages", kind.name());
    }
    for (name, crawler) in CRAWLERS.into_iter().filter(|(name, _)| name.contains(named)) {
        let sites = walls().map(|wall| guarded(wall, pace.faster));
        let time = Duration::from_secs(pace.seconds).as_secs_f64();
        let rates = oracles.map(|pages| pages / time);
        let Some(traffic) = start(crawler, &sites, rates, pace.faster).await else {
            println!("{name}\n  not installed: `make tools` does it");
            continue;
        };
        wait_until("every site is asked", FIRST_REQUEST_AT_MOST, async || {
            sites.iter().all(|site| site.count() > 0)
        })
        .await;
        sleep(Duration::from_secs(pace.seconds)).await;
        drop(traffic);
        report(name, &sites, oracles, pace, crawled);
    }
    Ok(())
}

fn guarded(wall: Wall, faster: u32) -> Site {
    let site = Site::start();
    site.guard(wall, faster);
    site
}

#[allow(clippy::print_stdout, reason = "the report is this program's output")]
fn report(name: &str, sites: &[Site; 5], oracles: [f64; 5], pace: Pace, crawled: i64) {
    let mut all = Runs::default();
    let mut rows = String::new();
    for ((kind, site), oracle) in Kind::ALL.into_iter().zip(sites).zip(oracles) {
        let tally = tally(&site.arrivals(), pace);
        let mut one = Runs::default();
        one.add(&tally, oracle, crawled);
        all.add(&tally, oracle, crawled);
        rows.push_str(&format!("  {:>9} {}\n", kind.name(), text(one.means())));
    }
    print!("{name}\n  {:>9} {}\n{rows}", "all walls", text(all.means()));
}

/// The results of a site from its first request on.
fn tally(arrivals: &[Arrival], pace: Pace) -> Tally {
    let mut tally = Tally::default();
    let Some(first) = arrivals.first() else { return tally };
    let end = first.at + Duration::from_secs(pace.seconds);
    let mut blocked_from: Option<Instant> = None;
    let mut blocked = Duration::ZERO;
    for arrival in arrivals.iter().take_while(|arrival| arrival.at < end) {
        if arrival.status == 200 {
            tally.pages += 1.0;
            blocked += blocked_from.take().map_or(Duration::ZERO, |from| arrival.at - from);
        } else {
            tally.blocks += 1.0;
            blocked_from.get_or_insert(arrival.at);
        }
    }
    blocked += blocked_from.map_or(Duration::ZERO, |from| end - from);
    tally.blocked = (blocked * pace.faster).as_secs_f64();
    tally
}

/// Starts to crawl. `rates` are the tolerated rates on average, in real time. `None` if a client is
/// not installed.
async fn start(
    crawler: Crawler,
    sites: &[Site; 5],
    rates: [f64; 5],
    faster: u32,
) -> Option<Traffic> {
    let mut traffic = Traffic::default();
    let fleet_of = |keys: &dyn Fn(f64) -> String| {
        let rules = Kind::ALL.into_iter().zip(rates).map(|(kind, rate)| {
            let (name, times) = (kind.name(), cooldown(faster));
            let keys = keys(rate);
            format!("- {{name: {name}, match: {{paths: '/{name}/*'}}, {keys}, {times}}}\n")
        });
        RuleFile::new(&rules.collect::<String>())
    };
    let patience = millis(60, faster);
    let file = match crawler {
        Crawler::WithoutProxy => {
            for site in sites {
                let url = site.url("/item/1");
                workers::start(&mut traffic.workers, &[site.address()], &url, &[]);
            }
            return Some(traffic);
        }
        Crawler::LimiterEach(times) => {
            for (site, rate) in sites.iter().zip(rates) {
                let (url, pacers) = (site.url("/item/1"), Pacer::own(times * rate, faster));
                workers::start(&mut traffic.workers, &[site.address()], &url, &pacers);
            }
            return Some(traffic);
        }
        Crawler::BareBucket(times) => {
            let redis = Redis::is_installed().then(Redis::start)?;
            for ((kind, site), rate) in Kind::ALL.into_iter().zip(sites).zip(rates) {
                let bucket = Pacer::shared(redis.address(), kind.name(), times * rate).await;
                let (url, pacers) = (site.url("/item/1"), bucket.ok()?);
                workers::start(&mut traffic.workers, &[site.address()], &url, &pacers);
            }
            traffic.redis = Some(redis);
            return Some(traffic);
        }
        Crawler::Autothrottle(times) => {
            for (site, rate) in sites.iter().zip(rates) {
                let delay = Duration::from_secs(1).mul_f64(workers::SHARES / (times * rate));
                for _ in 0..MEMBERS {
                    let spider = tools::throttled_spider(&site.url("/item/1"), delay, faster)?;
                    traffic.spiders.push(spider);
                }
            }
            return Some(traffic);
        }
        Crawler::Fixed(times) => {
            fleet_of(&|rate| format!("rate: {:.6}/s, learn: false", times * rate))
        }
        Crawler::Learned(times) => fleet_of(&|rate| {
            format!("rate: {:.6}/s, learn: {{patience: {patience}}}", times * rate)
        }),
        Crawler::Auto => fleet_of(&|_| {
            let (start, floor) = (0.5 * f64::from(faster), 0.02 * f64::from(faster));
            format!(
                "rate: auto, learn: {{start: {start}/s, floor: {floor}/s, patience: {patience}}}"
            )
        }),
    };
    let redis = Redis::is_installed().then(Redis::start)?;
    traffic.members = Member::fleet(MEMBERS, &file.redis(&redis)).await;
    traffic.redis = Some(redis);
    let proxies: Vec<_> = traffic.members.iter().map(Member::proxy).collect();
    for (kind, site) in Kind::ALL.into_iter().zip(sites) {
        let url = site.url(&format!("/{}/1", kind.name()));
        workers::start(&mut traffic.workers, &proxies, &url, &[]);
    }
    Some(traffic)
}

/// The default cooldown, scaled. No request is refused because of a long wait.
fn cooldown(faster: u32) -> String {
    let [least, most, longest, ramp] = [30, 60, 600, 10].map(|seconds| millis(seconds, faster));
    format!("max_wait: 1h, cooldown: {{for: {least}-{most}, max: {longest}, ramp: {ramp}}}")
}

/// This many seconds of crawl, as a duration for the rule file.
fn millis(seconds: u32, faster: u32) -> String {
    format!("{}ms", seconds * 1_000 / faster)
}
