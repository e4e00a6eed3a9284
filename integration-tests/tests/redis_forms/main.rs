//! Every kind of Redis, started for the test: an ACL user, Sentinel with a failover (`stale`: to a
//! lagging replica), a Cluster that loses a node or grows (`reshard`), each under load; a Cluster that
//! one rule fills (`shards`); and stores
//! that cannot be reached (`causes`).

use std::{fs, process::Command, time::Duration};

use integration_tests::{
    client::get,
    cluster::Cluster,
    load::{Crawl, crawl, statuses},
    member::{Member, RuleFile},
    ports::free_address,
    redis::Redis,
    secure::Root,
    site::Site,
    wait::{wait_until, wait_until_blocking},
};

mod causes;
mod reshard;
mod shards;
mod stale;

const SOON: Duration = Duration::from_secs(30);
const RATE: f64 = 20.0;

fn rule() -> RuleFile {
    RuleFile::one_rule("rate: 20/s, burst: 2")
}

fn rule_on(store: &str) -> RuleFile {
    rule().store(&format!("{{url: \"{store}\", timeout: 1s}}"))
}

async fn joined(fleet: &[Member]) {
    for member in fleet {
        member.knows_of(u32::try_from(fleet.len()).expect("a handful")).await;
    }
}

/// The egress guard knows these servers, though the rule file names only one of them and allows all of loopback.
async fn nobody_reaches(member: &Member, servers: &[std::net::SocketAddr]) {
    for server in servers {
        wait_until("the guard knows the server", SOON, async || {
            let answer = get(member.proxy(), &format!("http://{server}/")).await;
            answer.refused() == Some("egress")
        })
        .await;
    }
}

/// Two members crawl while something happens to the store. All responses must arrive, within the
/// bound plus `slack` requests.
async fn crawl_while(fleet: &[Member], total: usize, slack: f64, happens: impl AsyncFnOnce(&Site)) {
    let site = Site::start();
    let load = tokio::spawn({
        let (proxies, url) = (fleet.iter().map(Member::proxy).collect::<Vec<_>>(), site.url("/"));
        async move { crawl(&proxies, 5, &url, total).await }
    });
    wait_until("the load runs", SOON, async || site.count() > 10).await;
    happens(&site).await;
    assert_eq!(statuses(&load.await.expect("the load ends")), [(200, total)].into());
    let excess = site.excess(RATE, 2.0);
    assert!(excess <= slack, "the worst window has {excess:.2} requests too many");
}

#[tokio::test]
async fn an_acl_user_with_a_password() {
    // Only the permissions that the documentation requires.
    let user = [
        "--user",
        "crawler",
        "on",
        ">s3cret",
        "~tidegate:*",
        "&tidegate:*",
        "+eval",
        "+evalsha",
        "+time",
        "+ping",
        "+@hash",
        "+@sortedset",
        "+pexpire",
        "+publish",
        "+subscribe",
    ];
    let options: Vec<_> = user.into_iter().chain(["--user", "default", "off"]).collect();
    let redis = Redis::start_with(&options);
    let file = rule_on(&format!("redis://crawler:s3cret@{}", redis.address()));
    let fleet = Member::fleet(2, &file).await;
    joined(&fleet).await;
    crawl_while(&fleet, 60, 3.0, async |_| {}).await;
}

/// A sentinel: the same program, another role.
struct Sentinel {
    address: std::net::SocketAddr,
    child: std::process::Child,
    _folder: tempfile::TempDir,
}

impl Sentinel {
    fn start(main: &Redis) -> Self {
        let (address, folder) = (free_address(), tempfile::tempdir().expect("a folder"));
        let path = folder.path().join("sentinel.conf");
        let (main, port) = (main.address(), address.port());
        let text = format!(
            "port {port}\nbind 127.0.0.1\nsentinel monitor main 127.0.0.1 {} 1\n\
             sentinel down-after-milliseconds main 1000\nsentinel failover-timeout main 3000\n",
            main.port()
        );
        fs::write(&path, text).expect("a temporary folder is writable");
        let mut command = Command::new("redis-server");
        command.arg(&path).arg("--sentinel").current_dir(folder.path());
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        let child = command.spawn().expect("redis-server is installed");
        let sentinel = Self { address, child, _folder: folder };
        wait_until_blocking("the sentinel knows the replica", SOON, || {
            sentinel.ask(&["SENTINEL", "replicas", "main"]).contains("127.0.0.1:")
        });
        sentinel
    }

    fn ask(&self, words: &[&str]) -> String {
        cli(self.address.port(), words)
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn cli(port: u16, words: &[&str]) -> String {
    let output = Command::new("redis-cli")
        .args(["-h", "127.0.0.1", "-p", &port.to_string()])
        .args(words)
        .output()
        .expect("redis-cli is installed");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[tokio::test]
async fn sentinel_fails_over_under_load() {
    let mut main = Redis::start();
    let port = main.address().port().to_string();
    let replica = Redis::start_with(&["--replicaof", "127.0.0.1", &port]);
    let sentinel = Sentinel::start(&main);
    let url = format!("redis-sentinel://{}?sentinelServiceName=main", sentinel.address);
    let fleet = Member::fleet(2, &rule_on(&url)).await;
    joined(&fleet).await;
    // While the store is away each member keeps to its half, and its share starts empty. The extra
    // requests are the tickets in hand when the store went away and when it came back, a quarter of
    // a second's worth each, and the jitter of the site.
    crawl_while(&fleet, 240, 5.0 + 5.0, async |_| {
        main.kill();
        wait_until("the sentinel promotes the replica", SOON, async || {
            replica.says(&["ROLE"], "master")
        })
        .await;
        for member in &fleet {
            member.store_is(true).await;
        }
    })
    .await;
    assert!(replica.command(&["DBSIZE"]) != ":0\r\n", "the members use the new main server");
    nobody_reaches(&fleet[0], &[replica.address()]).await;
}

#[tokio::test]
async fn a_cluster_loses_a_node_and_gets_it_back() {
    let cluster = Cluster::start().await;
    let fleet = Member::fleet(2, &rule_on(&cluster.url())).await;
    joined(&fleet).await;
    let all: Vec<_> = cluster.nodes.iter().map(Redis::address).collect();
    nobody_reaches(&fleet[0], &all).await;
    let times = async |kind: &str| -> Vec<u64> {
        let events = fleet[0].events(kind).await;
        events.iter().map(|event| event["at_ms"].as_u64().expect("a time")).collect()
    };
    // On a busy machine the connections take so long that there is an outage of the start, which ends with the first reply.
    let at_start = times("store_up").await.len();
    let (_, owner) = cluster.owner("tidegate:{default}:b:");
    // The tickets in hand when the node went away, and the jitter of the site.
    crawl_while(&fleet, 200, 5.0, async |site| {
        cluster.nodes[owner].freeze();
        let before = site.count();
        wait_until("the crawl goes on without the node", SOON, async || site.count() > before + 20)
            .await;
        cluster.nodes[owner].thaw();
    })
    .await;
    for member in &fleet {
        member.store_is(true).await;
    }
    // Heartbeats at other nodes succeed all the time, which does not end the outage.
    let (mut lost, mut back) = (Vec::new(), Vec::new());
    wait_until("the outage is over", SOON, async || {
        (lost, back) = (times("store_down").await, times("store_up").await);
        back.len() > at_start && back.last() > lost.last()
    })
    .await;
    for up in &back[at_start..] {
        let down = lost.iter().rev().find(|down| *down < up).expect("an outage");
        assert!(up - down >= 1_000, "the store must answer for a while: {lost:?}, {back:?}");
    }
}

#[tokio::test]
async fn a_cluster_node_that_dies_is_replaced_by_its_replica() {
    let mut cluster = Cluster::start().await;
    let key = "tidegate:{default}:b:";
    let (_, owner) = cluster.owner(key);
    let replica = cluster.stand_by(owner).await;
    let fleet = Member::fleet(2, &rule_on(&cluster.url())).await;
    joined(&fleet).await;
    // As with Sentinel: the tickets in hand when one node went away and the other took over, and
    // the jitter of the site.
    crawl_while(&fleet, 260, 5.0 + 5.0, async |_| {
        cluster.nodes[owner].kill();
        wait_until("the replica takes over", SOON, async || {
            cluster.nodes[replica].says(&["ROLE"], "master")
        })
        .await;
        let seen = || cluster.nodes[replica].command(&["HGET", key, "seen"]);
        let before = seen();
        wait_until("the members take their tickets there", SOON, async || seen() != before).await;
    })
    .await;
    for member in &fleet {
        member.store_is(true).await;
    }
}

#[tokio::test]
async fn tls_with_a_certificate_of_an_own_root() {
    let root = Root::new();
    let ((cert, key), ca) = (root.files(), root.file().display().to_string());
    let tls = free_address();
    let port = tls.port().to_string();
    let options = ["--tls-port", &port, "--tls-cert-file", &cert, "--tls-key-file", &key];
    let trust = ["--tls-ca-cert-file", &ca, "--tls-auth-clients", "no"];
    let options: Vec<_> = options.into_iter().chain(trust).collect();
    let redis = Redis::start_with(&options);
    let stranger = rule_on(&format!("rediss://{tls}"));
    let explicit = rule().store(&format!("{{url: \"rediss://{tls}\", timeout: 1s, ca: \"{ca}\"}}"));
    // One knows the root from the rule file, the other from the system.
    let system = stranger.clone().roots(&root.file());
    let fleet = [Member::start(&explicit).await, Member::start(&system).await];
    joined(&fleet).await;
    crawl_while(&fleet, 60, 3.0, async |_| {}).await;
    assert!(redis.command(&["DBSIZE"]) != ":0\r\n", "the members use it");
    let stranger = Member::start(&stranger).await;
    let up = stranger.metric("tidegate_store_up", &[]).await;
    assert!(up.abs() < 1e-9, "a certificate that nobody trusts is not used");
}
