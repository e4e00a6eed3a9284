//! A whole connection, with arbitrary bytes from the client and from the site.

use std::{
    net::SocketAddr,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    time::Duration,
};

use tidegate::{
    cli::app::App,
    config::{self, Overrides},
    observability::{event::Events, metrics::Metrics},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    runtime::{Builder, Runtime},
    time::timeout,
};

use super::message;

/// Separates the client's bytes from the site's.
const PARTED: &[u8] = b"\n==== site ====\n";
/// Replaced by the site's address in the client's bytes.
const SITE: &[u8] = b"SITE";
/// After this long without a byte, nothing more is expected.
const QUIET: Duration = Duration::from_millis(30);
/// Most bytes of a response that are read.
const MOST: usize = 1 << 20;
/// The rule intercepts, because a raw tunnel counts flights instead of requests.
const RULES: &str = "listen: 127.0.0.1:0\nadmin: off\negress: {allow: [loopback]}\nca_dir: ${CA_DIR}\n\
    rules: [{name: all, match: '*', intercept: true, rate: 100000/s, burst: 100000, learn: false, \
    cooldown: off}]\n";

/// A proxy that serves as long as the process lives.
struct Proxy {
    at: SocketAddr,
    metrics: Arc<Metrics>,
}

/// The client's bytes, in which `SITE` stands for the site, a separator, and the site's response to
/// each request. No request may reach the site without a permit of the gate.
pub(super) fn connection(data: &[u8]) {
    static PROXY: OnceLock<Proxy> = OnceLock::new();
    let proxy = PROXY.get_or_init(start);
    let parted = data.windows(PARTED.len()).position(|window| window == PARTED);
    let (client, site) = match parted {
        Some(at) => (&data[..at], &data[at + PARTED.len()..]),
        None => (data, &b"HTTP/1.1 204 No Content\r\n\r\n"[..]),
    };
    let before = proxy.permits();
    let reached = runtime().block_on(converse(proxy.at, client, site.to_vec()));
    let permits = proxy.permits() - before;
    assert!(
        reached <= permits,
        "{reached} requests with {permits} permits: {}",
        data.escape_ascii()
    );
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime starts")
}

fn start() -> Proxy {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        runtime().block_on(async {
            let folder = format!("tidegate-fuzz-{}", std::process::id());
            let folder = std::env::temp_dir().join(folder).to_str().map(str::to_owned);
            let env = |name: &str| folder.clone().filter(|_| name == "CA_DIR");
            let loaded = config::parse(RULES, "rules.yaml", &env).expect("the rules are good");
            let metrics = Metrics::new();
            let events = Events::new(Arc::clone(&metrics));
            let log = Box::new(|_: &str| Ok(()));
            let app = App::build(loaded, Overrides::default(), Arc::clone(&metrics), events, log);
            let app = app.await.expect("loopback has a port");
            let at = app.listen().expect("it is bound");
            sender.send(Proxy { at, metrics }).expect("the caller waits for it");
            let (_stop, stopped) = tokio::sync::mpsc::channel(1);
            let ended = app.serve(stopped).await;
            panic!("the proxy ended: {ended:?}");
        });
    });
    receiver.recv().expect("the proxy starts")
}

impl Proxy {
    /// Permits so far, plus requests that were retried on another connection without one.
    fn permits(&self) -> usize {
        let text = self.metrics.render();
        let value = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|line| line.trim().parse::<usize>().ok()).unwrap_or(0)
        };
        value("tidegate_hold_seconds_count{rule=\"all\"}")
            + value("tidegate_upstream_retries_total")
    }
}

/// The number of requests that reach the site.
async fn converse(proxy: SocketAddr, client: &[u8], answer: Vec<u8>) -> usize {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback is there");
    let site = listener.local_addr().expect("it is bound").to_string();
    let reached = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&reached);
    let serving = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, answer.clone(), Arc::clone(&counted)));
        }
    });
    let mut said = Vec::new();
    let mut rest = client;
    while let Some(at) = rest.windows(SITE.len()).position(|window| window == SITE) {
        said.extend_from_slice(&rest[..at]);
        said.extend_from_slice(site.as_bytes());
        rest = &rest[at + SITE.len()..];
    }
    said.extend_from_slice(rest);
    if let Ok(mut stream) = TcpStream::connect(proxy).await
        && stream.write_all(&said).await.is_ok()
    {
        let (mut buffer, mut read) = ([0; 4096], 0);
        while read < MOST
            && let Ok(Ok(length @ 1..)) = timeout(QUIET, stream.read(&mut buffer)).await
        {
            read += length;
        }
    }
    serving.abort();
    reached.load(Ordering::SeqCst)
}

/// Counts each request with a complete head, and responds once its body is complete.
async fn serve(mut stream: TcpStream, answer: Vec<u8>, reached: Arc<AtomicUsize>) {
    let (mut held, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        while let Some(head) = message::head(&held) {
            reached.fetch_add(1, Ordering::SeqCst);
            let body = loop {
                match message::body(&held[..head], &held[head..]) {
                    Some(body) => break body,
                    None => match stream.read(&mut buffer).await {
                        Ok(length @ 1..) => held.extend_from_slice(&buffer[..length]),
                        Ok(0) | Err(_) => return,
                    },
                }
            };
            held.drain(..head + body);
            let is_tunnel = answer.windows(5).any(|window| window == b" 101 ");
            if stream.write_all(&answer).await.is_err() || is_tunnel {
                // After a protocol switch (101), the bytes are not a request.
                while let Ok(1..) = stream.read(&mut buffer).await {}
                return;
            }
        }
        match stream.read(&mut buffer).await {
            Ok(length @ 1..) => held.extend_from_slice(&buffer[..length]),
            Ok(0) | Err(_) => return,
        }
    }
}
