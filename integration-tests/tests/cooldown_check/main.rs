//! An exhaustive check of the cooldown protocol: every order of requests, responses, news, lost
//! and repeated messages, crashes, sleeps, flushes, old snapshots and clock changes of a small fleet, up to a stated depth.
//!
//! The model runs the real state machine ([`tidegate::limiter::cooldown::Cooldown`]), the real
//! cache of a member ([`tidegate::gate::cache::CooldownCache`]) and the real lease of its right to send
//! ([`tidegate::store::contact::Contact`]). Only the network, the site and
//! time are modelled. Each defect that the protocol once had is put back in turn, and the check
//! must find it.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "the number of states is a figure to look at"
)]

mod world;

use std::collections::{HashSet, VecDeque};

use crate::world::{Defect, World};

/// The result of a search.
struct Found {
    states: usize,
    depth: usize,
    violation: Option<String>,
}

/// Visits every state in the order of its distance from the start, up to `depth` steps away.
fn search(start: World, depth: usize) -> Found {
    let mut seen = HashSet::from([start.key()]);
    let mut queue = VecDeque::from([(start, 0)]);
    let mut deepest = 0;
    while let Some((world, steps)) = queue.pop_front() {
        deepest = deepest.max(steps);
        if steps == depth {
            continue;
        }
        for step in world.steps() {
            let mut next = world.clone();
            if let Err(broken) = next.take(step) {
                let violation = Some(format!("{broken}\nafter {:#?}\nthen {step:?}", next.story));
                return Found { states: seen.len(), depth: steps + 1, violation };
            }
            if seen.insert(next.key()) {
                queue.push_back((next, steps + 1));
            }
        }
    }
    Found { states: seen.len(), depth: deepest, violation: None }
}

/// `CHECK_DEEPER` adds steps, each of which takes about four times as long.
fn must_hold(start: World, depth: usize, least: usize) {
    let deeper = std::env::var("CHECK_DEEPER").ok().and_then(|steps| steps.parse().ok());
    let depth = depth + deeper.unwrap_or(0);
    let found = search(start, depth);
    if let Some(violation) = found.violation {
        panic!("{violation}");
    }
    println!("{} states, {} steps deep", found.states, found.depth);
    assert!(found.states >= least, "only {} states: the model does not move", found.states);
}

fn must_be_found(defect: Defect, starts: &[Start]) {
    let found = |start: &Start| search(start(2, Some(defect)), 6).violation.is_some();
    assert!(starts.iter().any(found), "{defect:?} is not noticed");
}

type Start = fn(usize, Option<Defect>) -> World;

/// Where defects of the protocol show without rare events.
const CALM: [Start; 3] = [
    |members, defect| World::open(members, defect).without_rare_events(),
    |members, defect| World::tripped(members, defect).without_rare_events(),
    |members, defect| World::opened(members, defect).without_rare_events(),
];

#[test]
fn two_members_keep_every_promise_in_every_order_of_events() {
    for start in [World::open, World::tripped, World::opened] {
        must_hold(start(2, None).without_rare_events(), 7, 5_000);
    }
}

#[test]
fn three_members_keep_every_promise_in_every_order_of_events() {
    must_hold(World::tripped(3, None).without_rare_events(), 5, 5_000);
}

#[test]
fn two_queues_of_a_member_keep_every_promise_in_every_order_of_events() {
    must_hold(World::due(1, None).without_rare_events(), 8, 5_000);
    must_hold(World::due(2, None).without_rare_events(), 6, 5_000);
}

#[test]
fn sleeps_old_snapshots_repeated_messages_and_clock_changes_break_no_promise() {
    for start in [World::open, World::tripped, World::asleep, World::opened] {
        must_hold(start(2, None), 4, 2_000);
    }
}

#[test]
fn the_check_fails_if_restoring_state_has_an_effect() {
    must_be_found(Defect::RestoringOpens, &CALM);
}

#[test]
fn the_check_fails_if_epochs_start_again() {
    must_be_found(Defect::EpochsAreCounted, &CALM);
}

#[test]
fn the_check_fails_if_a_member_does_not_report_its_cooldown() {
    must_be_found(Defect::CoolingIsNotTold, &CALM);
}

#[test]
fn the_check_fails_if_a_probe_is_lost_with_its_reply() {
    must_be_found(Defect::ProbeOfNobody, &CALM);
}

#[test]
fn the_check_fails_if_each_queue_of_a_member_sends_the_probe() {
    let start = World::due(1, Some(Defect::ProbeOfEachQueue)).without_rare_events();
    let violation = search(start, 8).violation;
    assert!(violation.is_some_and(|broken| broken.starts_with("2 probes at once")));
}

#[test]
fn the_check_fails_if_news_is_trusted_without_a_read() {
    must_be_found(Defect::NewsOpen, &CALM);
}

#[test]
fn the_check_fails_if_a_member_that_slept_trusts_old_knowledge() {
    must_be_found(Defect::RightsOutliveASleep, &[World::asleep]);
}

#[test]
fn the_check_fails_if_epochs_follow_a_clock_set_back() {
    must_be_found(Defect::EpochsAreTimes, &[World::opened]);
}

#[test]
fn the_check_fails_if_times_do_not_follow_the_clock() {
    must_be_found(Defect::TimesStay, &[World::tripped]);
}
