//! A proxy on a free port, sites that record their requests, and a client that sends raw bytes.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

use crate::{
    gate::Gate,
    limiter::policy::Limits,
    observability::{event::Events, metrics::Metrics},
    proxy::{Context, serve},
    rules::{
        Rule, RuleSet,
        settings::{
            Auth, Bounds, Egress, EgressPattern, Inspect, Log, LogFormat, RefuseStatuses, Settings,
            StoreSettings, Timeouts,
        },
    },
    store::{Backend, Memory},
};

/// The longest duration of any step in these tests.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) fn settings() -> Settings {
    Settings {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        admin: None,
        store: StoreSettings::Memory,
        auth: Auth { none: true, ..Auth::default() },
        egress: Egress { allow: vec![EgressPattern::Loopback], ..Egress::default() },
        inspect: Inspect {
            bytes: 16 << 10,
            error_bytes: 128 << 10,
            delay: Duration::from_millis(500),
            same_page: true,
            keep: None,
        },
        timeouts: Timeouts {
            header: Duration::from_secs(5),
            connect: Duration::from_secs(5),
            response: Duration::from_secs(5),
            idle: Duration::from_secs(5),
            notice: Duration::ZERO,
            drain: Duration::from_secs(5),
        },
        limits: Bounds {
            connections: 100,
            per_client: 100,
            tunnels: 10,
            header_bytes: 64 << 10,
            headers: 100,
            streams: 100,
            resets: 20,
            idle_per_host: 8,
            idle_total: 100,
        },
        ca_dir: "unused".into(),
        ca: None,
        upstream_ca: Vec::new(),
        annotate: true,
        refuse: RefuseStatuses { limit: 429, cooldown: 503 },
        log: Log {
            level: "info".to_owned(),
            format: LogFormat::Text,
            access: false,
            access_file: None,
        },
    }
}

pub(crate) fn rule() -> Rule {
    Rule {
        limits: Limits { rate: None, burst: 5, quotas: Vec::new(), cost: 1, learn: None },
        max_wait: Duration::from_secs(10),
        queue: 100,
        ..Rule::unlimited("default")
    }
}

/// A running proxy.
pub(crate) struct Bench {
    pub(crate) addr: SocketAddr,
    pub(crate) cx: Arc<Context>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) stop: CancellationToken,
    pub(crate) served: JoinHandle<usize>,
}

impl Bench {
    pub(crate) async fn start() -> Self {
        Self::with(settings(), vec![rule()]).await
    }

    pub(crate) async fn with(settings: Settings, rules: Vec<Rule>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let metrics = Metrics::new();
        let events = Events::new(Arc::clone(&metrics));
        let gate = Gate::new(
            RuleSet::new(rules),
            Backend::Memory(Memory::default()),
            Arc::clone(&metrics),
            Arc::clone(&events),
            Duration::from_secs(60),
        );
        let cx = Context::new(settings, gate, Arc::clone(&metrics), events, None, vec![addr]);
        let stop = CancellationToken::new();
        let served = tokio::spawn(serve(listener, Arc::clone(&cx), Arc::default(), stop.clone()));
        Self { addr, cx, metrics, stop, served }
    }

    pub(crate) async fn connect(&self) -> Client {
        Client { stream: TcpStream::connect(self.addr).await.unwrap(), read: Vec::new() }
    }

    /// One GET on a connection of its own.
    pub(crate) async fn get(&self, url: &str) -> RawResponse {
        self.ask(&format!("GET {url} HTTP/1.1\r\nhost: {}\r\n\r\n", host_of(url))).await
    }

    /// One request on a connection of its own.
    pub(crate) async fn ask(&self, request: &str) -> RawResponse {
        let mut client = self.connect().await;
        client.send(request).await;
        client.answer().await
    }

    /// The value of a line of the metrics; 0 if it is missing.
    pub(crate) fn metric(&self, line: &str) -> f64 {
        self.cx.gate.refresh_metrics();
        let text = self.metrics.render();
        let found = text.lines().find_map(|one| one.strip_prefix(line)?.strip_prefix(' '));
        found.map_or(0.0, |value| value.parse().unwrap())
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.stop.cancel();
        self.cx.end.cancel();
    }
}

fn host_of(url: &str) -> &str {
    url.split('/').nth(2).unwrap()
}

/// Waits until `condition` holds.
pub(crate) async fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = crate::runtime::clock::now() + PATIENCE;
    while !condition() {
        assert!(crate::runtime::clock::now() < deadline, "{what}: not in time");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// A client's connection to the proxy.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    read: Vec<u8>,
}

impl Client {
    pub(crate) async fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.unwrap();
    }

    /// Bytes up to and including `mark`.
    pub(crate) async fn read_to(&mut self, mark: &str) -> String {
        loop {
            let text = String::from_utf8_lossy(&self.read).into_owned();
            if let Some(at) = text.find(mark) {
                let head = text[..at + mark.len()].to_owned();
                self.read.drain(..head.len());
                return head;
            }
            assert!(self.more().await, "the connection ended before {mark:?}: {text:?}");
        }
    }

    /// Everything until the connection ends.
    pub(crate) async fn rest(&mut self) -> String {
        while self.more().await {}
        String::from_utf8_lossy(&std::mem::take(&mut self.read)).into_owned()
    }

    async fn more(&mut self) -> bool {
        let reading = self.stream.read_buf(&mut self.read);
        match tokio::time::timeout(PATIENCE, reading).await.expect("bytes in time") {
            Ok(size) => size > 0,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => false,
            Err(error) => panic!("{error}"),
        }
    }

    /// One response whose body has a length, or no body.
    pub(crate) async fn answer(&mut self) -> RawResponse {
        let head = self.read_to("\r\n\r\n").await;
        let mut answer = RawResponse { head, body: Vec::new() };
        let length = answer.field("content-length").map(|length| length.parse::<usize>().unwrap());
        if let Some(length) = length {
            while self.read.len() < length {
                assert!(self.more().await, "the body ended early");
            }
            answer.body = self.read.drain(..length).collect();
        }
        answer
    }

    /// The head of an answer only.
    pub(crate) async fn head(&mut self) -> RawResponse {
        RawResponse { head: self.read_to("\r\n\r\n").await, body: Vec::new() }
    }
}

/// A response as received.
#[derive(Debug)]
pub(crate) struct RawResponse {
    pub(crate) head: String,
    body: Vec<u8>,
}

impl RawResponse {
    pub(crate) fn status(&self) -> u16 {
        self.head.split(' ').nth(1).unwrap().parse().unwrap()
    }

    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (field, value) = line.split_once(':')?;
            field.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    pub(crate) fn body(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

/// A site that records the head (and body) of each request and responds as its script says.
pub(crate) struct Site {
    pub(crate) addr: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
    pub(crate) connections: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

/// A site's reaction to one request: the bytes to send, and whether to close afterwards.
pub(crate) type Script = dyn Fn(usize, &str) -> (String, bool) + Send + Sync;

impl Site {
    /// Gives the same answer to every request and keeps the connection.
    pub(crate) async fn answering(answer: &'static str) -> Self {
        Self::scripted(move |_, _| (answer.to_owned(), false)).await
    }

    /// `script` gets the number of the request and its text.
    pub(crate) async fn scripted(
        script: impl Fn(usize, &str) -> (String, bool) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let connections = Arc::new(AtomicUsize::new(0));
        let script: Arc<Script> = Arc::new(script);
        let (log, count) = (Arc::clone(&requests), Arc::clone(&connections));
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                count.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(converse(stream, Arc::clone(&script), Arc::clone(&log)));
            }
        });
        Self { addr, requests, connections, task }
    }

    /// Its address, for a test that no longer needs the site. The site runs until the test ends.
    pub(crate) fn addr_for_good(self) -> SocketAddr {
        let addr = self.addr;
        std::mem::forget(self);
        addr
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.addr)
    }

    /// The text of request `number`, once it has arrived.
    pub(crate) async fn request(&self, number: usize) -> String {
        until("a request reaches the site", || self.requests.lock().len() > number).await;
        self.requests.lock()[number].clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.requests.lock().len()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn converse(mut stream: TcpStream, script: Arc<Script>, log: Arc<Mutex<Vec<String>>>) {
    let mut read = Vec::new();
    while let Some(request) = next_request(&mut stream, &mut read).await {
        let number = {
            let mut log = log.lock();
            log.push(request.clone());
            log.len() - 1
        };
        let (answer, close) = script(number, &request);
        if stream.write_all(answer.as_bytes()).await.is_err() || close {
            return;
        }
    }
}

/// Head and body as received; `None` at the end of the connection.
async fn next_request(stream: &mut TcpStream, read: &mut Vec<u8>) -> Option<String> {
    loop {
        let text = String::from_utf8_lossy(read).into_owned();
        if let Some(head) = text.find("\r\n\r\n").map(|at| at + 4) {
            let lower = text[..head].to_ascii_lowercase();
            let end = match lower.split("content-length: ").nth(1) {
                Some(rest) => head + rest.split("\r\n").next()?.parse::<usize>().ok()?,
                None if lower.contains("transfer-encoding: chunked") => {
                    text.find("0\r\n\r\n").map_or(usize::MAX, |at| at + 5)
                }
                None => head,
            };
            if read.len() >= end {
                read.drain(..end);
                return Some(text[..end].to_owned());
            }
        }
        if stream.read_buf(read).await.ok()? == 0 {
            return None;
        }
    }
}
