//! `make bench-cooldown`: three members, sixty busy connections, fifty trips. Measures how long
//! requests still reach a site after its third block in a row, and how long the news takes to every
//! member.

use std::{io::Write as _, time::Duration};

use integration_tests::storm::{RULE, Storm, Trip};

const MEMBERS: usize = 3;
const CLIENTS: usize = 20;
const TRIPS: usize = 50;
/// The promised limit.
const PROMISE: Duration = Duration::from_millis(20);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut storm = Storm::start(MEMBERS, CLIENTS).await;
    let mut trips = Vec::with_capacity(TRIPS);
    for _ in 0..TRIPS {
        trips.push(storm.trip().await);
    }
    storm.end().await;
    report(&trips)?;
    Ok(())
}

fn report(trips: &[Trip]) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    let connections = MEMBERS * CLIENTS;
    writeln!(out, "{TRIPS} trips, {MEMBERS} members, {connections} busy connections; {RULE}")?;
    writeln!(out, "from the third blocked answer, as the site sent it, in ms:")?;
    writeln!(out, "{:44} {:>7} {:>7} {:>7}", "", "p50", "p99", "worst")?;
    let mut line = |what: &str, mut times: Vec<Duration>| {
        times.sort_unstable();
        let [p50, p99, worst] = [0.5, 0.99, 1.0].map(|share| ms(at(&times, share)));
        writeln!(out, "{what:44} {p50:>7.1} {p99:>7.1} {worst:>7.1}")
    };
    line("until the news arrives (Redis push)", trips.iter().map(|trip| trip.news).collect())?;
    line("until the last request of the first member", trips.iter().map(first).collect())?;
    line("until the last request of any member", trips.iter().map(Trip::last_of_all).collect())?;
    let leaked: usize = trips.iter().map(|trip| trip.leaked(PROMISE)).sum();
    writeln!(out, "sent by a client more than {PROMISE:?} after the news, and leaked: {leaked}")
}

/// The member that paused first, usually the one that read the tripping response.
fn first(trip: &Trip) -> Duration {
    trip.last.iter().min().copied().unwrap_or_default()
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "an index into fifty"
)]
fn at(sorted: &[Duration], share: f64) -> Duration {
    let last = sorted.len().saturating_sub(1);
    sorted.get((last as f64 * share).ceil() as usize).copied().unwrap_or_default()
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
