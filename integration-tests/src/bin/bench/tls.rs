//! HTTPS: what tunnels cost beside the other proxies, and what interception costs.
//!
//! Client and site do their TLS on the same cores, so that how fast it goes is theirs as much as the proxy's; the CPU
//! is the proxy's alone. Each figure is of a new process.

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
/// Counts hosts, so that each is a new one.
static NEW_HOST: AtomicU64 = AtomicU64::new(0);
/// Who tunnels; haproxy and nginx do not.
const TUNNELLING: [&str; 5] = ["floor", "floor-aa", "tidegate", "squid", "tinyproxy"];
/// Who intercepts.
const INTERCEPTING: [&str; 3] = ["floor", "floor-aa", "tidegate"];

/// What is done with the client's TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It passes through.
    Tunnels,
    /// It ends in the proxy.
    Interception,
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Row {
    /// A connection to the proxy, a CONNECT, its answer.
    Setup,
    /// The large page through one tunnel.
    Tunnelled,
    /// Small pages over intercepted connections that are kept, in HTTP/1.1.
    Request,
    /// The same in HTTP/2, one stream at a time on each connection.
    Request2,
    /// A connection to the proxy, a CONNECT, a full handshake of TLS, a small page.
    Connection,
    /// The same, each time for a host that has no certificate yet.
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

    /// Connections at a time.
    const fn at_once(self) -> usize {
        match self {
            Self::Request | Self::Request2 => 64,
            Self::Setup | Self::Connection | Self::Host => 16,
            Self::Tunnelled | Self::Intercepted => 1,
        }
    }

    /// The proxies that do it and are here.
    fn proxies(self) -> Vec<&'static str> {
        let able: &[&str] = match self {
            Self::Setup | Self::Tunnelled => &TUNNELLING,
            Self::Request2 => &["tidegate"],
            _ => &INTERCEPTING,
        };
        peers::installed().into_iter().filter(|name| able.contains(name)).collect()
    }

    /// One connection after the other, or one; the units that were done.
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

    /// Several clients at a time; the first that fails ends it.
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
        // What is made once is there before it counts.
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

/// A proxy, and the file of the root that a client trusts that looks through it.
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
