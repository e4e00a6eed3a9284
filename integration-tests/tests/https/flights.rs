//! Tunnels without interception: each request of HTTP/1.1 counts, and most of HTTP/2. A cooldown
//! holds them.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{Request, header};
use http_body_util::Full;
use integration_tests::{
    client::{ProxyClient, Raw},
    member::Member,
    secure::Root,
    site::Site,
};
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

const PAGES: f64 = 7.0;

/// Tokens that a client's crawl of seven pages takes.
async fn tokens(client: Crawler) -> f64 {
    let (site, root) = secure_site();
    let member = root.member("tunnel: flights, rate: 1000/s, burst: 50").await;
    let (statuses, _) = client.crawl(&member, &root.file(), &site).await;
    assert_eq!(statuses, [200; LINKS + 1], "{client:?}");
    assert_eq!(site.count(), LINKS + 1, "{client:?}");
    member.metric("tidegate_tokens_granted_total", &[]).await
}

#[tokio::test]
async fn each_request_counts_where_one_waits_for_the_other() {
    for client in [
        Crawler::Curl { http2: false },
        Crawler::Curl { http2: true },
        Crawler::http1("crawl_requests.py"),
        Crawler::http1("crawl_httpx.py"),
        Crawler::http2("crawl_httpx.py"),
        Crawler::http1("crawl_aiohttp.py"),
        Crawler::http1("spider.py"),
    ] {
        let tokens = tokens(client).await;
        assert!((tokens - PAGES).abs() < 1e-9, "{client:?}: {tokens} tokens for {PAGES} pages");
    }
}

#[tokio::test]
async fn a_crawl_through_a_tunnel_keeps_to_the_rate() {
    let (site, root) = secure_site();
    let member = root.member("rate: 10/s, burst: 1").await;
    let client = Crawler::http1("crawl_requests.py");
    client.crawl(&member, &root.file(), &site).await;
    assert_eq!(site.connections(), 1);
    let excess = site.excess(10.0, 1.0);
    assert!(excess <= 1.0, "{excess:.2} requests too many");
}

/// A tunnel to the site.
async fn tunnel(member: &Member, site: &Site) -> TcpStream {
    let mut client = Raw::connect(member.proxy()).await;
    let to = site.authority();
    client.send(format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n")).await;
    assert!(client.head().await.starts_with("HTTP/1.1 200 "));
    client.into_stream()
}

/// TLS inside a tunnel.
async fn handshake(tunnel: TcpStream, root: &Root) -> TlsStream<TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(root.file()).expect("a certificate")).expect("a root");
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring knows TLS 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").expect("a name");
    let connecting = TlsConnector::from(Arc::new(config)).connect(name, tunnel);
    timeout(SOON, connecting).await.expect("in time").expect("a handshake")
}

async fn ask(stream: &mut TlsStream<TcpStream>) {
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await.expect("it is open");
    let mut answer = Vec::new();
    while !answer.ends_with(b"</html>") {
        let reading = timeout(SOON, stream.read_buf(&mut answer));
        assert!(reading.await.expect("in time").expect("it is open") > 0, "it ended");
    }
}

async fn cool_down(member: &Member, seconds: u32) {
    let request = Request::post("/api/v1/scopes/default/cooldown")
        .header(header::HOST, member.admin().to_string())
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(format!("{{\"seconds\": {seconds}}}"))))
        .expect("it is a request");
    let sent = ProxyClient::connect(member.admin()).await.send(request).await;
    assert_eq!(sent.expect("the port answers").status, 200);
}

#[tokio::test]
async fn a_cooldown_holds_requests_in_a_tunnel_but_no_handshake() {
    let (site, root) = secure_site();
    let member = root.member("cooldown: {ramp: 0s, probe: false}").await;
    let silent = tunnel(&member, &site).await;
    let mut talking = handshake(tunnel(&member, &site).await, &root).await;
    ask(&mut talking).await;
    cool_down(&member, 8).await;
    let tripped = Instant::now();
    let mut silent = handshake(silent, &root).await;
    let shaken = tripped.elapsed();
    tokio::join!(ask(&mut talking), ask(&mut silent));
    assert!(shaken < Duration::from_millis(7_500), "the handshake took {shaken:?}");
    for arrived in &site.times()[1..] {
        let pause = arrived.saturating_duration_since(tripped);
        assert!(pause > Duration::from_millis(7_500), "sent {pause:?} into a cooldown of 8 s");
    }
}
