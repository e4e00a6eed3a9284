//! HTTP/2 floods on an intercepted connection: each ends that connection, costs bounded memory, and
//! affects no other client.

use std::sync::Arc;

use integration_tests::{client::Raw, member::Member, site::Page};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::{Crawler, LINKS, SOON, secure_site};

const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;
const END_STREAM: u8 = 1;
const GROWTH_AT_MOST: u64 = 16 << 20;

fn frame(sort: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short frame").to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([sort, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// `GET https://AUTHORITY/` in HPACK (RFC 7541): three entries of the static table and a literal.
fn fields(authority: &str) -> Vec<u8> {
    let mut fields = vec![0x82, 0x87, 0x84, 0x41];
    fields.push(u8::try_from(authority.len()).expect("a short name"));
    fields.extend(authority.as_bytes());
    fields
}

/// An HTTP/2 connection through interception, its preface sent.
async fn connected(member: &Member, to: &str) -> TlsStream<TcpStream> {
    let mut client = Raw::connect(member.proxy()).await;
    client.send(format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n")).await;
    assert!(client.head().await.starts_with("HTTP/1.1 200 "));
    let ca = CertificateDer::from_pem_file(member.ca_file()).expect("the CA");
    let mut roots = RootCertStore::empty();
    roots.add(ca).expect("a root");
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring knows TLS 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let name = ServerName::try_from("localhost").expect("a name");
    let connecting = TlsConnector::from(Arc::new(config)).connect(name, client.into_stream());
    let mut stream = timeout(SOON, connecting).await.expect("in time").expect("a handshake");
    let preface = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), frame(SETTINGS, 0, 0, &[])];
    stream.write_all(&preface.concat()).await.expect("it is open");
    stream
}

/// Sends `flood` until the proxy has enough, and checks that it ends it, keeps its memory and serves others.
async fn is_ended(flood: impl Fn(&str, u32) -> Vec<u8>) {
    let (site, root) = secure_site();
    site.on("/", Page::Index(LINKS));
    let member = root.member("intercept: true, rate: 1/h, burst: 100, max_wait: 1h").await;
    let to = site.authority();
    let before = member.resident_bytes();
    let (mut read, mut write) = tokio::io::split(connected(&member, &to).await);
    let flooding = async {
        for n in 0..100_000 {
            if write.write_all(&flood(&to, n)).await.is_err() {
                return;
            }
        }
        panic!("the flood went on and on");
    };
    let mut heard = Vec::new();
    let hearing = async { while read.read_buf(&mut heard).await.is_ok_and(|read| read > 0) {} };
    // Its end shows in a read or in a write, whichever is first.
    let ended = async {
        tokio::select! { () = flooding => {}, () = hearing => {} }
    };
    timeout(SOON, ended).await.expect("the proxy ends it");
    let growth = member.resident_bytes().saturating_sub(before);
    assert!(growth < GROWTH_AT_MOST, "{} MiB more", growth >> 20);
    let curl = Crawler::Curl { http2: true };
    let (statuses, _) = curl.crawl(&member, &member.ca_file(), &site).await;
    assert_eq!(statuses, [200; LINKS + 1], "others are served");
}

#[tokio::test]
async fn streams_that_are_opened_and_reset_again_and_again() {
    is_ended(|to, n| {
        let stream = 2 * n + 1;
        let open = frame(HEADERS, END_HEADERS | END_STREAM, stream, &fields(to));
        [open, frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])].concat()
    })
    .await;
}

#[tokio::test]
async fn a_head_that_never_ends() {
    is_ended(|to, n| {
        // A literal field, never indexed: a new name each time.
        let field = [&[0, 8][..], format!("x-{n:06}").as_bytes(), &[100], &[b'a'; 100]].concat();
        if n == 0 {
            return frame(HEADERS, END_STREAM, 1, &fields(to));
        }
        frame(CONTINUATION, 0, 1, &field.repeat(100))
    })
    .await;
}
