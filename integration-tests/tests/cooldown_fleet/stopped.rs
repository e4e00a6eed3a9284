//! A process that was stopped (SIGSTOP, a paused virtual machine) does not resume with outdated
//! knowledge.

use std::time::{Duration, Instant};

use integration_tests::{
    client::ProxyClient,
    load::crawl,
    member::{Member, RuleFile},
    redis::Redis,
    site::Site,
    wait::wait_until,
};
use serde_json::json;
use tokio::task::JoinSet;

use crate::{COOLDOWN, SOON, clear, post};

/// Longer than the lease: a heartbeat, the store's timeout and half a second.
const STOPPED: Duration = Duration::from_secs(5);

/// A busy machine replies late, and a store that seems away would switch the member to local mode.
fn rules(keys: &str, redis: &Redis) -> RuleFile {
    RuleFile::one_rule(keys).store(&format!("{{url: \"{}\", timeout: 2s}}", redis.url()))
}

async fn stop_for(member: &Member, length: Duration) {
    member.freeze();
    tokio::time::sleep(length).await;
    member.thaw();
}

#[tokio::test]
async fn a_member_that_was_stopped_sends_no_more_than_its_rule_allows() {
    /// Tickets in hand are a quarter of a second's worth: 25. The slack of 100 ms lets 10 of them go.
    const RATE: f64 = 100.0;
    let (redis, site) = (Redis::start(), Site::start());
    let member = Member::start(&rules("rate: 100/s, burst: 1, learn: false", &redis)).await;
    member.store_is(true).await;
    let load = tokio::spawn({
        let (proxy, url) = (member.proxy(), site.url("/"));
        async move { crawl(&[proxy], 60, &url, 400).await }
    });
    for _ in 0..3 {
        let before = site.count();
        wait_until("the load runs", SOON, async || site.count() > before + 60).await;
        // The connections are open, and earlier delays do not count.
        site.forget();
        stop_for(&member, STOPPED).await;
        let woke = Instant::now();
        wait_until("it goes on", SOON, async || site.count() > 40).await;
        let times: Vec<_> = site.times().into_iter().filter(|at| *at >= woke).collect();
        let excess = site.excess_of(&times, RATE, 1.0);
        // The slack, and half as much for the machine that this runs on.
        assert!(excess <= RATE * 0.15, "{excess:.1} requests too many after {STOPPED:?}");
    }
    load.await.expect("the load ends");
}

#[tokio::test]
async fn a_member_that_was_stopped_sends_nothing_into_a_cooldown_that_began_meanwhile() {
    const HELD: usize = 100;
    let (redis, site) = (Redis::start(), Site::start());
    let fleet = Member::fleet(2, &rules("cooldown: {ramp: 0s, probe: false}", &redis)).await;
    let mut clients = Vec::new();
    for _ in 0..HELD {
        let mut client = ProxyClient::connect(fleet[0].proxy()).await;
        assert_eq!(client.get(&site.url("/")).await.status, 200);
        clients.push(client);
    }
    site.forget();
    fleet[0].freeze();
    let mut requests = JoinSet::new();
    for mut client in clients {
        let url = site.url("/");
        requests.spawn(async move { client.get(&url).await.status });
    }
    assert_eq!(post(&fleet[1], COOLDOWN, &json!({"seconds": 120})).await.status, 200);
    // Nor do the news that it has not read yet reach it.
    redis.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    tokio::time::sleep(STOPPED).await;
    fleet[0].thaw();
    wait_until("all are held", SOON * 3, async || {
        fleet[0].metric("tidegate_held_requests", &[]).await > HELD as f64 - 0.5
    })
    .await;
    assert_eq!(site.count(), 0, "sent into the cooldown");
    clear(&fleet[1]).await;
    assert_eq!(requests.join_all().await, vec![200; HELD]);
}
