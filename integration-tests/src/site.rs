//! A web site that answers as told and records what reached it, and when.
//!
//! It runs on a thread of its own, so that a busy test does not blur the times that it records.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, mpsc},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use http::{HeaderMap, Method, Request, Response, Version};
use hyper::{
    body::Incoming,
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use rustls::ServerConfig;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Notify, watch},
};
use tokio_rustls::TlsAcceptor;

pub mod body;
mod guard;
pub mod pages;
mod socket;

use crate::{bound::worst_window_excess, crowd::Crowd, overloaded::Overloaded, walls::Wall};
use body::Script;
use guard::Guard;
pub use pages::Page;

/// One request as the site saw it.
#[derive(Debug, Clone)]
pub struct Arrival {
    /// When its head was read.
    pub at: Instant,
    /// Which connection it came on, counted from 0.
    pub connection: u64,
    /// HTTP/1.1 or HTTP/2.
    pub version: Version,
    /// Its method.
    pub method: Method,
    /// Path and query, as sent.
    pub path: String,
    /// Its header fields.
    pub headers: HeaderMap,
    /// The status of the answer it got.
    pub status: u16,
}

#[derive(Debug, Default)]
struct State {
    pages: Vec<(String, Page)>,
    everywhere: Option<Page>,
    guard: Option<Guard>,
    /// What it can give, and since when.
    overloaded: Option<(Overloaded, Instant)>,
    arrivals: Vec<Arrival>,
    connections: u64,
    /// More requests at once are answered 429.
    most: Option<usize>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    crowd: Crowd,
    /// The longest time for which the machine kept the site waiting.
    pause: Mutex<Duration>,
    released: watch::Sender<bool>,
}

/// A running site; it stops with this handle.
#[derive(Debug)]
pub struct Site {
    address: SocketAddr,
    scheme: &'static str,
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Site {
    /// Starts a site that answers every path with [`Page::Ok`].
    ///
    /// # Panics
    /// If loopback cannot be bound.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(Ipv4Addr::LOCALHOST, None)
    }

    /// Starts one that listens on every loopback address, so that one server has many hosts.
    ///
    /// # Panics
    /// As [`Site::start`].
    #[must_use]
    pub fn of_many_hosts() -> Self {
        Self::start_with(Ipv4Addr::UNSPECIFIED, None)
    }

    /// The URL of `path` at one of its hosts.
    #[must_use]
    pub fn url_of(&self, host: u8, path: &str) -> String {
        format!("{}://127.0.0.{host}:{}{path}", self.scheme, self.address.port())
    }

    /// Starts one that speaks TLS; its [`Site::url`] names `localhost`.
    ///
    /// # Panics
    /// As [`Site::start`].
    #[must_use]
    pub fn secure(tls: Arc<ServerConfig>) -> Self {
        Self::start_with(Ipv4Addr::LOCALHOST, Some(tls.into()))
    }

    fn start_with(ip: Ipv4Addr, tls: Option<TlsAcceptor>) -> Self {
        let scheme = if tls.is_some() { "https" } else { "http" };
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            crowd: Crowd::default(),
            pause: Mutex::default(),
            released: watch::Sender::new(false),
        });
        let stop = watch::Sender::new(false);
        let (tell, told) = mpsc::channel();
        let (for_thread, stopped) = (Arc::clone(&shared), stop.subscribe());
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime starts");
            runtime.block_on(serve(for_thread, ip, tls, tell, stopped));
        });
        let port = told.recv().expect("the site's thread tells its port");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Self { address, scheme, shared, stop, thread: Some(thread) }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The absolute URL of `path`, which starts with a slash.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("{}://{}{path}", self.scheme, self.authority())
    }

    /// Host and port as its URLs have them.
    #[must_use]
    pub fn authority(&self) -> String {
        match self.scheme {
            "https" => format!("localhost:{}", self.address.port()),
            _ => self.address.to_string(),
        }
    }

    /// Answers `path` (the query does not matter; a `*` at its end covers all that begin so) with `page` from now on.
    pub fn on(&self, path: &str, page: Page) {
        let mut state = self.shared.state.lock();
        state.pages.retain(|(known, _)| known != path);
        state.pages.push((path.to_owned(), page));
    }

    /// Answers everything with `page`, or, for `None`, each path as before.
    pub fn answer_everything_with(&self, page: Option<Page>) {
        self.shared.state.lock().everywhere = page;
    }

    /// Puts `wall` before the site, in a time that runs so many times `faster`; what it lets through is answered as
    /// before, everything after the scaled latency of a real site. The wall's time begins with the next request.
    pub fn guard(&self, wall: Wall, faster: u32) {
        self.shared.state.lock().guard = Some(Guard::new(wall, faster));
    }

    /// Limits its capacity from now on: further requests queue up, and are refused once the queue is long.
    pub fn overload(&self, site: Overloaded) {
        self.shared.state.lock().overloaded = Some((site, Instant::now()));
    }

    /// Lets everything that waits on a [`Page::Held`] be answered, now and later.
    pub fn release(&self) {
        self.shared.released.send_replace(true);
    }

    /// Everything that arrived so far.
    #[must_use]
    pub fn arrivals(&self) -> Vec<Arrival> {
        self.shared.state.lock().arrivals.clone()
    }

    /// When requests arrived.
    #[must_use]
    pub fn times(&self) -> Vec<Instant> {
        self.shared.state.lock().arrivals.iter().map(|arrival| arrival.at).collect()
    }

    /// By how much the worst window of arrivals exceeds `burst + rate * t`. Arrivals that came closer together only
    /// because a busy machine kept the site waiting do not count.
    #[must_use]
    pub fn excess(&self, rate: f64, burst: f64) -> f64 {
        self.excess_of(&self.times(), rate, burst)
    }

    /// The same for some of the arrivals.
    #[must_use]
    pub fn excess_of(&self, arrivals: &[Instant], rate: f64, burst: f64) -> f64 {
        let waited = self.shared.pause.lock().as_secs_f64();
        worst_window_excess(arrivals, rate, burst) - rate * waited
    }

    /// How many requests arrived.
    #[must_use]
    pub fn count(&self) -> usize {
        self.shared.state.lock().arrivals.len()
    }

    /// How many connections were opened to it.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.shared.state.lock().connections
    }

    /// Answers 429 to each request that comes while `most` others are being answered.
    pub fn bears_at_once(&self, most: usize) {
        self.shared.state.lock().most = Some(most);
    }

    /// How many requests were being answered at once, at most.
    #[must_use]
    pub fn crowd(&self) -> usize {
        self.shared.crowd.most()
    }

    /// Forgets what arrived.
    pub fn forget(&self) {
        *self.shared.pause.lock() = Duration::ZERO;
        self.shared.state.lock().arrivals.clear();
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

async fn serve(
    shared: Arc<Shared>,
    ip: Ipv4Addr,
    tls: Option<TlsAcceptor>,
    tell: mpsc::Sender<u16>,
    mut stopped: watch::Receiver<bool>,
) {
    let listener = TcpListener::bind((ip, 0)).await.expect("loopback binds");
    tell.send(listener.local_addr().expect("a bound socket has an address").port())
        .expect("whoever starts the site waits for its port");
    tokio::spawn(watch_pauses(Arc::clone(&shared)));
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                // A client that disconnects before it is accepted causes no failure.
                let Ok((stream, _)) = accepted else { continue };
                let connection = {
                    let mut state = shared.state.lock();
                    state.connections += 1;
                    state.connections - 1
                };
                tokio::spawn(converse(Arc::clone(&shared), tls.clone(), stream, connection));
            }
            _ = stopped.changed() => return,
        }
    }
}

/// Notes how late a timer of the site's thread is.
async fn watch_pauses(shared: Arc<Shared>) {
    const STEP: Duration = Duration::from_millis(5);
    loop {
        let start = Instant::now();
        tokio::time::sleep(STEP).await;
        // Timers count whole milliseconds.
        let late = start.elapsed().saturating_sub(STEP + Duration::from_millis(2));
        let mut pause = shared.pause.lock();
        *pause = late.max(*pause);
    }
}

/// Serves one connection until its end, or until a [`Page::Reset`] breaks it.
async fn converse(
    shared: Arc<Shared>,
    tls: Option<TlsAcceptor>,
    stream: TcpStream,
    connection: u64,
) {
    let Ok(stream) = stream.into_std() else { return };
    // A second handle to the socket: with it, hyper's can be dropped without a farewell.
    let Ok(twin) = stream.try_clone() else { return };
    let Ok(stream) = TcpStream::from_std(stream) else { return };
    let reset = Arc::new(Notify::new());
    let service = service_fn({
        let reset = Arc::clone(&reset);
        move |request| {
            let (shared, reset) = (Arc::clone(&shared), Arc::clone(&reset));
            async move { answer(&shared, connection, &reset, request).await }
        }
    });
    let http1 = || {
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new());
        builder
    };
    // The tests check the end of a connection at its other end.
    let serving = async {
        match tls {
            None => {
                let io = TokioIo::new(stream);
                drop(http1().serve_connection(io, service).with_upgrades().await);
            }
            Some(tls) => {
                let Ok(stream) = tls.accept(stream).await else { return };
                let is_h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                let io = TokioIo::new(stream);
                if is_h2 {
                    let builder = http2::Builder::new(TokioExecutor::new());
                    drop(builder.serve_connection(io, service).await);
                } else {
                    drop(http1().serve_connection(io, service).with_upgrades().await);
                }
            }
        }
    };
    let mut serving = Box::pin(serving);
    tokio::select! {
        () = &mut serving => {}
        () = reset.notified() => {
            drop(serving);
            if let Ok(twin) = TcpStream::from_std(twin) {
                // Closing without lingering sends a RST.
                drop(twin.set_zero_linger());
            }
        }
    }
}

async fn answer(
    shared: &Shared,
    connection: u64,
    reset: &Notify,
    mut request: Request<Incoming>,
) -> Result<Response<Script>, std::io::Error> {
    let at = Instant::now();
    let visit = shared.crowd.begin();
    let (page, latency) = {
        let mut state = shared.state.lock();
        let page = match state.most {
            Some(most) if visit.number > most => Page::TooManyRequests(None),
            _ => state.page_for(request.uri().path(), at),
        };
        (page, state.guard.as_mut().map(Guard::latency))
    };
    let arrival = Arrival {
        at,
        connection,
        version: request.version(),
        method: request.method().clone(),
        path: request.uri().path_and_query().map_or_else(String::new, ToString::to_string),
        headers: request.headers().clone(),
        status: page.status(),
    };
    shared.state.lock().arrivals.push(arrival);
    if let Some(latency) = latency {
        tokio::time::sleep(latency).await;
    }
    match &page {
        Page::Slow(delay) => tokio::time::sleep(*delay).await,
        Page::Hang => std::future::pending().await,
        Page::Reset => {
            reset.notify_one();
            std::future::pending::<()>().await;
        }
        Page::Held | Page::HeldWall(_) => {
            let mut released = shared.released.subscribe();
            // The sender lives as long as the site.
            drop(released.wait_for(|released| *released).await);
        }
        Page::Upgrade => return Ok(socket::bytes(request)),
        Page::WebSocket => return Ok(socket::messages(request)),
        _ => {}
    }
    let received = pages::swallow(request.body_mut()).await?;
    Ok(pages::render(&page, &request, received))
}

impl State {
    fn page_for(&mut self, path: &str, at: Instant) -> Page {
        if let Some(page) = self.guard.as_mut().and_then(|guard| guard.answer(at)) {
            return page;
        }
        if let Some((site, since)) = &mut self.overloaded {
            let now = at.saturating_duration_since(*since).as_secs_f64();
            let (good, took) = site.answer(now);
            let page = Page::Slow(Duration::from_secs_f64(took));
            return if good { page } else { Page::Status(503) };
        }
        if let Some(page) = &self.everywhere {
            return page.clone();
        }
        let covers = |pattern: &str| match pattern.strip_suffix('*') {
            Some(start) => path.starts_with(start),
            None => path == pattern,
        };
        let known = self.pages.iter().find(|(pattern, _)| covers(pattern));
        known.map_or(Page::Ok, |(_, page)| page.clone())
    }
}

impl Arrival {
    /// The first value of the field `name`.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}
