//! Overloaded sites, window by window.

use super::*;
use crate::limiter::{
    learn::{KnownRate, News},
    shares::Shares,
};

const SECOND: i64 = 1_000_000;
const LEARN: Learn = Learn { start: 20.0, floor: 0.2, back_off: 0.87, patience: 60 * SECOND };

/// A scope of a site that gives this many responses per second, with endless demand.
struct Scope {
    learned: Learned,
    news: News,
    now: i64,
    gives: f64,
    /// Requests that wait at the site.
    queue: f64,
    /// Whether the site responds late at any rate.
    slow: bool,
    /// The part of the responses that fail at any rate.
    broken: f64,
}

impl Scope {
    fn new(gives: f64) -> Self {
        let (learned, news) = (Learned::default(), News::default());
        let now = 1_000_000 * SECOND;
        let mut scope = Self { learned, news, now, gives, queue: 0.0, slow: false, broken: 0.0 };
        scope.ask();
        scope
    }

    fn ask(&mut self) {
        let mut shares = Shares::default();
        let news = (self.news, &mut shares);
        self.learned.observe(self.now, self.now, news, KnownRate::default(), 20.0, &LEARN);
    }

    /// Runs this many windows of two seconds.
    fn run(&mut self, windows: usize) {
        for _ in 0..windows {
            self.now += 2 * SECOND;
            let sent = self.learned.rate;
            let answered = self.gives.min(sent + self.queue / 2.0);
            self.queue += 2.0 * (sent - answered);
            let strained = self.slow || self.broken > 0.0 || self.queue > self.gives;
            let good = answered * (1.0 - self.broken);
            self.news.load = Strain { at: self.now, strained, sent, answered, good };
            self.learned.count(self.now, 2.0 * sent);
            self.ask();
        }
    }
}

#[test]
fn an_overloaded_site_gets_its_capacity_and_its_queue_drains() {
    let mut scope = Scope::new(4.0);
    scope.run(60);
    assert!(scope.queue < 4.0, "{} in the queue", scope.queue);
    let rate = scope.learned.rate;
    assert!((3.6..4.2).contains(&rate), "{rate}");
    let (mut answered, mut longest) = (0.0, 0.0_f64);
    for _ in 0..1_800 {
        scope.run(1);
        answered += scope.news.load.answered * 2.0;
        longest = longest.max(scope.queue / scope.gives);
    }
    assert!(answered > 0.94 * 4.0 * 3_600.0, "{answered} in an hour");
    assert!(longest < 5.0, "a queue of {longest} s");
}

#[test]
fn the_rate_rises_again_when_the_site_has_more_capacity() {
    let mut scope = Scope::new(4.0);
    scope.run(60);
    scope.gives = 12.0;
    scope.run(1_800);
    assert!(scope.learned.rate > 10.0, "{}", scope.learned.rate);
}

#[test]
fn pages_that_are_slow_at_any_rate_cost_one_minute_in_ten() {
    let mut scope = Scope::new(1e9);
    scope.slow = true;
    scope.run(2);
    assert_eq!((scope.learned.rate, scope.learned.why), (10.0, RateReason::Overload));
    scope.run(30);
    assert_eq!((scope.learned.rate, scope.learned.why), (20.0, RateReason::NoRelief));
    scope.run(290);
    assert_eq!(scope.learned.why, RateReason::NoRelief, "for ten minutes");
    scope.run(20);
    assert_eq!(scope.learned.why, RateReason::Overload);
}

#[test]
fn pages_that_fail_at_any_rate_cost_no_more_unless_most_fail() {
    let mut scope = Scope::new(1e9);
    scope.broken = 0.2;
    scope.run(40);
    assert_eq!((scope.learned.rate, scope.learned.why), (20.0, RateReason::NoRelief));
    scope.broken = 0.9;
    scope.run(40);
    assert_eq!((scope.learned.rate, scope.learned.why), (0.2, RateReason::Overload), "the floor");
    scope.broken = 0.0;
    scope.run(1);
    assert_eq!(scope.learned.why, RateReason::Relieved);
    assert!(scope.learned.mark > 0.0, "a limit has been met");
}

#[test]
fn a_crawl_that_waits_for_its_answers_is_slowed_until_the_queue_drains() {
    let mut scope = Scope::new(4.0);
    // Forty requests at a time. The rate allows far more than the site can serve.
    scope.queue = 40.0;
    let (mut waiting, mut given) = (0.0, 0.0);
    for _ in 0..60 {
        scope.now += 2 * SECOND;
        let answered = scope.gives.min(scope.queue / 2.0);
        let sent = ((waiting + 2.0 * answered) / 2.0).min(scope.learned.rate);
        waiting += 2.0 * (answered - sent);
        given += 2.0 * answered;
        scope.queue += 2.0 * (sent - answered);
        let strained = scope.queue > 16.0;
        let (at, good) = (scope.now, answered);
        scope.news.load = Strain { at, strained, sent, answered, good };
        scope.ask();
    }
    assert!(scope.queue < 17.0, "{} in the queue", scope.queue);
    assert!(given > 0.8 * 4.0 * 120.0, "{given} in two minutes");
}

#[test]
fn a_scope_with_little_demand_is_slowed_in_small_steps() {
    let mut scope = Scope::new(1e9);
    let (strained, sent) = (true, 1.0);
    for window in 1..=3 {
        scope.now += 2 * SECOND;
        let at = scope.now;
        scope.news.load = Strain { at, strained, sent, answered: 0.5, good: 0.5 };
        scope.ask();
        let wanted = 20.0 * 0.9_f64.powi(window);
        assert!((scope.learned.rate - wanted).abs() < 1e-9, "{}", scope.learned.rate);
    }
}

#[test]
fn a_member_that_stops_reporting_causes_no_strain() {
    let mut scope = Scope::new(4.0);
    scope.run(3);
    assert_eq!(scope.learned.why, RateReason::Overload);
    scope.now += 61 * SECOND;
    scope.ask();
    assert_eq!(scope.learned.why, RateReason::Relieved);
}

#[test]
fn a_frozen_rate_and_reports_from_before_a_manual_change_have_no_effect() {
    let mut scope = Scope::new(4.0);
    let known = KnownRate::default();
    let frozen = crate::limiter::learn::RateOverride::Set { rate: Some(8.0), frozen: Some(true) };
    scope.learned.override_rate(scope.now, scope.news, known, frozen, 20.0, &LEARN);
    scope.run(30);
    assert!((scope.learned.rate - 8.0).abs() < 1e-9, "{}", scope.learned.rate);
    let thawed = crate::limiter::learn::RateOverride::Set { rate: None, frozen: Some(false) };
    scope.learned.override_rate(scope.now, scope.news, known, thawed, 20.0, &LEARN);
    scope.ask();
    assert!((scope.learned.rate - 8.0).abs() < 1e-9, "{}", scope.learned.rate);
}

#[test]
fn the_next_try_waits_by_the_time_that_the_queue_took_to_drain() {
    let mut scope = Scope::new(4.0);
    let mut waits = Vec::new();
    for _ in 0..1_800 {
        let why = scope.learned.why;
        scope.run(1);
        if scope.learned.why == RateReason::Relieved && why != RateReason::Relieved {
            waits.push(scope.learned.patience);
        }
    }
    assert!(waits.len() > 3, "{waits:?}");
    let least = LEARN.patience;
    assert!(waits.iter().all(|wait| (least..=15 * MINUTE).contains(wait)), "{waits:?}");
    assert!(waits.last() <= waits.first(), "no failed try makes the next one rarer: {waits:?}");
}
