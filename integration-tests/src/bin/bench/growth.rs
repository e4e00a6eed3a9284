//! What a request costs as there is more of something that should not matter to it: connections, rules, scopes.

use std::{fmt::Write as _, net::SocketAddr};

use integration_tests::member::RuleFile;

use super::{
    Length, load, measure, middle, origin,
    pages::Page,
    peers::{FULL, Peer},
    say,
};

/// Connections that ask while the others are there.
const ACTIVE: usize = 64;
/// Width of the plot.
const WIDTH: f64 = 40.0;

/// What grows.
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
            Self::Connections => &[1, 100, 1_000, 9_900],
            Self::Rules => &[1, 10, 100, 1_000],
            Self::Scopes => &[1, 100, 10_000, 100_000],
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Connections => "idle connections beside those that ask",
            Self::Rules => "rules, of which the last one matches",
            Self::Scopes => "scopes that have been asked for",
        }
    }

    /// The rule file with so many.
    fn file(self, size: usize) -> RuleFile {
        let limits = "limits: {connections: 20000, per_client: 20000}";
        let last = format!("- {{name: last, match: \"*\", {FULL}}}");
        let file = match self {
            Self::Connections => RuleFile::new(&last),
            Self::Rules => {
                let rule = |n| format!("- {{name: r{n}, match: \"site{n}.example\", {FULL}}}\n");
                RuleFile::new(&((1..size).map(rule).collect::<String>() + &last))
            }
            Self::Scopes => RuleFile::one_rule(&format!("per: host, {FULL}")),
        };
        file.with(limits)
    }
}

/// All three, each with a plot.
pub(crate) async fn all(length: Length) -> anyhow::Result<()> {
    let (site, _origin) = origin().await?;
    for grows in Grows::ALL {
        let mut rounds = vec![Vec::new(); grows.sizes().len()];
        for _ in 0..length.rounds {
            for (at, size) in grows.sizes().iter().enumerate() {
                rounds[at].push(one(grows, *size, site, length).await?);
            }
        }
        let figures = rounds.into_iter().map(middle).collect::<Vec<_>>();
        say(&plot(grows, &figures)?)?;
    }
    Ok(())
}

/// CPU per request in microseconds.
async fn one(grows: Grows, size: usize, site: SocketAddr, length: Length) -> anyhow::Result<f64> {
    let peer = Peer::tidegate(&grows.file(size), None).await;
    let mut idle = Vec::new();
    match grows {
        Grows::Connections => idle = load::idle(peer.at, site, size).await?,
        Grows::Rules => {}
        Grows::Scopes => load::ask_each(peer.at, hosts(site, size)).await?,
    }
    let cell = measure(&peer, site, (Page::Small, ACTIVE), length.time).await?;
    drop(idle);
    anyhow::ensure!(cell.load.errors == 0, "{} requests failed", cell.load.errors);
    Ok(cell.cpu)
}

/// So many addresses of the origin, which listens on all of 127.0.0.0/8; the first is its own.
fn hosts(site: SocketAddr, size: usize) -> Vec<SocketAddr> {
    (1..=size)
        .map(|number| {
            let [_, high, middle, low] = u32::try_from(number).unwrap_or(1).to_be_bytes();
            SocketAddr::from(([127, high, middle, low], site.port()))
        })
        .collect()
}

fn plot(grows: Grows, figures: &[f64]) -> anyhow::Result<String> {
    let mut text = format!("\nCPU per request by {}, {ACTIVE} asking:\n\n", grows.name());
    let most = figures.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    for (size, cpu) in grows.sizes().iter().zip(figures) {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let bar = "#".repeat((cpu / most * WIDTH) as usize);
        writeln!(text, "{size:>8} {cpu:>6.1} µs  {bar}")?;
    }
    Ok(text)
}
