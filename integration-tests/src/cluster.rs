//! A private Redis Cluster of three nodes. Slots can move between nodes at once or step by step, a
//! node can join, and a node can get a replica.

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
/// Slots of each node, as `redis-cli --cluster create` assigns them (the last node has one more).
const SLOTS_EACH: u32 = 5_462;
/// More keys than any slot has in a test.
const ALL_KEYS: usize = 100;

/// A running cluster; it ends with this handle.
#[derive(Debug)]
pub struct Cluster {
    /// Its nodes.
    pub nodes: Vec<Redis>,
}

impl Cluster {
    /// Starts three nodes and joins them.
    ///
    /// # Panics
    /// If they do not form a cluster.
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

    /// `redis-cluster://...`, with the first node.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis-cluster://{}", self.nodes[0].address())
    }

    /// The slot of a key, and the node that had it at the start.
    ///
    /// # Panics
    /// If no node responds.
    #[must_use]
    pub fn owner(&self, key: &str) -> (u32, usize) {
        let slot = self.nodes[0].command(&["CLUSTER", "KEYSLOT", key]);
        let slot: u32 = slot.trim_start_matches(':').trim().parse().expect("a slot");
        (slot, usize::try_from(slot / SLOTS_EACH).expect("one of three"))
    }

    /// Moves a slot, with its keys.
    ///
    /// # Panics
    /// If a node refuses.
    pub fn move_slot(&self, slot: u32, from: usize, to: usize) {
        self.offer(slot, from, to);
        self.carry(slot, from, to, ALL_KEYS);
        self.hand_over(slot, from, to);
    }

    /// Begins to move a slot. From now on, the old node redirects requests for keys that have moved
    /// to the new one.
    ///
    /// # Panics
    /// If a node refuses.
    pub fn offer(&self, slot: u32, from: usize, to: usize) {
        self.set_slot(to, slot, "IMPORTING", from);
        self.set_slot(from, slot, "MIGRATING", to);
    }

    /// Moves some keys of a slot that is being moved.
    ///
    /// # Panics
    /// If the old node refuses.
    pub fn carry(&self, slot: u32, from: usize, to: usize, most: usize) {
        let (name, most) = (slot.to_string(), most.to_string());
        let keys = self.nodes[from].command(&["CLUSTER", "GETKEYSINSLOT", &name, &most]);
        let keys: Vec<_> = keys.lines().filter(|line| !line.starts_with(['*', '$'])).collect();
        let port = self.nodes[to].address().port().to_string();
        let mut migrate = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
        migrate.extend(keys.iter().map(|key| key.trim()));
        let reply = self.nodes[from].command(&migrate);
        // A key may have expired.
        assert!(reply.starts_with("+") || keys.is_empty(), "{reply}");
    }

    /// Completes the move of a slot: all nodes know its new owner.
    ///
    /// # Panics
    /// If a node refuses.
    pub fn hand_over(&self, slot: u32, from: usize, to: usize) {
        let others = (0..self.nodes.len()).filter(|node| *node != from && *node != to);
        for node in [to, from].into_iter().chain(others) {
            self.set_slot(node, slot, "NODE", to);
        }
    }

    fn set_slot(&self, node: usize, slot: u32, state: &str, of: usize) {
        let (slot, id) = (slot.to_string(), self.id(of));
        let reply = self.nodes[node].command(&["CLUSTER", "SETSLOT", &slot, state, &id]);
        assert!(reply.starts_with("+OK"), "{reply}");
    }

    /// Starts another node and gives it slot 0; a node without slots could become a replica.
    /// Returns its number.
    ///
    /// # Panics
    /// If it does not join.
    pub async fn grow(&mut self) -> usize {
        let new = Redis::start_with(&OPTIONS);
        let port = self.nodes[0].address().port().to_string();
        let reply = new.command(&["CLUSTER", "MEET", "127.0.0.1", &port]);
        assert!(reply.starts_with("+OK"), "{reply}");
        self.nodes.push(new);
        let known = format!("cluster_known_nodes:{}", self.nodes.len());
        wait_until("all nodes know each other", SOON, async || {
            self.nodes.iter().all(|node| {
                let info = node.command(&["CLUSTER", "INFO"]);
                info.contains(&known) && info.contains("cluster_state:ok")
            })
        })
        .await;
        let new = self.nodes.len() - 1;
        self.move_slot(0, 0, new);
        new
    }

    /// Starts a replica of a node and waits until it can take over. Returns its number.
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
