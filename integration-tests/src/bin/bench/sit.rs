//! The cost of idle connections and of held requests.
//!
//! Memory is the proportional set size of the proxy's whole process tree. A proxy without a gate
//! holds a request at a site that does not respond, with a connection to it. Tidegate holds it in a
//! cooldown, before it connects.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use integration_tests::{
    client::{delete, post_json},
    member::{Member, RuleFile},
    wait::wait_until,
};
use tokio::{io::AsyncReadExt as _, net::TcpListener};

use super::{
    Length,
    aims::{self, Record, Unit},
    load, origin,
    pages::Page,
    peers::{self, FULL, Peer, ROOMY},
    say, serves, usage,
};

/// Connections or requests whose memory is measured.
const SITTING: usize = 2_000;
/// Requests that are held to measure CPU.
const HELD: usize = 8_000;
/// How long nothing happens.
const QUIET: Duration = Duration::from_secs(5);
/// Thousands of connections take seconds on a busy machine.
const SOON: Duration = Duration::from_secs(60);
/// These figures hardly vary between runs.
const ROUNDS: usize = 3;
/// The proxies that can hold that many.
const ABLE: [&str; 5] = ["floor", "floor-aa", "tidegate", "haproxy", "squid"];
/// The rule's cooldown.
const COOLDOWN: &str = "/api/v1/scopes/default/cooldown";

/// Memory of each idle connection and of each held request.
pub(crate) async fn memory(length: Length, record: &mut Record) -> anyhow::Result<()> {
    let (site, _origin) = origin().await?;
    let mut names = peers::installed();
    names.retain(|name| ABLE.contains(name));
    let length = Length { rounds: length.rounds.min(ROUNDS), ..length };
    length
        .rounds(async |_| {
            for name in &names {
                record.add(aims::IDLE, Unit::Memory, name, idle(name, site).await?);
                record.add(aims::HELD, Unit::Memory, name, waiting(name, site).await?);
            }
            Ok(())
        })
        .await?;
    let mut text = format!("\nMemory, {SITTING:} of each; medians.\n\n");
    text.push_str(
        "| proxy | KiB per idle connection | / floor | KiB per held request | / floor |\n",
    );
    text.push_str("|---|---:|---:|---:|---:|\n");
    for name in names {
        let cells = [aims::IDLE, aims::HELD].map(|what| {
            let each = record.median(what, Unit::Memory, name);
            format!(" {each:.1} | {:.2} |", record.ratio(what, Unit::Memory, name, "floor"))
        });
        text.push_str(&format!("| {name} |{}\n", cells.concat()));
    }
    say(&text)
}

/// A proxy with enough descriptors, after its allocations on first use.
async fn start(name: &str, site: SocketAddr) -> anyhow::Result<Peer> {
    let peer = if name == "tidegate" {
        let rule = format!("max_wait: 1h, queue: 20000, {FULL}");
        Peer::tidegate(&RuleFile::one_rule(&rule).with(ROOMY), None).await
    } else {
        Peer::start(name, site).await?
    };
    serves(peer.at).await;
    Ok(peer)
}

/// KiB per connection that has had one response.
async fn idle(name: &str, site: SocketAddr) -> anyhow::Result<f64> {
    let peer = start(name, site).await?;
    load::run(peer.at, site, Page::Small, 8, Duration::from_millis(300)).await;
    let before = usage::memory(peer.pid())?;
    let clients = load::idle(peer.at, site, SITTING).await?;
    let each = (usage::memory(peer.pid())? - before) / count(clients.len());
    Ok(each)
}

/// KiB per request without a response.
async fn waiting(name: &str, site: SocketAddr) -> anyhow::Result<f64> {
    let silent = Silent::start().await?;
    let peer = start(name, silent.at).await?;
    let to = if peer.member().is_some() { site } else { silent.at };
    if let Some(member) = peer.member() {
        load::run(peer.at, site, Page::Small, 8, Duration::from_millis(300)).await;
        trip(member).await?;
    }
    let before = usage::memory(peer.pid())?;
    let clients = load::ask_only(peer.at, to, SITTING).await?;
    match peer.member() {
        Some(member) => all_held(member, SITTING).await,
        None => silent.has(SITTING).await,
    }
    let each = (usage::memory(peer.pid())? - before) / count(clients.len());
    Ok(each)
}

/// Many requests held in a cooldown: the CPU while nothing happens, and the responses at its end.
pub(crate) async fn held(record: &mut Record) -> anyhow::Result<()> {
    let (site, _origin) = origin().await?;
    let peer = start("tidegate", site).await?;
    let Some(member) = peer.member() else { anyhow::bail!("tidegate is a member") };
    load::run(peer.at, site, Page::Small, 8, Duration::from_millis(300)).await;
    trip(member).await?;
    let empty = quiet(peer.pid()).await?;
    let clients = load::ask_only(peer.at, site, HELD).await?;
    all_held(member, HELD).await;
    let full = quiet(peer.pid()).await?;
    let start = Instant::now();
    clear(member).await?;
    let answered = load::answered(clients).await;
    let took = start.elapsed();
    record.add(aims::WAITING, Unit::Core, "tidegate", full.core);
    record.add(aims::RELEASED, Unit::Answered, "tidegate", count(answered));
    record.add(aims::RELEASED, Unit::Answered, "those held", count(HELD));
    say(&format!(
        "\n{HELD} held, nothing happens: {:.2} % of a core, {:.0} wake-ups a second (with none held: {:.2} % and \
         {:.0}).\n{answered} are answered, {:.1} s after the cooldown's end.\n",
        full.core,
        full.wakeups,
        empty.core,
        empty.wakeups,
        took.as_secs_f64()
    ))
}

/// The activity of a process while nothing happens.
struct Quiet {
    /// Percent of one core.
    core: f64,
    /// Wakeups per second of all threads.
    wakeups: f64,
}

async fn quiet(pid: u32) -> anyhow::Result<Quiet> {
    // Lets earlier work finish.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (cpu, wakeups) = (usage::cpu(pid)?, usage::wakeups(pid)?);
    tokio::time::sleep(QUIET).await;
    let cpu = usage::cpu(pid)?.saturating_sub(cpu);
    let wakeups = usize::try_from(usage::wakeups(pid)?.saturating_sub(wakeups))?;
    let seconds = QUIET.as_secs_f64();
    Ok(Quiet { core: cpu.as_secs_f64() / seconds * 100.0, wakeups: count(wakeups) / seconds })
}

async fn trip(member: &Member) -> anyhow::Result<()> {
    let answer = post_json(member.admin(), COOLDOWN, r#"{"seconds": 3600}"#).await;
    anyhow::ensure!(answer.status == 200, "no cooldown: {}", answer.text());
    Ok(())
}

async fn clear(member: &Member) -> anyhow::Result<()> {
    let answer = delete(member.admin(), COOLDOWN).await;
    anyhow::ensure!(answer.status == 200, "the cooldown continues: {}", answer.text());
    Ok(())
}

async fn all_held(member: &Member, wanted: usize) {
    wait_until("all are held", SOON, async || {
        member.metric("tidegate_held_requests", &[]).await > count(wanted) - 0.5
    })
    .await;
}

/// A site that reads requests but does not respond.
struct Silent {
    at: SocketAddr,
    asked: Arc<AtomicUsize>,
}

impl Silent {
    async fn start() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (at, asked) = (listener.local_addr()?, Arc::new(AtomicUsize::new(0)));
        let counts = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let asked = Arc::clone(&counts);
                tokio::spawn(async move {
                    let mut piece = [0; 4096];
                    while matches!(stream.read(&mut piece).await, Ok(read) if read > 0) {
                        asked.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        Ok(Self { at, asked })
    }

    /// Waits until this many requests have arrived.
    async fn has(&self, wanted: usize) {
        wait_until("all are at the site", SOON, async || {
            self.asked.load(Ordering::Relaxed) >= wanted
        })
        .await;
    }
}

#[allow(clippy::cast_precision_loss, reason = "thousands")]
fn count(number: usize) -> f64 {
    number as f64
}
