//! One rule with many hosts in a Cluster: its scopes are spread over all nodes, and each of them
//! is known to every member that uses it.

use std::{collections::BTreeSet, sync::Arc};

use integration_tests::client::{delete, get_direct, post_json};
use serde_json::Value;
use tidegate::{
    limiter::policy::{Limits, Split},
    observability::metrics::Metrics,
    rules::{
        Rule,
        secret::Secret,
        settings::{OnFailure, RedisSettings},
    },
    store::{Ask, ScopeName, SharedStore, Store},
};
use tokio::task::JoinSet;

use super::*;

const HOSTS: usize = 30_000;
/// Calls at the same time.
const AT_ONCE: usize = 64;
/// Of 64 shards, each of three nodes has 21 or 22.
const SHARE: std::ops::RangeInclusive<f64> = 0.31..=0.36;

/// The keys of a node that match.
fn keys(node: &Redis, pattern: &str) -> Vec<String> {
    let reply = node.command(&["KEYS", pattern]);
    reply.lines().filter(|line| !line.starts_with(['*', '$'])).map(str::to_owned).collect()
}

/// The number of keys of a node that match: too many to list.
fn count(node: &Redis, pattern: &str) -> usize {
    let reply = node.command(&["EVAL", "return #redis.call('KEYS', ARGV[1])", "0", pattern]);
    reply.trim_start_matches(':').trim().parse().expect("a number")
}

/// Calls of scripts that a node has run.
fn calls(node: &Redis) -> usize {
    let stats = node.command(&["INFO", "commandstats"]);
    let calls = stats.lines().filter_map(|line| {
        let (name, rest) = line.split_once(":calls=")?;
        let is_script = name == "cmdstat_evalsha" || name == "cmdstat_eval";
        is_script.then(|| rest.split(',').next()?.parse::<usize>().ok())?
    });
    calls.sum()
}

#[allow(clippy::cast_precision_loss)]
fn assert_even(what: &str, counts: &[usize]) {
    let all: usize = counts.iter().sum();
    for count in counts {
        let share = *count as f64 / all as f64;
        assert!(SHARE.contains(&share), "{what} of the nodes: {counts:?}");
    }
}

#[tokio::test]
async fn thirty_thousand_hosts_under_one_rule_load_all_nodes_evenly() {
    let cluster = Cluster::start().await;
    let settings = RedisSettings {
        url: Secret::new(cluster.url()),
        prefix: "tidegate".to_owned(),
        timeout: Duration::from_secs(20),
        on_failure: OnFailure::Closed,
        local_share: None,
        ca: Vec::new(),
    };
    let store = SharedStore::start(settings, Metrics::new()).expect("a URL");
    wait_until("the store is up", SOON, async || store.is_up()).await;
    let limits = Limits { rate: Some(1.0), burst: 1, quotas: vec![], cost: 1, learn: None };
    let rule = Arc::new(Rule { limits, per: Split::Host, ..Rule::unlimited("sites") });
    let mut asks = JoinSet::new();
    for host in 0..HOSTS {
        let key = Arc::from(format!("host-{host}.example"));
        let scope = store.scope(ScopeName::plain(&rule.name, &key));
        let (store, rule) = (Arc::clone(&store), Arc::clone(&rule));
        while asks.len() >= AT_ONCE {
            asks.join_next().await;
        }
        asks.spawn(async move {
            let ask = Ask { wanted: 1, ..Ask::default() };
            let granted = store.take(&scope, &rule, &ask).await.expect("the store answers");
            assert_eq!(granted.tickets.len(), 1, "{granted:?}");
        });
    }
    while let Some(done) = asks.join_next().await {
        done.expect("it has its ticket");
    }
    let buckets: Vec<_> =
        cluster.nodes.iter().map(|node| count(node, "tidegate:{sites#*}:b:*")).collect();
    assert_eq!(buckets.iter().sum::<usize>(), HOSTS);
    assert_even("buckets", &buckets);
    assert_even("calls", &cluster.nodes.iter().map(calls).collect::<Vec<_>>());
}

fn cooldown(host: &str) -> String {
    format!("/api/v1/scopes/default/{host}/cooldown")
}

/// Hosts with a cooldown that the store knows of, by node.
fn closed(cluster: &Cluster) -> Vec<BTreeSet<String>> {
    let of_node = |node: &Redis| {
        let keys = keys(node, "tidegate:{default#*}:c:*").into_iter();
        let closed = keys.filter(|key| {
            let till = node.command(&["HGET", key, "till"]);
            till.lines().nth(1).is_some_and(|till| till.trim() != "0")
        });
        closed.filter_map(|key| Some(key.rsplit_once(':')?.1.to_owned())).collect()
    };
    cluster.nodes.iter().map(of_node).collect()
}

/// Hosts that cool down, according to a member: as it knows itself, or as the store does.
async fn cooling(member: &Member, path: &str) -> BTreeSet<String> {
    let answer = get_direct(member.admin(), path).await;
    let status: Value = serde_json::from_str(&answer.text()).expect("it is JSON");
    let scopes = status["scopes"].as_array().expect("a list").iter();
    let cooling = scopes.filter(|scope| scope["state"] == "cooling");
    cooling.filter_map(|scope| Some(scope["key"].as_str()?.to_owned())).collect()
}

/// Two members that have scopes of all these hosts; the first trips them, and the second knows.
async fn tripped(cluster: &Cluster, hosts: &BTreeSet<String>) -> Vec<Member> {
    let file = RuleFile::one_rule("per: host, rate: 50/s, cooldown: {for: 5m, max: 5m, ramp: 0s}")
        .store(&format!("{{url: \"{}\", timeout: 2s}}", cluster.url()));
    let fleet = Member::fleet(2, &file).await;
    joined(&fleet).await;
    for host in hosts {
        assert_eq!(delete(fleet[1].admin(), &cooldown(host)).await.status, 200, "{host}");
    }
    for host in hosts {
        let trip = post_json(fleet[0].admin(), &cooldown(host), "{\"seconds\": 300}").await;
        assert_eq!(trip.status, 200, "{host}");
    }
    knows(&fleet[1], hosts).await;
    fleet
}

async fn knows(member: &Member, hosts: &BTreeSet<String>) {
    wait_until("the member knows of the trips", SOON, async || {
        cooling(member, "/api/v1/status").await == *hosts
    })
    .await;
}

fn some_hosts() -> BTreeSet<String> {
    (0..12).map(|host| format!("host-{host}.example")).collect()
}

#[tokio::test]
async fn members_hear_of_the_hosts_that_they_use_and_restore_them_at_a_node_that_was_flushed() {
    let (cluster, hosts) = (Cluster::start().await, some_hosts());
    let fleet = tripped(&cluster, &hosts).await;
    let before = closed(&cluster);
    assert!(before.iter().all(|hosts| !hosts.is_empty()), "each node has some: {before:?}");
    // News go over the shards in use, and both members subscribe to them.
    let mut channels = BTreeSet::new();
    for node in &cluster.nodes {
        for key in keys(node, "tidegate:{default#*}:c:*") {
            let tag = key.rsplit_once(":c:").expect("a cooldown").0;
            channels.insert(format!("{tag}:news"));
        }
    }
    let mut subscribed = BTreeSet::new();
    for node in &cluster.nodes {
        let reply = node.command(&["PUBSUB", "SHARDCHANNELS"]);
        let names = reply.lines().filter(|line| !line.starts_with(['*', '$']));
        for name in names {
            let members = node.command(&["PUBSUB", "SHARDNUMSUB", name]);
            assert!(members.ends_with(":2\r\n"), "{members}");
            subscribed.insert(name.to_owned());
        }
    }
    assert_eq!(subscribed, channels);
    // The cooldowns of any node come back, wherever the list of members is.
    for node in &cluster.nodes {
        assert!(node.command(&["FLUSHALL"]).starts_with("+OK"));
        wait_until("the store knows all again", SOON, async || closed(&cluster) == before).await;
    }
    assert_eq!(cooling(&fleet[0], "/api/v1/fleet?fresh=1").await, hosts);
    // One trip, one clear.
    for host in &hosts {
        assert_eq!(delete(fleet[1].admin(), &cooldown(host)).await.status, 200, "{host}");
    }
    knows(&fleet[0], &BTreeSet::new()).await;
}

#[tokio::test]
async fn members_restore_their_cooldowns_at_a_replica_that_knows_nothing() {
    let (mut cluster, hosts) = (Cluster::start().await, some_hosts());
    let replica = cluster.stand_by(1).await;
    let fleet = tripped(&cluster, &hosts).await;
    let lost = closed(&cluster)[1].clone();
    assert!(!lost.is_empty(), "the node has some");
    cluster.nodes[1].kill();
    wait_until("the replica takes over", SOON, async || {
        cluster.nodes[replica].says(&["ROLE"], "master")
    })
    .await;
    assert!(cluster.nodes[replica].command(&["FLUSHALL"]).starts_with("+OK"));
    wait_until("it knows all", SOON, async || {
        let node = &cluster.nodes[replica];
        let keys = keys(node, "tidegate:{default#*}:c:*");
        let known: BTreeSet<_> =
            keys.iter().filter_map(|key| Some(key.rsplit_once(':')?.1.to_owned())).collect();
        known == lost
    })
    .await;
    for member in &fleet {
        knows(member, &hosts).await;
    }
}

#[tokio::test]
async fn a_member_sends_nothing_beside_members_that_do_not_spread_their_keys() {
    let (cluster, site) = (Cluster::start().await, Site::start());
    let (_, owner) = cluster.owner("tidegate:members");
    let node = &cluster.nodes[owner];
    assert_eq!(node.command(&["ZADD", "tidegate:members", "9e15", "another/1"]), ":1\r\n");
    let file = RuleFile::one_rule("rate: 50/s, max_wait: 0s")
        .store(&format!("{{url: \"{}\", timeout: 2s}}", cluster.url()));
    let member = Member::start(&file).await;
    wait_until("it finds them", SOON, async || {
        member.status().await["store"]["trouble"]["kind"] == "schema"
    })
    .await;
    assert_eq!(get(member.proxy(), &site.url("/")).await.refused(), Some("store"));
    assert_eq!(node.command(&["DEL", "tidegate:members"]), ":1\r\n");
    wait_until("it sends", SOON, async || get(member.proxy(), &site.url("/")).await.status == 200)
        .await;
}
