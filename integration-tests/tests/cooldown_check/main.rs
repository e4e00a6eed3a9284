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
fn sleeps_old_snapshots_repeated_messages_and_clock_changes_break_no_promise() {
    for start in [World::open, World::tripped, World::asleep, World::opened] {
        must_hold(start(2, None), 4, 2_000);
    }
}

#[test]
fn it_notices_a_restored_state_with_an_effect() {
    must_be_found(Defect::RestoringOpens, &CALM);
}

#[test]
fn it_notices_epochs_that_begin_again() {
    must_be_found(Defect::EpochsAreCounted, &CALM);
}

#[test]
fn it_notices_a_member_that_keeps_a_cooldown_to_itself() {
    must_be_found(Defect::CoolingIsNotTold, &CALM);
}

#[test]
fn it_notices_a_probe_that_is_lost_with_its_reply() {
    must_be_found(Defect::ProbeOfNobody, &CALM);
}

#[test]
fn it_notices_news_that_are_believed() {
    must_be_found(Defect::NewsOpen, &CALM);
}

#[test]
fn it_notices_a_member_that_sends_on_what_it_knew_before_it_slept() {
    must_be_found(Defect::RightsOutliveASleep, &[World::asleep]);
}

#[test]
fn it_notices_epochs_that_follow_a_clock_that_was_set_back() {
    must_be_found(Defect::EpochsAreTimes, &[World::opened]);
}

#[test]
fn it_notices_times_that_stay_where_a_clock_was() {
    must_be_found(Defect::TimesStay, &[World::tripped]);
}
