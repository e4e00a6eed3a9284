//! A cooldown also holds the traffic of open tunnels.

use std::{
    net::Ipv4Addr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use integration_tests::{
    client::Raw,
    member::{Member, RuleFile},
    site::Site,
    wait::wait_until,
};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    time::timeout,
};

use crate::{COOLDOWN, SOON, cools, post};

const REQUEST: &str = "GET /inside HTTP/1.1\r\nHost: x\r\n\r\n";

/// A tunnel after its first response.
async fn open_tunnel(member: &Member, site: &Site) -> Raw {
    let mut client = Raw::connect(member.proxy()).await;
    let to = site.address();
    client.send(format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n")).await;
    assert!(client.head().await.starts_with("HTTP/1.1 200 "));
    client.send(REQUEST).await;
    answer(&mut client).await;
    client
}

async fn answer(client: &mut Raw) {
    let head = client.head().await.to_lowercase();
    assert!(head.starts_with("http/1.1 200 "), "{head}");
    let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
    let length = length.and_then(|text| text.trim().parse().ok()).expect("a length");
    client.exactly(length).await;
}

#[tokio::test]
async fn a_tunnel_is_paused_during_a_cooldown_and_continues_afterwards() {
    for counts in ["flights", "connect"] {
        let site = Site::start();
        let keys = format!("tunnel: {counts}, cooldown: {{ramp: 0s}}");
        let member = Member::start(&RuleFile::one_rule(&keys)).await;
        let mut tunnel = open_tunnel(&member, &site).await;
        assert_eq!(post(&member, COOLDOWN, &json!({"seconds": 2})).await.status, 200);
        let tripped = Instant::now();
        tunnel.send(REQUEST).await;
        answer(&mut tunnel).await;
        let times = site.times();
        assert_eq!(times.len(), 2);
        let pause = times[1].saturating_duration_since(tripped);
        // The trip began shortly before its response arrived here.
        assert!(
            pause > Duration::from_millis(1_500),
            "{counts}: sent {pause:?} into a cooldown of 2 s"
        );
        // Nothing in a tunnel can be judged, so a response to the probe is enough.
        cools(&member, SOON, false).await;
        let probes = member.metric("tidegate_probes_total", &[("result", "ok")]).await;
        assert!((probes - 1.0).abs() < 1e-9, "{counts}: {probes} probes");
        tunnel.send(REQUEST).await;
        answer(&mut tunnel).await;
    }
}

#[tokio::test]
async fn an_old_flight_waits_out_a_cooldown_like_a_new_one() {
    for counts in ["flights", "connect"] {
        let site = Site::start();
        let keys = format!("tunnel: {counts}, max_wait: 3s, cooldown: {{ramp: 0s}}");
        let member = Member::start(&RuleFile::one_rule(&keys)).await;
        let mut tunnel = open_tunnel(&member, &site).await;
        let (first, rest) = REQUEST.split_at(10);
        tunnel.send(first).await;
        // Longer than any request may be held, but nothing was: the client takes its time.
        tokio::time::sleep(Duration::from_millis(3_200)).await;
        assert_eq!(post(&member, COOLDOWN, &json!({"seconds": 1})).await.status, 200);
        tunnel.send(rest).await;
        answer(&mut tunnel).await;
        assert_eq!(site.count(), 2, "{counts}");
    }
}

/// More than the socket buffers between client and site.
const FLIGHT: usize = 64 << 20;

/// Sends a flight that is larger than the buffers, and counts.
async fn send_flight(mut stream: TcpStream, sent: Arc<AtomicUsize>) -> TcpStream {
    let piece = vec![7; 64 << 10];
    while sent.load(Ordering::Relaxed) < FLIGHT {
        stream.write_all(&piece).await.expect("the tunnel takes it, late or early");
        sent.fetch_add(piece.len(), Ordering::Relaxed);
    }
    stream
}

/// Reads until nothing has come for `quiet`, or the flight is complete.
async fn read_on(site: &mut TcpStream, already: usize, quiet: Duration) -> usize {
    let (mut got, mut buffer) = (already, vec![0; 1 << 20]);
    while got < FLIGHT {
        match timeout(quiet, site.read(&mut buffer)).await {
            Ok(read) => got += read.expect("the tunnel is open"),
            Err(_) => break,
        }
    }
    got
}

#[tokio::test]
async fn a_flight_that_a_trip_interrupts_is_held_and_continues() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("loopback binds");
    let to = listener.local_addr().expect("it is bound");
    let member = Member::start(&RuleFile::one_rule("cooldown: {ramp: 0s}")).await;
    let mut client = Raw::connect(member.proxy()).await;
    client.send(format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n")).await;
    assert!(client.head().await.starts_with("HTTP/1.1 200 "));
    let (mut site, _) = listener.accept().await.expect("the tunnel is connected");
    let sent = Arc::new(AtomicUsize::new(0));
    let sending = tokio::spawn(send_flight(client.into_stream(), Arc::clone(&sent)));
    let mut before = 0;
    wait_until("the site takes no more", SOON, async || {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let now = sent.load(Ordering::Relaxed);
        std::mem::replace(&mut before, now) == now && now > 0
    })
    .await;
    let length = Duration::from_secs(4);
    assert_eq!(post(&member, COOLDOWN, &json!({"seconds": 4})).await.status, 200);
    let tripped = Instant::now();
    let during = read_on(&mut site, 0, Duration::from_secs(1)).await;
    assert!(during < FLIGHT, "what was on its way arrives, and no more");
    assert!(tripped.elapsed() < length, "the machine is too slow for this test");
    let more = site.read_u8().await.expect("the flight goes on");
    let pause = tripped.elapsed();
    // The trip began shortly before its response arrived here.
    assert!(pause > length - Duration::from_millis(500), "on after {pause:?} of {length:?}");
    assert_eq!((more, read_on(&mut site, during + 1, SOON).await), (7, FLIGHT));
    site.write_all(b"!").await.expect("the tunnel is open");
    let mut client = sending.await.expect("the client lives");
    assert_eq!(client.read_u8().await.expect("the answer comes"), b'!');
    cools(&member, SOON, false).await;
}

#[tokio::test]
async fn a_tunnel_that_would_pause_for_longer_than_max_wait_is_closed() {
    let site = Site::start();
    let member = Member::start(&RuleFile::one_rule("max_wait: 1s, cooldown: {ramp: 0s}")).await;
    let mut tunnel = open_tunnel(&member, &site).await;
    assert_eq!(post(&member, COOLDOWN, &json!({"seconds": 60})).await.status, 200);
    tunnel.send(REQUEST).await;
    assert!(tunnel.rest(SOON).await.is_empty(), "closed without a word");
    assert_eq!(site.count(), 1, "nothing more went to the site");
    wait_until("the tunnel is gone", SOON, async || {
        member.metric("tidegate_tunnels", &[]).await.abs() < 1e-9
    })
    .await;
}
