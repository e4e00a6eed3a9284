//! Protocol upgrades: the handshake is a request, and the rest are bytes.

use std::time::Duration;

use integration_tests::{
    member::{Member, RuleFile},
    wait::wait_until,
};
use tokio::io::AsyncWriteExt as _;

use crate::{
    bench::{Client, SOON, addressed, exchange, member, statuses},
    origin::{OK, Origin, Reply, field},
};

const UPGRADE: &str = "GET http://SITE/chat HTTP/1.1\r\nHost: SITE\r\nConnection: keep-alive, Upgrade\r\n\
    Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
    Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\nSec-WebSocket-Protocol: chat\r\n\
    Origin: http://a.example\r\n\r\n";
const SWITCH: &str = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n";

#[tokio::test]
async fn a_handshake_passes_with_its_fields_and_every_byte_behind_it() {
    let member = member().await;
    // Frames in the very segment of the 101, a ping and a fragmented message among them.
    let frames = b"\x89\x02hi\x01\x03abc\x80\x03def\x82\x7e\x01\x00".to_vec();
    let first = [SWITCH.as_bytes(), &frames, &[0xfe; 256]].concat();
    let length = frames.len() + 256;
    let site = Origin::answering(first).await;
    let mut client = Client::connect(member.proxy()).await;
    // A mebibyte after the handshake, before any response.
    let sent: Vec<u8> = (0..1_u32 << 20).map(|n| (n % 251) as u8).collect();
    let all = [addressed(UPGRADE.as_bytes(), site.address()), sent.clone()].concat();
    let (head, received) = {
        client.send(&all[..UPGRADE.len() + 100]).await;
        let head = client.head().await;
        client.send(&all[UPGRADE.len() + 100..]).await;
        (head, client.exactly(length).await)
    };
    assert!(head.starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{head}");
    assert_eq!(field(&head, "upgrade"), Some("websocket"));
    assert_eq!(field(&head, "sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    assert_eq!(field(&head, "sec-websocket-extensions"), Some("permessage-deflate"));
    assert!(received.starts_with(&frames), "frames behind the 101 are the first to come");
    wait_until("all of it reaches the site", SOON, async || site.bytes().ends_with(&sent)).await;
    let seen = site.requests().remove(0);
    assert_eq!(field(&seen, "connection"), Some("upgrade"));
    assert_eq!(field(&seen, "upgrade"), Some("websocket"));
    assert_eq!(field(&seen, "sec-websocket-key"), Some("dGhlIHNhbXBsZSBub25jZQ=="));
    let offered = field(&seen, "sec-websocket-extensions");
    assert_eq!(offered, Some("permessage-deflate; client_max_window_bits"));
    client.stream.shutdown().await.expect("it is open");
    wait_until("the client's end is the site's", SOON, async || site.ended() == 1).await;
}

#[tokio::test]
async fn a_refused_handshake_is_an_ordinary_response() {
    let member = member().await;
    let site = Origin::answering(OK).await;
    let mut client = Client::connect(member.proxy()).await;
    for _ in 0..2 {
        client.send(addressed(UPGRADE.as_bytes(), site.address())).await;
        assert_eq!(client.answer().await.status(), 200);
    }
}

#[tokio::test]
async fn a_change_to_another_protocol_or_unasked_is_a_bad_gateway() {
    let member = member().await;
    let plain = "GET http://SITE/chat HTTP/1.1\r\nHost: SITE\r\nConnection: close\r\n\r\n";
    let named = plain.replace("Connection: close", "Upgrade: websocket\r\nConnection: close");
    let body = UPGRADE.replace("\r\n\r\n", "\r\nContent-Length: 5\r\n\r\nhello");
    let old = UPGRADE.replace("HTTP/1.1", "HTTP/1.0");
    for request in [plain, &named, &body, &old] {
        let site = Origin::scripted(|_, _| Reply::last(SWITCH)).await;
        let mut client = Client::connect(member.proxy()).await;
        client.send(addressed(request.as_bytes(), site.address())).await;
        assert_eq!(client.answer().await.status(), 502, "{request}");
        assert!(!site.received().to_lowercase().contains("\r\nupgrade:"), "{}", site.received());
    }
}

#[tokio::test]
async fn a_quiet_one_ends_after_the_idle_time_and_a_busy_one_does_not() {
    let file = RuleFile::one_rule("rate: 1/h, burst: 1, max_wait: 0s, cooldown: off");
    let member = Member::start(&file.with("timeouts: {idle: 1s}")).await;
    let site = Origin::answering(SWITCH).await;
    let mut client = Client::connect(member.proxy()).await;
    client.send(addressed(UPGRADE.as_bytes(), site.address())).await;
    assert!(client.head().await.starts_with("HTTP/1.1 101 "));
    for _ in 0..6 {
        tokio::time::sleep(Duration::from_millis(300)).await;
        client.send("\u{1}frame").await;
    }
    let granted = member.metric("tidegate_tokens_granted_total", &[]).await;
    assert!((granted - 1.0).abs() < 1e-9, "{granted} tokens for one handshake and six frames");
    assert_eq!(client.rest().await, "", "then it is quiet");
    wait_until("the site's side ends too", SOON, async || site.ended() == 1).await;
    assert_eq!(site.received().matches("frame").count(), 6);
    let again = exchange(member.proxy(), addressed(UPGRADE.as_bytes(), site.address())).await;
    assert_eq!(statuses(&again[..]).first(), Some(&429), "the next handshake needs its own token");
}
