//! Open tunnels belong to the traffic: a cooldown holds what their clients send.

use std::time::{Duration, Instant};

use integration_tests::{
    client::Raw,
    member::{Member, RuleFile},
    site::Site,
    wait::wait_until,
};
use serde_json::json;

use crate::{COOLDOWN, SOON, post};

const REQUEST: &str = "GET /inside HTTP/1.1\r\nHost: x\r\n\r\n";

/// A tunnel in which one request has been answered.
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
async fn a_tunnel_stands_still_during_a_cooldown_and_goes_on_afterwards() {
    for counts in ["flights", "connect"] {
        let site = Site::start();
        let keys = format!("tunnel: {counts}, cooldown: {{ramp: 0s, probe: false}}");
        let member = Member::start(&RuleFile::one_rule(&keys)).await;
        let mut tunnel = open_tunnel(&member, &site).await;
        assert_eq!(post(&member, COOLDOWN, &json!({"seconds": 2})).await.status, 200);
        let tripped = Instant::now();
        tunnel.send(REQUEST).await;
        answer(&mut tunnel).await;
        let times = site.times();
        assert_eq!(times.len(), 2);
        let pause = times[1].saturating_duration_since(tripped);
        // The trip began a moment before its answer was here.
        assert!(
            pause > Duration::from_millis(1_500),
            "{counts}: sent {pause:?} into a cooldown of 2 s"
        );
        tunnel.send(REQUEST).await;
        answer(&mut tunnel).await;
    }
}

#[tokio::test]
async fn a_tunnel_that_would_stand_still_for_longer_than_max_wait_is_closed() {
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
