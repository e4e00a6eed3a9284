//! A site that sends scripted bytes, whole or in pieces, and records all bytes that it receives.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// An ordinary response.
pub(crate) const OK: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: image/png\r\nContent-Length: 2\r\n\r\nhi";

/// The action of the site after a request.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    /// The bytes to send, with a pause after each piece.
    pub(crate) pieces: Vec<Vec<u8>>,
    /// How long each pause is.
    pub(crate) pause: Duration,
    /// Whether the connection ends then.
    pub(crate) close: bool,
}

impl Reply {
    pub(crate) fn whole(bytes: impl Into<Vec<u8>>) -> Self {
        Self { pieces: vec![bytes.into()], pause: Duration::ZERO, close: false }
    }

    pub(crate) fn last(bytes: impl Into<Vec<u8>>) -> Self {
        Self { close: true, ..Self::whole(bytes) }
    }
}

/// The action for the request with this number.
type Script = dyn Fn(usize, &str) -> Reply + Send + Sync;

#[derive(Debug, Default)]
struct Record {
    /// All bytes, connection after connection.
    received: Vec<Vec<u8>>,
    /// Whole requests in the order in which they became whole.
    requests: Vec<String>,
    /// Connections that have ended.
    ended: usize,
}

/// A running site; it stops with this handle.
#[derive(Debug)]
pub(crate) struct Origin {
    address: SocketAddr,
    record: Arc<Mutex<Record>>,
    task: JoinHandle<()>,
}

impl Origin {
    /// Sends the same response to every request and keeps its connections open.
    pub(crate) async fn answering(answer: impl Into<Vec<u8>>) -> Self {
        let reply = Reply::whole(answer);
        Self::scripted(move |_, _| reply.clone()).await
    }

    /// Follows `script` after each complete request.
    pub(crate) async fn scripted(
        script: impl Fn(usize, &str) -> Reply + Send + Sync + 'static,
    ) -> Self {
        Self::start(Arc::new(script), false).await
    }

    /// Follows `script` after the head of a request, and continues to read.
    pub(crate) async fn early(
        script: impl Fn(usize, &str) -> Reply + Send + Sync + 'static,
    ) -> Self {
        Self::start(Arc::new(script), true).await
    }

    async fn start(script: Arc<Script>, early: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback binds");
        let address = listener.local_addr().expect("a bound socket has an address");
        let record = Arc::<Mutex<Record>>::default();
        let kept = Arc::clone(&record);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (script, record) = (Arc::clone(&script), Arc::clone(&kept));
                tokio::spawn(async move {
                    converse(stream, &*script, early, &record).await;
                    record.lock().ended += 1;
                });
            }
        });
        Self { address, record, task }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The bytes of all connections.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.record.lock().received.concat()
    }

    /// The same as text.
    pub(crate) fn received(&self) -> String {
        String::from_utf8_lossy(&self.bytes()).into_owned()
    }

    /// Whole requests so far, each with its body.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.record.lock().requests.clone()
    }

    /// How many connections there were.
    pub(crate) fn connections(&self) -> usize {
        self.record.lock().received.len()
    }

    /// How many of them have ended.
    pub(crate) fn ended(&self) -> usize {
        self.record.lock().ended
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn converse(mut stream: TcpStream, script: &Script, early: bool, record: &Mutex<Record>) {
    let connection = {
        let mut record = record.lock();
        record.received.push(Vec::new());
        record.received.len() - 1
    };
    let (mut begin, mut answered) = (0, false);
    loop {
        let (head, whole) = {
            let mut record = record.lock();
            let rest = &record.received[connection][begin..];
            let head = head_end(rest).map(|end| String::from_utf8_lossy(&rest[..end]).into_owned());
            let whole = request_end(rest);
            let text = whole.map(|end| String::from_utf8_lossy(&rest[..end]).into_owned());
            if let Some(text) = &text {
                record.requests.push(text.clone());
            }
            begin += whole.unwrap_or(0);
            (head, text.map(|text| (record.requests.len() - 1, text)))
        };
        let due = match (&head, &whole) {
            (Some(head), _) if early && !answered => Some(script(connection, head)),
            (_, Some((number, text))) if !early => Some(script(*number, text)),
            _ => None,
        };
        answered = head.is_some() && whole.is_none() && early;
        if let Some(reply) = due {
            for (at, piece) in reply.pieces.iter().enumerate() {
                if at > 0 {
                    tokio::time::sleep(reply.pause).await;
                }
                if stream.write_all(piece).await.is_err() {
                    return;
                }
            }
            if reply.close {
                return;
            }
        }
        if whole.is_some() {
            continue;
        }
        let mut buffer = [0; 16 * 1024];
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(read) => record.lock().received[connection].extend_from_slice(&buffer[..read]),
        }
    }
}

/// The end of the head, including its empty line.
pub(crate) fn head_end(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|window| window == b"\r\n\r\n").map(|at| at + 4)
}

/// The end of the first request in these bytes, if it is complete.
fn request_end(bytes: &[u8]) -> Option<usize> {
    let head = head_end(bytes)?;
    let text = String::from_utf8_lossy(&bytes[..head]).to_lowercase();
    let end = match field(&text, "content-length") {
        Some(length) => head + length.parse::<usize>().expect("the proxy sends a number"),
        None if field(&text, "transfer-encoding").is_some() => head + chunks_end(&bytes[head..])?,
        None => head,
    };
    (bytes.len() >= end).then_some(end)
}

/// The value of the first field of this name in a head.
pub(crate) fn field<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    head.lines().find_map(|line| {
        let (field, value) = line.split_once(':')?;
        field.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

/// The end of a chunked body, including trailers.
pub(crate) fn chunks_end(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        let line = bytes[at..].windows(2).position(|window| window == b"\r\n")?;
        let size = String::from_utf8_lossy(&bytes[at..at + line]).into_owned();
        let size = size.split(';').next().unwrap_or("").trim().to_owned();
        let size = usize::from_str_radix(&size, 16).ok()?;
        at += line + 2;
        if size == 0 {
            break;
        }
        at += size + 2;
        if at > bytes.len() {
            return None;
        }
    }
    loop {
        let line = bytes[at..].windows(2).position(|window| window == b"\r\n")?;
        at += line + 2;
        if line == 0 {
            return Some(at);
        }
    }
}
