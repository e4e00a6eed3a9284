//! The yield of a crawl: compares policies against five kinds of walls, in virtual time.
//!
//! `bench_yield [SEEDS [NAME [FIRST]]]`: a fleet of three members, with four concurrent requests each, crawls every
//! wall for an hour under every policy. NAME selects policies by a part of their names. SEEDS (24) is the number of
//! seeds, and FIRST the first one. Tidegate's policies run the program's own code: the decisions of the embedded store,
//! which the scripts in Redis repeat. An oracle knows the limit of the wall at each moment and sends exactly that much.
//! The other results are shares of the oracle's.
//!
//! `bench_yield plot` writes one crawl per wall as SVG (`docs/learned-rate.svg`), and `bench_yield plot wall` how a wall with a
//! long ban is named (`docs/named-wall.svg`).
//!
//! The output has three figures, after ten minutes and after an hour: good pages in per cent of the oracle's, blocks
//! per 100 good pages, and the share of the time between a block and the next good page. For each it has the means and
//! the medians over the seeds, averaged over the walls, and the means for each wall.
//!
//! `bench_yield families [NAME [SEEDS [FIRST [TABLE]]]]`: the same against documented walls, and against sites without a
//! wall, or against those of another file; see [`families`]. `bench_yield gates [SEEDS]`: the learned rates through gates and scripts; see [`gates`].
//! `bench_yield overload [SEEDS]`: a site that queues what it cannot serve; see [`overload`].
//!
//! `bench_yield real [SECONDS [FASTER [NAME]]]`: the same with real processes; see [`real`].

mod bucket;
mod families;
mod fleet;
mod foresight;
mod gates;
mod named;
mod overload;
mod plot;
mod policy;
mod real;
mod workers;

use fleet::{Crawl, Tally, crawl};
use foresight::Foresight;
use integration_tests::walls::{Kind, SECOND, Wall};
use policy::{Autothrottle, Policy, Proxy, Reloaded, Workers};

/// Walls of these seeds are not among those on which the defaults were chosen.
const FIRST_SEED: u32 = 90_001;
/// The rate that counts as right, as a part of the average limit of a wall.
const RIGHT: f64 = 0.95;
/// Moments at which the tally is read.
const MOMENTS: [i64; 2] = [600 * SECOND, 3_600 * SECOND];

/// Makes a policy for a wall with this average limit, in requests per second.
type Maker = fn(&Wall, f64, u64) -> Box<dyn Policy>;

fn policies() -> [(&'static str, Maker); 13] {
    [
        ("oracle at 0.95x, never blocked", |wall, r, _| Foresight::boxed(wall, RIGHT * r, false)),
        ("oracle at 0.95x, one block a ban", |wall, r, _| Foresight::boxed(wall, RIGHT * r, true)),
        ("bare Redis bucket, 2x", |_, r, seed| {
            Proxy::boxed(&format!("rate: {:.6}/s, cooldown: off", 2.0 * r), seed)
        }),
        ("AutoThrottle, 2x", |_, r, seed| Box::new(Autothrottle::new(2.0 * r, seed))),
        ("a limiter per worker, 2x / 3 each", |_, r, _| Box::new(Workers::new(2.0 * r / 3.0))),
        ("a limiter per worker, 2x each", |_, r, _| Box::new(Workers::new(2.0 * r))),
        ("fixed, 0.95x", |_, r, seed| Proxy::boxed(&fixed(RIGHT * r), seed)),
        ("fixed, 0.95x by the clock", |wall, _, seed| {
            let bears = wall.clone();
            let keys = move |now| fixed(RIGHT * bears.bears(now));
            Box::new(Reloaded::new(Box::new(keys), seed))
        }),
        ("fixed, 2x", |_, r, seed| Proxy::boxed(&fixed(2.0 * r), seed)),
        ("fixed, 5x", |_, r, seed| Proxy::boxed(&fixed(5.0 * r), seed)),
        ("learned, written 2x", |_, r, seed| {
            Proxy::boxed(&format!("rate: {:.6}/s", 2.0 * r), seed)
        }),
        ("learned, written 5x", |_, r, seed| {
            Proxy::boxed(&format!("rate: {:.6}/s", 5.0 * r), seed)
        }),
        ("rate: auto", |_, _, seed| Proxy::boxed("rate: auto", seed)),
    ]
}

/// The keys of a rule whose rate is not learned.
fn fixed(rate: f64) -> String {
    format!("rate: {rate:.6}/s, learn: false")
}

/// The results of one policy at one wall, by seed.
#[derive(Debug, Default, Clone)]
struct Runs([Vec<f64>; 3]);

impl Runs {
    fn add(&mut self, tally: &Tally, oracle: f64, moment: i64) {
        let new = [
            100.0 * tally.pages / oracle,
            100.0 * tally.blocks / tally.pages.max(1.0),
            100.0 * tally.blocked / seconds(moment),
        ];
        for (column, value) in self.0.iter_mut().zip(new) {
            column.push(value);
        }
    }

    fn means(&self) -> [f64; 3] {
        self.0.each_ref().map(|column| mean(column))
    }

    fn medians(&self) -> [f64; 3] {
        self.0.clone().map(median)
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        length if length.is_multiple_of(2) => f64::midpoint(values[middle - 1], values[middle]),
        _ => values[middle],
    }
}

/// The mean over the walls, column by column.
fn over_walls(walls: &[[f64; 3]]) -> [f64; 3] {
    [0, 1, 2].map(|column| mean(&walls.iter().map(|wall| wall[column]).collect::<Vec<_>>()))
}

fn text([pages, blocks, blocked]: [f64; 3]) -> String {
    format!("{pages:5.1} {blocks:8.2} {blocked:5.1}")
}

#[allow(clippy::print_stdout, reason = "the plot is this program's output")]
fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let number =
        |word: Option<&&str>, default| word.map_or(Ok(default), |word| word.parse::<u32>());
    match words.first() {
        Some(&"families") => {
            let (seeds, first) = (number(words.get(2), 6)?, number(words.get(3), FIRST_SEED)?);
            let table = words.get(4).map(std::fs::read_to_string).transpose()?;
            families::run(words.get(1).unwrap_or(&""), seeds.into(), first.into(), table);
        }
        Some(&"overload") => overload::run(number(words.get(1), 6)?.into()),
        Some(&"plot") if words.get(1) == Some(&"wall") => {
            print!("{}", named::draw(FIRST_SEED.into()));
        }
        Some(&"plot") => print!("{}", plot::draw(FIRST_SEED.into())),
        Some(&"real") => {
            let seconds = number(words.get(1), 60)?.into();
            let faster = number(words.get(2), 10)?.max(1);
            let pace = real::Pace { seconds, faster };
            let named = words.get(3).unwrap_or(&"");
            tokio::runtime::Runtime::new()?.block_on(real::run(pace, named))?;
        }
        Some(&"gates") => {
            let (seeds, first) = (u64::from(number(words.get(1), 1)?), u64::from(FIRST_SEED));
            for (name, times) in [("learned, written 2x", 2.0), ("learned, written 5x", 5.0)] {
                let mut runs = MOMENTS.map(|_| Kind::ALL.map(|_| Runs::default()));
                for seed in first..first + seeds {
                    for (wall_at, kind) in Kind::ALL.into_iter().enumerate() {
                        let wall = Wall::new(kind, seed);
                        let oracle = MOMENTS.map(|moment| oracle(&wall, moment));
                        let keys =
                            format!("rate: {:.6}/s", times * oracle[1] / seconds(MOMENTS[1]));
                        let tallies = gates::crawl(wall, &keys, MOMENTS, seed);
                        for (at, moment) in MOMENTS.into_iter().enumerate() {
                            runs[at][wall_at].add(&tallies[at], oracle[at], moment);
                        }
                    }
                }
                print_runs(name, &runs);
            }
        }
        seeds => {
            let (seeds, first) = (number(seeds, 24)?.into(), number(words.get(2), FIRST_SEED)?);
            virtual_time(words.get(1).unwrap_or(&""), u64::from(first), seeds);
        }
    }
    Ok(())
}

#[allow(clippy::print_stdout, reason = "the report is this program's output")]
fn virtual_time(named: &str, first: u64, seeds: u64) {
    println!("{seeds} seeds from {first}: pages %, blocks per 100 pages, time blocked %\n");
    for (name, make) in policies().into_iter().filter(|(name, _)| name.contains(named)) {
        let mut runs = MOMENTS.map(|_| Kind::ALL.map(|_| Runs::default()));
        for seed in first..first + seeds {
            for (wall_at, kind) in Kind::ALL.into_iter().enumerate() {
                let wall = Wall::new(kind, seed);
                let oracle = MOMENTS.map(|moment| oracle(&wall, moment));
                let policy = make(&wall, oracle[1] / seconds(MOMENTS[1]), seed);
                let tallies = crawl(Crawl { site: before(wall), policy }, MOMENTS, seed);
                for (at, moment) in MOMENTS.into_iter().enumerate() {
                    runs[at][wall_at].add(&tallies[at], oracle[at], moment);
                }
            }
        }
        print_runs(name, &runs);
    }
}

#[allow(clippy::print_stdout, reason = "the report is this program's output")]
fn print_runs(name: &str, runs: &[[Runs; 5]; 2]) {
    {
        println!("{name}");
        for (moment, walls) in MOMENTS.into_iter().zip(runs) {
            let row = |name: &str, figures| format!("{name:>9} {}", text(figures));
            let means = walls.each_ref().map(Runs::means);
            let medians = walls.each_ref().map(Runs::medians);
            println!("  {:4} s {}", moment / SECOND, row("means", over_walls(&means)));
            println!("         {}", row("medians", over_walls(&medians)));
            for (kind, figures) in Kind::ALL.into_iter().zip(means) {
                println!("         {}", row(kind.name(), figures));
            }
        }
    }
}

/// A site behind `wall`.
fn before(mut wall: Wall) -> fleet::Answers {
    Box::new(move |now, _| (wall.answer(now), None))
}

/// The pages of the oracle: the limit of the wall, second by second.
fn oracle(wall: &Wall, until: i64) -> f64 {
    (0..until / SECOND).map(|second| wall.bears(second * SECOND)).sum()
}

#[allow(clippy::cast_precision_loss, reason = "far below 2^53")]
fn seconds(micros: i64) -> f64 {
    micros as f64 / 1e6
}
