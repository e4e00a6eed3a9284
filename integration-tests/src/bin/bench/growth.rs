//! The cost of a request as the number of connections, rules or scopes grows, which should not
//! change it.

mod plot;

use std::{fmt::Write as _, net::SocketAddr, path::Path, process::Command};

use anyhow::Context as _;
use integration_tests::{
    callgrind::Counted,
    member::{RuleFile, binary_path},
    ports::free_address,
};

use self::plot::Point;
use super::{
    Length, load, middle, origin,
    pages::Page,
    peers::{FULL, Peer, ROOMY},
    say, usage,
};

/// Busy connections beside the idle ones.
const ACTIVE: usize = 64;
/// Connections that send requests in turn while instructions are counted, and how many each sends.
const COUNTED: (usize, usize) = (16, 25);
/// Where the plot is drawn.
const PLOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/growth.svg");

/// The number that grows.
#[derive(Debug, Clone, Copy)]
enum Grows {
    Connections,
    Rules,
    Scopes,
}

impl Grows {
    const ALL: [Self; 3] = [Self::Connections, Self::Rules, Self::Scopes];

    const fn sizes(self) -> &'static [usize] {
        match self {
            Self::Connections => &[1, 10, 100, 1_000, 10_000],
            Self::Rules => &[1, 10, 100, 1_000],
            Self::Scopes => &[1, 10, 100, 1_000, 10_000, 100_000],
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Connections => "idle connections beside those that ask",
            Self::Rules => "rules, of which the last one matches",
            Self::Scopes => "scopes that have been asked for",
        }
    }

    /// The rule file with this many.
    fn file(self, size: usize) -> RuleFile {
        let last = format!("- {{name: last, match: \"*\", {FULL}}}");
        let file = match self {
            Self::Connections => RuleFile::new(&last),
            Self::Rules => {
                let rule = |n| format!("- {{name: r{n}, match: \"site{n}.example\", {FULL}}}\n");
                RuleFile::new(&((1..size).map(rule).collect::<String>() + &last))
            }
            Self::Scopes => RuleFile::one_rule(&format!("per: host, {FULL}")),
        };
        file.with(ROOMY)
    }
}

/// All three, each with a table and a panel of the plot.
pub(crate) async fn all(length: Length) -> anyhow::Result<()> {
    let (site, _origin) = origin().await?;
    let mut figures = Grows::ALL.map(|grows| vec![Vec::new(); grows.sizes().len()]);
    let rounds = length
        .rounds(async |_| {
            for (grows, figures) in Grows::ALL.into_iter().zip(&mut figures) {
                for (size, figures) in grows.sizes().iter().zip(figures) {
                    figures.push(one(grows, *size, site, length).await?);
                }
            }
            Ok(())
        })
        .await?;
    say(&format!("\nCPU per request, {ACTIVE} asking; {rounds} rounds of {:?}.\n", length.time))?;
    let mut panels = Vec::new();
    for (grows, figures) in Grows::ALL.into_iter().zip(figures) {
        let sizes = grows.sizes().iter().copied();
        let points: Vec<Point> =
            sizes.zip(figures).map(|(size, figures)| Point::new(size, figures)).collect();
        say(&table(grows, &points)?)?;
        panels.push((grows.name(), points));
    }
    // A copy of the program without its sources has no such folder.
    let place = Path::new(PLOT);
    if place.parent().is_some_and(Path::is_dir) {
        std::fs::write(place, plot::draw(&panels)).context(PLOT)?;
    }
    Ok(())
}

/// The same in user-mode instructions under callgrind, which do not depend on other load. The
/// largest sizes would take minutes there.
pub(crate) async fn instructions() -> anyhow::Result<()> {
    let (site, _origin) = origin().await?;
    for grows in Grows::ALL {
        let name = grows.name();
        say(&format!("\n| {name} | instructions | / the first |\n|---:|---:|---:|\n"))?;
        let mut first = None;
        for size in grows.sizes().iter().copied().filter(|size| *size <= 10_000) {
            let count = count(grows, size, site).await?;
            let over = count / *first.get_or_insert(count);
            say(&format!("| {size} | {count:.0} | {over:.3} |\n"))?;
        }
    }
    Ok(())
}

/// Instructions per request.
async fn count(grows: Grows, size: usize, site: SocketAddr) -> anyhow::Result<f64> {
    let file = grows.file(size).with("log: {level: error}");
    let proxy =
        tokio::task::block_in_place(|| Counted::start(|at, folder| tidegate(&file, at, folder)));
    let idle = fill(grows, size, proxy.at(), site).await?;
    let (connections, times) = COUNTED;
    let mut clients = load::idle(proxy.at(), site, connections).await?;
    // Allocations on first use are done.
    load::ask_in_turn(&mut clients, site, times).await?;
    let runtime = tokio::runtime::Handle::current();
    let mut asked = Ok(());
    let all = tokio::task::block_in_place(|| {
        proxy.during(|| asked = runtime.block_on(load::ask_in_turn(&mut clients, site, times)))
    });
    drop(idle);
    asked?;
    #[allow(clippy::cast_precision_loss)]
    Ok(all as f64 / (connections * times) as f64)
}

fn tidegate(file: &RuleFile, at: SocketAddr, folder: &Path) -> Command {
    let path = folder.join("tidegate.yaml");
    let admin = free_address();
    // The admin port renews its data of each rule every second, regardless of requests.
    let text = file.render(at, admin, folder).replace(&format!("admin: {admin}"), "admin: off");
    std::fs::write(&path, text).expect("a temporary folder is writable");
    let mut command = Command::new(binary_path());
    command.arg("--config").arg(path);
    command
}

/// Creates this many. The connections last as long as the result.
async fn fill(
    grows: Grows,
    size: usize,
    proxy: SocketAddr,
    site: SocketAddr,
) -> anyhow::Result<Vec<load::Client>> {
    match grows {
        Grows::Connections => return load::idle(proxy, site, size).await,
        Grows::Rules => {}
        Grows::Scopes => load::ask_each(proxy, hosts(site, size)).await?,
    }
    Ok(Vec::new())
}

/// CPU per request in microseconds.
async fn one(grows: Grows, size: usize, site: SocketAddr, length: Length) -> anyhow::Result<f64> {
    let peer = Peer::tidegate(&grows.file(size), None).await;
    let idle = fill(grows, size, peer.at, site).await?;
    load::run(peer.at, site, Page::Small, ACTIVE, length.time / 4).await;
    let before = usage::cpu(peer.pid())?;
    let load = load::run(peer.at, site, Page::Small, ACTIVE, length.time).await;
    let used = usage::cpu(peer.pid())?.saturating_sub(before);
    drop(idle);
    anyhow::ensure!(load.errors == 0, "{} requests failed", load.errors);
    Ok(load.each(used))
}

/// This many addresses of the origin, which listens on all of 127.0.0.0/8. The first is its main
/// address.
fn hosts(site: SocketAddr, size: usize) -> Vec<SocketAddr> {
    (1..=size)
        .map(|number| {
            let [_, high, middle, low] = u32::try_from(number).unwrap_or(1).to_be_bytes();
            SocketAddr::from(([127, high, middle, low], site.port()))
        })
        .collect()
}

fn table(grows: Grows, points: &[Point]) -> anyhow::Result<String> {
    let mut text = format!("\n| {} | CPU µs | least to most | / the first |\n", grows.name());
    text.push_str("|---:|---:|---:|---:|\n");
    let first = points.first().map_or(f64::NAN, |point| point.middle);
    for Point { size, middle, least, most } in points {
        let over = middle / first;
        writeln!(text, "| {size} | {middle:.1} | {least:.1} to {most:.1} | {over:.2} |")?;
    }
    Ok(text)
}
