//! Scopes by name and in gauges: cooldowns and buckets with different splits, and removed rules.

use super::*;

pub(super) fn site(number: usize) -> Target {
    Target { host: Host::Name(Arc::from(format!("site-{number}.example"))), ..target() }
}

pub(super) fn per(bucket: Split, cooldown: Split) -> Rule {
    let mut rule = rule(Some(10.0), 5);
    rule.per = bucket;
    rule.cooldown.as_mut().expect("it has one").per = cooldown;
    rule
}

#[tokio::test(start_paused = true)]
async fn a_cooldown_that_several_buckets_share_counts_once() {
    let gate = gate(per(Split::Host, Split::All));
    let entry = gate.find(&target()).expect("the rule matches everything");
    for n in 0..3 {
        entry.scopes.find(&entry, &site(n));
    }
    gate.trip("default", Duration::from_secs(60), None).await.expect("the scope is there");
    gate.refresh_metrics();
    assert_eq!((gate.scopes().len(), entry.metrics.cooldown_active.get()), (3, 1));
}

#[tokio::test(start_paused = true)]
async fn a_scope_is_named_by_its_cooldown_and_not_by_the_bucket_that_it_shares() {
    let gate = gate(per(Split::Domain, Split::Host));
    let entry = gate.find(&target()).expect("the rule matches everything");
    let scope = |host: &str| {
        let host = Host::Name(Arc::from(host));
        entry.scopes.find(&entry, &Target { host, ..target() })
    };
    let www = scope("www.example.com");
    gate.trip("default/example.com", Duration::from_secs(60), None)
        .await
        .expect("a host says which");
    assert!(!www.cooldown.is_closed(), "another host of the same bucket");
    assert!(scope("example.com").cooldown.is_closed());
}

#[tokio::test(start_paused = true)]
async fn a_host_that_moves_to_another_server_keeps_the_queue_of_its_bucket() {
    let gate = gate(per(Split::Host, Split::Address));
    let entry = gate.find(&target()).expect("the rule matches everything");
    let scope = |server: &str| {
        entry.scopes.find(&entry, &Target { server: Some(Arc::from(server)), ..target() })
    };
    let (before, after) = (scope("192.0.2.1"), scope("192.0.2.2"));
    assert!(Arc::ptr_eq(&before.queue, &after.queue));
    assert!(!Arc::ptr_eq(&before.cooldown, &after.cooldown));
}

#[test]
fn scopes_that_share_a_bucket_or_a_cooldown_are_in_one_part_of_their_rule() {
    let hosts = ["a.example", "www.a.example", "b.example", "192.0.2.1"];
    let servers = ["192.0.2.1", "192.0.2.2", "a.example"];
    let splits = [Split::All, Split::Domain, Split::Host, Split::Address];
    for (per, cooldown) in splits.iter().flat_map(|one| splits.map(|other| (*one, other))) {
        let rule = self::per(per, cooldown);
        let names: Vec<_> = hosts
            .iter()
            .flat_map(|host| servers.map(|server| (*host, server)))
            .map(|(host, server)| {
                let host = Host::parse(host).expect("a host");
                let server = Some(Arc::from(server));
                registry::name(&rule, &Target { host, server, ..target() })
            })
            .collect();
        for (one, other) in names.iter().flat_map(|one| names.iter().map(move |o| (one, o))) {
            let shares = one.bucket == other.bucket || one.cooldown == other.cooldown;
            assert!(!shares || one.part == other.part, "{per:?}, {cooldown:?}: {one:?}, {other:?}");
        }
        let parts: std::collections::BTreeSet<_> = names.iter().map(|name| &name.part).collect();
        let has_all = per == Split::All || cooldown == Split::All;
        assert!(!has_all || parts.len() == 1, "{per:?}, {cooldown:?}: {parts:?}");
        assert!(per != cooldown || has_all || parts.len() > 2, "{per:?}: {parts:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_gauges_of_a_rule_that_is_gone_are_zero_after_its_last_request() {
    let gate = gate(rule(Some(10.0), 5));
    let entry = gate.find(&target()).expect("the rule matches everything");
    block(&gate, 2).await;
    gate.refresh_metrics();
    assert_eq!(entry.metrics.consecutive_blocks.get(), 2);
    gate.trip("default", Duration::from_secs(60), None).await.expect("the scope is there");
    let held = hold_many(&gate, 2);
    tokio::time::sleep(Duration::from_secs(1)).await;
    gate.refresh_metrics();
    let metrics = &entry.metrics;
    assert_eq!((metrics.cooldown_active.get(), metrics.held.get()), (1, 2));
    gate.reload(RuleSet::new(vec![Rule { name: Arc::from("another"), ..rule(Some(10.0), 5) }]));
    gate.refresh_metrics();
    assert_eq!(metrics.held.get(), 2, "they are still held");
    held.iter().for_each(tokio::task::JoinHandle::abort);
    tokio::time::sleep(Duration::from_secs(1)).await;
    gate.refresh_metrics();
    let (active, held_now) = (metrics.cooldown_active.get(), metrics.held.get());
    assert_eq!((active, held_now, metrics.consecutive_blocks.get()), (0, 0, 0));
    let floats = [&metrics.cooldown_remaining, &metrics.rate_limit, &metrics.rate_current];
    assert!(floats.iter().all(|gauge| gauge.get() == 0.0));
}

#[tokio::test(start_paused = true)]
async fn the_latest_timeouts_decide_how_long_a_probe_may_take() {
    let gate = gate(rule(Some(10.0), 5));
    block(&gate, 3).await;
    gate.set_lease(Duration::from_secs(7));
    let mut silent = hold(&gate, 1).await.expect("the probe");
    assert!(silent.may_send());
    let start = clock::now();
    let _next = hold(&gate, 2).await.expect("the next probe");
    assert!((7..8).contains(&start.elapsed().as_secs()), "after {:?}", start.elapsed());
}
