//! Spare tickets: if a bucket has plenty, a fast crawl takes the next ones in advance, and a slow
//! one takes none.

use std::{net::IpAddr, sync::Arc};

use integration_tests::sim::{Fleet, figures::Sent, target};
use tidegate::{
    classify::verdict::Judgement,
    gate::{Client, Preferences},
    runtime::clock,
};

use super::*;

/// A client that sends requests with a pause after each response.
fn crawls(fleet: &mut Fleet, number: u8, requests: usize, pause: Duration) {
    let (gate, ledger) = (fleet.gate(0), Arc::clone(&fleet.ledger));
    let client = Client::Address(IpAddr::from([10, 0, 1, number]));
    fleet.client(0, async move {
        let target = target();
        let entry = gate.find(&target).expect("the rule matches everything");
        for _ in 0..requests {
            let since = clock::now();
            let mut permit = gate
                .hold(&entry, &target, &client, Preferences::default())
                .await
                .expect("there are tokens");
            assert!(permit.may_send(), "nothing trips here");
            let at = clock::now();
            ledger.sent(Sent { at, member: 0, held: at - since });
            permit.report(&Judgement::ok(200)).await;
            tokio::time::sleep(pause).await;
        }
    });
}

fn plenty() -> Plan {
    Plan { burst: 100_000, ..Plan::new(1, 100_000.0, 0) }
}

#[test]
fn a_fast_crawl_takes_the_next_tickets_with_the_same_call() {
    let (figures, taken) = plenty().play(async |fleet| {
        for number in 0..64 {
            crawls(fleet, number, 200, Duration::from_millis(2));
        }
        fleet.finish().await;
        (fleet.figures(), fleet.ledger.turns().len())
    });
    show("a fast crawl", &figures);
    assert!(figures.ticket_excess <= 0.0, "{figures}");
    assert!(figures.calls_per_grant < 0.02, "{figures}");
    // The tickets left at the end.
    assert!(taken >= figures.sent && taken - figures.sent <= 1_000, "{taken} tickets, {figures}");
}

#[test]
fn a_slow_crawl_takes_no_ticket_that_it_does_not_use() {
    let (sent, taken) = plenty().play(async |fleet| {
        crawls(fleet, 0, 100, Duration::from_millis(50));
        fleet.finish().await;
        (fleet.figures().sent, fleet.ledger.turns().len())
    });
    assert_eq!((sent, taken), (100, 100));
}

#[test]
fn a_small_bucket_has_no_spare_tickets() {
    let plan = Plan { burst: 99, ..Plan::new(1, 10_000.0, 0) };
    let (sent, taken) = plan.play(async |fleet| {
        for number in 0..8 {
            crawls(fleet, number, 50, Duration::from_millis(1));
        }
        fleet.finish().await;
        (fleet.figures().sent, fleet.ledger.turns().len())
    });
    assert_eq!((sent, taken), (400, 400));
}

/// A client whose request comes at its time, whatever became of those before it.
fn comes_at(fleet: &mut Fleet, at: Duration, number: u8) {
    let (gate, ledger) = (fleet.gate(0), Arc::clone(&fleet.ledger));
    let client = Client::Address(IpAddr::from([10, 0, 1, number]));
    fleet.client(0, async move {
        let target = target();
        let entry = gate.find(&target).expect("the rule matches everything");
        tokio::time::sleep(at).await;
        let since = clock::now();
        let held = gate.hold(&entry, &target, &client, Preferences::default()).await;
        let mut permit = held.expect("there are tokens");
        assert!(permit.may_send(), "nothing trips here");
        let at = clock::now();
        ledger.sent(Sent { at, member: 0, held: at - since });
        permit.report(&Judgement::ok(200)).await;
    });
}

#[test]
fn a_load_at_the_rate_asks_for_many_tickets_at_a_time() {
    // Below the rate the queue is often empty, and a call serves those that came meanwhile.
    for (per_second, held_at_first, round_trip, most) in [
        (500.0, 20, 400, 0.2),
        (500.0, 20, 4_000, 0.2),
        (500.0, 60, 400, 0.2),
        (520.0, 1, 400, 0.2),
        (480.0, 20, 400, 0.5),
    ] {
        let mut plan = Plan::new(1, 500.0, held_at_first);
        plan.round_trips = vec![Duration::from_micros(round_trip)];
        let figures = plan.play(async |fleet| {
            let mut random = fastrand::Rng::with_seed(7);
            let mut at = 0.0;
            for number in 0..2_000 {
                at += -(1.0 - random.f64()).ln() / per_second;
                comes_at(fleet, Duration::from_secs_f64(at), (number % 4) as u8);
            }
            fleet.finish().await;
            fleet.figures()
        });
        let load = format!("{per_second}/s and {held_at_first} at first, {round_trip} us");
        show(&load, &figures);
        assert!(figures.ticket_excess <= 0.0, "{figures}");
        assert!(figures.calls_per_grant < most, "{load}: {figures}");
    }
}
