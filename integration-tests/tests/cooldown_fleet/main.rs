//! The cooldown's promises with real processes: after a trip anywhere the whole fleet pauses, then
//! recovers.

mod blocks;
mod by_hand;
mod cluster;
mod connecting;
mod lost_memory;
mod news;
mod outside;
mod probe;
mod ramp;
mod retry;
mod silence;
mod stopped;
mod story;
mod tunnels;

use std::time::Duration;

use integration_tests::{
    client::{Answer, delete, get, post_json},
    member::Member,
    site::{Page, Site},
    storm::Storm,
    wait::wait_until,
};
use serde_json::Value;

const SOON: Duration = Duration::from_secs(10);
const COOLDOWN: &str = "/api/v1/scopes/default/cooldown";

/// The promise is 20 ms. The rest allows for a busy machine that does not schedule a member or this
/// test. `make bench-cooldown` measures the real time.
const SLACK: Duration = Duration::from_millis(20 + 80);

/// `POST` of JSON to the admin port.
async fn post(member: &Member, path: &str, body: &Value) -> Answer {
    post_json(member.admin(), path, &body.to_string()).await
}

/// Ends the cooldown with a manual clear.
async fn clear(member: &Member) {
    assert_eq!(try_clear(member).await, 200);
}

/// Sends a manual clear and returns the status of the response.
async fn try_clear(member: &Member) -> u16 {
    delete(member.admin(), COOLDOWN).await.status
}

/// Waits until the member reports that a scope cools down, or that none does.
async fn cools(member: &Member, at_most: Duration, cools: bool) {
    wait_until(&format!("cooling: {cools}"), at_most, async || {
        (member.metric("tidegate_cooldown_active", &[]).await > 0.0) == cools
    })
    .await;
}

/// Waits until the member reports this many blocks in a row. A client does not wait for the report
/// of its response, so another member may not have the news yet.
async fn streak(member: &Member, blocks: u32) {
    wait_until(&format!("a streak of {blocks}"), SOON, async || {
        let known = member.metric("tidegate_consecutive_blocks", &[]).await;
        (known - f64::from(blocks)).abs() < 1e-9
    })
    .await;
}

/// Three blocks through this member, and a good site from then on.
async fn three_blocks(member: &Member, site: &Site) {
    site.answer_everything_with(Some(Page::TooManyRequests(None)));
    for _ in 0..3 {
        assert_eq!(get(member.proxy(), &site.url("/")).await.status, 429);
    }
    cools(member, SOON, true).await;
    site.answer_everything_with(None);
}

/// A request in the background.
fn spawn_get(member: &Member, url: String) -> tokio::task::JoinHandle<Answer> {
    let proxy = member.proxy();
    tokio::spawn(async move { get(proxy, &url).await })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_is_sent_after_a_trip_reaches_the_site() {
    let mut storm = Storm::start(3, 20).await;
    for n in 0..20 {
        let trip = storm.trip().await;
        assert_eq!(trip.leaked(SLACK), 0, "trip {n}: {trip:?}");
    }
    storm.end().await;
}
