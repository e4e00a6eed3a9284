//! `make bench`: the cost of Tidegate compared with other installed proxies and a bare hyper proxy.
//!
//! Origin, bare proxy (`floor`) and load client are part of this program. haproxy, nginx, squid,
//! tinyproxy and redis-server take part if they are installed. Without arguments all parts run,
//! otherwise the named ones:
//! - `c1`, `c64`, `c512`: a page of 1 KB over this many connections;
//! - `pages`: 64 KB of HTML, inspected and not, and 64 KB of an image, over 64 connections;
//! - `stream`: 1 MB of HTML over 8 connections;
//! - `tunnels`, `interception`: set-up, requests and 1 GiB;
//! - `memory`: 2,000 idle connections and 2,000 held requests;
//! - `held`: 8,000 held requests, their cost while nothing happens, and whether all get a response;
//! - `growth`: the cost of a request as the number of connections, rules and scopes grows; draws
//!   `docs/growth.svg`;
//! - `instructions`: the same under callgrind, only if named, because it needs valgrind.
//!
//! At the end it compares the results with the goals. A part takes as many rounds as fit into four
//! minutes, at most `BENCH_ROUNDS` (15). `BENCH_SECONDS` (1) is the length of each load, and
//! `BENCH_ONLY=floor,tidegate` selects proxies.

mod aims;
mod compare;
mod floor;
mod growth;
mod load;
mod origin;
mod pages;
mod peers;
mod sit;
mod tls;
mod usage;

use std::{
    io::Write as _,
    net::SocketAddr,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use integration_tests::{ports::free_address, wait::wait_until};

use self::{aims::Record, floor::Floor, tls::Kind};

/// A process that does not serve after this time is left out.
const START_AT_MOST: Duration = Duration::from_secs(15);
/// The time limit of a part: no round starts that would end later.
const PART_AT_MOST: Duration = Duration::from_secs(220);
/// All parts.
const PARTS: [&str; 10] =
    ["c1", "c64", "c512", "pages", "stream", "tunnels", "interception", "memory", "held", "growth"];

/// The number of rounds and the length of a load.
#[derive(Debug, Clone, Copy)]
struct Length {
    rounds: usize,
    time: Duration,
}

impl Length {
    /// Runs `round` as often as configured, or as often as fits. Returns the number of rounds.
    async fn rounds(
        self,
        mut round: impl AsyncFnMut(usize) -> anyhow::Result<()>,
    ) -> anyhow::Result<usize> {
        let (start, mut longest) = (Instant::now(), Duration::ZERO);
        for number in 0..self.rounds {
            let began = Instant::now();
            round(number).await?;
            longest = longest.max(began.elapsed());
            say(&format!("round {} of {} is done\n", number + 1, self.rounds))?;
            if start.elapsed() + longest > PART_AT_MOST {
                return Ok(number + 1);
            }
        }
        Ok(self.rounds)
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    open_many();
    match arguments[..] {
        ["origin", at] => origin::serve(at.parse()?).await,
        ["floor", at] => Floor::bare().serve(at.parse()?).await,
        ["floor", at, "redis", redis] => {
            Floor::limited(redis.parse()?).await?.serve(at.parse()?).await
        }
        ["floor", at, "intercept", root, ca] => {
            Floor::intercepting(Path::new(root), Path::new(ca))?.serve(at.parse()?).await
        }
        [] => bench(&PARTS).await,
        _ => bench(&arguments).await,
    }
}

async fn bench(parts: &[&str]) -> anyhow::Result<()> {
    let rounds = usize::try_from(number("BENCH_ROUNDS", 15)?)?;
    let length = Length { rounds, time: Duration::from_secs(number("BENCH_SECONDS", 1)?) };
    let mut record = Record::default();
    for part in parts {
        match *part {
            "c1" => compare::all(compare::ONE, length, &mut record).await?,
            "c64" => compare::all(compare::SOME, length, &mut record).await?,
            "c512" => compare::all(compare::MANY, length, &mut record).await?,
            "pages" => compare::all(compare::PAGES, length, &mut record).await?,
            "stream" => compare::all(compare::STREAM, length, &mut record).await?,
            "tunnels" => tls::all(Kind::Tunnels, length, &mut record).await?,
            "interception" => tls::all(Kind::Interception, length, &mut record).await?,
            "memory" => sit::memory(length, &mut record).await?,
            "held" => sit::held(&mut record).await?,
            "growth" => growth::all(length).await?,
            "instructions" => growth::instructions().await?,
            other => anyhow::bail!("{other}: there are {} and instructions", PARTS.join(", ")),
        }
    }
    say(&aims::table(&record)?)
}

/// Raises the limit of descriptors for this process and its children.
fn open_many() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    // If this fails, a load that needs them reports an error.
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).ok();
}

fn number(variable: &str, usual: u64) -> anyhow::Result<u64> {
    match std::env::var(variable) {
        Ok(text) => text.parse().with_context(|| format!("{variable} is no number")),
        Err(_) => Ok(usual),
    }
}

/// An origin on its own port, on all loopback addresses.
async fn origin() -> anyhow::Result<(SocketAddr, peers::Process)> {
    let at = free_address();
    let process = peers::this_program("origin", SocketAddr::from(([0, 0, 0, 0], at.port())))?;
    serves(at).await;
    Ok((at, process))
}

async fn serves(at: SocketAddr) {
    wait_until("a server comes up", START_AT_MOST, async || {
        tokio::net::TcpStream::connect(at).await.is_ok()
    })
    .await;
}

/// A different order in each round, so that no proxy always follows the same one.
fn turned(mut names: Vec<&'static str>, round: usize) -> Vec<&'static str> {
    let first = round % names.len().max(1);
    names.rotate_left(first);
    names
}

/// The median.
fn middle(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

fn say(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}
