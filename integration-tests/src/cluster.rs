//! A private Redis Cluster of three nodes; a slot can move from one to another, and a replica can stand by for a node.

use std::{process::Command, time::Duration};

use crate::{redis::Redis, wait::wait_until};

const OPTIONS: [&str; 6] = [
    "--cluster-enabled",
    "yes",
    "--cluster-node-timeout",
    "1000",
    "--cluster-require-full-coverage",
    "no",
];
const SOON: Duration = Duration::from_secs(30);
/// Slots of each of three nodes, as `redis-cli --cluster create` deals them (the last has one more).
const SLOTS_EACH: u32 = 5_462;

/// A running cluster; it dies with this handle.
#[derive(Debug)]
pub struct Cluster {
    /// Its nodes.
    pub nodes: Vec<Redis>,
}

impl Cluster {
    /// Starts three nodes and joins them.
    ///
    /// # Panics
    /// If they do not become a cluster.
    pub async fn start() -> Self {
        let nodes: Vec<Redis> = (0..3).map(|_| Redis::start_with(&OPTIONS)).collect();
        let addresses: Vec<_> = nodes.iter().map(|node| node.address().to_string()).collect();
        let mut command = Command::new("redis-cli");
        command.args(["--cluster", "create"]).args(&addresses).args(["--cluster-yes"]);
        let output = command.output().expect("redis-cli is installed");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        wait_until("the cluster is whole", SOON, async || {
            nodes.iter().all(|node| node.command(&["CLUSTER", "INFO"]).contains("cluster_state:ok"))
        })
        .await;
        Self { nodes }
    }

    /// `redis-cluster://...`, of its first node.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis-cluster://{}", self.nodes[0].address())
    }

    /// The slot of a key, and which node had it at the start.
    ///
    /// # Panics
    /// If no node answers.
    #[must_use]
    pub fn owner(&self, key: &str) -> (u32, usize) {
        let slot = self.nodes[0].command(&["CLUSTER", "KEYSLOT", key]);
        let slot: u32 = slot.trim_start_matches(':').trim().parse().expect("a slot");
        (slot, usize::try_from(slot / SLOTS_EACH).expect("one of three"))
    }

    /// Moves a slot, with its keys.
    ///
    /// # Panics
    /// If a node does not do as told.
    pub fn move_slot(&self, slot: u32, from: usize, to: usize) {
        let name = slot.to_string();
        let (old, new) = (self.id(from), self.id(to));
        let set = |node: usize, state: &str, id: &str| {
            let reply = self.nodes[node].command(&["CLUSTER", "SETSLOT", &name, state, id]);
            assert!(reply.starts_with("+OK"), "{reply}");
        };
        set(to, "IMPORTING", &old);
        set(from, "MIGRATING", &new);
        let keys = self.nodes[from].command(&["CLUSTER", "GETKEYSINSLOT", &name, "100"]);
        let keys: Vec<_> = keys.lines().filter(|line| !line.starts_with(['*', '$'])).collect();
        let port = self.nodes[to].address().port().to_string();
        let mut migrate = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
        migrate.extend(keys.iter().map(|key| key.trim()));
        let reply = self.nodes[from].command(&migrate);
        assert!(reply.starts_with("+OK") || keys.is_empty(), "{reply}");
        for node in [to, from, 3 - to - from] {
            set(node, "NODE", &new);
        }
    }

    /// Starts a replica of a node and waits until it could take over; its number among the nodes.
    ///
    /// # Panics
    /// If it does not join.
    pub async fn stand_by(&mut self, node: usize) -> usize {
        let (id, port) = (self.id(node), self.nodes[node].address().port().to_string());
        let replica = Redis::start_with(&OPTIONS);
        let reply = replica.command(&["CLUSTER", "MEET", "127.0.0.1", &port]);
        assert!(reply.starts_with("+OK"), "{reply}");
        wait_until("the replica knows its node", SOON, async || {
            replica.command(&["CLUSTER", "REPLICATE", &id]).starts_with("+OK")
        })
        .await;
        let own = replica.command(&["CLUSTER", "MYID"]);
        let own = own.lines().nth(1).expect("an id").trim();
        wait_until("it has the data, and all nodes know it as a replica", SOON, async || {
            let link = replica.command(&["INFO", "replication"]);
            let known = self.nodes.iter().all(|node| {
                let nodes = node.command(&["CLUSTER", "NODES"]);
                nodes.lines().any(|line| line.contains(own) && line.contains("slave"))
            });
            known && link.contains("master_link_status:up")
        })
        .await;
        self.nodes.push(replica);
        self.nodes.len() - 1
    }

    fn id(&self, node: usize) -> String {
        let reply = self.nodes[node].command(&["CLUSTER", "MYID"]);
        reply.lines().nth(1).expect("an id").trim().to_owned()
    }
}
