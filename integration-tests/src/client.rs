//! Clients: one that keeps its connection to a proxy, one that sends exact bytes, and plain
//! requests without a proxy.
//!
//! Every wait is bounded by [`TIMEOUT`], so that a proxy that hangs fails its test instead of
//! blocking all of them.

use std::{
    io,
    net::SocketAddr,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{HeaderMap, Request, Uri, header};
use http_body_util::{BodyExt as _, Full};
use hyper::{
    body::Incoming,
    client::conn::http1::{self, SendRequest},
};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

/// Longest wait for anything.
pub const TIMEOUT: Duration = Duration::from_secs(60);
/// Largest body that [`ProxyClient::send`] collects.
const BODY_AT_MOST: usize = 16 << 20;
/// Largest head that [`Raw::head`] reads.
const HEAD_AT_MOST: usize = 256 << 10;

/// A whole response.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// Its header fields.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
    /// From sending the request to the end of the body.
    pub took: Duration,
}

impl Answer {
    /// The first value of the field `name`.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// The body as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Why the proxy itself refused the request, if it did (`Tidegate-Refused`).
    #[must_use]
    pub fn refused(&self) -> Option<&str> {
        self.header("tidegate-refused")
    }

    /// The verdict of the response (`Tidegate-Verdict`).
    #[must_use]
    pub fn verdict(&self) -> Option<&str> {
        self.header("tidegate-verdict")
    }
}

/// A kept-alive connection to a proxy.
#[derive(Debug)]
pub struct ProxyClient {
    sender: SendRequest<Full<Bytes>>,
}

impl ProxyClient {
    /// Connects.
    ///
    /// # Panics
    /// If the proxy does not accept.
    pub async fn connect(proxy: SocketAddr) -> Self {
        Self::try_connect(proxy).await.expect("the proxy accepts a connection")
    }

    /// Connects.
    ///
    /// # Errors
    /// The proxy does not accept in time.
    pub async fn try_connect(address: SocketAddr) -> io::Result<Self> {
        let stream = timeout(TIMEOUT, TcpStream::connect(address)).await??;
        let (sender, connection) = timeout(TIMEOUT, http1::handshake(TokioIo::new(stream)))
            .await?
            .map_err(io::Error::other)?;
        tokio::spawn(connection);
        Ok(Self { sender })
    }

    /// A GET of an absolute URL.
    ///
    /// # Panics
    /// If the response is missing or incomplete.
    pub async fn get(&mut self, url: &str) -> Answer {
        self.send(get_request(url)).await.expect("the proxy answers")
    }

    /// Sends `request`, whose URI is absolute, and reads the whole response.
    ///
    /// # Errors
    /// The connection ends before the response does, or a read takes too long.
    pub async fn send(&mut self, request: Request<Full<Bytes>>) -> io::Result<Answer> {
        let start = Instant::now();
        let response = timeout(TIMEOUT, self.stream(request)).await??;
        let (head, body) = response.into_parts();
        let body = http_body_util::Limited::new(body, BODY_AT_MOST);
        let body = timeout(TIMEOUT, body.collect()).await?.map_err(io::Error::other)?.to_bytes();
        let took = start.elapsed();
        Ok(Answer { status: head.status.as_u16(), headers: head.headers, body, took })
    }

    /// Sends `request` and returns the response once its head has arrived.
    ///
    /// # Errors
    /// Like [`ProxyClient::send`].
    pub async fn stream(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> io::Result<http::Response<Incoming>> {
        self.sender.ready().await.map_err(io::Error::other)?;
        self.sender.send_request(request).await.map_err(io::Error::other)
    }
}

/// A GET of an absolute URL, with its `Host`.
///
/// # Panics
/// If `url` is not one.
#[must_use]
pub fn get_request(url: &str) -> Request<Full<Bytes>> {
    let uri: Uri = url.parse().expect("tests use good URLs");
    let host = uri.authority().expect("the URL is absolute").to_string();
    Request::get(uri).header(header::HOST, host).body(Full::default()).expect("the parts are good")
}

/// One GET through `proxy`, on a connection of its own.
///
/// # Panics
/// If the response is missing or incomplete.
pub async fn get(proxy: SocketAddr, url: &str) -> Answer {
    ProxyClient::connect(proxy).await.get(url).await
}

/// Like [`get`], but returns an error if there is no complete response.
///
/// # Errors
/// Like [`ProxyClient::send`].
pub async fn try_get(proxy: SocketAddr, url: &str) -> io::Result<Answer> {
    ProxyClient::try_connect(proxy).await?.send(get_request(url)).await
}

/// One GET with this header field through `proxy`.
///
/// # Panics
/// If the response is missing or incomplete.
pub async fn get_with(proxy: SocketAddr, url: &str, name: &'static str, value: &str) -> Answer {
    let mut request = get_request(url);
    request.headers_mut().insert(name, value.parse().expect("tests send clean values"));
    ProxyClient::connect(proxy).await.send(request).await.expect("the proxy answers")
}

/// One GET of `path` directly at a server, without a proxy.
///
/// # Panics
/// If the response is missing or incomplete.
pub async fn get_direct(server: SocketAddr, path: &str) -> Answer {
    try_get_direct(server, path).await.expect("the server answers")
}

/// Like [`get_direct`], but returns an error if there is no complete response.
///
/// # Errors
/// Like [`ProxyClient::send`].
pub async fn try_get_direct(server: SocketAddr, path: &str) -> io::Result<Answer> {
    let request = Request::get(path)
        .header(header::HOST, server.to_string())
        .body(Full::default())
        .map_err(io::Error::other)?;
    ProxyClient::try_connect(server).await?.send(request).await
}

/// One POST of a JSON text to `path`, directly at a server.
///
/// # Panics
/// If the response is missing or incomplete.
pub async fn post_json(server: SocketAddr, path: &str, body: &str) -> Answer {
    let request = Request::post(path)
        .header(header::HOST, server.to_string())
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(body.to_owned())))
        .expect("the parts are good");
    ProxyClient::connect(server).await.send(request).await.expect("the server answers")
}

/// `DELETE` on an admin port.
///
/// # Panics
/// If the server does not respond.
pub async fn delete(server: SocketAddr, path: &str) -> Answer {
    let request = Request::delete(path)
        .header(header::HOST, server.to_string())
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::default())
        .expect("the parts are good");
    ProxyClient::connect(server).await.send(request).await.expect("the server answers")
}

/// A connection that sends exactly the given bytes.
#[derive(Debug)]
pub struct Raw {
    stream: TcpStream,
}

impl Raw {
    /// Connects.
    ///
    /// # Panics
    /// If the connection is not accepted.
    pub async fn connect(address: SocketAddr) -> Self {
        let stream = timeout(TIMEOUT, TcpStream::connect(address)).await;
        let stream = stream.expect("accepted in time").expect("a server listens");
        stream.set_nodelay(true).expect("a connected socket takes options");
        Self { stream }
    }

    /// Sends `bytes`.
    ///
    /// # Panics
    /// If the bytes cannot be sent.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let sent = timeout(TIMEOUT, self.stream.write_all(bytes.as_ref())).await;
        sent.expect("taken in time").expect("the connection is open");
    }

    /// Reads up to and including the empty line after a head.
    ///
    /// # Panics
    /// If the connection ends earlier, or the head is too large.
    pub async fn head(&mut self) -> String {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let byte = timeout(TIMEOUT, self.stream.read_u8()).await.expect("it arrives in time");
            head.push(byte.unwrap_or_else(|error| {
                panic!("no whole head, {error}: {:?}", String::from_utf8_lossy(&head))
            }));
            assert!(head.len() <= HEAD_AT_MOST, "the head is too large");
        }
        String::from_utf8_lossy(&head).into_owned()
    }

    /// Reads exactly `n` bytes.
    ///
    /// # Panics
    /// If the connection ends earlier.
    pub async fn exactly(&mut self, n: usize) -> Vec<u8> {
        let mut bytes = vec![0; n];
        let read = timeout(TIMEOUT, self.stream.read_exact(&mut bytes)).await;
        read.expect("they come in time").expect("the connection is open");
        bytes
    }

    /// Reads until the peer closes or resets the connection.
    ///
    /// # Panics
    /// If it stays open for `at_most` after the last byte.
    pub async fn rest(&mut self, at_most: Duration) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut buffer = [0; 16 * 1024];
        loop {
            let read = timeout(at_most, self.stream.read(&mut buffer)).await;
            match read.expect("the connection ends in time") {
                Ok(0) | Err(_) => return bytes,
                Ok(n) => bytes.extend_from_slice(&buffer[..n]),
            }
        }
    }

    /// The stream itself.
    #[must_use]
    pub fn into_stream(self) -> TcpStream {
        self.stream
    }
}
