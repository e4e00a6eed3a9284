//! The promises of the gate, in virtual time.

use std::time::Duration;

use integration_tests::sim::{Plan, figures::Figures};

#[allow(clippy::print_stdout, reason = "the figures are what a person runs this for")]
fn show(what: &str, figures: &Figures) {
    println!("{what}: {figures}");
}

#[test]
fn members_share_a_scope_within_five_percent() {
    for members in [2, 5, 10, 20, 50, 100] {
        for rate in [20.0, 200.0, 5_000.0] {
            let figures = Plan::new(members, rate, 4_000_usize.div_ceil(members)).run();
            show(&format!("{members} members at {rate}/s"), &figures);
        }
    }
}

#[test]
fn members_with_slow_lines_get_as_much_as_those_with_fast_ones() {
    for (fast, slow) in [(2, 20), (4, 40), (10, 100)] {
        for members in [2, 5, 10, 20, 50, 100] {
            for rate in [5.0, 20.0, 200.0, 5_000.0] {
                let mut plan = Plan::new(members, rate, 4_000_usize.div_ceil(members));
                plan.round_trips = (0..members)
                    .map(|m| Duration::from_millis(if m % 2 == 0 { fast } else { slow }))
                    .collect();
                let figures = plan.run();
                show(&format!("{fast}/{slow} ms: {members} members at {rate}/s"), &figures);
            }
        }
    }
}
