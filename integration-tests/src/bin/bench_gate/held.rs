//! The cost of waiting: 10,000 held requests of one real process, in memory and in CPU.

use std::{
    fmt,
    io::Write as _,
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use anyhow::Context as _;
use integration_tests::{
    member::{Member, RuleFile},
    redis::Redis,
    wait::wait_until,
};

/// Held requests, each on its own connection.
const HELD: u32 = 10_000;
/// How long nothing happens.
const IDLE: Duration = Duration::from_secs(5);
/// Ten thousand connections take seconds on a busy machine.
const SOON: Duration = Duration::from_secs(60);
/// One tick of `/proc/PID/stat`: `USER_HZ` is 100 on every Linux.
const TICK: Duration = Duration::from_millis(10);

/// The cost of waiting.
#[derive(Debug)]
pub(crate) struct Held {
    /// Resident bytes per held request, including its connection.
    each: u64,
    /// CPU per second while nothing happens.
    idle: Duration,
    /// The same before any request was held.
    empty: Duration,
}

/// A rule file for each store.
pub(crate) fn stores(redis: &Redis) -> [(&'static str, RuleFile); 2] {
    let file = || {
        let rule = "rate: 3/s, quota: 1/h, max_wait: 24h, queue: 20000, cooldown: off";
        let limits = "limits: {connections: 12000, per_client: 12000}";
        RuleFile::one_rule(rule).with(limits).with("log: {level: error}")
    };
    [("memory", file()), ("Redis", file().redis(redis))]
}

impl Held {
    pub(crate) fn measure(file: &RuleFile) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let member = Member::start(file).await;
            // The first request is granted but not sent anywhere. After it, the member has done its
            // allocations on first use.
            let _first = request(member.proxy())?;
            wait_until("the hour's quota is used", SOON, async || {
                member.metric("tidegate_tokens_granted_total", &[]).await > 0.5
            })
            .await;
            let empty = cpu_per_second(&member).await?;
            let before = member.resident_bytes();
            let connections: Vec<_> = (0..HELD)
                .map(|_| request(member.proxy()))
                .collect::<std::io::Result<_>>()
                .context("the proxy accepts")?;
            wait_until("all are held", SOON, async || {
                member.metric("tidegate_held_requests", &[]).await > f64::from(HELD) - 0.5
            })
            .await;
            let each = member.resident_bytes().saturating_sub(before) / u64::from(HELD);
            let idle = cpu_per_second(&member).await?;
            drop(connections);
            Ok(Self { each, idle, empty })
        })
    }
}

/// Requests a page on a new connection without waiting for the response.
fn request(proxy: SocketAddr) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect(proxy)?;
    stream.write_all(
        b"GET http://127.0.0.1:81/shelf/page.html?id=1234567 HTTP/1.1\r\nHost: 127.0.0.1:81\r\n\
          User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\n\
          Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n\
          Accept-Language: en-US,en;q=0.5\r\nAccept-Encoding: gzip, deflate, br, zstd\r\n\
          Cookie: session=0123456789abcdef0123456789abcdef\r\nConnection: keep-alive\r\n\r\n",
    )?;
    Ok(stream)
}

async fn cpu_per_second(member: &Member) -> anyhow::Result<Duration> {
    let before = cpu(member.pid())?;
    tokio::time::sleep(IDLE).await;
    Ok(cpu(member.pid())?.saturating_sub(before).div_f64(IDLE.as_secs_f64()))
}

/// CPU of a process so far, user and system.
fn cpu(pid: u32) -> anyhow::Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name in brackets may contain anything; the rest is numbers.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: Vec<u32> = fields.skip(11).take(2).map(str::parse).collect::<Result<_, _>>()?;
    Ok(TICK * ticks.iter().sum())
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{HELD} held requests take {:.1} KiB resident each, connection included; CPU while nothing moves: {:.1} ms \
             a second, and {:.1} with nothing held",
            bytes_in_kib(self.each),
            self.idle.as_secs_f64() * 1e3,
            self.empty.as_secs_f64() * 1e3
        )
    }
}

#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
fn bytes_in_kib(bytes: u64) -> f64 {
    bytes as f64 / 1024.0
}
