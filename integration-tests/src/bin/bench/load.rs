//! The load client: keep-alive connections with one request at a time each.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
    time::timeout,
};

use super::pages::Page;

/// A response that takes longer is an error.
const ANSWER_AT_MOST: Duration = Duration::from_secs(10);
/// The same for requests that are all released at once.
const RELEASED_AT_MOST: Duration = Duration::from_secs(60);
/// The first part of a load (one in so many), which is not measured, because hundreds of
/// connections are set up at once.
const SETTLING: u32 = 4;
/// Connections that warm up a proxy before the measured load.
const FILLING: usize = 64;

/// The results of a load.
#[derive(Debug, Default)]
pub(crate) struct Load {
    pub(crate) requests: u64,
    pub(crate) errors: u64,
    pub(crate) seconds: f64,
    /// Microseconds from request to response, without the first part, ascending.
    waits: Vec<u32>,
}

impl Load {
    #[allow(clippy::cast_precision_loss)]
    pub(crate) fn rate(&self) -> f64 {
        self.requests as f64 / self.seconds
    }

    /// Microseconds of `used` per request.
    #[allow(clippy::cast_precision_loss)]
    pub(crate) fn each(&self, used: Duration) -> f64 {
        used.as_secs_f64() * 1e6 / self.requests.max(1) as f64
    }

    /// Milliseconds until half of the requests had a response.
    pub(crate) fn p50(&self) -> f64 {
        self.percentile(50)
    }

    /// Milliseconds until 99 % of the requests had a response.
    pub(crate) fn p99(&self) -> f64 {
        self.percentile(99)
    }

    fn percentile(&self, percent: usize) -> f64 {
        let at = self.waits.len() * percent / 100;
        self.waits.get(at).map_or(f64::NAN, |wait| f64::from(*wait) / 1e3)
    }

    fn add(&mut self, other: Self) {
        self.requests += other.requests;
        self.errors += other.errors;
        self.waits.extend(other.waits);
    }
}

/// Requests a page of `site` through `proxy` for this long.
pub(crate) async fn run(
    proxy: SocketAddr,
    site: SocketAddr,
    page: Page,
    connections: usize,
    time: Duration,
) -> Load {
    let start = Instant::now();
    let mut clients = JoinSet::new();
    for _ in 0..connections {
        clients.spawn(async move {
            let mut seen = Load::default();
            let asked = async {
                let mut client = Client::connect(proxy).await?;
                while start.elapsed() < time {
                    let settled = start.elapsed() > time / SETTLING;
                    let wait = client.ask(site, page).await?;
                    seen.waits.extend(settled.then_some(wait));
                    seen.requests += 1;
                }
                Ok::<_, io::Error>(())
            };
            if asked.await.is_err() {
                seen.errors += 1;
            }
            seen
        });
    }
    let mut all = Load::default();
    while let Some(seen) = clients.join_next().await {
        match seen {
            Ok(seen) => all.add(seen),
            Err(_) => all.errors += 1,
        }
    }
    all.seconds = start.elapsed().as_secs_f64();
    all.waits.sort_unstable();
    all
}

/// Requests the small page of each of `sites` once.
///
/// # Errors
/// One of them sent no response.
pub(crate) async fn ask_each(proxy: SocketAddr, sites: Vec<SocketAddr>) -> anyhow::Result<()> {
    let (sites, next) = (Arc::new(sites), Arc::new(AtomicUsize::new(0)));
    let mut clients = JoinSet::new();
    for _ in 0..FILLING {
        let (sites, next) = (Arc::clone(&sites), Arc::clone(&next));
        clients.spawn(async move {
            let mut client = Client::connect(proxy).await?;
            while let Some(site) = sites.get(next.fetch_add(1, Ordering::Relaxed)) {
                client.ask(*site, Page::Small).await?;
            }
            Ok::<_, io::Error>(())
        });
    }
    while let Some(asked) = clients.join_next().await {
        asked??;
    }
    Ok(())
}

/// This many idle connections, each of which has had one response.
///
/// # Errors
/// One of them got no response.
pub(crate) async fn idle(
    proxy: SocketAddr,
    site: SocketAddr,
    connections: usize,
) -> anyhow::Result<Vec<Client>> {
    let mut clients = Vec::with_capacity(connections);
    for _ in 0..connections {
        let mut client = Client::connect(proxy).await?;
        client.ask(site, Page::Small).await?;
        clients.push(client);
    }
    Ok(clients)
}

/// Sends this many requests on each of the connections in turn.
///
/// # Errors
/// One of them got no response.
pub(crate) async fn ask_in_turn(
    clients: &mut [Client],
    site: SocketAddr,
    times: usize,
) -> anyhow::Result<()> {
    for _ in 0..times {
        for client in &mut *clients {
            client.ask(site, Page::Small).await?;
        }
    }
    Ok(())
}

/// This many connections, each with a request for the small page that is still without a response.
///
/// # Errors
/// A request cannot be sent.
pub(crate) async fn ask_only(
    proxy: SocketAddr,
    site: SocketAddr,
    connections: usize,
) -> anyhow::Result<Vec<Client>> {
    let mut clients = Vec::with_capacity(connections);
    for _ in 0..connections {
        let mut client = Client::connect(proxy).await?;
        client.stream.write_all(request(site, Page::Small).as_bytes()).await?;
        clients.push(client);
    }
    Ok(clients)
}

/// How many of these requests get a response.
pub(crate) async fn answered(clients: Vec<Client>) -> usize {
    let mut waiting = JoinSet::new();
    for mut client in clients {
        waiting.spawn(timeout(RELEASED_AT_MOST, async move {
            client.answer(Page::Small.bytes()).await
        }));
    }
    let ends = waiting.join_all().await;
    ends.iter().filter(|end| matches!(end, Ok(Ok(())))).count()
}

fn request(site: SocketAddr, page: Page) -> String {
    let path = page.path();
    format!(
        "GET http://{site}{path} HTTP/1.1\r\nHost: {site}\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n"
    )
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    async fn connect(proxy: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(proxy).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::new() })
    }

    /// Sends one request and returns the microseconds until its response. Any other response is an
    /// error.
    async fn ask(&mut self, site: SocketAddr, page: Page) -> io::Result<u32> {
        let request = request(site, page);
        let start = Instant::now();
        self.stream.write_all(request.as_bytes()).await?;
        timeout(ANSWER_AT_MOST, self.answer(page.bytes())).await??;
        Ok(u32::try_from(start.elapsed().as_micros()).unwrap_or(u32::MAX))
    }

    async fn answer(&mut self, bytes: usize) -> io::Result<()> {
        self.buffer.clear();
        let head = loop {
            self.read().await?;
            let head = self.buffer.windows(4).position(|end| end == b"\r\n\r\n");
            if let Some(head) = head {
                break head + 4;
            }
        };
        if !self.buffer.starts_with(b"HTTP/1.1 200") {
            return Err(io::ErrorKind::InvalidData.into());
        }
        while self.buffer.len() < head + bytes {
            self.read().await?;
        }
        if self.buffer.len() > head + bytes {
            Err(io::ErrorKind::InvalidData.into())
        } else {
            Ok(())
        }
    }

    async fn read(&mut self) -> io::Result<()> {
        match self.stream.read_buf(&mut self.buffer).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}
