//! `parallel`: requests under way over a fleet, through deaths, losses and interruptions.

use std::sync::Arc;

use integration_tests::{
    crowd::Crowd,
    sim::{Fleet, figures::Sent, health::Health, permit, target},
};
use tidegate::{classify::verdict::Judgement, runtime::clock};

use super::*;

/// Members that may have so many requests under way, at a rate that does not matter.
fn plan(members: usize, parallel: u32) -> Plan {
    let mut plan = Plan::new(members, 1_000.0, 0);
    plan.burst = 1_000;
    let mut rule = plan.rule();
    rule.parallel = Some(parallel);
    rule.limits.learn = None;
    plan.written = Some(rule);
    plan
}

/// How long a page takes.
const PAGE: Duration = Duration::from_millis(400);

/// Clients of a member that ask for `requests` pages, one after the other.
fn crawl(fleet: &mut Fleet, site: &Crowd, member: usize, clients: u8, requests: usize) {
    for n in 0..clients {
        let (gate, ledger, site) = (fleet.gate(member), Arc::clone(&fleet.ledger), site.clone());
        fleet.client(member, async move {
            for _ in 0..requests {
                let since = clock::now();
                let mut permit = permit(&gate, &target(), n).await.expect("it may wait for a day");
                let at = clock::now();
                ledger.sent(Sent { at, member, held: at - since });
                let visit = site.begin();
                tokio::time::sleep(PAGE.mul_f64(0.5 + fastrand::f64())).await;
                drop(visit);
                permit.report(&Judgement::ok(200)).await;
            }
        });
    }
}

/// How many of the requests between two moments each member sent.
fn sent_by(fleet: &Fleet, members: usize, window: std::ops::Range<usize>) -> Vec<usize> {
    let sent = fleet.ledger.all();
    (0..members)
        .map(|member| sent[window.clone()].iter().filter(|sent| sent.member == member).count())
        .collect()
}

#[test]
fn members_share_the_slots_evenly_and_use_them() {
    for (members, parallel) in [(3, 2), (3, 4), (2, 5), (5, 1)] {
        let site = Crowd::default();
        let shares = plan(members, parallel).play(async |fleet| {
            for member in 0..members {
                crawl(fleet, &site, member, 8, 100);
            }
            let since = clock::now();
            fleet.finish().await;
            let took = since.elapsed();
            let pages = u32::try_from(fleet.ledger.all().len()).expect("some hundreds");
            let least = PAGE * pages / parallel;
            assert!(took <= least.mul_f64(1.1), "{took:?} for what can be done in {least:?}");
            sent_by(fleet, members, 100..1_100)
        });
        let crowd = site.most();
        assert_eq!(crowd, parallel as usize, "under way at once by {members} members");
        let even = 1_000 / members;
        for share in &shares {
            assert!(share.abs_diff(even) * 20 <= even, "{shares:?} of a thousand");
        }
    }
}

#[test]
fn a_member_without_competitors_asks_once() {
    let site = Crowd::default();
    let calls = plan(1, 4).play(async |fleet| {
        crawl(fleet, &site, 0, 8, 10);
        fleet.finish().await;
        fleet.redis.ran("slots").calls
    });
    assert!(calls <= 3, "{calls} calls for 80 requests in eight seconds");
    assert_eq!(site.most(), 4);
}

#[test]
fn the_slots_of_a_killed_member_come_back_within_a_lease() {
    let site = Crowd::default();
    plan(2, 2).play(async |fleet| {
        crawl(fleet, &site, 0, 2, 1_000);
        fleet.pass(Duration::from_secs(5)).await;
        crawl(fleet, &site, 1, 2, 100);
        fleet.kill(0);
        let killed = clock::now();
        fleet.finish().await;
        let sent = fleet.ledger.all();
        let first = sent.iter().find(|sent| sent.member == 1).expect("it is served");
        let waited = first.at - killed;
        assert!(waited <= Duration::from_secs(21), "{waited:?} after the death");
        assert!(fleet.redis.immortal_keys().is_empty());
    });
    assert_eq!(site.most(), 2);
}

#[test]
fn a_store_that_loses_its_memory_keeps_to_the_limit() {
    let site = Crowd::default();
    plan(3, 4).play(async |fleet| {
        for member in 0..3 {
            crawl(fleet, &site, member, 6, 150);
        }
        for _ in 0..4 {
            fleet.pass(Duration::from_secs(6)).await;
            fleet.redis.flush_all();
        }
        fleet.finish().await;
        assert_eq!(fleet.ledger.all().len(), 3 * 6 * 150);
    });
    assert_eq!(site.most(), 4);
}

#[test]
fn while_the_store_is_away_each_member_has_its_share_of_the_slots() {
    let site = Crowd::default();
    plan(2, 5).play(async |fleet| {
        for member in 0..2 {
            crawl(fleet, &site, member, 8, 300);
        }
        fleet.pass(Duration::from_secs(10)).await;
        fleet.redis.set(Health::Gone);
        fleet.pass(Duration::from_secs(10)).await;
        site.forget();
        let before = fleet.ledger.all().len();
        fleet.pass(Duration::from_secs(20)).await;
        assert!(fleet.ledger.all().len() > before + 150, "they go on");
        assert_eq!(site.most(), 4, "two of five each");
        fleet.redis.set(Health::Well);
        fleet.finish().await;
    });
    assert_eq!(site.most(), 5);
}
