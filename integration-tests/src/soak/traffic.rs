//! The traffic of the soak: patient clients, clients that disconnect, uploads, tunnels, and sites
//! that send garbage.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Request, header};
use http_body_util::Full;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{Ordering, World};
use crate::client::{ProxyClient, TIMEOUT, get_request, try_get};

/// Responses of a site that are not HTTP.
const GARBAGE: [&[u8]; 4] = [
    b"\x16\x03\x01\0\0",
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
    b"HTTP/1.1 999999 \r\n\r\n",
    b"SSH-2.0-OpenSSH_9.6\r\n",
];
/// Pages of the rough site, and whether they may end early.
const PAGES: [(&str, bool); 11] = [
    ("/", false),
    ("/a", false),
    ("/slow", false),
    ("/drip", false),
    ("/large", false),
    ("/missing", false),
    ("/wall", false),
    ("/", false),
    ("/hang", false),
    ("/reset", false),
    ("/cut", true),
];

/// A site that sends garbage, as long as the runtime lives.
pub(super) async fn garbage() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback binds");
    let address = listener.local_addr().expect("a bound socket has an address");
    tokio::spawn(async move {
        for answer in GARBAGE.iter().cycle() {
            let Ok((mut stream, _)) = listener.accept().await else { return };
            tokio::spawn(async move {
                let mut head = [0; 1024];
                // The result does not matter; the proxy is tested.
                drop(stream.read(&mut head).await);
                drop(stream.write_all(answer).await);
            });
        }
    });
    address
}

/// Starts all clients; they end with the soak.
pub(super) fn start(world: &Arc<World>, seed: u64) -> JoinSet<()> {
    let mut all = JoinSet::new();
    for n in 0..20 {
        let (world, mut random) = (Arc::clone(world), fastrand::Rng::with_seed(seed ^ n));
        all.spawn(async move {
            while !world.over.load(Ordering::Relaxed) {
                let slot = random.usize(..world.slots.len());
                match n {
                    0..6 => world.even(slot).await,
                    6..12 => world.rough(slot, &mut random).await,
                    12..15 => world.leave(slot, &mut random).await,
                    15..17 => world.upload(slot, &mut random).await,
                    17..19 => world.tunnel(slot).await,
                    _ => world.nonsense(slot).await,
                }
                sleep(Duration::from_millis(random.u64(0..40))).await;
            }
        });
    }
    all
}

impl World {
    /// The current address of the slot's member, and its generation.
    fn at(&self, slot: usize) -> (SocketAddr, usize) {
        let slot = &self.slots[slot];
        // The generation is read first: a change after that excuses the request.
        let generation = slot.generation.load(Ordering::SeqCst);
        (*slot.proxy.lock(), generation)
    }

    /// Counts the result of a request. An error is a loss, unless the member was stopped meanwhile.
    fn count(&self, kind: &'static str, slot: usize, seen: usize, came: Result<String, String>) {
        let mut tally = self.tally.lock();
        match came {
            Ok(outcome) => *tally.answers.entry((kind, outcome)).or_default() += 1,
            Err(_) if self.slots[slot].excuses(seen) => tally.excused += 1,
            Err(error) => tally.lost.push(format!("{kind} at member {slot}: {error}")),
        }
    }

    async fn even(&self, slot: usize) {
        let (proxy, seen) = self.at(slot);
        let came = try_get(proxy, &self.even.url("/")).await;
        if let Ok(answer) = &came {
            self.tally.lock().waits.push(answer.took);
        }
        self.count("even", slot, seen, came.map(outcome).map_err(|error| error.to_string()));
    }

    async fn rough(&self, slot: usize, random: &mut fastrand::Rng) {
        let (proxy, seen) = self.at(slot);
        let (path, may_break) = PAGES[random.usize(..PAGES.len())];
        let came = try_get(proxy, &self.rough_url(path)).await;
        let came = match came {
            Ok(answer) => Ok(outcome(answer)),
            Err(_) if may_break => Ok("broken off, as the site did".to_owned()),
            Err(error) => Err(format!("{path}: {error}")),
        };
        self.count("rough", slot, seen, came);
    }

    async fn nonsense(&self, slot: usize) {
        let (proxy, seen) = self.at(slot);
        let url = format!("http://localhost:{}/", self.garbage.port());
        let came = try_get(proxy, &url).await;
        self.count("nonsense", slot, seen, came.map(outcome).map_err(|error| error.to_string()));
    }

    /// Sends a request and usually disconnects before the response.
    async fn leave(&self, slot: usize, random: &mut fastrand::Rng) {
        let (proxy, _) = self.at(slot);
        let Ok(mut stream) = TcpStream::connect(proxy).await else { return };
        let url = if random.bool() { self.even.url("/left") } else { self.rough_url("/slow") };
        let head = format!("GET {url} HTTP/1.1\r\nHost: h\r\n\r\n");
        let part = random.usize(1..=head.len());
        if stream.write_all(&head.as_bytes()[..part]).await.is_ok() {
            sleep(Duration::from_millis(random.u64(0..200))).await;
        }
        *self.tally.lock().answers.entry(("leave", "gone".to_owned())).or_default() += 1;
    }

    async fn upload(&self, slot: usize, random: &mut fastrand::Rng) {
        let (proxy, seen) = self.at(slot);
        let body = Full::new(Bytes::from(vec![b'x'; random.usize(0..256 << 10)]));
        let url = self.rough_url("/");
        let (mut head, _) = get_request(&url).into_parts();
        head.method = http::Method::POST;
        head.headers.insert(header::USER_AGENT, header::HeaderValue::from_static("soak"));
        let request = Request::from_parts(head, body);
        let came = async { ProxyClient::try_connect(proxy).await?.send(request).await }.await;
        self.count("upload", slot, seen, came.map(outcome).map_err(|error| error.to_string()));
    }

    /// A CONNECT with a request inside.
    async fn tunnel(&self, slot: usize) {
        let (proxy, seen) = self.at(slot);
        let to = format!("localhost:{}", self.rough.address().port());
        let talk = async {
            let mut stream = TcpStream::connect(proxy).await?;
            stream
                .write_all(format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n").as_bytes())
                .await?;
            let opened = line(&mut stream).await?;
            if opened.contains(" 200") {
                let inside =
                    format!("GET /missing HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\n\r\n");
                stream.write_all(inside.as_bytes()).await?;
                let mut rest = Vec::new();
                stream.read_to_end(&mut rest).await?;
            }
            std::io::Result::Ok(opened.split(' ').nth(1).unwrap_or("nothing").to_owned())
        };
        let came = match timeout(TIMEOUT, talk).await {
            Ok(Ok(status)) => Ok(status),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("no answer in time".to_owned()),
        };
        self.count("tunnel", slot, seen, came);
    }

    fn rough_url(&self, path: &str) -> String {
        format!("http://localhost:{}{path}", self.rough.address().port())
    }
}

fn outcome(answer: crate::client::Answer) -> String {
    match answer.refused() {
        Some(reason) => format!("{} {reason}", answer.status),
        None => answer.status.to_string(),
    }
}

/// The first line of a head. The rest up to the empty line is skipped.
async fn line(stream: &mut TcpStream) -> std::io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") && head.len() < 16 << 10 {
        head.push(stream.read_u8().await?);
    }
    Ok(String::from_utf8_lossy(&head).lines().next().unwrap_or_default().to_owned())
}
