//! Sends mutated requests through the proxy, and compares how real servers read the messages that
//! it forwards.
//!
//! A site records the bytes of each message that the proxy sends. Each distinct message is then
//! sent to every server, followed by a final request. All servers must read the same two requests:
//! method, target, host and length of the body. A server may refuse a message, but it may not read
//! it differently.

mod mutate;
mod readers;
mod recorder;

use std::{
    collections::{BTreeMap, HashSet},
    fmt,
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::Semaphore,
    task::JoinSet,
    time::timeout,
};

use self::{readers::Readers, recorder::Recorder};
use crate::member::{Member, RuleFile};

/// Concurrent conversations.
const AT_ONCE: usize = 64;
/// How long a client waits for more of a response. An incomplete request never gets one.
const QUIET: Duration = Duration::from_millis(150);
/// Longest conversation with a server.
const SERVER: Duration = Duration::from_secs(20);
/// The request after each message to a server.
const LAST: &str = "GET /the-last-one HTTP/1.1\r\nHost: last.example\r\nConnection: close\r\n\r\n";

/// A request as read by a server.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    method: String,
    target: String,
    host: String,
    /// The length of the body, if the server reports it.
    length: Option<u64>,
}

/// The results.
#[derive(Debug, Default)]
pub struct Report {
    /// The seed of all random choices.
    pub seed: u64,
    /// Mutated client streams.
    pub mutations: usize,
    /// Messages that the proxy forwarded.
    pub forwarded: usize,
    /// The number of distinct messages among them.
    pub distinct: usize,
    /// How many of these each server refused.
    pub refused: BTreeMap<String, usize>,
    /// Servers that are not installed, and why.
    pub missing: BTreeMap<String, String>,
    /// Differences between servers.
    pub conflicts: Vec<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, mutations, forwarded, distinct, .. } = self;
        writeln!(
            f,
            "differential: seed {seed}, {mutations} mutations, {forwarded} forwarded, {distinct} distinct"
        )?;
        for (name, refused) in &self.refused {
            writeln!(f, "  {name}: refused {refused}")?;
        }
        for (name, why) in &self.missing {
            writeln!(f, "  {name}: skipped, {why}")?;
        }
        for conflict in &self.conflicts {
            writeln!(f, "  CONFLICT {conflict}")?;
        }
        Ok(())
    }
}

/// Sends `mutations` mutated requests through a proxy, and compares what all servers read.
///
/// # Panics
/// If the proxy or the servers' program does not start.
pub async fn run(mutations: usize, seed: u64) -> Report {
    let recorder = Recorder::start().await;
    let rules = RuleFile::one_rule("cooldown: off");
    let member = Member::start(&rules).await;
    let mut random = fastrand::Rng::with_seed(seed);
    let places = Arc::new(Semaphore::new(AT_ONCE));
    let mut talking = JoinSet::new();
    for _ in 0..mutations {
        let bytes = mutate::request(&mut random, &recorder.address().to_string());
        let place = Arc::clone(&places).acquire_owned().await.expect("it is never closed");
        let proxy = member.proxy();
        talking.spawn(async move {
            let _place = place;
            say(proxy, &bytes).await;
        });
        while talking.try_join_next().is_some() {}
    }
    talking.join_all().await;
    let messages = recorder.messages();
    let forwarded = messages.len();
    let distinct: HashSet<Vec<u8>> = messages.into_iter().collect();
    let mut report =
        Report { seed, mutations, forwarded, distinct: distinct.len(), ..Report::default() };
    let readers = Readers::start().await;
    report.missing.clone_from(&readers.missing);
    let mut asking = JoinSet::new();
    for message in distinct.into_iter().map(Arc::new) {
        for (name, at) in &readers.servers {
            let place = Arc::clone(&places).acquire_owned().await.expect("it is never closed");
            let (message, name, at) = (Arc::clone(&message), name.clone(), *at);
            asking.spawn(async move {
                let _place = place;
                let judged = judge(&message, at).await;
                (name, judged)
            });
        }
        while let Some(judged) = asking.try_join_next() {
            report.take(judged.expect("no server makes us panic"));
        }
    }
    while let Some(judged) = asking.join_next().await {
        report.take(judged.expect("no server makes us panic"));
    }
    report
}

impl Report {
    fn take(&mut self, (name, judged): (String, Result<bool, String>)) {
        let refused = self.refused.entry(name.clone()).or_default();
        match judged {
            Ok(was_refused) => *refused += usize::from(was_refused),
            Err(conflict) => self.conflicts.push(format!("{name}: {conflict}")),
        }
    }
}

/// Sends `bytes` to the proxy and reads until it sends nothing more.
async fn say(proxy: SocketAddr, bytes: &[u8]) {
    let Ok(mut stream) = TcpStream::connect(proxy).await else { return };
    if stream.write_all(bytes).await.is_err() {
        return;
    }
    let mut buffer = [0; 4096];
    while let Ok(Ok(1..)) = timeout(QUIET, stream.read(&mut buffer)).await {}
}

/// Whether a server refuses a message.
///
/// # Errors
/// How the server read it differently.
async fn judge(message: &[u8], server: SocketAddr) -> Result<bool, String> {
    let expected = [recorder::read(message), recorder::read(LAST.as_bytes())];
    let answers = timeout(SERVER, ask(server, message)).await.unwrap_or_default();
    let text = String::from_utf8_lossy(&answers);
    let seen: Vec<Seen> = text.lines().filter_map(parse_seen).collect();
    let refuses = text.lines().any(|line| {
        line.starts_with("HTTP/1.") && matches!(line.split(' ').nth(1), Some(code) if code >= "400")
    });
    let is_prefix = seen.len() <= 2
        && seen.iter().zip(&expected).all(|(seen, expected)| {
            expected.as_ref().is_some_and(|expected| seen.is_reading_of(expected))
        });
    if is_prefix && (seen.len() == 2 || refuses) {
        return Ok(seen.len() < 2);
    }
    // Apache answers `OPTIONS *` itself, without a report.
    let [first, last] = &expected;
    let is_for_all = first.as_ref().is_some_and(|first| first.target == "*");
    let is_last = matches!((&seen[..], last), ([seen], Some(last)) if seen.is_reading_of(last));
    if is_for_all && is_last && text.lines().filter(|line| line.starts_with("HTTP/1.")).count() == 2
    {
        return Ok(false);
    }
    Err(format!("read {seen:?} in {:?}; answered {:?}", message.escape_ascii().to_string(), text))
}

async fn ask(server: SocketAddr, message: &[u8]) -> Vec<u8> {
    let mut answers = Vec::new();
    let Ok(mut stream) = TcpStream::connect(server).await else { return answers };
    // A server that refuses a message may close before it has read all of it.
    if stream.write_all(&[message, LAST.as_bytes()].concat()).await.is_ok() {
        let mut buffer = [0; 4096];
        while let Ok(length @ 1..) = stream.read(&mut buffer).await {
            answers.extend_from_slice(&buffer[..length]);
        }
    }
    answers
}

/// Parses `X-Seen: METHOD TARGET HOST LENGTH`. Apache's target is its whole request line.
fn parse_seen(line: &str) -> Option<Seen> {
    let (name, value) = line.split_once(": ")?;
    if !name.eq_ignore_ascii_case("x-seen") {
        return None;
    }
    let words: Vec<&str> = value.split(' ').collect();
    let (method, target, host, length) = match *words {
        [method, target, host, length] => (method, target, host, length),
        [method, _, target, _, host, length] => (method, target, host, length),
        _ => ("", value, "", ""),
    };
    let [method, target, host] = [method, target, host].map(str::to_owned);
    Some(Seen { method, target, host, length: length.parse().ok() })
}

impl Seen {
    /// Whether a request may be read as this one. An empty query may be dropped, and ASGI has
    /// upper-case methods only.
    fn is_reading_of(&self, sent: &Self) -> bool {
        let target = |seen: &Self| seen.target.trim_end_matches('?').to_owned();
        self.method.eq_ignore_ascii_case(&sent.method)
            && target(self) == target(sent)
            && self.host == sent.host
            && self.length.is_none_or(|length| Some(length) == sent.length)
    }
}
