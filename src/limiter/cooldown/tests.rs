//! The state machine, transition by transition.

use std::time::Duration;

use super::*;
use crate::{
    classify::verdict::Verdict,
    limiter::policy::{Quota, Ratio, Split, Weights},
};

const SECOND: i64 = 1_000_000;
const START: i64 = 1_790_000_000 * SECOND;

fn policy() -> CooldownPolicy {
    CooldownPolicy {
        per: Split::All,
        after: 3.0,
        ratio: Some(Ratio { share: 0.5, of: 20 }),
        silence: None,
        on: Weights { verdicts: vec![(Verdict::Forbidden, 1.0)], statuses: vec![] },
        length: (Duration::from_secs(30), Duration::from_secs(60)),
        forget_after: Duration::from_secs(600),
        probe: true,
        grow: 2.0,
        max: Duration::from_secs(600),
        respect_retry_after: true,
        ramp: Duration::from_secs(10),
    }
}

fn report(epoch: u64, answer: Answer) -> Report {
    Report { draw: 0.5, ..Report::new(epoch, answer) }
}

const BLOCK: Answer = named(0);

const fn named(retry_after: i64) -> Answer {
    Answer::Block { weight: 1.0, retry_after, sure: true, verdict: Verdict::Forbidden }
}

fn tripped() -> Cooldown {
    let mut scope = Cooldown::default();
    for _ in 0..3 {
        scope.report(START, &report(0, BLOCK), &policy());
    }
    assert_eq!(scope.until, START + 45 * SECOND, "the middle of 30 to 60 s");
    scope
}

#[test]
fn three_blocks_in_a_row_trip_and_one_ok_resets() {
    let mut scope = Cooldown::default();
    assert_eq!(scope.report(START, &report(0, BLOCK), &policy()), Change::Streak);
    assert_eq!(scope.report(START, &report(0, BLOCK), &policy()), Change::Streak);
    assert_eq!(scope.report(START, &report(0, Answer::Ok), &policy()), Change::Streak);
    assert_eq!(scope.report(START, &report(0, BLOCK), &policy()), Change::Streak);
    assert_eq!(scope.report(START, &report(0, BLOCK), &policy()), Change::Streak);
    assert_eq!(scope.report(START, &report(0, BLOCK), &policy()), Change::Tripped);
    assert_eq!(scope.phase(START, &policy()), Phase::Cooling(START + 45 * SECOND));
    assert_eq!(scope.blocks, 3);
    let now = scope.until;
    scope.report(now, &Report { probe: now, ..report(scope.epoch, BLOCK) }, &policy());
    assert_eq!((scope.failed, scope.blocks), (1, 3), "a blocked probe tripped nothing");
}

#[test]
fn answers_to_requests_sent_before_the_trip_change_nothing() {
    let mut scope = tripped();
    let before = scope.clone();
    for answer in [Answer::Ok, BLOCK, named(99 * SECOND)] {
        assert_eq!(scope.report(START + SECOND, &report(0, answer), &policy()), Change::Stale);
    }
    assert_eq!(scope, before);
}

#[test]
fn a_streak_without_news_is_forgotten() {
    let mut scope = Cooldown::default();
    scope.report(START, &report(0, BLOCK), &policy());
    scope.report(START, &report(0, BLOCK), &policy());
    let later = START + 601 * SECOND;
    assert_eq!(scope.report(later, &report(0, BLOCK), &policy()), Change::Streak);
    assert!((scope.streak - 1.0).abs() < 1e-9);
}

#[test]
fn a_wall_that_refuses_every_second_request_trips_by_its_ratio() {
    let mut scope = Cooldown::default();
    for _ in 0..9 {
        scope.report(START, &report(0, Answer::Ok), &policy());
        assert_eq!(scope.report(START, &report(0, BLOCK), &policy()), Change::Streak);
    }
    scope.report(START, &report(0, Answer::Ok), &policy());
    assert_eq!(scope.report(START, &report(0, BLOCK), &policy()), Change::Tripped);
}

#[test]
fn successes_that_cost_no_call_count_for_the_ratio() {
    let mut scope = Cooldown::default();
    let after_many = Report { oks: 1000, ..report(0, BLOCK) };
    scope.report(START, &after_many, &policy());
    assert_eq!(scope.recent, "0000000000000000000b");
    assert!((scope.streak - 1.0).abs() < 1e-9);
}

#[test]
fn a_block_that_names_its_wait_trips_at_once_for_that_long() {
    let mut scope = Cooldown::default();
    assert_eq!(scope.report(START, &report(0, named(7 * SECOND)), &policy()), Change::Tripped);
    assert_eq!(scope.until, START + 7 * SECOND);
    let mut scope = Cooldown::default();
    scope.report(START, &report(0, named(i64::MAX)), &policy());
    assert_eq!(scope.until, START + 600 * SECOND, "capped by max");
}

#[test]
fn exactly_one_probe_is_in_flight_and_a_lost_one_is_replaced() {
    let mut scope = tripped();
    let end = START + 45 * SECOND;
    assert_eq!(scope.phase(end, &policy()), Phase::Due);
    scope.lend_probe("a", end, 60 * SECOND);
    assert_eq!(scope.phase(end + 1, &policy()), Phase::Probing(end + 60 * SECOND));
    assert_eq!(scope.phase(end + 60 * SECOND, &policy()), Phase::Due, "its lease ran out");
    let lost = Report { probe: end, ..report(scope.epoch, Answer::Nothing) };
    assert_eq!(scope.report(end + 2, &lost, &policy()), Change::ProbeLost);
    assert_eq!(scope.phase(end + 3, &policy()), Phase::Due);
}

#[test]
fn a_failed_probe_doubles_the_cooldown_and_the_next_starts_at_the_length_that_worked() {
    let mut scope = tripped();
    let mut now = scope.until;
    scope.lend_probe("a", now, SECOND);
    let block = Report { probe: now, ..report(scope.epoch, BLOCK) };
    assert_eq!(scope.report(now, &block, &policy()), Change::Tripped);
    assert_eq!(scope.until, now + 90 * SECOND);
    now = scope.until;
    scope.lend_probe("a", now, SECOND);
    let ok = Report { probe: now, ..report(scope.epoch, Answer::Ok) };
    assert_eq!(scope.report(now, &ok, &policy()), Change::Opened);
    assert_eq!(scope.phase(now, &policy()), Phase::Open);
    for _ in 0..3 {
        scope.report(now, &report(scope.epoch, BLOCK), &policy());
    }
    assert_eq!(scope.until, now + 90 * SECOND);
}

/// The time of each probe after the trip, for a ban of `ban` seconds. `renewed`: each request renews the ban.
fn probes_of(scope: &mut Cooldown, ban: i64, renewed: bool) -> Vec<i64> {
    let policy = policy();
    let mut now = scope.until + SECOND;
    for _ in 0..3 {
        scope.report(now, &report(scope.epoch, BLOCK), &policy);
    }
    let (began, mut probes, mut ends) = (now, Vec::new(), now + ban * SECOND);
    while scope.until > 0 {
        now = scope.until;
        probes.push((now - began) / SECOND);
        scope.lend_probe("a", now, SECOND);
        let answer = if now < ends { BLOCK } else { Answer::Ok };
        if renewed {
            ends = now + ban * SECOND;
        }
        scope.report(now, &Report { probe: now, ..report(scope.epoch, answer) }, &policy);
    }
    probes
}

/// The same for a ban that no request renews.
fn probes(scope: &mut Cooldown, ban: i64) -> Vec<i64> {
    probes_of(scope, ban, false)
}

#[test]
fn a_ban_that_probes_renew_is_probed_no_sooner_than_it_allows() {
    let mut scope = Cooldown { until: START, ..Cooldown::default() };
    scope.open(START);
    assert_eq!(probes_of(&mut scope, 590, true), [45, 135, 303, 606, 1_206]);
    assert_eq!(probes_of(&mut scope, 590, true), [600]);
    let mut tries = Vec::new();
    for ban in 0..24 {
        let probes = probes_of(&mut scope, 590, true);
        if probes[0] < 600 {
            tries.push(ban);
        } else {
            assert_eq!(probes, [600]);
        }
    }
    assert_eq!(tries, [0, 4, 12], "a shorter cooldown is tried ever more rarely");
    let mut least = 600;
    for ban in 0..40 {
        least = probes_of(&mut scope, 10, true)[0].min(least);
        assert!(
            ban < 18 || least < 60,
            "bans that became short are met by short cooldowns: {least}"
        );
    }
}

#[test]
fn a_long_ban_is_probed_after_round_times_and_then_when_it_ended_last_time() {
    let mut scope = Cooldown { until: START, ..Cooldown::default() };
    scope.open(START);
    assert_eq!(probes(&mut scope, 600), [45, 135, 303, 606]);
    assert_eq!(probes(&mut scope, 600), [303, 606]);
    assert_eq!(probes(&mut scope, 605), [303, 606]);
    assert_eq!(probes(&mut scope, 10), [303]);
    assert_eq!(probes(&mut scope, 10), [151]);
}

#[test]
fn a_member_that_knows_more_than_the_store_repairs_it() {
    let mut scope = Cooldown::default();
    let cooling = |epoch, left| KnownCooldown {
        epoch,
        phase: KnownPhase::Cooling(left),
        ..KnownCooldown::default()
    };
    scope.restore(cooling(4, 10 * SECOND), START);
    assert_eq!(scope.phase(START, &policy()), Phase::Cooling(START + 10 * SECOND));
    scope.restore(cooling(3, 99 * SECOND), START);
    assert_eq!(scope.until, START + 10 * SECOND);
}

#[test]
fn restored_state_has_no_other_effect() {
    let mut scope = Cooldown::default();
    scope.report(START, &report(0, BLOCK), &policy());
    let before = scope.clone();
    scope.restore(KnownCooldown::open(9), START + SECOND);
    assert_eq!(scope, Cooldown { epoch: 9, ..before }, "no ramp, no opening, the streak stays");
    let due =
        KnownCooldown { epoch: 10, phase: KnownPhase::Probing(0), ..KnownCooldown::default() };
    scope.restore(due, START + SECOND);
    assert_eq!(scope.phase(START + SECOND, &policy()), Phase::Due, "it opens by a probe only");
    let out =
        KnownCooldown { epoch: 11, phase: KnownPhase::Probing(SECOND), ..KnownCooldown::default() };
    scope.restore(out, START + SECOND);
    assert_eq!(scope.phase(START + SECOND, &policy()), Phase::Probing(START + 2 * SECOND));
}

#[test]
fn a_store_with_an_old_snapshot_learns_that_the_epoch_has_opened() {
    let before = tripped();
    let known = |phase| KnownCooldown { phase, ..KnownCooldown::open(before.epoch) };
    let mut scope = before.clone();
    scope.restore(known(KnownPhase::Open), START + 2 * SECOND);
    assert_eq!(scope, before, "the member has forgotten how it ended");
    scope.restore(known(KnownPhase::Opened), START + 2 * SECOND);
    assert_eq!(scope, Cooldown { until: 0, ..before }, "no ramp, the length stays");
}

#[test]
fn a_report_of_a_probe_closes_a_scope_that_the_store_forgot() {
    let epoch = tripped().epoch;
    for (answer, change) in [(BLOCK, Change::Tripped), (Answer::Ok, Change::Opened)] {
        let mut forgotten = Cooldown::default();
        let probe = Report { probe: START, ..report(epoch, answer) };
        assert_eq!(forgotten.report(START + SECOND, &probe, &policy()), change);
        assert!(forgotten.epoch >= epoch);
    }
    let mut forgotten = Cooldown::default();
    let lost = Report { probe: START, ..report(epoch, Answer::Nothing) };
    forgotten.report(START + SECOND, &lost, &policy());
    assert_eq!(
        forgotten.phase(START + SECOND, &policy()),
        Phase::Due,
        "the next request is a probe"
    );
}

#[test]
fn epochs_only_rise_despite_lost_memory_and_clock_changes() {
    let first = tripped().epoch;
    let mut forgotten = Cooldown::default();
    forgotten.trip(START + SECOND, SECOND, Cause::Manual);
    assert!(forgotten.epoch > first, "{} after {first}", forgotten.epoch);
    let later = forgotten.epoch;
    forgotten.clear(START - SECOND);
    assert!(forgotten.epoch > later, "a clock that was set back");
}

#[test]
fn a_probe_belongs_to_a_member() {
    let mut scope = tripped();
    scope.lend_probe("a", scope.until, SECOND);
    assert!(scope.is_prober("a") && !scope.is_prober("b") && !scope.is_prober(""));
}

#[test]
fn a_manual_clear_starts_a_new_epoch() {
    let mut scope = tripped();
    let before = scope.epoch;
    scope.clear(START + SECOND);
    assert_eq!(scope.phase(START + SECOND, &policy()), Phase::Open);
    assert_eq!(scope.report(START + SECOND, &report(before, BLOCK), &policy()), Change::Stale);
}

#[test]
fn a_trip_says_why_it_came_and_which_blocks_built_it() {
    let block = |verdict, weight| Answer::Block { weight, retry_after: 0, sure: true, verdict };
    let mut scope = Cooldown::default();
    scope.report(START, &report(0, block(Verdict::Timeout, 1.0)), &policy());
    scope.report(START, &report(0, Answer::Ok), &policy());
    for verdict in [Verdict::Captcha, Verdict::Forbidden, Verdict::Captcha] {
        scope.report(START, &report(0, block(verdict, 1.5)), &policy());
    }
    assert_eq!((scope.cause, scope.peak), (Some(Cause::Streak), 3.0));
    assert_eq!(Blocks::of_letters(&scope.blamed).to_string(), "1 403_forbidden, 1 captcha");
    scope.lend_probe("a", scope.until, SECOND);
    let blocked = Report { probe: scope.probe, ..report(scope.epoch, BLOCK) };
    scope.report(scope.until, &blocked, &policy());
    assert_eq!((scope.cause, &*scope.blamed), (Some(Cause::Probe), "b"));
    let mut scope = Cooldown::default();
    for _ in 0..10 {
        scope.report(START, &report(0, block(Verdict::Captcha, 1.0)), &policy());
        scope.report(START, &report(0, Answer::Ok), &policy());
    }
    scope.report(START, &report(0, BLOCK), &policy());
    assert_eq!(scope.cause, Some(Cause::Ratio));
    assert_eq!(Blocks::of_letters(&scope.blamed).to_string(), "1 403_forbidden, 9 captcha");
    let mut scope = Cooldown::default();
    scope.report(START, &report(0, named(SECOND)), &policy());
    assert_eq!((scope.cause, &*scope.blamed), (Some(Cause::Named), "b"));
}

const fn silence(weight: f64) -> Answer {
    Answer::Silence { weight, verdict: Verdict::Timeout }
}

#[test]
fn five_silent_connections_in_a_row_trip_and_an_answer_between_them_resets() {
    let weight = silence_weight(policy().after, 5);
    let mut scope = Cooldown::default();
    for _ in 0..4 {
        assert_eq!(scope.report(START, &report(0, silence(weight)), &policy()), Change::Streak);
    }
    scope.report(START, &report(0, Answer::Ok), &policy());
    for _ in 0..4 {
        assert_eq!(scope.report(START, &report(0, silence(weight)), &policy()), Change::Streak);
    }
    assert_eq!(scope.report(START, &report(0, silence(weight)), &policy()), Change::Tripped);
    assert_eq!(scope.cause, Some(Cause::Silence));
    assert_eq!(Blocks::of_letters(&scope.blamed).to_string(), "5 timeout");
}

#[test]
fn silence_counts_towards_no_share_of_the_verdicts() {
    let mut scope = Cooldown::default();
    for _ in 0..40 {
        scope.report(START, &report(0, silence(0.6)), &policy());
        scope.report(START, &report(0, Answer::Ok), &policy());
    }
    assert_eq!((scope.until, scope.recent.contains(|letter| letter != '0')), (0, false));
}

#[test]
fn a_silent_probe_prolongs_a_silent_cooldown_and_no_other() {
    let mut walled = tripped();
    walled.lend_probe("a", walled.until, SECOND);
    let probe = Report { probe: walled.probe, ..report(walled.epoch, silence(0.6)) };
    assert_eq!(walled.report(walled.until, &probe, &policy()), Change::ProbeLost);

    let mut silent = Cooldown::default();
    for _ in 0..5 {
        silent.report(START, &report(0, silence(0.6)), &policy());
    }
    // First twice the length, then right after five minutes.
    for seconds in [90, 168] {
        let until = silent.until;
        silent.lend_probe("a", until, SECOND);
        let probe = Report { probe: silent.probe, ..report(silent.epoch, silence(0.6)) };
        assert_eq!(silent.report(until, &probe, &policy()), Change::Tripped);
        assert_eq!((silent.cause, silent.length), (Some(Cause::Probe), seconds * SECOND));
    }
}

#[test]
fn a_scope_without_one_good_probe_of_ten_is_probed_ever_more_rarely_down_to_once_a_day() {
    let mut scope = tripped();
    let mut lengths = Vec::new();
    for probe in 1..=20 {
        scope.lend_probe("a", scope.until, SECOND);
        // A site that asks for a short wait is as hopeless as a site that asks for none.
        let wait = if probe % 2 == 0 { 60 * SECOND } else { 0 };
        let blocked = Report { probe: scope.probe, ..report(scope.epoch, named(wait)) };
        scope.report(scope.until, &blocked, &policy());
        let cause = if probe < 10 { Cause::Probe } else { Cause::Hopeless };
        assert_eq!(scope.cause, Some(cause), "probe {probe}");
        lengths.push(scope.length / SECOND);
    }
    assert!(lengths[..9].iter().all(|length| *length <= 600), "{lengths:?}");
    assert!(lengths[9] >= 600 && lengths[11] == 4 * lengths[9], "{lengths:?}");
    assert!(lengths[12..].is_sorted() && lengths[19] == 86_400, "{lengths:?}");
    scope.lend_probe("a", scope.until, SECOND);
    let good = Report { probe: scope.probe, ..report(scope.epoch, Answer::Ok) };
    assert_eq!(scope.report(scope.until, &good, &policy()), Change::Opened);
    for _ in 0..3 {
        scope.report(scope.until, &report(scope.epoch, BLOCK), &policy());
    }
    assert!(scope.length <= 600 * SECOND, "`max` counts again");
}

#[test]
fn a_pause_requested_by_the_site_ends_without_a_probe_and_teaches_nothing() {
    let (policy, mut scope) = (policy(), Cooldown::default());
    let named = Some(Named {
        ceiling: Some(NamedRate { rate: 2.0, lasts: 60 * SECOND }),
        hold: Some(30 * SECOND),
    });
    let now = START;
    assert_eq!(
        scope.report(now, &Report { named, ..report(0, Answer::Ok) }, &policy),
        Change::Tripped
    );
    assert_eq!((scope.until, scope.cause), (now + 30 * SECOND, Some(Cause::SiteLimit)));
    assert_eq!(scope.named_at(now + 59 * SECOND), Some(2.0));
    assert_eq!(scope.named_at(now + 60 * SECOND), None);
    assert_eq!(scope.phase(now + 30 * SECOND, &policy), Phase::Open);
    assert_eq!(scope.opened, 0, "nothing to learn from, and no ramp");
    // A block trips as usual, and its cooldown ends with a probe.
    let later = now + 100 * SECOND;
    for _ in 0..3 {
        scope.report(later, &report(scope.epoch, BLOCK), &policy);
    }
    assert!(scope.until > later);
    assert_eq!(scope.phase(scope.until, &policy), Phase::Due);
}

#[test]
fn errors_pause_a_scope_until_the_window_has_room() {
    let (policy, mut scope) = (policy(), Cooldown::default());
    let error = Some(Quota { tokens: 2, window: Duration::from_secs(60) });
    let not_found = Report { error, ..report(0, Answer::Ok) };
    assert_eq!(scope.report(START, &not_found, &policy), Change::None);
    let now = START + 10 * SECOND;
    assert_eq!(scope.report(now, &not_found, &policy), Change::Tripped);
    assert_eq!((scope.until, scope.cause), (START + 60 * SECOND, Some(Cause::Errors)));
    // A request that was in flight returns a third error.
    assert_eq!(scope.report(now + SECOND, &not_found, &policy), Change::Stale);
    assert_eq!(scope.until, START + 70 * SECOND, "the second has to leave, too");
    assert_eq!(scope.phase(scope.until, &policy), Phase::Open);
    assert_eq!(scope.opened, 0, "nothing to learn from, and no ramp");
    assert!(scope.forgettable_in(now, &policy) >= 60 * SECOND);
}

#[test]
fn no_site_pauses_a_scope_for_longer_than_the_longest_cooldown() {
    let (policy, mut scope) = (policy(), Cooldown::default());
    let named = Some(Named { ceiling: None, hold: Some(i64::MAX / 4) });
    scope.report(START, &Report { named, ..report(0, Answer::Ok) }, &policy);
    assert_eq!(scope.until, START + clock::micros(policy.max));
}

/// A plain 503 that ends no run.
const REFUSAL: Answer = Answer::Refusal { weight: REFUSAL_WEIGHT };

/// Sends a run of plain 503s, of which every fifth ends a run of its member. Returns how many it takes to trip.
fn refusals_to_trip(scope: &mut Cooldown) -> Option<usize> {
    let run = Answer::Refusal { weight: policy().after };
    (1..=40).find(|at| {
        let answer = if at % 5 == 0 { run } else { REFUSAL };
        scope.report(START, &report(0, answer), &policy()) == Change::Tripped
    })
}

#[test]
fn five_plain_refusals_in_a_row_trip_unless_their_share_explains_them() {
    for (oks, tested, needed) in [(3, false, 5), (3, true, 5), (1, true, 13)] {
        let mut scope = Cooldown::default();
        for _ in 0..100 {
            scope.report(START, &report(0, REFUSAL), &policy());
            let good = Report { oks, ..report(0, Answer::Ok) };
            scope.report(START, &good, &policy());
            scope.shares.are_tested(tested);
        }
        let needed = if oks == 3 && tested { 9 } else { needed };
        assert_eq!(refusals_to_trip(&mut scope), Some(needed), "one in {}", oks + 2);
        assert_eq!(
            Blocks::of_letters(&scope.blamed).to_string(),
            format!("{needed} 403_forbidden")
        );
    }
    let mut scope = Cooldown::default();
    scope.report(START, &report(0, REFUSAL), &policy());
    scope.report(START, &report(0, Answer::Ok), &policy());
    scope.shares.are_tested(true);
    assert_eq!(refusals_to_trip(&mut scope), Some(5), "nothing is known of their share");
}

#[test]
fn plain_refusals_trip_nothing_but_their_share_counts() {
    let mut scope = Cooldown::default();
    scope.report(START, &report(0, BLOCK), &policy());
    scope.report(START, &report(0, Answer::Ok), &policy());
    scope.shares.are_tested(true);
    for _ in 0..100 {
        assert_eq!(scope.report(START, &report(0, REFUSAL), &policy()), Change::Streak);
        assert!(scope.streak > 0.0, "all members report their successes");
        let good = Report { oks: 3, ..report(0, Answer::Ok) };
        assert_eq!(scope.report(START + SECOND, &good, &policy()), Change::Streak);
    }
    assert_eq!((scope.until, scope.last_block), (0, START));
    assert!(scope.shares.are_doubtful(), "a fifth of the responses");
    // Without the end of a run they do not trip, and they do not shorten a streak of blocks.
    for _ in 0..1_000 {
        scope.report(START, &report(0, REFUSAL), &policy());
    }
    assert_eq!(scope.report(START, &report(0, BLOCK), &policy()), Change::Streak);
    assert_eq!(scope.report(START, &report(0, BLOCK), &policy()), Change::Streak);
}
