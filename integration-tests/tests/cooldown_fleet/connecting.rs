//! The last check, directly before the first byte: a trip that comes while a request connects.

use std::{
    net::Ipv4Addr,
    sync::Arc,
    time::{Duration, Instant},
};

use integration_tests::{
    member::{Member, RuleFile},
    redis::Redis,
};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use crate::{COOLDOWN, SOON, cools, post, spawn_get};

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi";

/// A TLS site's own certificate; it is not verified here.
fn acceptor() -> TlsAcceptor {
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]);
    let made = made.expect("a certificate");
    let key = rustls::pki_types::PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring has them")
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key);
    TlsAcceptor::from(Arc::new(config.expect("key and certificate belong together")))
}

async fn accept(listener: &TcpListener) -> TcpStream {
    let accepted = timeout(SOON, listener.accept()).await.expect("the proxy connects in time");
    accepted.expect("loopback accepts").0
}

/// Reads a request's head.
async fn head(stream: &mut TlsStream<TcpStream>) -> std::io::Result<Vec<u8>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    Ok(head)
}

#[tokio::test]
async fn a_request_that_was_connecting_when_the_cooldown_tripped_is_not_sent() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("loopback binds");
    let address = listener.local_addr().expect("it is bound");
    let redis = Redis::start();
    let file = RuleFile::one_rule("verify: false, cooldown: {ramp: 0s}").redis(&redis);
    let fleet = Member::fleet(2, &file).await;
    let asked = spawn_get(&fleet[0], format!("https://{address}/page"));
    // Connected, but for the site's half of the handshake.
    let connecting = accept(&listener).await;
    assert_eq!(post(&fleet[1], COOLDOWN, &json!({"seconds": 3})).await.status, 200);
    let tripped = Instant::now();
    cools(&fleet[0], SOON, true).await;
    let acceptor = acceptor();
    let sent = match acceptor.accept(connecting).await {
        Ok(mut stream) => timeout(SOON, head(&mut stream)).await.expect("sent or closed").ok(),
        Err(_) => None,
    };
    assert_eq!(sent, None, "the connection is closed without a byte of the request");
    let mut stream = acceptor.accept(accept(&listener).await).await.expect("TLS as usual");
    let pause = tripped.elapsed();
    // The trip began shortly before its response arrived here.
    assert!(pause > Duration::from_millis(2_500), "again after {pause:?} of three seconds");
    let sent = timeout(SOON, head(&mut stream)).await.expect("in time").expect("it is sent");
    assert!(sent.starts_with(b"GET /page HTTP/1.1\r\n"), "{}", String::from_utf8_lossy(&sent));
    stream.write_all(ANSWER).await.expect("the proxy reads");
    assert_eq!(asked.await.expect("the client lives").status, 200);
}
