//! A client that sends raw bytes, and tables of cases that run in parallel.

use std::{net::SocketAddr, time::Duration};

use integration_tests::member::{Member, RuleFile};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
    time::timeout,
};

use crate::origin::{chunks_end, field, head_end};

/// Longest wait for anything that must come.
pub(crate) const SOON: Duration = Duration::from_secs(15);
/// The request after a message that must be refused; it must never be served.
pub(crate) const FOLLOWING: &str = "GET http://SITE/following HTTP/1.1\r\nHost: SITE\r\n\r\n";

/// A member with one rule that limits nothing.
pub(crate) async fn member() -> Member {
    Member::start(&RuleFile::one_rule("cooldown: off")).await
}

/// A complete response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn status(&self) -> u16 {
        let status = self.head.split(' ').nth(1).and_then(|status| status.parse().ok());
        status.unwrap_or_else(|| panic!("no status line: {:?}", self.head))
    }

    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        field(&self.head, name)
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// A client's connection.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    read: Vec<u8>,
}

impl Client {
    pub(crate) async fn connect(proxy: SocketAddr) -> Self {
        let stream = timeout(SOON, TcpStream::connect(proxy)).await.expect("accepted in time");
        let stream = stream.expect("the proxy listens");
        stream.set_nodelay(true).expect("a connected socket takes options");
        Self::over(stream)
    }

    pub(crate) fn over(stream: TcpStream) -> Self {
        Self { stream, read: Vec::new() }
    }

    /// Sends as much as is taken: a proxy that has refused need not read on.
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        drop(timeout(SOON, self.stream.write_all(bytes.as_ref())).await.expect("taken in time"));
    }

    /// Reads more; false at the end of the connection.
    async fn more(&mut self) -> bool {
        let read = timeout(SOON, self.stream.read_buf(&mut self.read)).await;
        matches!(read.expect("bytes or an end come in time"), Ok(size) if size > 0)
    }

    /// Everything until the connection ends.
    pub(crate) async fn rest(&mut self) -> String {
        while self.more().await {}
        String::from_utf8_lossy(&std::mem::take(&mut self.read)).into_owned()
    }

    /// The next head.
    pub(crate) async fn head(&mut self) -> String {
        loop {
            if let Some(end) = head_end(&self.read) {
                let head = self.read.drain(..end).collect::<Vec<_>>();
                return String::from_utf8_lossy(&head).into_owned();
            }
            assert!(self.more().await, "no whole head: {:?}", String::from_utf8_lossy(&self.read));
        }
    }

    /// The next response, with the trailers of a chunked body. The request must not be HEAD.
    pub(crate) async fn answer(&mut self) -> Answer {
        let head = self.head().await;
        let status = head.split(' ').nth(1).unwrap_or("");
        let length = field(&head, "content-length").map(|length| length.parse().expect("a number"));
        let body = match length {
            _ if matches!(status, "204" | "304") || status.starts_with('1') => Vec::new(),
            Some(length) => self.exactly(length).await,
            None if field(&head, "transfer-encoding").is_some() => {
                while chunks_end(&self.read).is_none() {
                    assert!(self.more().await, "the chunks break off");
                }
                let end = chunks_end(&self.read).unwrap_or(0);
                self.read.drain(..end).collect()
            }
            None => self.rest().await.into_bytes(),
        };
        Answer { head, body }
    }

    pub(crate) async fn exactly(&mut self, length: usize) -> Vec<u8> {
        while self.read.len() < length {
            assert!(self.more().await, "the connection ends early");
        }
        self.read.drain(..length).collect()
    }
}

/// Sends `bytes` on a new connection, closes its own side if requested, and reads to the end.
pub(crate) async fn exchange(proxy: SocketAddr, bytes: impl AsRef<[u8]>) -> String {
    let mut client = Client::connect(proxy).await;
    client.send(bytes).await;
    client.rest().await
}

/// One request on a connection of its own.
pub(crate) async fn ask(proxy: SocketAddr, bytes: impl AsRef<[u8]>) -> Answer {
    let mut client = Client::connect(proxy).await;
    client.send(bytes).await;
    client.answer().await
}

/// The statuses of the responses in `text`.
pub(crate) fn statuses(text: &str) -> Vec<u16> {
    let status = |(at, _)| {
        let (space, status) = text.get(at + 8..at + 12)?.split_at_checked(1)?;
        status.parse().ok().filter(|_| space == " ")
    };
    text.match_indices("HTTP/1.").filter_map(status).collect()
}

/// `bytes` with the site's address for each `SITE`.
pub(crate) fn addressed(bytes: &[u8], site: SocketAddr) -> Vec<u8> {
    let site = site.to_string();
    let mut out = Vec::with_capacity(bytes.len() + 64);
    let mut rest = bytes;
    while let Some(at) = rest.windows(4).position(|window| window == b"SITE") {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(site.as_bytes());
        rest = &rest[at + 4..];
    }
    out.extend_from_slice(rest);
    out
}

/// Runs each row of a table in a task of its own and reports all that fail, by name.
pub(crate) async fn each<T, F>(
    rows: impl IntoIterator<Item = (&'static str, T)>,
    case: impl Fn(T) -> F,
) where
    F: Future<Output = Result<(), String>> + Send + 'static,
{
    let mut running = JoinSet::new();
    for (name, row) in rows {
        let outcome = case(row);
        running.spawn(async move { (name, tokio::spawn(outcome).await) });
    }
    assert!(!running.is_empty(), "a table has rows");
    let mut failures = Vec::new();
    while let Some(ended) = running.join_next().await {
        let (name, outcome) = ended.expect("the case is watched");
        match outcome {
            Ok(Ok(())) => {}
            Ok(Err(why)) => failures.push(format!("{name}: {why}")),
            Err(panicked) => failures.push(format!("{name}: {panicked}")),
        }
    }
    failures.sort();
    assert!(failures.is_empty(), "{} cases fail:\n{}", failures.len(), failures.join("\n"));
}

/// An error of a case unless `condition` holds.
pub(crate) fn check(condition: bool, why: impl FnOnce() -> String) -> Result<(), String> {
    if condition { Ok(()) } else { Err(why()) }
}
