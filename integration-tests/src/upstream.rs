//! Upstream proxies: SOCKS 5, a proxy behind TLS, and a server with a fixed response.

use std::{
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use parking_lot::Mutex;
use rustls::ServerConfig;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use tokio_rustls::TlsAcceptor;

/// A SOCKS 5 proxy that connects every name and address to one server.
#[derive(Debug)]
pub struct Socks {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Drop for Socks {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The behaviour of a SOCKS proxy.
#[derive(Debug, Clone, Default)]
pub struct SocksOptions {
    /// The required login.
    pub login: Option<(String, String)>,
    /// Its reply to a request: 0, or an error (RFC 1928 section 6).
    pub reply: u8,
    /// Bytes that it sends together with its reply, before the server sends anything.
    pub greeting: Vec<u8>,
}

impl Socks {
    /// Starts one that connects to `server`.
    ///
    /// # Panics
    /// If loopback cannot be bound.
    pub async fn start(server: SocketAddr, options: SocksOptions) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let notes = Arc::clone(&asked);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (options, notes) = (options.clone(), Arc::clone(&notes));
                tokio::spawn(async move { serve(stream, server, &options, &notes).await });
            }
        });
        Self { address, asked, task }
    }

    /// Its URL, with this login (`user:password@`, or nothing).
    #[must_use]
    pub fn url(&self, login: &str) -> String {
        format!("socks5://{login}{}", self.address)
    }

    /// The requested addresses, as `name:port` or `address:port`.
    #[must_use]
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().clone()
    }
}

async fn serve(
    mut client: TcpStream,
    server: SocketAddr,
    options: &SocksOptions,
    asked: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    let _version = client.read_u8().await?;
    let mut methods = vec![0; client.read_u8().await?.into()];
    client.read_exact(&mut methods).await?;
    let method = if options.login.is_some() { 2 } else { 0 };
    if !methods.contains(&method) {
        return client.write_all(&[5, 0xff]).await;
    }
    client.write_all(&[5, method]).await?;
    if let Some((user, password)) = &options.login {
        let _version = client.read_u8().await?;
        let given = (text(&mut client).await?, text(&mut client).await?);
        let fits = given == (user.clone(), password.clone());
        client.write_all(&[1, u8::from(!fits)]).await?;
        if !fits {
            return Ok(());
        }
    }
    let mut head = [0; 4];
    client.read_exact(&mut head).await?;
    let host = match head[3] {
        1 => Ipv4Addr::from_bits(client.read_u32().await?).to_string(),
        4 => Ipv6Addr::from_bits(client.read_u128().await?).to_string(),
        _ => text(&mut client).await?,
    };
    let port = client.read_u16().await?;
    asked.lock().push(format!("{host}:{port}"));
    let mut reply = vec![5, options.reply, 0, 1, 0, 0, 0, 0, 0, 0];
    reply.extend_from_slice(&options.greeting);
    client.write_all(&reply).await?;
    if options.reply == 0 {
        let mut server = TcpStream::connect(server).await?;
        copy_bidirectional(&mut client, &mut server).await?;
    }
    Ok(())
}

async fn text(client: &mut TcpStream) -> std::io::Result<String> {
    let mut bytes = vec![0; client.read_u8().await?.into()];
    client.read_exact(&mut bytes).await?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Puts TLS in front of `server` and returns the address. It ends with the test's runtime.
///
/// # Panics
/// If loopback cannot be bound.
pub async fn behind_tls(server: SocketAddr, tls: Arc<ServerConfig>) -> SocketAddr {
    let mut tls = ServerConfig::clone(&tls);
    tls.alpn_protocols.clear();
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let mut client = acceptor.accept(stream).await?;
                let mut server = TcpStream::connect(server).await?;
                copy_bidirectional(&mut client, &mut server).await
            });
        }
    });
    address
}

/// A server that reads one head per connection, sends `answer` and closes. Returns its address and
/// the heads.
///
/// # Panics
/// If loopback cannot be bound.
pub async fn with_response(answer: &'static str) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let heads = Arc::<Mutex<Vec<String>>>::default();
    let notes = Arc::clone(&heads);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                match stream.read_u8().await {
                    Ok(byte) => head.push(byte),
                    Err(_) => break,
                }
            }
            notes.lock().push(String::from_utf8_lossy(&head).into_owned());
            stream.write_all(answer.as_bytes()).await.ok();
        }
    });
    (address, heads)
}
