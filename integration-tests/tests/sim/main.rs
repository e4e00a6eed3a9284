//! The promises of the gate in virtual time: bound, use of the rate, fairness, calls, and the cost
//! of a member's death.

use std::time::Duration;

use integration_tests::sim::{Plan, figures::Figures};

mod hosts;
mod lost_memory;
mod outage;
mod parallel;
mod short_outage;
mod spare;
mod windows;

/// Two doubles that count tickets; the bound itself is exact.
const ROUNDING: f64 = 1e-3;

#[allow(clippy::print_stdout, reason = "the figures are what a person runs this for")]
fn show(what: &str, figures: &Figures) {
    println!("{what}: {figures}");
}

/// Bound and use of the rate; every request was sent.
fn keeps_its_promises(figures: &Figures) {
    assert!(figures.ticket_excess <= ROUNDING, "{figures}");
    assert!(figures.used >= 0.98, "{figures}");
}

/// Within 5 % of an equal share in every thousand tickets, from the first window in which the store
/// knows all members. A ticket cannot be split, nor can the `turn` tickets that a member takes at
/// once at high rates.
///
/// The first thousand tickets cannot be shared equally. The first members get the tickets that are
/// due while the store knows no others, and have more in hand when the last one arrives. That makes
/// `ahead` tickets: of a hundred members each has ten of a thousand, and 5 % of that is half a
/// ticket, so even one extra ticket is too much.
fn is_fair(figures: &Figures, turn: f64, ahead: f64) {
    assert!(figures.windows >= 3, "{figures}");
    assert!(figures.unfair_by <= turn, "{figures}");
    assert!(figures.unfair_once_known <= turn, "{figures}");
    assert!(figures.unfair_at_first <= turn + ahead, "{figures}");
}

/// Members with equal parts of `total` requests.
fn sharing(members: usize, rate: f64, total: usize) -> Plan {
    Plan::new(members, rate, total.div_ceil(members))
}

#[test]
fn members_share_a_scope_within_five_percent() {
    for (members, rate) in
        [(2, 20.0), (3, 5.0), (5, 200.0), (10, 20.0), (20, 1_000.0), (50, 200.0), (100, 1_000.0)]
    {
        let figures = sharing(members, rate, 4_000).run();
        show(&format!("{members} members at {rate}/s"), &figures);
        keeps_its_promises(&figures);
        is_fair(&figures, 1.0, 0.5);
    }
}

#[test]
fn members_with_slow_lines_get_as_much_as_members_with_fast_ones() {
    for (members, rate) in
        [(2, 5.0), (2, 200.0), (5, 20.0), (10, 100.0), (50, 20.0), (50, 500.0), (100, 200.0)]
    {
        let mut plan = sharing(members, rate, 4_000);
        let round_trip = |member| Duration::from_millis(if member % 2 == 0 { 4 } else { 40 });
        plan.round_trips = (0..members).map(round_trip).collect();
        let figures = plan.run();
        show(&format!("4 and 40 ms, {members} members at {rate}/s"), &figures);
        keeps_its_promises(&figures);
        is_fair(&figures, 1.0, 3.0);
    }
}

#[test]
fn waiting_members_do_not_stampede_for_each_token() {
    let slow = Plan::new(50, 20.0, 20).run();
    show("50 members at 20/s", &slow);
    assert!(slow.calls_per_grant < 2.0, "{slow}");
    let fast = Plan::new(50, 5_000.0, 600).run();
    show("50 members at 5000/s", &fast);
    keeps_its_promises(&fast);
    assert!(fast.calls_per_grant < 0.2, "{fast}");
    // A thousand tickets are a fifth of a second: less than a turn of each.
    assert!(fast.unfair_by <= 8.0, "{fast}");
}

#[test]
fn every_rate_is_used_from_bursts_of_one_on() {
    for (members, rate, burst, held) in [
        (1, 0.2, 1, 12),
        (3, 0.2, 1, 20),
        (2, 1.0, 1, 30),
        (1, 3.0, 5, 100),
        (4, 30.0, 1, 100),
        (1, 300.0, 1, 1_500),
        (6, 1_000.0, 10, 800),
        (1, 5_000.0, 1, 20_000),
        (3, 5_000.0, 1, 8_000),
    ] {
        let mut plan = Plan::new(members, rate, held);
        plan.burst = burst;
        let figures = plan.run();
        show(&format!("{members} members at {rate}/s, burst {burst}"), &figures);
        keeps_its_promises(&figures);
    }
}

#[test]
fn saved_tokens_are_taken_at_once() {
    let mut plan = Plan::new(2, 1.0, 200);
    plan.burst = 400;
    let figures = plan.play(async |fleet| {
        fleet.finish().await;
        fleet.figures()
    });
    show("2 members at 1/s, 400 saved up", &figures);
    assert!(figures.took < Duration::from_millis(100), "{figures}");
    assert!(figures.calls_per_grant < 0.05, "{figures}");
}

#[test]
fn a_dead_member_costs_at_most_one_short_grace() {
    let figures = Plan::new(10, 100.0, 300).play(async |fleet| {
        for member in 0..5 {
            fleet.pass(Duration::from_secs(1)).await;
            fleet.kill(member);
        }
        fleet.finish().await;
        fleet.figures()
    });
    show("10 members at 100/s, five die", &figures);
    assert!(figures.ticket_excess <= ROUNDING, "{figures}");
    let used = figures.used * 100.0 * figures.took.as_secs_f64();
    let lost = 100.0 * figures.took.as_secs_f64() - used;
    // The tickets in the hands of the dead: a quarter of a second's worth among ten, each.
    assert!(lost <= 5.0 * 5.0, "{lost} tokens lost; {figures}");
}

#[test]
fn hundreds_of_disconnecting_clients_neither_break_the_bound_nor_waste_the_rate() {
    let figures = Plan::new(4, 200.0, 1_500).play(async |fleet| {
        for round in 0..8 {
            fleet.pass(Duration::from_millis(700)).await;
            fleet.leave(round % 4, 300);
        }
        fleet.finish().await;
        fleet.figures()
    });
    show("4 members at 200/s, clients leave in hundreds", &figures);
    keeps_its_promises(&figures);
}

#[test]
fn a_flush_in_the_middle_breaks_no_bound() {
    let mut plan = Plan::new(5, 50.0, 200);
    plan.burst = 40;
    let figures = plan.play(async |fleet| {
        for _ in 0..4 {
            fleet.pass(Duration::from_secs(3)).await;
            fleet.redis.flush_all();
        }
        fleet.finish().await;
        assert_eq!(fleet.redis.immortal_keys(), Vec::<String>::new());
        fleet.figures()
    });
    show("5 members at 50/s, four flushes", &figures);
    keeps_its_promises(&figures);
}

#[test]
fn a_flush_refills_nothing_for_new_members_and_for_members_with_late_tickets() {
    for (rate, burst, idle, pause, held) in
        [(50.0, 40, 1, 3, 250), (0.5, 5, 1, 30, 12), (1_000.0, 100, 3, 1, 3_000)]
    {
        let mut plan = Plan::new(5, rate, held);
        plan.burst = burst;
        let figures = plan.play(async |fleet| {
            for member in 0..idle {
                fleet.leave(member, usize::MAX);
            }
            for _ in 0..4 {
                fleet.pass(Duration::from_secs(pause)).await;
                fleet.redis.flush_all();
                for member in 0..idle {
                    fleet.hold(member, 20);
                }
            }
            fleet.finish().await;
            fleet.figures()
        });
        show(&format!("5 members at {rate}/s, {idle} of them idle, four flushes"), &figures);
        keeps_its_promises(&figures);
    }
}

#[test]
fn a_clock_set_back_by_minutes_freezes_nothing() {
    let figures = Plan::new(5, 50.0, 200).play(async |fleet| {
        fleet.pass(Duration::from_secs(3)).await;
        fleet.redis.set_back(Duration::from_secs(600));
        fleet.finish().await;
        fleet.figures()
    });
    show("5 members at 50/s, the clock is set back", &figures);
    assert!(figures.used >= 0.98, "{figures}");
    assert!(figures.sent_excess <= 5.0, "{figures}");
}

#[test]
fn a_reload_changes_the_rate_and_refills_nothing() {
    let figures = Plan::new(5, 50.0, 200).play(async |fleet| {
        fleet.pass(Duration::from_secs(4)).await;
        let before = fleet.ledger.count();
        fleet.reload(100.0, 1);
        fleet.pass(Duration::from_secs(4)).await;
        let between = fleet.ledger.count() - before;
        assert!((380..=420).contains(&between), "{between} in four seconds at 100/s");
        fleet.finish().await;
        fleet.figures()
    });
    show("5 members, 50/s and then 100/s", &figures);
    // Tickets that the reload voids are never used, so only sent requests count. Latencies differ
    // by milliseconds.
    assert!(figures.sent_excess <= 2.0, "{figures}");
}

#[test]
fn a_thousand_members_hold_a_hundred_thousand_requests() {
    let mut plan = Plan::new(1_000, 10_000.0, 100);
    plan.burst = 100;
    plan.round_trips = (0..1_000).map(|m| Duration::from_millis(2 + m % 19)).collect();
    let figures = plan.play(async |fleet| {
        let mut dead = 0;
        for member in 0..20 {
            fleet.pass(Duration::from_millis(fastrand::u64(50..400))).await;
            let before = fleet.ledger.count();
            fleet.kill(member * 50 + fastrand::usize(0..50));
            dead += usize::from(fleet.ledger.count() >= before);
        }
        assert_eq!(dead, 20);
        fleet.finish().await;
        fleet.figures()
    });
    show("1000 members at 10000/s, 100000 held, 20 die", &figures);
    keeps_its_promises(&figures);
    assert!(figures.sent > 97_000, "{figures}");
}
