//! A Cluster that grows under load: the rule's slot moves to a new node step by step, and back at
//! once.

use std::time::Instant;

use super::*;

const BUCKET: &str = "tidegate:{default}:b:";
/// Moves. Each costs the tickets in hand when members switched to local mode and back.
const SLACK: f64 = 5.0 + 5.0;
/// The period over which the use of the rate is measured.
const A_WHILE: Duration = Duration::from_secs(2);

/// How often members have decided in local mode.
async fn alone(fleet: &[Member]) -> f64 {
    let mut all = 0.0;
    for member in fleet {
        all += member.metric("tidegate_store_fallback_total", &[]).await;
    }
    all
}

async fn more_go(site: &Site, when: &str) {
    let before = site.count();
    wait_until(when, SOON, async || site.count() > before + 10).await;
}

/// No member is in local mode any more, and the whole rate is used.
async fn whole_again(fleet: &[Member], site: &Site) {
    wait_until("the whole rate goes, with the store", SOON, async || {
        let before = alone(fleet).await;
        tokio::time::sleep(A_WHILE).await;
        let since = Instant::now() - A_WHILE;
        let went = site.times().into_iter().filter(|at| *at > since).count();
        // Looking takes its time too.
        alone(fleet).await <= before && went >= 36
    })
    .await;
}

/// Requests that count in the quota's window at a node.
fn counted(node: &Redis) -> usize {
    let window = node.command(&["HGET", BUCKET, "win"]);
    let taken = window.split(':').nth(2).and_then(|taken| taken.parse().ok());
    taken.unwrap_or_else(|| panic!("no window: {window}"))
}

#[tokio::test]
async fn a_rule_moves_to_a_new_node_of_a_cluster_and_back() {
    let mut cluster = Cluster::start().await;
    let (slot, old) = cluster.owner(BUCKET);
    let file = RuleFile::one_rule("rate: 20/s, burst: 2, quota: 100000/d")
        .store(&format!("{{url: \"{}\", timeout: 1s}}", cluster.url()));
    let fleet = Member::fleet(2, &file).await;
    joined(&fleet).await;
    let site = Site::start();
    let proxies: Vec<_> = fleet.iter().map(Member::proxy).collect();
    let load = Crawl::start(&proxies, 5, &site.url("/"));
    more_go(&site, "the load runs").await;
    let new = cluster.grow().await;
    cluster.offer(slot, old, new);
    more_go(&site, "requests go while the slot is offered").await;
    cluster.carry(slot, old, new, 1);
    more_go(&site, "requests go while some keys are at one node and some at the other").await;
    cluster.carry(slot, old, new, 100);
    more_go(&site, "requests go while all keys are at a node that is not yet said to have them")
        .await;
    cluster.hand_over(slot, old, new);
    whole_again(&fleet, &site).await;
    nobody_reaches(&fleet[0], &[cluster.nodes[new].address()]).await;
    cluster.move_slot(slot, new, old);
    whole_again(&fleet, &site).await;
    let answers = load.end().await;
    assert_eq!(statuses(&answers), [(200, answers.len())].into(), "nothing is refused or lost");
    let excess = site.excess(RATE, 2.0);
    assert!(excess <= SLACK, "the worst window has {excess:.2} requests too many");
    // All that went is counted, and tickets that were never used: a quarter of a second's worth each time.
    let (counted, went) = (counted(&cluster.nodes[old]), site.count());
    assert!((went..went + 30).contains(&counted), "{counted} of {went} are counted");
}
