//! A server that takes over without the latest data: a lagging replica, or a restart from an old
//! snapshot. The members' knowledge restores it, in any order.

use super::*;

const QUOTA: usize = 150;
/// A full bucket is a second's worth: given a second time, it shows.
const BURST: f64 = 20.0;
/// As in a failover of Sentinel to an up-to-date replica.
const SLACK: f64 = 5.0 + 5.0;

fn quota_on(store: &str) -> RuleFile {
    RuleFile::one_rule(&format!("rate: 20/s, burst: {BURST}, quota: {QUOTA}/h"))
        .store(&format!("{{url: \"{store}\", timeout: 1s}}"))
}

/// The replica is cut off from its main server.
async fn cut_off(main: &Redis, replica: &Redis) {
    let refused = main.command(&["ACL", "SETUSER", "default", "-psync", "-sync"]);
    assert!(refused.starts_with("+OK"), "{refused}");
    wait_until("the replica is cut off", SOON, async || {
        main.command(&["CLIENT", "KILL", "TYPE", "replica"]);
        replica.says(&["INFO", "replication"], "master_link_status:down")
    })
    .await;
}

/// Two of three members crawl. `forgets` makes the store lose the latest grants, and the third
/// member, which knows of none, starts too. Neither rate nor quota are exceeded, and the whole
/// quota is used.
async fn crawl_over(fleet: &[Member], forgets: impl AsyncFnOnce(&Site)) {
    let site = Site::start();
    let (busy, url) = ([fleet[0].proxy(), fleet[1].proxy()], site.url("/"));
    let busy = Crawl::start(&busy, 5, &url);
    wait_until("the burst is used", SOON, async || site.count() > 30).await;
    forgets(&site).await;
    let idle = Crawl::start(&[fleet[2].proxy()], 5, &url);
    wait_until("the quota is used up", SOON, async || site.count() >= QUOTA).await;
    for member in fleet {
        member.store_is(true).await;
        wait_until("nothing is left, says the store", SOON, async || {
            get(member.proxy(), &url).await.status == 429
        })
        .await;
    }
    busy.end().await;
    idle.end().await;
    assert_eq!(site.count(), QUOTA);
    let excess = site.excess(RATE, BURST);
    assert!(excess <= SLACK, "the worst window has {excess:.2} requests too many");
}

/// This many more requests are sent.
async fn more_go(site: &Site, requests: usize) {
    let before = site.count();
    wait_until("more requests go", SOON, async || site.count() >= before + requests).await;
}

#[tokio::test]
async fn a_failover_to_a_replica_that_lags_behind_gives_nothing_twice() {
    let mut main = Redis::start();
    let port = main.address().port().to_string();
    let replica = Redis::start_with(&["--replicaof", "127.0.0.1", &port]);
    let sentinel = Sentinel::start(&main);
    let url = format!("redis-sentinel://{}?sentinelServiceName=main", sentinel.address);
    let fleet = Member::fleet(3, &quota_on(&url)).await;
    joined(&fleet).await;
    crawl_over(&fleet, async |site| {
        cut_off(&main, &replica).await;
        more_go(site, 40).await;
        main.kill();
        wait_until("the sentinel promotes the replica", SOON, async || {
            replica.says(&["ROLE"], "master")
        })
        .await;
    })
    .await;
    assert!(replica.command(&["DBSIZE"]) != ":0\r\n", "the members use the new main server");
}

#[tokio::test]
async fn a_restart_from_an_old_snapshot_gives_nothing_twice() {
    let mut redis = Redis::start();
    let fleet = Member::fleet(3, &quota_on(&redis.url())).await;
    joined(&fleet).await;
    crawl_over(&fleet, async |site| {
        assert_eq!(redis.command(&["SAVE"]), "+OK\r\n");
        more_go(site, 40).await;
        redis.kill();
        redis.restart();
        assert!(redis.command(&["DBSIZE"]) != ":0\r\n", "it knows what it knew");
    })
    .await;
}
