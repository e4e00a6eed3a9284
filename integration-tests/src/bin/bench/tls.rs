//! HTTPS: what tunnels cost beside the other proxies, and what interception costs.
//!
//! Client and site do their TLS on the same cores, so that how fast it goes is theirs as much as the proxy's; the CPU
//! is the proxy's alone. Each figure is of a new process.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    io,
    net::SocketAddr,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::Context as _;
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::{http2, http2::SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use integration_tests::{
    member::RuleFile,
    secure::{Flaw, Root},
    site::{Page, Site},
};
use rustls::{
    ClientConfig, RootCertStore,
    client::Resumption,
    crypto::ring,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::{
    Length, middle, peers,
    peers::{FULL, Peer},
    say, serves,
};

/// Connections at a time, but for the large page.
const AT_ONCE: usize = 16;
/// Length of the large page.
const MEBIBYTES: u64 = 1024;
/// What is read at once of the large page.
const PIECE: usize = 256 << 10;
/// Counts hosts, so that each is a new one.
static NEW_HOST: AtomicU64 = AtomicU64::new(0);
/// Who tunnels; haproxy and nginx do not.
const TUNNELLING: [&str; 5] = ["floor", "floor-aa", "tidegate", "squid", "tinyproxy"];

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
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

/// What one row told of one proxy.
struct Cell {
    /// Units per second.
    rate: f64,
    /// Microseconds per unit, user and system.
    cpu: f64,
    /// MiB by which resident memory was higher at its highest than before.
    growth: f64,
}

impl Row {
    const ALL: [Self; 7] = [
        Self::Setup,
        Self::Tunnelled,
        Self::Request,
        Self::Request2,
        Self::Connection,
        Self::Host,
        Self::Intercepted,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Setup => "tunnels set up",
            Self::Tunnelled => "1 GiB through a tunnel, MiB",
            Self::Request => "intercepted requests, HTTP/1.1",
            Self::Request2 => "intercepted requests, HTTP/2",
            Self::Connection => "new intercepted connections, each with a request",
            Self::Host => "the same, each for a new host",
            Self::Intercepted => "1 GiB through interception, MiB",
        }
    }

    const fn intercepts(self) -> bool {
        !matches!(self, Self::Setup | Self::Tunnelled)
    }

    /// The proxies that do it and are here.
    fn proxies(self) -> Vec<&'static str> {
        let can = |name: &&str| {
            if self.intercepts() { *name == "tidegate" } else { TUNNELLING.contains(name) }
        };
        peers::installed().into_iter().filter(can).collect()
    }

    async fn start(self, name: &str, site: &Site, root: &Root) -> anyhow::Result<Peer> {
        if !self.intercepts() {
            return Peer::start(name, site.address()).await;
        }
        let known = format!("upstream_ca: [\"{}\"]", root.file().display());
        let file = RuleFile::one_rule(&format!("intercept: true, {FULL}")).with(&known);
        Ok(Peer::tidegate(&file, None).await)
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
        let at_once = match self {
            Self::Tunnelled | Self::Intercepted => 1,
            _ => AT_ONCE,
        };
        let mut clients = JoinSet::new();
        for _ in 0..at_once {
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
        name: &str,
        site: &Site,
        root: &Root,
        time: Duration,
    ) -> anyhow::Result<Cell> {
        let peer = self.start(name, site, root).await?;
        serves(peer.at).await;
        let trusted = if self.intercepts() { peer.ca_file() } else { None };
        let trusted = trusted.unwrap_or_else(|| root.file());
        let client = Client::new(peer.at, site.address(), &trusted)?;
        // What is made once is there before it counts.
        client.get(&mut client.secure().await?, "/").await?;
        let (memory, cpu) = (peers::memory(peer.pid(), "VmRSS:")?, peers::cpu(peer.pid())?);
        let start = Instant::now();
        let done = self.load(&client, time).await.with_context(|| format!("{self:?}, {name}"))?;
        let took = start.elapsed();
        let cpu = peers::cpu(peer.pid())?.saturating_sub(cpu);
        let growth = peers::memory(peer.pid(), "VmHWM:")?.saturating_sub(memory);
        site.forget();
        #[allow(clippy::cast_precision_loss)]
        let (done, growth) = (done.max(1) as f64, growth as f64 / 1024.0);
        let (rate, cpu) = (done / took.as_secs_f64(), cpu.as_secs_f64() * 1e6 / done);
        Ok(Cell { rate, cpu, growth })
    }
}

/// All rows.
pub(crate) async fn all(length: Length) -> anyhow::Result<()> {
    let root = Root::new();
    let site = Site::secure(root.server(Flaw::None));
    site.on("/large", Page::Mebibytes(MEBIBYTES));
    let mut table: BTreeMap<(Row, &str), Vec<Cell>> = BTreeMap::new();
    for round in 0..length.rounds {
        for row in Row::ALL {
            let mut names = row.proxies();
            let first = round % names.len().max(1);
            // No proxy always comes after the same one's mess.
            names.rotate_left(first);
            for name in names {
                let cell = row.measure(name, &site, &root, length.time).await?;
                table.entry((row, name)).or_default().push(cell);
            }
        }
        say(&format!("round {} of {} is done\n", round + 1, length.rounds))?;
    }
    let mut text = format!("\nHTTPS; medians of {} rounds.\n\n", length.rounds);
    text.push_str("| what | proxy | per s | CPU µs each | memory + MiB |\n");
    text.push_str("|---|---|---:|---:|---:|\n");
    for row in Row::ALL {
        for name in row.proxies() {
            let cells = table.get(&(row, name)).map_or(&[][..], Vec::as_slice);
            let median = |of: fn(&Cell) -> f64| middle(cells.iter().map(of).collect());
            let (rate, cpu) = (median(|cell| cell.rate), median(|cell| cell.cpu));
            let growth = median(|cell| cell.growth);
            writeln!(text, "| {} | {name} | {rate:.0} | {cpu:.1} | {growth:.1} |", row.name())?;
        }
    }
    say(&text)
}

/// Who asks, through which proxy, whom.
#[derive(Clone)]
struct Client {
    proxy: SocketAddr,
    site: SocketAddr,
    tls: TlsConnector,
}

impl Client {
    /// One that trusts the certificates of this file.
    fn new(proxy: SocketAddr, site: SocketAddr, trusted: &Path) -> anyhow::Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(trusted)?)?;
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        // A new connection is to be one of a client that is new.
        config.resumption = Resumption::disabled();
        Ok(Self { proxy, site, tls: TlsConnector::from(Arc::new(config)) })
    }

    /// A tunnel to the site.
    async fn tunnel(&self) -> io::Result<TcpStream> {
        let mut stream = TcpStream::connect(self.proxy).await?;
        stream.set_nodelay(true)?;
        let to = self.site;
        let connect = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n");
        stream.write_all(connect.as_bytes()).await?;
        let (head, rest) = head(&mut stream).await?;
        let is_open = head.starts_with("HTTP/1.") && head.get(8..12) == Some(" 200");
        if is_open && rest == 0 { Ok(stream) } else { Err(io::Error::other(head)) }
    }

    /// A tunnel with TLS to whoever answers as the site.
    async fn secure(&self) -> io::Result<TlsStream<TcpStream>> {
        self.secure_as(ServerName::from(self.site.ip()), b"http/1.1").await
    }

    /// The same with a name that is asked for, and one protocol inside.
    async fn secure_as(
        &self,
        name: ServerName<'static>,
        protocol: &[u8],
    ) -> io::Result<TlsStream<TcpStream>> {
        let tls = self.tls.with_alpn(vec![protocol.to_vec()]);
        tls.connect(name, self.tunnel().await?).await
    }

    /// A tunnel that speaks HTTP/2 with whoever answers as the site.
    async fn http2(&self) -> io::Result<SendRequest<Empty<Bytes>>> {
        let stream = self.secure_as(ServerName::from(self.site.ip()), b"h2").await?;
        let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .map_err(io::Error::other)?;
        tokio::spawn(connection);
        Ok(sender)
    }

    /// One request in HTTP/2.
    async fn get_http2(&self, sender: &mut SendRequest<Empty<Bytes>>) -> io::Result<()> {
        let request = Request::get(format!("https://{}/", self.site)).header("accept", "*/*");
        let request = request.body(Empty::new()).map_err(io::Error::other)?;
        let answer = sender.send_request(request).await.map_err(io::Error::other)?;
        if answer.status() != StatusCode::OK {
            return Err(io::Error::other(answer.status().to_string()));
        }
        answer.into_body().collect().await.map_err(io::Error::other).map(drop)
    }

    /// One request; the length of its body, which has come.
    async fn get<S>(&self, stream: &mut S, path: &str) -> io::Result<u64>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\nAccept: */*\r\n\r\n", self.site);
        stream.write_all(request.as_bytes()).await?;
        let (head, mut came) = head(stream).await?;
        let head = head.to_ascii_lowercase();
        let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
        let length = length.and_then(|length| length.trim().parse::<u64>().ok());
        let length = length.filter(|_| head.starts_with("http/1.1 200"));
        let Some(length) = length else { return Err(io::Error::other(head)) };
        let mut piece = vec![0; PIECE];
        while came < length {
            match stream.read(&mut piece).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                more => came += more as u64,
            }
        }
        Ok(length)
    }
}

/// The next head, and how many bytes came behind it.
async fn head<S: AsyncRead + Unpin>(stream: &mut S) -> io::Result<(String, u64)> {
    let mut buffer = Vec::with_capacity(4096);
    loop {
        if stream.read_buf(&mut buffer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if let Some(end) = buffer.windows(4).position(|four| four == b"\r\n\r\n") {
            let rest = buffer.split_off(end + 4);
            return Ok((String::from_utf8_lossy(&buffer).into_owned(), rest.len() as u64));
        }
    }
}
