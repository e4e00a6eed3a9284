//! Guesses at walls with long bans, by their counts.

use super::*;

const SECOND: i64 = 1_000_000;
const BAN: i64 = 606 * SECOND;

/// The rates in force after each of `trips`, starting at `rate`. The wall lets `most` requests through per `window`
/// seconds.
fn crawl(most: f64, window: f64, mut rate: f64, trips: usize) -> Vec<f64> {
    let mut wall = Wall::unknown();
    let mut limits = Vec::new();
    while limits.len() < trips && rate > most / window {
        wall.count(most + 3.0 + rate * IN_FLIGHT);
        limits.push(wall.trip(rate, 3, BAN, limits.is_empty()).unwrap());
        rate = limits[limits.len() - 1] * KEPT;
    }
    limits
}

#[test]
fn a_round_window_is_found_at_once_if_it_is_the_next_one_and_by_one_more_trip_otherwise() {
    for (most, window, times, trips) in [
        (180.0, 60.0, 1.5, 1),
        (180.0, 60.0, 2.0, 1),
        (180.0, 60.0, 3.0, 1),
        (180.0, 60.0, 5.0, 1),
        (900.0, 300.0, 2.0, 1),
        (900.0, 300.0, 5.0, 2),
        (1_800.0, 600.0, 1.5, 1),
        (1_800.0, 600.0, 3.0, 2),
        (1_800.0, 600.0, 5.0, 2),
        (2_700.0, 900.0, 2.0, 2),
    ] {
        let limits = crawl(most, window, 3.0 * times, 9);
        let found = limits[limits.len() - 1];
        assert!(limits.len() == trips && (found / 3.0 - 1.0).abs() < 0.02, "{window}: {limits:?}");
    }
}

#[test]
fn a_window_that_is_not_round_is_found_within_three_trips() {
    for window in [20.0, 45.0, 200.0, 330.0, 400.0, 450.0] {
        for times in [1.5, 2.0, 3.0, 5.0] {
            let limits = crawl(3.0 * window, window, 3.0 * times, 9);
            let found = limits[limits.len() - 1];
            assert!(limits.len() <= 3 && found > 0.9 && found < 3.1, "{window}: {limits:?}");
        }
    }
}

#[test]
fn a_guess_after_a_long_ban_that_fails_with_a_short_one_has_failed_all_the_same() {
    let mut wall = Wall::unknown();
    wall.count(200.0);
    let rate = wall.trip(16.0, 3, BAN, true).unwrap() * KEPT;
    wall.count(200.0);
    let limit = wall.trip(rate, 3, BAN / 2, false).unwrap();
    assert!(limit < rate * 0.6, "{limit} after {rate}");
}

#[test]
fn a_bucket_that_lets_far_more_through_than_the_guess_has_no_window() {
    let mut wall = Wall::unknown();
    wall.count(20.0);
    let rate = wall.trip(14.0, 3, BAN, true).unwrap() * KEPT;
    wall.count(400.0);
    assert_eq!(wall.trip(rate, 3, BAN, false), None);
    assert_eq!(wall.name(), None);
}

#[test]
fn a_guess_that_fails_a_few_requests_early_has_failed_all_the_same() {
    let mut wall = Wall::unknown();
    wall.count(60.0);
    let rate = wall.trip(16.0, 3, BAN, true).unwrap() * KEPT;
    let window = wall.window;
    wall.count(57.0);
    wall.trip(rate, 3, BAN, false);
    assert!(wall.window >= 2 * window, "{} after {window}", wall.window);
    let window = wall.window;
    wall.count(16.0);
    wall.trip(2.0, 3, BAN, false);
    assert_eq!(wall.window, window, "it let far less through");
}

#[test]
fn a_limit_that_falls_later_is_not_a_failed_guess() {
    let mut wall = Wall::unknown();
    wall.count(300.0);
    let limit = wall.trip(2.0, 3, BAN, true).unwrap();
    wall.count(limit * KEPT * 1_500.0);
    assert_eq!(wall.trip(limit * KEPT, 3, BAN, false), None);
}

#[test]
fn the_blocks_that_tripped_are_not_part_of_the_limit() {
    for blocks in [1, 3, 13] {
        let mut wall = Wall::unknown();
        wall.count(20.0 + f64::from(blocks) + 4.0 * IN_FLIGHT);
        let limit = wall.trip(4.0, blocks, BAN, true).unwrap();
        assert!(
            (limit - 2.0).abs() < 0.01,
            "20 in ten seconds, not {limit}, after {blocks} blocks"
        );
    }
}

#[test]
fn a_window_that_is_not_round_is_never_overestimated() {
    for window in [40.0, 90.0, 200.0, 450.0, 1_000.0] {
        let limits = crawl(3.0 * window, window, 12.0, 9);
        let found = limits[limits.len() - 1];
        assert!(limits.len() <= 4 && found < 3.1, "{window}: {limits:?}");
    }
}

#[test]
fn a_smaller_count_in_the_same_window_lowers_the_limit() {
    let mut wall = Wall::unknown();
    wall.count(300.0);
    assert!(wall.trip(2.0, 3, BAN, true).is_some());
    assert_eq!(wall.window, 300 * SECOND);
    wall.count(250.0);
    let limit = wall.trip(0.95, 3, BAN, false).unwrap();
    assert!((limit - 0.82).abs() < 0.02, "{limit}");
}

#[test]
fn short_bans_and_rising_rates_produce_no_guess() {
    let mut wall = Wall::unknown();
    wall.count(300.0);
    assert_eq!(wall.trip(2.0, 3, 60 * SECOND, true), None, "another trip costs little");
    assert_eq!(wall.window, 300 * SECOND, "but it counts");
    wall.observe(true, 2.0);
    wall.count(300.0);
    assert_eq!(wall.trip(2.0, 3, BAN, false), None);
    assert!(wall.most > 0.0, "what was known stays");
    wall.count(900.0);
    assert_eq!(wall.trip(2.0, 3, BAN, false), None, "it let more through before");
    assert!(wall.most <= 0.0);
}

#[test]
fn a_guess_is_dropped_if_the_site_lets_more_through() {
    let mut wall = Wall::unknown();
    wall.count(300.0);
    let limit = wall.trip(2.0, 3, BAN, true).unwrap();
    wall.bears(limit * 1.1);
    assert!(wall.most > 0.0);
    wall.bears(limit * 1.2);
    assert!(wall.most <= 0.0);
}

#[test]
fn only_a_long_ban_names_the_limit_and_each_trip_that_agrees_counts() {
    let mut wall = Wall::unknown();
    wall.count(300.0);
    assert_eq!(wall.trip(2.0, 3, 60 * SECOND, true), None);
    assert_eq!(wall.name(), None);
    wall.count(300.0);
    assert!(wall.trip(1.0, 3, BAN, false).is_some());
    let named = wall.name().expect("a long ban names it");
    assert_eq!((named.window, named.ban, named.trips), (300 * SECOND, BAN, 2));
    assert!((named.requests - 295.0).abs() < 2.0, "{named:?}");
    wall.bears(1.2);
    assert_eq!(wall.name(), None, "a rate that went well contradicts it");
}
