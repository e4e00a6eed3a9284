//! What a crawl brings home: policies side by side against five kinds of walls, in virtual time.
//!
//! `bench_yield [SEEDS]`: a fleet of three members, four requests at a time each, crawls every wall for an hour under
//! every policy, over so many seeds (24 where it does not say). Tidegate's policies are the code that runs: the
//! decisions of the embedded store, which the scripts in Redis repeat. An oracle knows what the wall bears at each
//! moment and sends just that; what the others get is a share of it.
//!
//! `bench_yield plot` writes one crawl per wall as SVG (`docs/learned-rate.svg`).
//!
//! Printed are means over walls and seeds, after ten minutes and after an hour: good pages in per cent of the
//! oracle's, blocks per 100 good pages, and the share of the time between a block and the next good page.
//!
//! `bench_yield real [SECONDS [FASTER [NAME]]]`: the same with real processes; see [`real`].

#[path = "bench_yield/fleet.rs"]
mod fleet;
#[path = "bench_yield/plot.rs"]
mod plot;
#[path = "bench_yield/policy.rs"]
mod policy;
#[path = "bench_yield/real.rs"]
mod real;
#[path = "bench_yield/workers.rs"]
mod workers;

use std::collections::BTreeMap;

use fleet::{Crawl, Tally, crawl};
use integration_tests::walls::{Kind, SECOND, Wall};
use policy::{Autothrottle, Policy, Proxy, Workers};

/// Walls of these seeds are not among those on which the defaults were chosen.
const FIRST_SEED: u64 = 90_001;
/// Moments at which the tally is read.
const MOMENTS: [i64; 2] = [600 * SECOND, 3_600 * SECOND];

/// Makes a policy for a wall that bears so many requests per second.
type Maker = fn(f64, u64) -> Box<dyn Policy>;

fn policies() -> [(&'static str, Maker); 10] {
    [
        ("bare Redis bucket, 2x", |r, seed| {
            Proxy::boxed(&format!("rate: {:.6}/s, cooldown: off", 2.0 * r), seed)
        }),
        ("AutoThrottle, 2x", |r, seed| Box::new(Autothrottle::new(2.0 * r, seed))),
        ("a limiter per worker, 2x / 3 each", |r, _| Box::new(Workers::new(2.0 * r / 3.0))),
        ("a limiter per worker, 2x each", |r, _| Box::new(Workers::new(2.0 * r))),
        ("fixed, 0.95x", |r, seed| fixed(0.95 * r, seed)),
        ("fixed, 2x", |r, seed| fixed(2.0 * r, seed)),
        ("fixed, 5x", |r, seed| fixed(5.0 * r, seed)),
        ("learned, written 2x", |r, seed| Proxy::boxed(&format!("rate: {:.6}/s", 2.0 * r), seed)),
        ("learned, written 5x", |r, seed| Proxy::boxed(&format!("rate: {:.6}/s", 5.0 * r), seed)),
        ("rate: auto", |_, seed| Proxy::boxed("rate: auto", seed)),
    ]
}

fn fixed(rate: f64, seed: u64) -> Box<dyn Policy> {
    Proxy::boxed(&format!("rate: {rate:.6}/s, learn: false"), seed)
}

/// Sums over the seeds of one policy, wall and moment.
#[derive(Debug, Default, Clone, Copy)]
struct Sum {
    pages: f64,
    blocks: f64,
    blocked: f64,
    runs: f64,
}

impl Sum {
    fn add(&mut self, tally: &Tally, oracle: f64, moment: i64) {
        self.pages += 100.0 * tally.pages / oracle;
        self.blocks += 100.0 * tally.blocks / tally.pages.max(1.0);
        self.blocked += 100.0 * tally.blocked / seconds(moment);
        self.runs += 1.0;
    }

    fn text(self) -> String {
        let mean = |sum: f64| sum / self.runs;
        let (pages, blocks) = (mean(self.pages), mean(self.blocks));
        format!("{pages:5.1} {blocks:8.2} {:5.1}", mean(self.blocked))
    }
}

#[allow(clippy::print_stdout, reason = "the plot is this program's output")]
fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let number =
        |word: Option<&&str>, default| word.map_or(Ok(default), |word| word.parse::<u32>());
    match words.first() {
        Some(&"plot") => print!("{}", plot::draw(FIRST_SEED)),
        Some(&"real") => {
            let seconds = number(words.get(1), 60)?.into();
            let faster = number(words.get(2), 10)?.max(1);
            let pace = real::Pace { seconds, faster };
            let named = words.get(3).unwrap_or(&"");
            tokio::runtime::Runtime::new()?.block_on(real::run(pace, named))?;
        }
        seeds => virtual_time(number(seeds, 24)?.into()),
    }
    Ok(())
}

#[allow(clippy::print_stdout, reason = "the report is this program's output")]
fn virtual_time(seeds: u64) {
    println!("means over {seeds} seeds: pages %, blocks per 100 pages, time blocked %\n");
    for (name, make) in policies() {
        let mut sums: BTreeMap<(i64, &str), Sum> = BTreeMap::new();
        for seed in FIRST_SEED..FIRST_SEED + seeds {
            for kind in Kind::ALL {
                let wall = Wall::new(kind, seed);
                let oracle = MOMENTS.map(|moment| oracle(&wall, moment));
                let crawl_of = Crawl { wall, policy: make(oracle[1] / seconds(MOMENTS[1]), seed) };
                let tallies = crawl(crawl_of, MOMENTS, seed);
                for (at, moment) in MOMENTS.into_iter().enumerate() {
                    for row in ["all walls", kind.name()] {
                        sums.entry((moment, row)).or_default().add(
                            &tallies[at],
                            oracle[at],
                            moment,
                        );
                    }
                }
            }
        }
        println!("{name}");
        for moment in MOMENTS {
            let row = |row: &str| format!("{row:>9} {}", sums[&(moment, row)].text());
            println!("  {:4} s {}", moment / SECOND, row("all walls"));
            for kind in Kind::ALL {
                println!("         {}", row(kind.name()));
            }
        }
    }
}

/// Pages of who knows the wall: what it bears, second by second.
fn oracle(wall: &Wall, until: i64) -> f64 {
    (0..until / SECOND).map(|second| wall.bears(second * SECOND)).sum()
}

#[allow(clippy::cast_precision_loss, reason = "far below 2^53")]
fn seconds(micros: i64) -> f64 {
    micros as f64 / 1e6
}
