//! `https://` in absolute form: the proxy uses TLS to the site, and accepts no invalid certificate.

use std::sync::atomic::Ordering;

use http::Version;
use tokio::{io::AsyncWriteExt as _, net::TcpListener};

use super::{
    bench::{Bench, settings},
    secure::{Flaw, Root, SecureSite, proxy},
};

#[tokio::test]
async fn a_site_is_asked_in_the_version_that_it_speaks() {
    let root = Root::new();
    for (alpn, version) in [
        (&["h2", "http/1.1"][..], Version::HTTP_2),
        (&["http/1.1"], Version::HTTP_11),
        (&[], Version::HTTP_11),
    ] {
        let site = SecureSite::start(&root, Flaw::None, alpn).await;
        let bench = proxy(&root, |_| {}).await;
        for path in ["/a", "/b?c", "/d"] {
            let answer = bench.get(&site.url(path)).await;
            assert_eq!((answer.status(), answer.field("tidegate-verdict")), (200, Some("ok")));
            assert!(answer.body().contains(path.split('?').next().unwrap()), "{}", answer.body());
        }
        let seen = site.requests.lock()[0].clone();
        assert_eq!((seen.version, &seen.authority), (version, &site.authority()));
        assert!(seen.fields.contains_key("via"));
        assert_eq!(site.connections.load(Ordering::SeqCst), 1, "the connection is used again");
    }
}

#[tokio::test]
async fn http2_carries_requests_side_by_side() {
    let root = Root::new();
    let site = SecureSite::start(&root, Flaw::None, &["h2"]).await;
    let bench = proxy(&root, |_| {}).await;
    assert_eq!(bench.get(&site.url("/first")).await.status(), 200);
    let urls: Vec<String> = (0..20).map(|n| site.url(&format!("/{n}"))).collect();
    let mut clients = Vec::new();
    for url in &urls {
        let mut client = bench.connect().await;
        client.send(&format!("GET {url} HTTP/1.1\r\nhost: x\r\n\r\n")).await;
        clients.push(client);
    }
    for client in &mut clients {
        assert_eq!(client.answer().await.status(), 200);
    }
    assert_eq!(site.connections.load(Ordering::SeqCst), 1);
    assert_eq!(site.requests.lock().len(), 21);
}

#[tokio::test]
async fn a_bad_certificate_is_a_bad_gateway_with_its_reason() {
    let root = Root::new();
    for (flaw, says) in [
        (Flaw::Expired, "it has expired"),
        (Flaw::OtherName, "it is for another name"),
        (Flaw::SelfSigned, "no root that is trusted here"),
        (Flaw::UnknownRoot, "no root that is trusted here"),
    ] {
        let site = SecureSite::start(&root, flaw, &["h2", "http/1.1"]).await;
        let bench = proxy(&root, |_| {}).await;
        let answer = bench.get(&site.url("/")).await;
        assert_eq!(answer.status(), 502, "{flaw:?}");
        let status = answer.field("proxy-status").unwrap();
        assert!(status.contains("error=tls_certificate_error"), "{status}");
        assert_eq!(answer.field("tidegate-refused"), Some("tls"));
        assert!(answer.body().contains(says), "{flaw:?}: {}", answer.body());
        assert!(site.requests.lock().is_empty(), "nothing of the request is sent");
    }
}

#[tokio::test]
async fn a_rule_may_waive_the_certificate_of_its_sites() {
    let root = Root::new();
    for flaw in [Flaw::Expired, Flaw::OtherName, Flaw::SelfSigned, Flaw::UnknownRoot] {
        let site = SecureSite::start(&root, flaw, &["h2"]).await;
        let bench = proxy(&root, |rule| rule.verify = false).await;
        assert_eq!(bench.get(&site.url("/")).await.status(), 200, "{flaw:?}");
    }
}

#[tokio::test]
async fn a_site_that_speaks_no_tls_is_a_protocol_error() {
    let root = Root::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/", listener.local_addr().unwrap());
    let bench = proxy(&root, |_| {}).await;
    let speak_plainly = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        stream
    };
    let (answer, _stream) = tokio::join!(bench.get(&url), speak_plainly);
    assert_eq!(answer.status(), 502);
    let status = answer.field("proxy-status").unwrap();
    assert!(status.contains("error=tls_protocol_error"), "{status}");
}

#[tokio::test]
async fn a_silent_handshake_ends_with_the_connect_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/", listener.local_addr().unwrap());
    let mut settings = settings();
    settings.timeouts.connect = std::time::Duration::from_millis(100);
    let bench = Bench::with(settings, vec![super::bench::rule()]).await;
    let (answer, accepted) = tokio::join!(bench.get(&url), listener.accept());
    assert_eq!((answer.status(), answer.field("tidegate-refused")), (504, Some("timeout")));
    drop(accepted);
}

#[tokio::test]
async fn an_interrupted_handshake_is_reported_as_interrupted() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/", listener.local_addr().unwrap());
    let bench = Bench::start().await;
    let hang_up = async { listener.accept().await.unwrap().0.shutdown().await.unwrap() };
    let (answer, ()) = tokio::join!(bench.get(&url), hang_up);
    assert_eq!(answer.status(), 502);
    let status = answer.field("proxy-status").unwrap();
    assert!(status.contains("error=connection_terminated"), "{status}");
}

#[test]
fn a_file_without_roots_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let empty = dir.path().join("empty.pem");
    std::fs::write(&empty, "nothing").unwrap();
    for path in [empty, dir.path().join("missing.pem")] {
        let error =
            crate::proxy::upstream::tls::Connector::new(std::slice::from_ref(&path)).unwrap_err();
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    }
}
