//! `make bench`: what Tidegate costs beside the proxies that are installed and a bare hyper proxy.
//!
//! Free-standing: origin, bare proxy (`floor`) and load client are this program; haproxy, nginx, squid and
//! redis-server take part where they are installed. Every round starts each proxy anew, in another order; a figure
//! is the median of the rounds, a ratio the median of the rounds' own ratios. `floor-aa` is the floor once more:
//! how far its ratio is from 1 is what the run cannot tell apart. `BENCH_ROUNDS` and `BENCH_SECONDS` (of each load)
//! make it longer.

mod floor;
mod load;
mod peers;

use std::{
    collections::BTreeMap,
    io::Write as _,
    net::SocketAddr,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use integration_tests::{ports::free_address, wait::wait_until};

use self::{load::Load, peers::Peer};

/// Connections of each load.
const CONNECTIONS: [usize; 3] = [1, 64, 512];
/// A process that does not serve after so long is left out.
const START_AT_MOST: Duration = Duration::from_secs(15);

/// What one load told: the client's figures, and the proxy's CPU.
struct Cell {
    load: Load,
    /// Microseconds per request, user and system.
    cpu: f64,
}

/// Cells by proxy and connections, one per round.
type Table = BTreeMap<(&'static str, usize), Vec<Cell>>;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    match (arguments.next().as_deref(), arguments.next()) {
        (Some("origin"), Some(at)) => floor::origin(at.parse()?).await,
        (Some("floor"), Some(at)) => floor::proxy(at.parse()?).await,
        _ => bench().await,
    }
}

async fn bench() -> anyhow::Result<()> {
    let rounds = usize::try_from(number("BENCH_ROUNDS", 5)?)?;
    let time = Duration::from_secs(number("BENCH_SECONDS", 2)?);
    let origin = free_address();
    let _origin = peers::this_program("origin", origin)?;
    serves(origin).await;
    let mut names = peers::installed();
    let mut table = Table::new();
    for round in 1..=rounds {
        for name in &names {
            let peer = Peer::start(name, origin).await?;
            serves(peer.at).await;
            for connections in CONNECTIONS {
                let cell = measure(&peer, origin, connections, time).await?;
                table.entry((name, connections)).or_default().push(cell);
            }
        }
        // No proxy always comes after the same one's mess.
        names.rotate_left(1);
        say(&format!("round {round} of {rounds} is done\n"))?;
    }
    names.sort_unstable();
    say(&render(&names, &table, rounds, time))
}

fn number(variable: &str, usual: u64) -> anyhow::Result<u64> {
    match std::env::var(variable) {
        Ok(text) => text.parse().with_context(|| format!("{variable} is no number")),
        Err(_) => Ok(usual),
    }
}

async fn serves(at: SocketAddr) {
    wait_until("a server comes up", START_AT_MOST, async || {
        tokio::net::TcpStream::connect(at).await.is_ok()
    })
    .await;
}

/// A short load to fill its pools, then the one that counts.
async fn measure(
    peer: &Peer,
    origin: SocketAddr,
    connections: usize,
    time: Duration,
) -> anyhow::Result<Cell> {
    load::run(peer.at, origin, connections, time / 4).await;
    let before = peers::cpu(peer.pid())?;
    let start = Instant::now();
    let mut load = load::run(peer.at, origin, connections, time).await;
    load.seconds = start.elapsed().as_secs_f64();
    let used = peers::cpu(peer.pid())?.saturating_sub(before);
    #[allow(clippy::cast_precision_loss)]
    let cpu = used.as_secs_f64() * 1e6 / (load.requests.max(1) as f64);
    Ok(Cell { load, cpu })
}

fn render(names: &[&'static str], table: &Table, rounds: usize, time: Duration) -> String {
    let mut text = format!(
        "\n1 KB, keep-alive; medians of {rounds} rounds of {} s each.\n\n\
         | proxy | req/s c1 | c64 | c512 | p50/p99 ms c1 | c64 | c512 | CPU µs/req c1 | c64 | c512 | \
         CPU / floor c64 | c512 | errors |\n|---|{}\n",
        time.as_secs(),
        "---:|".repeat(12)
    );
    for name in names {
        let cells = CONNECTIONS.map(|c| table.get(&(*name, c)).map_or(&[][..], Vec::as_slice));
        let each = |figure: &dyn Fn(&[Cell]) -> String| cells.map(figure).join(" | ");
        let rate = each(&|cells| format!("{:.0}", median(cells, |cell| cell.load.rate())));
        let wait = each(&|cells| {
            let ms = |of: fn(&Load) -> f64| median(cells, |cell| of(&cell.load));
            format!("{:.2} / {:.2}", ms(Load::p50), ms(Load::p99))
        });
        let cpu = each(&|cells| format!("{:.1}", median(cells, |cell| cell.cpu)));
        let ratio = [64, 512].map(|c| format!("{:.2}", ratio(table, name, c))).join(" | ");
        let errors: u64 = cells.iter().flat_map(|cells| cells.iter()).map(|c| c.load.errors).sum();
        text.push_str(&format!("| {name} | {rate} | {wait} | {cpu} | {ratio} | {errors} |\n"));
    }
    text
}

fn median(cells: &[Cell], figure: impl Fn(&Cell) -> f64) -> f64 {
    middle(cells.iter().map(figure).collect())
}

/// CPU per request over the floor's in the same round.
fn ratio(table: &Table, name: &'static str, connections: usize) -> f64 {
    let (Some(own), Some(floor)) =
        (table.get(&(name, connections)), table.get(&("floor", connections)))
    else {
        return f64::NAN;
    };
    middle(own.iter().zip(floor).map(|(own, floor)| own.cpu / floor.cpu).collect())
}

fn middle(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

fn say(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}
