//! A site that records each message byte by byte.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
    time::timeout,
};

use super::Seen;

/// How long the proxy may take to close a connection after the response.
const END: Duration = Duration::from_secs(2);
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// The site.
pub(super) struct Recorder {
    address: SocketAddr,
    messages: Arc<Mutex<Vec<Vec<u8>>>>,
    task: JoinHandle<()>,
}

impl Recorder {
    pub(super) async fn start() -> Self {
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("loopback is there");
        let address = listener.local_addr().expect("it is bound");
        let messages = Arc::<Mutex<Vec<Vec<u8>>>>::default();
        let kept = Arc::clone(&messages);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let kept = Arc::clone(&kept);
                tokio::spawn(async move {
                    if let Some(message) = record(stream).await {
                        kept.lock().push(message);
                    }
                });
            }
        });
        Self { address, messages, task }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn messages(&self) -> Vec<Vec<u8>> {
        self.messages.lock().clone()
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// One message, and any bytes after it; `None` if it was cut off.
async fn record(mut stream: TcpStream) -> Option<Vec<u8>> {
    let mut message = Vec::new();
    let mut buffer = [0; 16 * 1024];
    while read(&message).is_none() {
        match stream.read(&mut buffer).await {
            Ok(length @ 1..) => message.extend_from_slice(&buffer[..length]),
            Ok(0) | Err(_) => return None,
        }
    }
    stream.write_all(ANSWER).await.ok()?;
    stream.shutdown().await.ok()?;
    while let Ok(Ok(length @ 1..)) = timeout(END, stream.read(&mut buffer)).await {
        message.extend_from_slice(&buffer[..length]);
    }
    Some(message)
}

/// The first request in the message; `None` until it is complete. Messages of the proxy always have
/// the same plain form.
pub(super) fn read(message: &[u8]) -> Option<Seen> {
    let end = message.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let head = String::from_utf8_lossy(&message[..end]);
    let mut lines = head.lines();
    let mut words = lines.next()?.split(' ');
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let field = |name: &str| {
        head.lines().find_map(|line| {
            let (field, value) = line.split_once(':')?;
            field.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
        })
    };
    let body = &message[end..];
    let length = match (field("transfer-encoding"), field("content-length")) {
        (Some(_), _) => chunked(body)?,
        (None, Some(length)) => {
            let length = length.parse().ok()?;
            (body.len() as u64 >= length).then_some(length)?
        }
        (None, None) => 0,
    };
    Some(Seen { method, target, host: field("host").unwrap_or_default(), length: Some(length) })
}

/// Length of a chunked body; `None` until its last chunk has arrived.
fn chunked(mut rest: &[u8]) -> Option<u64> {
    let mut length = 0;
    loop {
        let line = rest.windows(2).position(|two| two == b"\r\n")?;
        let size = std::str::from_utf8(&rest[..line]).ok()?.split(';').next()?.trim().to_owned();
        let size = usize::from_str_radix(&size, 16).ok()?;
        rest = rest.get(line + 2 + size + 2..)?;
        if size == 0 {
            return Some(length);
        }
        length += size as u64;
    }
}
