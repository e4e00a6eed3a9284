//! A site with a limited capacity that queues what exceeds it, in virtual time through the real gates.

use integration_tests::overloaded::{Haul, crawl};

use super::{FIRST_SEED, mean};

/// Moments at which the haul is read, in seconds.
const MOMENTS: [u64; 2] = [600, 3_600];

/// Prints the yield for each rate, with and without `overload: ease`, over this many seeds.
#[allow(clippy::print_stdout, reason = "the report is this program's output")]
pub(crate) fn run(seeds: u64) {
    println!(
        "{seeds} seeds: pages %, 503s per 100 pages, longest queue from the third minute on in seconds, crawls with a \
         cooldown; after 10 minutes and 1 hour\n"
    );
    for times in [2.0, 5.0] {
        for key in ["ignore", "ease"] {
            let seeds = u64::from(FIRST_SEED)..u64::from(FIRST_SEED) + seeds;
            let runs: Vec<_> = seeds.map(|seed| one(times, key, seed)).collect();
            let columns =
                [0, 1].map(|at| text(&runs.iter().map(|run| run[at]).collect::<Vec<_>>()));
            println!("{times}x, overload: {key:6} {}", columns.join("  "));
        }
    }
}

fn one(times: f64, key: &str, seed: u64) -> [Haul; 2] {
    let rate = 1.0 + 9.0 * fastrand::Rng::with_seed(seed).f64();
    crawl(rate, &format!("rate: {:.6}/s, overload: {key}", rate * times), MOMENTS, seed)
}

fn text(hauls: &[Haul]) -> String {
    let of = |value: fn(&Haul) -> f64| mean(&hauls.iter().map(value).collect::<Vec<_>>());
    let queue = hauls.iter().map(|haul| haul.queue).fold(0.0, f64::max);
    let tripped = hauls.iter().filter(|haul| haul.tripped).count();
    let (pages, refused) = (of(|haul| haul.pages), of(|haul| haul.refused));
    format!("{pages:6.1} {refused:7.2} {queue:6.1} {tripped:3}")
}
