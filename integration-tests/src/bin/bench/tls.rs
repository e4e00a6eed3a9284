//! HTTPS: the cost of tunnels compared with the other proxies, and the cost of interception.
//!
//! Client and site run TLS on the same cores, so the throughput depends on them too; the CPU is the
//! proxy's only. Each figure comes from a new process.

mod client;

use std::{
    fmt::Write as _,
    io,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use integration_tests::{
    member::RuleFile,
    secure::{Flaw, Root},
    site::{Page, Site},
};
use rustls::pki_types::ServerName;
use tokio::task::JoinSet;

use self::client::Client;
use super::{
    Length,
    aims::{self, Record, Unit, What},
    peers,
    peers::{FULL, Peer},
    say, serves, turned, usage,
};

/// Length of the large page.
const MEBIBYTES: u64 = 1024;
/// Numbers the hosts, so that each is new.
static NEW_HOST: AtomicU64 = AtomicU64::new(0);
/// The proxies that tunnel; haproxy and nginx do not.
const TUNNELLING: [&str; 5] = ["floor", "floor-aa", "tidegate", "squid", "tinyproxy"];
/// The proxies that intercept.
const INTERCEPTING: [&str; 3] = ["floor", "floor-aa", "tidegate"];

/// How the proxy treats the client's TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It passes through.
    Tunnels,
    /// The proxy terminates it.
    Interception,
}

/// A measured operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Row {
    /// A connection to the proxy, a CONNECT, its response.
    Setup,
    /// The large page through one tunnel.
    Tunnelled,
    /// Small pages over kept-alive intercepted connections, with HTTP/1.1.
    Request,
    /// The same with HTTP/2, one stream at a time per connection.
    Request2,
    /// A connection to the proxy, a CONNECT, a full TLS handshake, a small page.
    Connection,
    /// The same, each time for a host without a cached certificate.
    Host,
    /// The large page through one intercepted connection.
    Intercepted,
}

impl Row {
    const fn of(kind: Kind) -> &'static [Self] {
        match kind {
            Kind::Tunnels => &[Self::Setup, Self::Tunnelled],
            Kind::Interception => {
                &[Self::Request, Self::Request2, Self::Connection, Self::Host, Self::Intercepted]
            }
        }
    }

    const fn what(self) -> What {
        match self {
            Self::Setup => aims::SETUP,
            Self::Tunnelled => aims::TUNNELLED,
            Self::Request => aims::REQUEST,
            Self::Request2 => aims::REQUEST2,
            Self::Connection => aims::CONNECTION,
            Self::Host => aims::HOST,
            Self::Intercepted => aims::INTERCEPTED,
        }
    }

    /// Concurrent connections.
    const fn at_once(self) -> usize {
        match self {
            Self::Request | Self::Request2 => 64,
            Self::Setup | Self::Connection | Self::Host => 16,
            Self::Tunnelled | Self::Intercepted => 1,
        }
    }

    /// The installed proxies that support it.
    fn proxies(self) -> Vec<&'static str> {
        let able: &[&str] = match self {
            Self::Setup | Self::Tunnelled => &TUNNELLING,
            Self::Request2 => &["tidegate"],
            _ => &INTERCEPTING,
        };
        peers::installed().into_iter().filter(|name| able.contains(name)).collect()
    }

    /// Repeats the operation, or does it once, and returns the number of units.
    async fn work(self, client: &Client, time: Duration) -> io::Result<u64> {
        let (start, mut done) = (Instant::now(), 0);
        match self {
            Self::Setup => {
                while start.elapsed() < time {
                    client.tunnel().await?;
                    done += 1;
                }
            }
            Self::Request => {
                let mut stream = client.secure().await?;
                while start.elapsed() < time {
                    client.get(&mut stream, "/").await?;
                    done += 1;
                }
            }
            Self::Request2 => {
                let mut sender = client.http2().await?;
                while start.elapsed() < time {
                    client.get_http2(&mut sender).await?;
                    done += 1;
                }
            }
            Self::Host => {
                while start.elapsed() < time {
                    let host = NEW_HOST.fetch_add(1, Ordering::Relaxed);
                    let name = ServerName::try_from(format!("h{host}.example"));
                    let name = name.map_err(io::Error::other)?;
                    client.get(&mut client.secure_as(name, b"http/1.1").await?, "/").await?;
                    done += 1;
                }
            }
            Self::Connection => {
                while start.elapsed() < time {
                    client.get(&mut client.secure().await?, "/").await?;
                    done += 1;
                }
            }
            Self::Tunnelled | Self::Intercepted => {
                done = client.get(&mut client.secure().await?, "/large").await? >> 20;
            }
        }
        Ok(done)
    }

    /// Several clients at once. The first error ends the load.
    async fn load(self, client: &Client, time: Duration) -> anyhow::Result<u64> {
        let mut clients = JoinSet::new();
        for _ in 0..self.at_once() {
            let client = client.clone();
            clients.spawn(async move { self.work(&client, time).await });
        }
        let mut done = 0;
        while let Some(one) = clients.join_next().await {
            done += one??;
        }
        Ok(done)
    }

    async fn measure(
        self,
        name: &'static str,
        peer: &Peer,
        client: &Client,
        time: Duration,
        record: &mut Record,
    ) -> anyhow::Result<()> {
        // Allocations on first use are done before the measurement.
        client.get(&mut client.secure().await?, "/").await?;
        let (memory, cpu) = (usage::status(peer.pid(), "VmRSS:")?, usage::cpu(peer.pid())?);
        let start = Instant::now();
        let done = self.load(client, time).await.with_context(|| format!("{self:?}, {name}"))?;
        let took = start.elapsed();
        let cpu = usage::cpu(peer.pid())?.saturating_sub(cpu);
        let growth = usage::status(peer.pid(), "VmHWM:")?.saturating_sub(memory);
        #[allow(clippy::cast_precision_loss)]
        let (done, growth) = (done.max(1) as f64, growth as f64 / 1024.0);
        record.add(self.what(), Unit::Rate, name, done / took.as_secs_f64());
        record.add(self.what(), Unit::Cpu, name, cpu.as_secs_f64() * 1e6 / done);
        record.add(self.what(), Unit::Growth, name, growth);
        Ok(())
    }
}

/// Starts a proxy, with the root that its client trusts.
async fn start(kind: Kind, name: &str, site: &Site, root: &Root) -> anyhow::Result<Peer> {
    let peer = match (kind, name) {
        (Kind::Tunnels, _) => Peer::start(name, site.address()).await?,
        (Kind::Interception, "tidegate") => {
            let known = format!("upstream_ca: [\"{}\"]", root.file().display());
            let file = RuleFile::one_rule(&format!("intercept: true, {FULL}")).with(&known);
            Peer::tidegate(&file, None).await
        }
        (Kind::Interception, _) => Peer::intercepting(&root.file())?,
    };
    serves(peer.at).await;
    Ok(peer)
}

/// All rows of one kind.
pub(crate) async fn all(kind: Kind, length: Length, record: &mut Record) -> anyhow::Result<()> {
    let root = Root::new();
    let site = Site::secure(root.server(Flaw::None));
    site.on("/large", Page::Mebibytes(MEBIBYTES));
    let rounds = length
        .rounds(async |round| {
            for row in Row::of(kind) {
                for name in turned(row.proxies(), round) {
                    let peer = start(kind, name, &site, &root).await?;
                    let trusted = match kind {
                        Kind::Tunnels => root.file(),
                        Kind::Interception => peer.ca_file(),
                    };
                    let client = Client::new(peer.at, site.address(), &trusted)?;
                    row.measure(name, &peer, &client, length.time, record).await?;
                    site.forget();
                }
            }
            Ok(())
        })
        .await?;
    say(&render(kind, rounds, record)?)
}

fn render(kind: Kind, rounds: usize, record: &Record) -> anyhow::Result<String> {
    let mut text = format!("\n{kind:?}; medians of {rounds} rounds.\n\n");
    text.push_str("| what | proxy | per s | CPU µs each | / floor | memory + MiB |\n");
    text.push_str("|---|---|---:|---:|---:|---:|\n");
    for row in Row::of(kind) {
        let what = row.what();
        for name in row.proxies() {
            let figure = |unit| record.median(what, unit, name);
            let over = record.ratio(what, Unit::Cpu, name, "floor");
            let (rate, cpu) = (figure(Unit::Rate), figure(Unit::Cpu));
            let growth = figure(Unit::Growth);
            writeln!(text, "| {what} | {name} | {rate:.0} | {cpu:.1} | {over:.2} | {growth:.1} |")?;
        }
    }
    Ok(text)
}
