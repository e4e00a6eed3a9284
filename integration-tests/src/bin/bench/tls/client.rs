//! A client of tunnels: it opens them, uses TLS inside, and requests pages.

use std::{io, net::SocketAddr, path::Path, sync::Arc};

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::{http2, http2::SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{
    ClientConfig, RootCertStore,
    client::Resumption,
    crypto::ring,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

/// Bytes of the large page per read.
const PIECE: usize = 256 << 10;

/// A client, its proxy and its site.
#[derive(Clone)]
pub(super) struct Client {
    proxy: SocketAddr,
    site: SocketAddr,
    tls: TlsConnector,
}

impl Client {
    /// A client that trusts the certificates of this file.
    pub(super) fn new(proxy: SocketAddr, site: SocketAddr, trusted: &Path) -> anyhow::Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(trusted)?)?;
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        // Each connection behaves like the first one of a client.
        config.resumption = Resumption::disabled();
        Ok(Self { proxy, site, tls: TlsConnector::from(Arc::new(config)) })
    }

    /// A tunnel to the site.
    pub(super) async fn tunnel(&self) -> io::Result<TcpStream> {
        let mut stream = TcpStream::connect(self.proxy).await?;
        stream.set_nodelay(true)?;
        let to = self.site;
        let connect = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n");
        stream.write_all(connect.as_bytes()).await?;
        let (head, rest) = head(&mut stream).await?;
        let is_open = head.starts_with("HTTP/1.") && head.get(8..12) == Some(" 200");
        if is_open && rest == 0 { Ok(stream) } else { Err(io::Error::other(head)) }
    }

    /// A tunnel with TLS inside.
    pub(super) async fn secure(&self) -> io::Result<TlsStream<TcpStream>> {
        self.secure_as(ServerName::from(self.site.ip()), b"http/1.1").await
    }

    /// The same with a host name and one protocol.
    pub(super) async fn secure_as(
        &self,
        name: ServerName<'static>,
        protocol: &[u8],
    ) -> io::Result<TlsStream<TcpStream>> {
        let tls = self.tls.with_alpn(vec![protocol.to_vec()]);
        tls.connect(name, self.tunnel().await?).await
    }

    /// A tunnel with HTTP/2 inside.
    pub(super) async fn http2(&self) -> io::Result<SendRequest<Empty<Bytes>>> {
        let stream = self.secure_as(ServerName::from(self.site.ip()), b"h2").await?;
        let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .map_err(io::Error::other)?;
        tokio::spawn(connection);
        Ok(sender)
    }

    /// One request over HTTP/2.
    pub(super) async fn get_http2(&self, sender: &mut SendRequest<Empty<Bytes>>) -> io::Result<()> {
        let request = Request::get(format!("https://{}/", self.site)).header("accept", "*/*");
        let request = request.body(Empty::new()).map_err(io::Error::other)?;
        let answer = sender.send_request(request).await.map_err(io::Error::other)?;
        if answer.status() != StatusCode::OK {
            return Err(io::Error::other(answer.status().to_string()));
        }
        answer.into_body().collect().await.map_err(io::Error::other).map(drop)
    }

    /// One request. Returns the length of its body after it was read.
    pub(super) async fn get<S>(&self, stream: &mut S, path: &str) -> io::Result<u64>
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

/// Reads a head, and returns the number of bytes that came after it.
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
