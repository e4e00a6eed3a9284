//! Clients that misuse TLS and HTTP/2 inside an intercepted CONNECT.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::client::TlsStream;

use super::{
    bench::{Bench, until},
    secure::{Flaw, Root, SecureSite, client_config, connected, proxy, proxy_with, tls_through},
};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// `GET https:/` in HPACK, all from its static table.
const GET: &[u8] = &[0x82, 0x87, 0x84];

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

async fn h2(bench: &Bench, site: &SecureSite) -> TlsStream<TcpStream> {
    let stream = tls_through(bench, &site.authority(), "localhost", &["h2"]).await;
    let mut stream = stream.unwrap();
    stream.write_all(PREFACE).await.unwrap();
    stream
}

/// Sends `bytes` and reads until the proxy closes; true if it did within seconds.
async fn is_cut_off(stream: TlsStream<TcpStream>, bytes: Vec<u8>) -> bool {
    let (mut from, mut to) = tokio::io::split(stream);
    let sending =
        tokio::spawn(async move { to.write_all(&bytes).await.is_ok() && to.flush().await.is_ok() });
    let mut answers = Vec::new();
    let reading = from.read_to_end(&mut answers);
    let cut_off = tokio::time::timeout(Duration::from_secs(5), reading).await.is_ok();
    sending.abort();
    cut_off
}

#[tokio::test]
async fn floods_of_frames_end_their_connection_and_no_other() {
    let root = Root::new();
    let site = SecureSite::start(&root, Flaw::None, &["h2"]).await;
    let bench = proxy(&root, |rule| {
        rule.intercept = true;
        rule.limits.rate = Some(0.001);
        rule.limits.burst = 1;
    })
    .await;
    let resets = (0..5000).flat_map(|n| {
        let stream = 2 * n + 1;
        let asked = frame(HEADERS, END_STREAM | END_HEADERS, stream, GET);
        [asked, frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])].concat()
    });
    let endless_head: Vec<u8> = frame(HEADERS, END_STREAM, 1, GET)
        .into_iter()
        .chain(
            frame(CONTINUATION, 0, 1, &[b"\0\x01x\x7f\x80\x01", &[b'y'; 255][..]].concat())
                .repeat(500),
        )
        .collect();
    for (what, flood) in [
        ("resets", resets.collect()),
        ("a head without end", endless_head),
        ("an answer to nothing", frame(RST_STREAM, 0, 1, &[0; 4])),
        ("a frame that is too long", frame(PING, 0, 0, &[0; 20_000])),
        ("no HTTP/2", b"GET / HTTP/1.1\r\nHost: h\r\n\r\n".repeat(100)),
    ] {
        let stream = h2(&bench, &site).await;
        assert!(is_cut_off(stream, flood).await, "{what}");
    }
    let answer = bench.get(&site.url("/")).await;
    assert_eq!(answer.status(), 200, "another client is served: {}", answer.head);
    assert_eq!(site.requests.lock().len(), 1, "nothing of the floods reached the site");
}

#[tokio::test]
async fn more_streams_than_allowed_are_refused() {
    let root = Root::new();
    let site = SecureSite::start(&root, Flaw::None, &["h2"]).await;
    let bench = proxy(&root, |rule| {
        rule.intercept = true;
        rule.limits.rate = Some(0.001);
        rule.limits.burst = 1;
        rule.max_wait = Duration::from_secs(3600);
        rule.queue = 1000;
    })
    .await;
    let mut stream = h2(&bench, &site).await;
    for n in 0..120 {
        let asked = frame(HEADERS, END_STREAM | END_HEADERS, 2 * n + 1, GET);
        stream.write_all(&asked).await.unwrap();
    }
    stream.flush().await.unwrap();
    let refused = async {
        loop {
            let mut head = [0; 9];
            stream.read_exact(&mut head).await.unwrap();
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; length as usize];
            stream.read_exact(&mut payload).await.unwrap();
            if head[3] == RST_STREAM {
                return payload;
            }
        }
    };
    let refused = tokio::time::timeout(Duration::from_secs(5), refused).await.unwrap();
    assert_eq!(refused, [0, 0, 0, 7], "REFUSED_STREAM");
}

#[tokio::test]
async fn a_client_that_never_opens_its_window_is_disconnected() {
    let root = Root::new();
    let site = SecureSite::start(&root, Flaw::None, &["h2"]).await;
    let change = |rule: &mut crate::rules::Rule| rule.intercept = true;
    let bench =
        proxy_with(&root, change, |settings| settings.timeouts.idle = Duration::from_millis(100));
    let bench = bench.await;
    let stream = h2(&bench, &site).await;
    let closed = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
    let asked = frame(HEADERS, END_STREAM | END_HEADERS, 1, GET);
    assert!(is_cut_off(stream, [closed, asked].concat()).await);
    assert_eq!(site.requests.lock().len(), 1);
    until("it is counted", || {
        bench.metric(r#"tidegate_limit_hits_total{limit="idle_answer"}"#) == 1.0
    })
    .await;
}

/// A stream that writes one byte at a time.
#[derive(Debug)]
struct Trickle(TcpStream);

impl AsyncRead for Trickle {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Trickle {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, &buf[..buf.len().min(1)])
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

#[tokio::test]
async fn a_hello_that_comes_byte_by_byte_is_understood() {
    use rustls::pki_types::{CertificateDer, pem::PemObject as _};

    let root = Root::new();
    let bench = proxy(&root, |rule| rule.intercept = true).await;
    let client = connected(&bench, "localhost:443").await;
    client.stream.set_nodelay(true).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    let ca = bench.cx.ca().unwrap();
    roots.add(CertificateDer::from_pem_slice(ca.pem().as_bytes()).unwrap()).unwrap();
    let name = "localhost".try_into().unwrap();
    let shaken = client_config(roots, &["h2"]).connect(name, Trickle(client.stream)).await;
    assert!(shaken.is_ok(), "{:?}", shaken.err());
}

#[tokio::test]
async fn bytes_that_only_look_like_tls_are_refused() {
    let root = Root::new();
    let bench = proxy(&root, |rule| rule.intercept = true).await;
    for garbage in [&b"\x16\x03\x01\x00\x05hello"[..], b"\x16\x03\x03\xff\xff\x01\x00"] {
        let mut client = connected(&bench, "localhost:443").await;
        client.stream.write_all(garbage).await.unwrap();
        client.stream.shutdown().await.unwrap();
        client.rest().await;
    }
    assert_eq!(bench.metric("tidegate_panics_total"), 0.0);
}
