//! The learned rate, step by step.

use super::*;

const SECOND: i64 = 1_000_000;
const START: i64 = 1_000_000 * SECOND;
const LEARN: Learn = Learn { start: 4.0, floor: 0.04, back_off: 0.87, patience: 60 * SECOND };

/// A scope that takes tickets once a second, at the rate in force.
struct Scope {
    learned: Learned,
    now: i64,
    news: News,
    demand: f64,
    shares: Shares,
}

impl Scope {
    fn new() -> Self {
        let mut scope = Self {
            learned: Learned::default(),
            now: START,
            news: News::default(),
            demand: 1e9,
            shares: Shares::default(),
        };
        scope.ask();
        scope
    }

    fn ask(&mut self) {
        self.learned.observe(
            self.now,
            self.now,
            (self.news, &mut self.shares),
            KnownRate::default(),
            4.0,
            &LEARN,
        );
    }

    fn run(&mut self, seconds: i64) {
        for _ in 0..seconds {
            self.now += SECOND;
            self.ask();
            self.learned.count(self.now, self.learned.rate.min(self.demand));
        }
    }

    /// A cooldown of half a minute, followed by one request.
    fn trip(&mut self, sure: bool) {
        self.trip_for(30, sure);
    }

    /// A cooldown of this many seconds, followed by one request.
    fn trip_for(&mut self, seconds: i64, sure: bool) {
        let last = self.now;
        self.now += seconds * SECOND;
        self.news =
            News { opened: self.now, blocked: last, sure, closed: false, ..News::default() };
        self.learned.observe(
            self.now,
            last,
            (self.news, &mut self.shares),
            KnownRate::default(),
            4.0,
            &LEARN,
        );
    }
}

fn near(is: f64, wanted: f64) {
    assert!((is - wanted).abs() < 0.02 * wanted, "{is} is not about {wanted}");
}

#[test]
fn the_first_trip_lowers_the_rate_to_the_throughput_of_the_last_minute() {
    let mut scope = Scope::new();
    near(scope.learned.rate, 4.0);
    scope.demand = 2.0;
    scope.run(180);
    scope.trip(true);
    near(scope.learned.rate, 2.0 * 0.87);
    near(scope.learned.mark, 2.0 * 0.87);
    scope.run(50);
    near(scope.learned.rate, 2.0 * 0.87);
}

#[test]
fn a_trip_after_hardly_any_page_leaves_a_quarter_of_the_rate() {
    let mut scope = Scope::new();
    scope.run(2);
    scope.trip(true);
    near(scope.learned.rate, 4.0 * 0.25 * 0.87);
}

#[test]
fn a_try_that_trips_confirms_the_mark_and_doubles_the_calm_period() {
    let mut scope = Scope::new();
    scope.run(120);
    scope.trip(true);
    let (mark, patience) = (scope.learned.mark, scope.learned.patience);
    assert_eq!(patience, 450 * SECOND, "fifteen times the cooldown's length");
    scope.run(310);
    assert!(scope.learned.rate > mark * 1.01, "a try");
    scope.trip(true);
    near(scope.learned.mark, mark * 0.98);
    near(scope.learned.rate, mark * 0.98);
    assert_eq!(scope.learned.patience, 2 * patience);
}

/// Steps of the climb in the first hour and a half after a ban of this many seconds.
fn steps_after_a_ban_of(seconds: i64) -> usize {
    let mut scope = Scope::new();
    scope.run(2);
    scope.trip_for(seconds, true);
    let mut steps = 0;
    for _ in 0..5_400 {
        let before = scope.learned.rate;
        scope.run(1);
        steps += usize::from(scope.learned.rate > before);
    }
    steps
}

#[test]
fn after_a_long_ban_each_step_of_the_climb_lasts_ten_minutes() {
    let steps = steps_after_a_ban_of(300);
    assert!((4..=9).contains(&steps), "{steps} steps in 90 minutes");
    assert!(steps_after_a_ban_of(30) > 15, "after a short ban a minute");
}

#[test]
fn a_limit_found_by_a_ban_of_ten_minutes_is_kept_for_hours() {
    assert_eq!(steps_after_a_ban_of(600), 0);
    let mut scope = Scope::new();
    scope.run(60);
    scope.trip_for(600, true);
    let (rate, wall) = (scope.learned.rate, scope.learned.wall);
    assert_eq!(wall.window, 120 * SECOND);
    assert!((rate / (4.0 * 60.0 / 120.0 * 0.97) - 1.0).abs() < 0.03, "{rate}");
    scope.run(3 * 3_600);
    near(scope.learned.rate, rate);
    scope.run(3_600);
    assert!(scope.learned.rate > rate, "then it tries more");
}

#[test]
fn a_block_just_before_the_trip_changes_nothing_of_the_guess() {
    let mut scope = Scope::new();
    scope.run(100);
    scope.news = News { blocked: scope.now, sure: true, ..News::default() };
    scope.ask();
    near(scope.learned.rate, 4.0 * EASED);
    scope.run(1);
    scope.trip_for(606, true);
    let found = 4.0 * 100.0 / 120.0 * 0.97;
    assert!((scope.learned.rate / found - 1.0).abs() < 0.03, "{} after 4", scope.learned.rate);
}

#[test]
fn a_try_that_lasts_is_the_new_mark() {
    let mut scope = Scope::new();
    scope.run(120);
    scope.trip(true);
    let mark = scope.learned.mark;
    scope.run(1_200);
    assert!(scope.learned.mark > mark, "{} has not risen", scope.learned.mark);
    assert!(scope.learned.rate <= 4.0);
}

#[test]
fn a_doubtful_trip_costs_less_and_is_forgotten_sooner() {
    let [sure, plain] = [true, false].map(|sure| {
        let mut scope = Scope::new();
        scope.run(120);
        scope.trip(sure);
        let after = scope.learned.rate;
        scope.run(100);
        (after, scope.learned.rate > after * 1.01)
    });
    assert!(plain.0 > sure.0, "{} after a plain refusal, {} after a sure sign", plain.0, sure.0);
    assert!(plain.1 && !sure.1, "only the doubtful one is tried again after a minute and a half");
}

#[test]
fn a_second_doubtful_trip_below_the_blocked_rate_costs_as_much_as_a_sure_one() {
    let [sure, plain] = [true, false].map(|sure| {
        let mut scope = Scope::new();
        scope.run(120);
        scope.trip(false);
        scope.run(50);
        scope.trip(sure);
        scope.learned.rate
    });
    near(plain, sure);
}

#[test]
fn a_doubtful_trip_that_cost_a_long_ban_is_not_soon_forgotten() {
    let rises = |seconds: i64| {
        let Scope { mut learned, mut now, mut shares, .. } = Scope::new();
        let mut observe = |now, last, news| {
            learned.observe(now, last, (news, &mut shares), KnownRate::default(), 40.0, &LEARN);
            learned.count(now, learned.rate);
            learned.rate
        };
        // The rate climbs, so the ban does not show a limit per window.
        for _ in 0..600 {
            now += SECOND;
            observe(now, now, News::default());
        }
        let (last, opened) = (now, now + seconds * SECOND);
        let news = News { opened, blocked: last, sure: false, closed: false, ..News::default() };
        let after = observe(opened, last, news);
        let later = (1..=540).map(|second| opened + second * SECOND);
        later.fold(after, |_, now| observe(now, now, news)) > after * 1.01
    };
    assert!(rises(30), "after half a minute it is");
    assert!(!rises(600), "a step every minute would cost ten minutes each");
}

#[test]
fn a_sure_block_that_trips_nothing_eases() {
    let mut scope = Scope::new();
    scope.run(60);
    scope.news =
        News { opened: 0, blocked: scope.now, sure: true, closed: false, ..News::default() };
    scope.run(1);
    near(scope.learned.rate, 4.0 * 0.9);
    scope.run(3);
    near(scope.learned.rate, 4.0 * 0.9);
    scope.news.blocked += 3 * SECOND;
    scope.run(3);
    near(scope.learned.rate, 4.0 * 0.9);
    scope.news =
        News { opened: 0, blocked: scope.now, sure: false, closed: false, ..News::default() };
    scope.run(1);
    near(scope.learned.rate, 4.0 * 0.9);
}

#[test]
fn nothing_grows_without_demand() {
    let mut scope = Scope::new();
    scope.run(120);
    scope.trip(true);
    let mark = scope.learned.rate;
    scope.demand = mark * 0.3;
    scope.run(7_200);
    near(scope.learned.rate, mark);
    scope.demand = 1e9;
    scope.run(1_200);
    assert!(scope.learned.rate > mark * 1.01, "with demand it does");
}

#[test]
fn a_rule_file_that_allows_more_counts_at_once_where_no_limit_has_been_met() {
    let mut scope = Scope::new();
    let more = Learn { start: 40.0, ..LEARN };
    scope.learned.observe(
        scope.now,
        scope.now,
        (scope.news, &mut Shares::default()),
        KnownRate::default(),
        40.0,
        &more,
    );
    near(scope.learned.rate, 40.0);
    let mut met = Scope::new();
    met.trip(true);
    let mark = met.learned.mark;
    met.learned.observe(
        met.now,
        met.now,
        (met.news, &mut Shares::default()),
        KnownRate::default(),
        40.0,
        &more,
    );
    near(met.learned.rate, mark);
}

#[test]
fn the_rate_never_leaves_floor_and_ceiling() {
    let mut scope = Scope::new();
    for _ in 0..50 {
        scope.run(1);
        scope.trip(true);
        assert!(scope.learned.rate >= 0.04);
    }
    for _ in 0..100 {
        scope.run(3_600);
        assert!(scope.learned.rate <= 4.0);
    }
}

#[test]
fn a_store_that_lost_its_memory_takes_the_rate_that_a_member_knows() {
    let mut learned = Learned::default();
    let known = KnownRate { turn: 7, rate: 1.5, mark: 1.5, ..KnownRate::default() };
    learned.observe(START, START, (News::default(), &mut Shares::default()), known, 4.0, &LEARN);
    near(learned.rate, 1.5);
    near(learned.mark, 1.5);
    assert_eq!(learned.why, RateReason::Recalled);
    let older = KnownRate { turn: 6, rate: 3.0, ..known };
    learned.observe(
        START + SECOND,
        START,
        (News::default(), &mut Shares::default()),
        older,
        4.0,
        &LEARN,
    );
    near(learned.rate, 1.5);
}

#[test]
fn each_change_counts_and_says_why() {
    let mut scope = Scope::new();
    assert_eq!((scope.learned.turn, scope.learned.why), (1, RateReason::Start));
    scope.run(120);
    scope.trip(true);
    assert_eq!((scope.learned.turn, scope.learned.why), (2, RateReason::SureTrip));
    while scope.learned.turn == 2 {
        scope.run(1);
    }
    assert_eq!(scope.learned.why, RateReason::Climb);
    scope.trip(false);
    assert_eq!(scope.learned.why, RateReason::TryFailed);
    let turn = scope.learned.turn;
    scope.learned.observe(
        scope.now,
        scope.now,
        (scope.news, &mut Shares::default()),
        KnownRate::default(),
        0.5,
        &LEARN,
    );
    assert_eq!((scope.learned.turn, scope.learned.why), (turn + 1, RateReason::Bounds));
}

impl Scope {
    fn hand(&mut self, hand: RateOverride) {
        self.learned.override_rate(self.now, self.news, KnownRate::default(), hand, 4.0, &LEARN);
    }

    fn set(&mut self, rate: impl Into<Option<f64>>, frozen: impl Into<Option<bool>>) {
        self.hand(RateOverride::Set { rate: rate.into(), frozen: frozen.into() });
    }
}

#[test]
fn learning_continues_from_a_manual_rate() {
    let mut scope = Scope::new();
    scope.run(120);
    scope.trip(true);
    scope.set(2.0, None);
    near(scope.learned.rate, 2.0);
    assert_eq!(scope.learned.why, RateReason::Manual);
    scope.run(30);
    near(scope.learned.rate, 2.0);
    scope.trip(true);
    assert!(scope.learned.rate < 1.9, "a later trip counts");
}

#[test]
fn a_manual_rate_is_not_blamed_for_the_current_cooldown() {
    let mut scope = Scope::new();
    scope.run(120);
    scope.news = News { blocked: scope.now, sure: true, closed: true, ..scope.news };
    scope.set(2.0, None);
    scope.now += 30 * SECOND;
    scope.news = News { opened: scope.now, closed: false, ..scope.news };
    scope.run(30);
    near(scope.learned.rate, 2.0);
    scope.trip(true);
    assert!(scope.learned.rate < 1.9, "the next one is");
}

#[test]
fn a_frozen_rate_never_changes_until_it_is_thawed() {
    let mut scope = Scope::new();
    scope.set(2.0, true);
    scope.trip(true);
    scope.run(7_200);
    near(scope.learned.rate, 2.0);
    scope.set(None, false);
    scope.run(30);
    near(scope.learned.rate, 2.0);
    scope.run(600);
    assert!(scope.learned.rate > 2.02, "calm raises it again");
}

#[test]
fn a_forgotten_rate_starts_again_and_no_member_restores_it() {
    let mut scope = Scope::new();
    scope.run(120);
    scope.trip(true);
    let known = scope.learned.known();
    scope.hand(RateOverride::Forget);
    assert_eq!((scope.learned.why, scope.learned.mark), (RateReason::Forgotten, 0.0));
    scope.learned.observe(
        scope.now,
        scope.now,
        (scope.news, &mut Shares::default()),
        known,
        4.0,
        &LEARN,
    );
    near(scope.learned.rate, 4.0);
}

#[test]
fn a_clock_that_is_set_back_changes_no_rate() {
    let mut scope = Scope::new();
    scope.run(120);
    scope.trip(true);
    let before = scope.learned.rate;
    let back = 86_400 * SECOND;
    scope.learned.set_back(back);
    scope.now -= back;
    scope.news.opened -= back;
    scope.news.blocked -= back;
    scope.run(60);
    near(scope.learned.rate, before);
}

#[test]
fn an_idle_night_changes_nothing() {
    let mut scope = Scope::new();
    scope.run(120);
    scope.trip(true);
    let before = scope.learned.rate;
    scope.now += 10 * 3_600 * SECOND;
    scope.ask();
    near(scope.learned.rate, before);
    near(scope.learned.mark, before);
}

#[test]
fn plain_refusals_of_private_pages_hardly_slow_down_a_small_crawl() {
    let [sure, plain] = [true, false].map(|sure| {
        let mut scope = Scope::new();
        scope.demand = 1.0;
        scope.run(180);
        scope.trip(sure);
        scope.learned.rate
    });
    assert!(sure < 1.0, "{sure} after a wall");
    near(plain, 4.0 * 0.87_f64.sqrt());
}

#[test]
fn the_rate_climbs_at_once_from_a_low_mark_and_waits_below_the_blocked_rate() {
    let mut scope = Scope::new();
    scope.run(2);
    scope.trip(true);
    assert!(scope.learned.rate < 1.0, "a quarter is all that is sure");
    let asked = scope.now;
    while scope.learned.rate < 4.0 * NEAR * 0.99 {
        scope.run(1);
    }
    assert!(scope.now - asked < 3_600 * SECOND, "within the hour");
    assert!(scope.learned.rate <= 4.0 * NEAR, "{} is not below", scope.learned.rate);
    let there = scope.learned.rate;
    scope.run(360);
    near(scope.learned.rate, there);
    near(scope.learned.mark, there);
}

/// Simulates a site with scattered blocks. `share` gives the share of blocks at a rate.
fn crawl(scope: &mut Scope, seconds: i64, sure: bool, share: impl Fn(f64) -> f64) {
    let mut draw = fastrand::Rng::with_seed(7);
    for _ in 0..seconds {
        scope.now += SECOND;
        scope.ask();
        for _ in 0..20 {
            let sent = scope.learned.rate / 20.0;
            scope.learned.count(scope.now, sent);
            if draw.f64() >= sent {
                continue;
            }
            if draw.f64() < share(scope.learned.rate) {
                scope.news = News { blocked: scope.now, sure, ..scope.news };
                scope.shares.count(0, if sure { "d" } else { "b" });
            } else {
                scope.shares.count(1, "");
            }
        }
    }
}

#[test]
fn blocks_that_are_as_frequent_at_half_the_rate_lower_nothing() {
    for (sure, share) in [(false, 0.2), (false, 0.33), (true, 0.05), (true, 0.2)] {
        let mut scope = Scope::new();
        crawl(&mut scope, 1_800, sure, |_| share);
        near(scope.learned.rate, 4.0);
        near(scope.learned.mark.max(4.0), 4.0);
        assert!((scope.shares.base() - share).abs() < share / 2.0, "{:?}", scope.shares);
    }
}

#[test]
fn scattered_blocks_lower_the_rate_from_two_in_a_hundred_on() {
    for (blocks, expected) in [(5, 3.0), (7, 2.7)] {
        let mut scope = at_a_known_wall();
        scope.shares.count(300, &"b".repeat(blocks));
        block(&mut scope);
        near(scope.learned.rate, expected);
    }
}

#[test]
fn blocks_that_fall_with_the_rate_are_a_wall_and_no_base() {
    for sure in [false, true] {
        let mut scope = Scope::new();
        // The site lets 3 requests per second through and refuses the rest.
        crawl(&mut scope, 900, sure, |rate| (1.0 - 3.0 / rate).max(0.0));
        assert!(scope.learned.rate < 3.6, "{:?}", scope.learned);
        assert!(scope.shares.base() < 0.1, "{:?}", scope.shares);
    }
}

#[test]
fn a_rise_above_the_base_lowers_the_rate() {
    let mut scope = Scope::new();
    crawl(&mut scope, 900, true, |_| 0.05);
    near(scope.learned.rate, 4.0);
    crawl(&mut scope, 300, true, |rate| if rate > 3.0 { 0.4 } else { 0.05 });
    assert!(scope.learned.rate < 4.0 * 0.8, "{:?}", scope.learned);
}

/// A scope with a wall that a test has found.
fn at_a_known_wall() -> Scope {
    let mut scope = Scope::new();
    (scope.learned.rate, scope.learned.mark, scope.learned.bad) = (3.0, 3.0, 3.1);
    scope.learned.before_test.again = scope.now + LONGEST;
    scope
}

/// A scattered block, some time after the previous one.
fn block(scope: &mut Scope) {
    scope.now += 6 * SECOND;
    scope.news = News { blocked: scope.now, sure: false, ..scope.news };
    scope.ask();
}

#[test]
fn a_wall_that_still_blocks_at_half_its_throughput_is_tested_again() {
    let mut scope = at_a_known_wall();
    let until = scope.learned.before_test.again;
    for _ in 0..6 {
        block(&mut scope);
        assert_eq!(scope.learned.before_test.again, until);
    }
    block(&mut scope);
    assert_eq!(scope.learned.before_test.again, scope.now, "0.9^7 is less than half");
}

#[test]
fn a_try_that_fails_at_a_known_wall_puts_the_next_test_off() {
    let mut scope = at_a_known_wall();
    let until = scope.learned.before_test.again;
    block(&mut scope);
    while !scope.learned.is_trying() {
        scope.run(1);
    }
    block(&mut scope);
    assert_eq!(scope.learned.why, RateReason::TryFailed);
    assert!(scope.learned.before_test.again > until);
    assert!(scope.learned.before_test.rate <= 0.0, "an older rate is not restored any more");
}

#[test]
fn the_throughput_of_a_wall_that_blocks_most_at_half_the_rate_is_used() {
    let mut scope = Scope::new();
    // The wall begins when the burst is used up, and lets 1 request per second through.
    crawl(&mut scope, 3, false, |_| 0.3);
    crawl(&mut scope, 40, false, |rate| (1.0 - 0.8 / rate).max(0.0));
    assert!(scope.learned.before_test.again > 0, "{:?}", scope.learned);
    assert!(scope.learned.rate < 1.0, "{:?}", scope.learned);
    assert!(scope.shares.base() <= 0.0, "{:?}", scope.shares);
}

#[test]
fn a_wall_that_refuses_most_but_never_trips_is_found() {
    for refused in [0.46, 0.5, 0.7, 0.9] {
        let mut scope = Scope::new();
        let limit = scope.learned.rate.max(4.0) * (1.0 - refused);
        crawl(&mut scope, 900, false, |rate| (1.0 - limit / rate).max(0.0));
        assert!(scope.learned.rate < limit * 1.2, "{refused}: {:?}", scope.learned);
        assert!(scope.shares.base() < 0.1, "{refused}: {:?}", scope.shares);
    }
}

#[test]
fn a_wall_that_refuses_most_is_tested_at_less_than_it_lets_through() {
    let mut scope = Scope::new();
    scope.run(1);
    scope.shares.count(10, &"a".repeat(30));
    scope.run(1);
    assert_eq!(scope.learned.why, RateReason::Test);
    near(scope.learned.rate, 4.0 * 0.25 * 0.95);
    scope.shares.count(20, "");
    scope.run(1);
    near(scope.learned.rate, 4.0 * 0.25 * 0.95);
    near(scope.learned.bad, 4.0);
}

#[test]
fn the_throughput_of_a_wall_is_measured_during_the_test_only() {
    let mut scope = Scope::new();
    scope.learned.before_test.rate = 4.0;
    (scope.learned.rate, scope.learned.mark) = (2.0, 2.0);
    scope.shares.count(30, &"b".repeat(10));
    scope.run(1);
    assert_eq!((scope.learned.why, scope.learned.rate), (RateReason::Test, 1.0));
    scope.shares.count(40, "");
    scope.run(1);
    near(scope.learned.rate, 2.0 * 0.75 * 0.95);
    near(scope.learned.bad, 2.0);
}

#[test]
fn a_trip_that_chance_explains_is_taken_back() {
    let mut scope = Scope::new();
    scope.run(2);
    scope.trip(false);
    assert!(scope.learned.rate < 2.0, "{:?}", scope.learned);
    crawl(&mut scope, 300, false, |_| 0.25);
    near(scope.learned.rate, 4.0);
}
