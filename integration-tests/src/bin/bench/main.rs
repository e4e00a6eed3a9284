//! `make bench`: what Tidegate costs beside the proxies that are installed and a bare hyper proxy.
//!
//! Free-standing: origin, bare proxy (`floor`) and load client are this program; haproxy, nginx, squid, tinyproxy and
//! redis-server take part where they are installed. Its parts, all of them or those that are named:
//! - `small`: a page of 1 KB over 1, 64 and 512 connections;
//! - `pages`: 64 KB of HTML, inspected and not, and 64 KB of an image, over 64 connections;
//! - `growth`: what a request costs as connections, rules and scopes become more;
//! - `tls`: tunnels, and interception: set-ups, requests and 1 GiB.
//!
//! `BENCH_ROUNDS` and `BENCH_SECONDS` (of each load) make it longer, `BENCH_ONLY=floor,tidegate` shorter.

mod compare;
mod floor;
mod growth;
mod load;
mod pages;
mod peers;
mod tls;

use std::{io::Write as _, net::SocketAddr, time::Duration};

use anyhow::Context as _;
use integration_tests::{ports::free_address, wait::wait_until};

use self::{load::Load, pages::Page};

/// A process that does not serve after so long is left out.
const START_AT_MOST: Duration = Duration::from_secs(15);

/// How often and how long.
#[derive(Debug, Clone, Copy)]
struct Length {
    rounds: usize,
    time: Duration,
}

/// What one load told: the client's figures, and the proxy's CPU.
struct Cell {
    load: Load,
    /// Microseconds per request, user and system.
    cpu: f64,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["origin", at] => floor::origin(at.parse()?).await,
        ["floor", at] => floor::proxy(at.parse()?).await,
        [] => bench(&["small", "pages", "growth", "tls"]).await,
        _ => bench(&arguments).await,
    }
}

async fn bench(parts: &[&str]) -> anyhow::Result<()> {
    let rounds = usize::try_from(number("BENCH_ROUNDS", 5)?)?;
    let length = Length { rounds, time: Duration::from_secs(number("BENCH_SECONDS", 2)?) };
    for part in parts {
        match *part {
            "small" => compare::small(length).await?,
            "pages" => compare::pages(length).await?,
            "growth" => growth::all(length).await?,
            "tls" => tls::all(length).await?,
            other => anyhow::bail!("{other}: there are `small`, `pages`, `growth` and `tls`"),
        }
    }
    Ok(())
}

fn number(variable: &str, usual: u64) -> anyhow::Result<u64> {
    match std::env::var(variable) {
        Ok(text) => text.parse().with_context(|| format!("{variable} is no number")),
        Err(_) => Ok(usual),
    }
}

/// An origin at a port of its own, on all loopback addresses.
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

/// A short load to fill its pools, then the one that counts.
async fn measure(
    peer: &peers::Peer,
    site: SocketAddr,
    (page, connections): (Page, usize),
    time: Duration,
) -> anyhow::Result<Cell> {
    load::run(peer.at, site, page, connections, time / 4).await;
    let before = peers::cpu(peer.pid())?;
    let load = load::run(peer.at, site, page, connections, time).await;
    let used = peers::cpu(peer.pid())?.saturating_sub(before);
    #[allow(clippy::cast_precision_loss)]
    let cpu = used.as_secs_f64() * 1e6 / (load.requests.max(1) as f64);
    Ok(Cell { load, cpu })
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
