//! Policies against the walls of `python/tidegate/walls.tsv`: a table by family after ten minutes, an hour and three hours.

use integration_tests::{
    families::{Row, Site, rows, rows_of},
    walls::SECOND,
};

use super::{
    RIGHT, fixed,
    fleet::{Answers, Crawl, Tally, crawl},
    mean,
    policy::{Aimd, Autothrottle, Policy, Proxy},
    seconds,
};

/// The times at which the tally is read.
const MOMENTS: [i64; 3] = [600 * SECOND, 3_600 * SECOND, 10_800 * SECOND];

/// Creates a policy for a site that tolerates this many requests per second.
type Maker = fn(f64, u64) -> Box<dyn Policy>;

const POLICIES: [(&str, f64, Maker); 9] = [
    ("bare bucket, 2x", 2.0, |rate, seed| {
        Proxy::boxed(&format!("rate: {rate:.6}/s, cooldown: off"), seed)
    }),
    ("AutoThrottle, 2x", 2.0, |rate, seed| Box::new(Autothrottle::new(rate, seed))),
    ("AIMD, 2x", 2.0, |rate, _| Box::new(Aimd::new(rate))),
    ("fixed, 0.95x", RIGHT, |rate, seed| Proxy::boxed(&fixed(rate), seed)),
    ("learned, 2x", 2.0, |rate, seed| Proxy::boxed(&format!("rate: {rate:.6}/s"), seed)),
    ("learned, 5x", 5.0, |rate, seed| Proxy::boxed(&format!("rate: {rate:.6}/s"), seed)),
    ("learned, 1.5x", 1.5, |rate, seed| Proxy::boxed(&format!("rate: {rate:.6}/s"), seed)),
    ("learned, 3x", 3.0, |rate, seed| Proxy::boxed(&format!("rate: {rate:.6}/s"), seed)),
    ("learned, auto", 1.0, |_, seed| Proxy::boxed("rate: auto", seed)),
];

/// Pages in per cent of the oracle's, blocks per 100 pages, and cooldowns, at each time.
type Figures = [[f64; 3]; 3];

/// Runs the policies with `named` in their names over this many seeds of each wall, and prints their
/// results.
#[allow(clippy::print_stdout, reason = "the report is this program's output")]
pub(crate) fn run(named: &str, seeds: u64, first: u64, table: Option<String>) {
    let table = table.map_or_else(rows, |table| rows_of(table.leak()));
    println!(
        "{seeds} seeds: pages %, blocks per 100 pages and cooldowns after 10 minutes, 1 hour, 3 hours\n"
    );
    for (name, times, make) in POLICIES.into_iter().filter(|(name, ..)| name.contains(named)) {
        let mut all: Vec<(Row, Figures)> = Vec::new();
        for row in table.clone() {
            let runs: Vec<Figures> =
                (first..first + seeds).map(|seed| one(&row, seed, times, make)).collect();
            let figures = [0, 1, 2].map(|moment| {
                [0, 1, 2].map(|column| {
                    mean(&runs.iter().map(|run| run[moment][column]).collect::<Vec<_>>())
                })
            });
            all.push((row, figures));
        }
        println!("{name}");
        let mut walls = all.clone();
        walls.retain(|(row, _)| row.family != "none");
        println!("{}", text("all walls", "", &average(&walls)));
        for (row, figures) in &all {
            println!("{}", text(row.name, row.family, figures));
        }
    }
}

fn one(row: &Row, seed: u64, times: f64, make: Maker) -> Figures {
    let site = Site::new(row, seed);
    // Without a wall, the rate is the configured one.
    let times = if site.is_wall() { times } else { 1.0 };
    let (rate, oracle) = (site.bears() * times, site.oracle());
    let tallies = crawl(Crawl { site: answers(site), policy: make(rate, seed) }, MOMENTS, seed);
    let mut figures = tallies.into_iter().zip(MOMENTS).map(|(tally, moment)| {
        let Tally { pages, blocks, trips, .. } = tally;
        [100.0 * pages / (oracle * seconds(moment)), 100.0 * blocks / pages.max(1.0), trips]
    });
    std::array::from_fn(|_| figures.next().unwrap_or_default())
}

pub(crate) fn answers(mut site: Site) -> Answers {
    Box::new(move |now, member| {
        let answer = site.answer(now, member);
        (answer, site.says(now))
    })
}

fn average(all: &[(Row, Figures)]) -> Figures {
    [0, 1, 2].map(|moment| {
        [0, 1, 2]
            .map(|column| mean(&all.iter().map(|(_, run)| run[moment][column]).collect::<Vec<_>>()))
    })
}

fn text(name: &str, family: &str, figures: &Figures) -> String {
    let columns =
        figures.map(|[pages, blocks, trips]| format!("{pages:6.1} {blocks:8.2} {trips:5.1}"));
    format!("  {family:>4} {name:>14} {}", columns.join("  "))
}
