//! `make demo`: shows Tidegate at work in half a minute on a terminal.
//!
//! A site that blocks fast crawlers, and eight workers: first on their own, then through two
//! members that share one rate and one cooldown. One line per second shows what happens, and a
//! summary shows what the site saw. Everything runs on loopback, ends after half a minute (or with
//! Ctrl-C), and leaves nothing behind.

use std::{
    io::{IsTerminal as _, Write as _},
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use integration_tests::{
    client::{ProxyClient, get_request},
    member::{Member, Metrics, RuleFile},
    redis::Redis,
    site::{Arrival, Site},
    walls::{Kind, Wall},
};
use tokio::{
    task::JoinSet,
    time::{MissedTickBehavior, interval, sleep},
};

const WORKERS: usize = 8;
/// The time that a worker needs for a page.
const THINK: Duration = Duration::from_millis(15);
/// The site's wall: a sliding window, and a ban that every further request renews.
const SEED: u64 = 3;
/// The wall's time runs this many times faster, so that half a minute shows five.
const FASTER: u32 = 10;
const ALONE: Duration = Duration::from_secs(5);
const TOGETHER: Duration = Duration::from_secs(25);
/// The guessed rate is too high, as guesses often are.
const GUESS: f64 = 1.4;

type Outcome = std::io::Result<()>;

#[tokio::main]
async fn main() -> Outcome {
    tokio::select! {
        outcome = show() => outcome,
        // Dropping `show` ends its processes.
        interrupted = tokio::signal::ctrl_c() => interrupted,
    }
}

async fn show() -> Outcome {
    let site = Site::start();
    let bears = keep_secret(&site);
    let rule = format!(
        "rate: {:.0}/s, burst: 5, cooldown: {{after: 3, for: 3s-6s, ramp: 1s}}, learn: {{patience: 6s}}",
        bears * GUESS
    );
    say(&format!(
        "A site with a secret: more than {bears:.0} requests a second within a few seconds, and it answers with walls\n\
         until nobody has asked for a while. And {WORKERS} workers that want its pages.\n\n\
         Without a proxy:\n"
    ))?;
    crawl_alone(&site).await?;
    let alone = site.arrivals();

    site.forget();
    keep_secret(&site);
    let redis = Redis::is_installed().then(Redis::start);
    let fleet = start_fleet(redis.as_ref(), &rule).await;
    say(&format!("\nThrough {}, `{rule}`:\n\n", who(&fleet, redis.is_some())))?;
    crawl_together(&site, &fleet).await?;
    summary(&alone, &site.arrivals(), &fleet).await
}

/// Resets the site: no requests counted, no ban. Returns the tolerated rate in requests per second.
fn keep_secret(site: &Site) -> f64 {
    let wall = Wall::new(Kind::Window, SEED);
    let bears = wall.bears(0) * f64::from(FASTER);
    site.guard(wall, FASTER);
    bears
}

fn who(fleet: &[Member], shared: bool) -> String {
    if shared {
        format!("{} members of tidegate on one Redis", fleet.len())
    } else {
        "one tidegate (redis-server is not installed, so no fleet)".to_owned()
    }
}

async fn start_fleet(redis: Option<&Redis>, rule: &str) -> Vec<Member> {
    let file = RuleFile::one_rule(rule);
    match redis {
        Some(redis) => Member::fleet(2, &file.redis(redis)).await,
        None => Member::fleet(1, &file).await,
    }
}

/// Workers request pages as fast as they can read.
async fn crawl_alone(site: &Site) -> Outcome {
    let stop = Arc::new(AtomicBool::new(false));
    let mut workers = start_workers(&[site.address()], site, &stop);
    let mut seen = Seen::default();
    let mut ticks = seconds();
    for second in 1..=ALONE.as_secs() {
        ticks.tick().await;
        let (good, walls) = seen.since(site);
        say(&format!("{second:>4} s   {good:>4} pages/s   {walls:>4} walls/s\n"))?;
    }
    stop.store(true, Ordering::Relaxed);
    while workers.join_next().await.is_some() {}
    Ok(())
}

/// The same workers through the fleet.
async fn crawl_together(site: &Site, fleet: &[Member]) -> Outcome {
    let stop = Arc::new(AtomicBool::new(false));
    let proxies: Vec<_> = fleet.iter().map(Member::proxy).collect();
    // Dropped at the end of this function, with the requests that are still held.
    let _workers = start_workers(&proxies, site, &stop);
    say("  time    pages/s  walls/s   held   rate/s  streak  cooldown   pages+walls by member\n")?;
    let mut seen = Seen::default();
    let mut ticks = seconds();
    for second in 1..=TOGETHER.as_secs() {
        ticks.tick().await;
        let mut scrapes = Vec::with_capacity(fleet.len());
        for member in fleet {
            scrapes.push(member.metrics().await);
        }
        let (good, walls) = seen.since(site);
        say(&line(second, good, walls, &scrapes))?;
    }
    stop.store(true, Ordering::Relaxed);
    Ok(())
}

/// One row of the table.
fn line(second: u64, good: usize, walls: usize, scrapes: &[Metrics]) -> String {
    let most = |name: &str| scrapes.iter().map(|m| m.sum(name, &[])).fold(0.0, f64::max);
    let held: f64 = scrapes.iter().map(|m| m.sum("tidegate_held_requests", &[])).sum();
    let (rate, streak) = (most("tidegate_rate_current"), most("tidegate_consecutive_blocks"));
    let cooling = most("tidegate_cooldown_active") > 0.0;
    let remaining = most("tidegate_cooldown_remaining_seconds");
    let cooldown = if cooling { format!("{remaining:>5.1} s") } else { "     -  ".to_owned() };
    let verdicts = scrapes.iter().map(by_verdict).collect::<Vec<_>>().join("   ");
    let row = format!(
        "{second:>4} s   {good:>6}  {walls:>7}  {held:>5.0}  {rate:>7.1}  {streak:>6.0}  {cooldown:>8}   {verdicts}"
    );
    if cooling && std::io::stdout().is_terminal() {
        format!("\x1b[33m{row}\x1b[0m\n")
    } else {
        format!("{row}\n")
    }
}

fn by_verdict(metrics: &Metrics) -> String {
    let ok = metrics.sum("tidegate_requests_total", &[("verdict", "ok")]);
    let blocks = metrics.sum("tidegate_blocks_total", &[]);
    format!("{ok:.0}+{blocks:.0}")
}

async fn summary(alone: &[Arrival], together: &[Arrival], fleet: &[Member]) -> Outcome {
    let mut trips = 0.0;
    let mut cooled = 0.0;
    for member in fleet {
        let metrics = member.metrics().await;
        trips += metrics.sum("tidegate_cooldowns_total", &[]);
        cooled += metrics.sum("tidegate_cooldown_seconds_total", &[]);
    }
    say(&format!(
        "\nWhat the site saw\n\
         {:>24}  requests   pages   walls   walls per 100 pages\n{}{}\n\
         The fleet stood still {trips:.0} times, {cooled:.0} s in all; whoever asked meanwhile was held, not refused.\n",
        "",
        row("without a proxy", ALONE, alone),
        row("through tidegate", TOGETHER, together),
    ))
}

fn row(name: &str, time: Duration, arrivals: &[Arrival]) -> String {
    let good = arrivals.iter().filter(|arrival| arrival.status == 200).count();
    let walls = arrivals.len() - good;
    let share = 100 * walls / good.max(1);
    let name = format!("{name}, {} s", time.as_secs());
    format!("{name:>24}  {:>8}  {good:>6}  {walls:>6}  {share:>20}\n", arrivals.len())
}

/// The responses of the site since the last call.
#[derive(Default)]
struct Seen {
    arrivals: usize,
}

impl Seen {
    /// Good pages and walls.
    fn since(&mut self, site: &Site) -> (usize, usize) {
        let all = site.arrivals();
        let new = &all[self.arrivals..];
        self.arrivals = all.len();
        let good = new.iter().filter(|arrival| arrival.status == 200).count();
        (good, new.len() - good)
    }
}

/// Workers request one page after another until they are stopped. The proxies are assigned in turn.
fn start_workers(proxies: &[SocketAddr], site: &Site, stop: &Arc<AtomicBool>) -> JoinSet<()> {
    let mut workers = JoinSet::new();
    for (n, proxy) in proxies.iter().copied().cycle().take(WORKERS).enumerate() {
        let (stop, url) = (Arc::clone(stop), site.url(&format!("/worker/{n}")));
        workers.spawn(async move {
            let mut client = ProxyClient::connect(proxy).await;
            while !stop.load(Ordering::Relaxed) {
                if client.send(get_request(&url)).await.is_err() {
                    client = ProxyClient::connect(proxy).await;
                }
                sleep(THINK).await;
            }
        });
    }
    workers
}

/// Ticks at the end of each second.
fn seconds() -> tokio::time::Interval {
    let mut ticks = interval(Duration::from_secs(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.reset();
    ticks
}

/// Writes to standard output at once. A closed pipe ends the demo.
fn say(text: &str) -> Outcome {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
