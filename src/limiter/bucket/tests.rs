//! Tests of the bucket's bounds.

use std::time::Duration;

use super::*;
use crate::limiter::policy::Quota;

const SECOND: i64 = 1_000_000;
/// An arbitrary start: stores count from the epoch.
const START: i64 = 1_790_000_000 * SECOND;

fn limits(rate: f64, burst: u32) -> Limits {
    Limits { rate: Some(rate), burst, quotas: vec![], cost: 1, learn: None }
}

fn fixed(limits: &Limits) -> Pace {
    Pace { rate: limits.rate, ramp: 0 }
}

fn grants(bucket: &mut Bucket, limits: &Limits, ramp: i64, now: i64, until: i64) -> Vec<i64> {
    bucket.observe(now, limits);
    let pace = Pace { rate: limits.rate, ramp };
    let mut moments = vec![];
    loop {
        let moment = bucket.next(now, limits, pace);
        if moment > until {
            return moments;
        }
        bucket.take(moment, limits, pace);
        moments.push(moment);
    }
}

#[test]
fn a_full_bucket_gives_its_burst_at_once_and_then_the_rate() {
    let limits = limits(2.0, 3);
    let mut bucket = Bucket::full(START, &limits);
    let moments = grants(&mut bucket, &limits, 0, START, START + 2 * SECOND);
    let after: Vec<i64> = moments.iter().map(|m| (m - START) / 1000).collect();
    assert_eq!(after, [0, 0, 0, 500, 1000, 1500, 2000]);
}

#[test]
fn tickets_given_ahead_keep_the_bound_in_every_window() {
    let limits = limits(7.0, 4);
    let mut bucket = Bucket::full(START, &limits);
    let mut moments = grants(&mut bucket, &limits, 0, START, START + 3 * SECOND);
    let later = START + 10 * SECOND;
    moments.extend(grants(&mut bucket, &limits, 0, later, later + 3 * SECOND));
    for (i, first) in moments.iter().enumerate() {
        for (j, last) in moments.iter().enumerate().skip(i) {
            let bound = 4.0 + 7.0 * exact(last - first) / 1e6;
            assert!(exact((j - i + 1) as i64) <= bound + 1e-4, "{i}..{j}");
        }
    }
}

#[test]
fn a_quota_never_grants_more_in_its_window_and_starts_with_its_first_request() {
    let mut limits = limits(1000.0, 1000);
    limits.quotas = vec![Quota { tokens: 3, window: Duration::from_secs(60) }];
    let mut bucket = Bucket::full(START, &limits);
    let first = START + 5 * SECOND;
    let moments = grants(&mut bucket, &limits, 0, first, first + 61 * SECOND);
    assert_eq!(moments[..3], [first, first, first]);
    assert_eq!(moments[3..], [first + 60 * SECOND; 3]);
}

#[test]
fn after_a_cooldown_the_bucket_is_empty_and_the_rate_climbs() {
    let limits = limits(10.0, 50);
    let ramp = 10 * SECOND;
    let mut bucket = Bucket::full(START, &limits);
    bucket.observe(START, &limits);
    bucket.restart(START, &limits);
    let in_ramp = grants(&mut bucket, &limits, ramp, START, START + ramp).len();
    assert!((48..=50).contains(&in_ramp), "{in_ramp} of 50 tokens in the climb");
    let after = grants(&mut bucket, &limits, ramp, START + ramp, START + ramp + SECOND).len();
    assert!((9..=11).contains(&after), "{after} in the second after it");
}

#[test]
fn a_clock_set_back_neither_freezes_the_bucket_nor_fills_it() {
    let limits = limits(10.0, 5);
    let mut bucket = Bucket::full(START, &limits);
    grants(&mut bucket, &limits, 0, START, START);
    let back = START - 3600 * SECOND;
    let moments = grants(&mut bucket, &limits, 0, back, back + SECOND);
    assert_eq!(moments.len(), 10);
    assert!(moments[0] > back, "the burst was spent");
}

#[test]
fn a_ticket_handed_back_goes_to_the_next_in_line() {
    let limits = limits(1.0, 1);
    let mut bucket = Bucket::full(START, &limits);
    let moments = grants(&mut bucket, &limits, 0, START, START + 3 * SECOND);
    bucket.return_tickets(&moments[1..2], START, &limits);
    assert_eq!(bucket.next(START, &limits, fixed(&limits)), moments[1]);
    bucket.take(moments[1], &limits, fixed(&limits));
    assert_eq!(bucket.next(START, &limits, fixed(&limits)), START + 4 * SECOND);
}

#[test]
fn a_year_of_rest_and_ten_million_takes_do_not_drift() {
    let limits = limits(1e6, 1);
    let mut bucket = Bucket::full(START, &limits);
    for i in 0..10_000_000 {
        let moment = bucket.next(START, &limits, fixed(&limits));
        assert_eq!(moment, START + i, "one token a microsecond");
        bucket.take(moment, &limits, fixed(&limits));
    }
    let later = START + 365 * 24 * 3600 * SECOND;
    assert_eq!(grants(&mut bucket, &limits, 0, later, later).len(), 1);
}
