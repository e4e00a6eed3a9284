//! News in a Redis Cluster: over shard channels, also after their slot has moved.

use integration_tests::{
    client::get,
    cluster::Cluster,
    member::{Member, RuleFile},
    site::Site,
    wait::wait_until,
};
use serde_json::json;

use crate::{COOLDOWN, SOON, cools, post, try_clear};

const CHANNEL: &str = "tidegate:{default}:news";

/// Waits until both members subscribe to the channel at this node.
async fn both_hear(cluster: &Cluster, node: usize) {
    wait_until(&format!("both members hear node {node}"), SOON, async || {
        cluster.nodes[node].command(&["PUBSUB", "SHARDNUMSUB", CHANNEL]).ends_with(":2\r\n")
    })
    .await;
}

/// A trip and a clear by one member are known to the other.
async fn news_pass(fleet: &[Member]) {
    // Calls right after a slot has moved fail, and the store counts as away until the next.
    wait_until("the trip is taken", SOON, async || {
        post(&fleet[0], COOLDOWN, &json!({"seconds": 60})).await.status == 200
    })
    .await;
    cools(&fleet[1], SOON, true).await;
    wait_until("the clear is taken", SOON, async || try_clear(&fleet[0]).await == 200).await;
    cools(&fleet[1], SOON, false).await;
}

#[tokio::test]
async fn in_a_cluster_news_go_over_the_shard_of_their_rule_wherever_it_moves() {
    let (cluster, site) = (Cluster::start().await, Site::start());
    let file = RuleFile::one_rule("cooldown: {for: 1m, ramp: 0s}")
        .store(&format!("{{url: \"{}\", timeout: 2s}}", cluster.url()));
    let fleet = Member::fleet(2, &file).await;
    for member in &fleet {
        assert_eq!(get(member.proxy(), &site.url("/")).await.status, 200);
    }
    let (slot, owner) = cluster.owner(CHANNEL);
    both_hear(&cluster, owner).await;
    news_pass(&fleet).await;
    for node in &cluster.nodes {
        let channels = node.command(&["PUBSUB", "CHANNELS"]);
        assert_eq!(channels, "*0\r\n", "no message goes to every node");
    }
    let other = (owner + 1) % 3;
    cluster.move_slot(slot, owner, other);
    both_hear(&cluster, other).await;
    news_pass(&fleet).await;
}
