//! `make soak`: a fleet of three under load and faults for MINUTES (5), then MUTATIONS (100,000) of
//! requests that real servers must read alike, and a report of both. Exits with 1 if a promise is
//! broken.

use std::{process::ExitCode, time::Duration};

use integration_tests::{
    differential,
    soak::{Plan, run},
};

#[tokio::main]
#[allow(clippy::print_stdout, reason = "the report is what this program is for")]
async fn main() -> ExitCode {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<f64>().ok());
    let length = Duration::from_secs_f64(number("MINUTES").unwrap_or(5.0) * 60.0);
    let seed = std::env::var("SEED").ok().and_then(|text| text.parse().ok());
    let plan = Plan { length, seed: seed.unwrap_or_else(|| fastrand::u64(..1 << 32)) };
    println!("seed {}", plan.seed);
    let report = run(plan).await;
    println!("{report}");
    let mutations = std::env::var("MUTATIONS").ok().and_then(|text| text.parse().ok());
    let read = differential::run(mutations.unwrap_or(100_000), plan.seed).await;
    println!("{read}");
    let good = report.broken().is_empty() && read.conflicts.is_empty();
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
