//! One bucket for many hosts with split cooldowns: one queue per member, for any number of hosts.

use std::sync::Arc;

use integration_tests::sim::{Fleet, figures::Sent, permit, target};
use tidegate::{
    classify::verdict::Judgement,
    limiter::policy::Split,
    runtime::clock,
    target::{Host, Target},
};

use super::*;

/// Members that share 10 tokens a second over all hosts; each host has its own cooldown.
fn plan(members: usize) -> Plan {
    let mut plan = Plan::new(members, 10.0, 0);
    let mut rule = plan.rule();
    rule.cooldown.as_mut().expect("it has one").per = Split::Host;
    plan.written = Some(rule);
    plan
}

/// Requests of one client, each to the next of `hosts` hosts.
fn crawls(fleet: &mut Fleet, member: usize, hosts: usize, requests: usize) {
    for n in 0..requests {
        let (gate, ledger) = (fleet.gate(member), Arc::clone(&fleet.ledger));
        let host = Host::Name(Arc::from(format!("h{}.m{member}.example", n % hosts)));
        fleet.client(member, async move {
            let target = Target { host, ..target() };
            let since = clock::now();
            let Some(mut permit) = permit(&gate, &target, 1).await else { return };
            let at = clock::now();
            ledger.sent(Sent { at, member, held: at - since });
            permit.report(&Judgement::ok(200)).await;
        });
    }
}

/// The longest time between two requests that were sent.
fn longest_gap(fleet: &Fleet) -> Duration {
    let sent = fleet.ledger.all();
    sent.windows(2).map(|pair| pair[1].at - pair[0].at).max().unwrap_or_default()
}

#[test]
fn a_member_with_sixty_hosts_gets_no_more_than_one_with_a_single_host() {
    let (figures, shares) = plan(2).play(async |fleet| {
        crawls(fleet, 0, 60, 300);
        crawls(fleet, 1, 1, 300);
        fleet.finish().await;
        let sent = fleet.ledger.all();
        let of_first = sent[..400].iter().filter(|sent| sent.member == 0).count();
        (fleet.figures(), of_first)
    });
    show("60 hosts beside one", &figures);
    assert!(figures.ticket_excess <= ROUNDING, "{figures}");
    assert!(figures.used >= 0.98, "{figures}");
    assert!((190..=210).contains(&shares), "{shares} of the first 400 went to 60 hosts");
    // The first request for a host needs a call of its own.
    assert!(figures.calls_per_grant <= 1.4, "{figures}");
}

#[test]
fn the_death_of_a_member_with_sixty_hosts_causes_no_gap() {
    let gap = plan(2).play(async |fleet| {
        crawls(fleet, 0, 60, 300);
        crawls(fleet, 1, 1, 100);
        fleet.pass(Duration::from_secs(8)).await;
        fleet.kill(0);
        fleet.finish().await;
        longest_gap(fleet)
    });
    assert!(gap <= Duration::from_millis(600), "nothing was sent for {gap:?}");
}

#[test]
fn a_host_that_cools_down_lets_the_others_pass() {
    let (figures, gap) = plan(2).play(async |fleet| {
        crawls(fleet, 0, 3, 300);
        crawls(fleet, 1, 1, 300);
        fleet.pass(Duration::from_secs(5)).await;
        let gate = fleet.gate(0);
        let length = Duration::from_secs(15);
        gate.trip("simulated/h1.m0.example", length, None).await.expect("the scope is there");
        fleet.finish().await;
        (fleet.figures(), longest_gap(fleet))
    });
    show("one of three hosts cools down", &figures);
    assert!(figures.ticket_excess <= ROUNDING, "{figures}");
    assert!(figures.used >= 0.98, "{figures}");
    assert!(gap <= Duration::from_millis(600), "nothing was sent for {gap:?}");
}
