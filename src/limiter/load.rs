//! The load of a site (`overload: ease`): each member's measurements, and the store's result from all of them.
//!
//! A queue at the site shows in the time to the first byte. Each member keeps the scope's own time, a running minimum.
//! It counts pages that take far longer and responses that fail, and reports both to the store at most once a second.
//! The store adds up all members' counts per window. So it knows whether the site is overloaded, and how many responses
//! it sends. While requests queue up there, that is the site's capacity.
//!
//! `lua/lib/load.lua` has the same operations as [`Load`]. Times are microseconds, of the process's clock in [`Meter`] and
//! of the store's clock in [`Load`].

use crate::runtime::clock::exact;

const SECOND: i64 = 1_000_000;
pub(crate) const MINUTE: i64 = 60 * SECOND;

/// A page is late if it takes more than this many times the scope's own time ...
pub(crate) const TIMES: i64 = 2;
/// ... plus this: far more than the pages of one site differ.
pub(crate) const GRACE: i64 = SECOND;
/// The scope's own time is the minimum over this long, because sites also become slower for other reasons.
pub(crate) const REMEMBERED: i64 = 10 * MINUTE;
/// The second quickest of this many pages counts, because single pages may come from a cache.
const PAGES: usize = 8;

/// A window of the store has at least this length and this many responses.
pub(crate) const WINDOW: i64 = 2 * SECOND;
pub(crate) const ENOUGH: u32 = 5;
/// Failures count if there are at least this many, and at least this part of the responses.
pub(crate) const FAILURES: u32 = 2;
pub(crate) const FAILING: f64 = 0.1;
/// Late pages mean a queue if they are at least this part of the good responses.
pub(crate) const LATE: f64 = 0.5;

/// What a member has counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// The time that it covers, at most a minute.
    pub over: i64,
    /// Requests sent.
    pub sent: u32,
    /// Responses, including failed ones.
    pub answered: u32,
    /// Responses with a 5xx, and timeouts.
    pub failed: u32,
    /// Pages that came late.
    pub late: u32,
    /// The scope's own time as this member knows it; 0 = not yet.
    pub own: i64,
    /// The quickest of these pages; 0 = there was none.
    pub quickest: i64,
}

/// A response, as the load measurement sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// A page, and the time to its first byte.
    Page(i64),
    /// A 5xx or a timeout.
    Failed,
    /// Anything else: a redirect, an image, a block.
    Other,
}

/// What one member measures of one scope.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Meter {
    since: i64,
    tally: Tally,
    /// Until when it reports to the store.
    reports_until: i64,
    /// Times of the latest pages.
    times: Vec<i64>,
    /// The scope's own time, minute by minute: minute, time.
    own: Vec<(i64, i64)>,
}

impl Meter {
    /// A request is sent.
    pub fn sent(&mut self, now: i64) {
        if self.tally == Tally::default() {
            self.since = now;
        }
        self.tally.sent = self.tally.sent.saturating_add(1);
    }

    /// Counts a response. With `asked`, it is reported in any case. Returns the report, if one is due, and whether the
    /// response was late.
    pub fn answered(&mut self, now: i64, outcome: Outcome, asked: bool) -> (Option<Tally>, bool) {
        if self.tally == Tally::default() {
            self.since = now;
        }
        let mut late = false;
        if let Outcome::Page(took) = outcome {
            let own = self.own_time(now, took);
            late = took > longest(own);
            let quickest = &mut self.tally.quickest;
            *quickest = if *quickest > 0 { took.min(*quickest) } else { took.max(1) };
            self.tally.own = own;
        }
        let tally = &mut self.tally;
        tally.answered = tally.answered.saturating_add(1);
        tally.late = tally.late.saturating_add(u32::from(late));
        let failed = outcome == Outcome::Failed;
        tally.failed = tally.failed.saturating_add(u32::from(failed));
        if late || failed {
            self.reports_until = now + MINUTE;
        }
        if now - self.since < SECOND {
            return (None, late);
        }
        let report = Tally { over: (now - self.since).min(MINUTE), ..self.tally };
        (self.since, self.tally) = (now, Tally::default());
        ((asked || now < self.reports_until).then_some(report), late)
    }

    /// The scope's own time, including a page that took `took`.
    fn own_time(&mut self, now: i64, took: i64) -> i64 {
        self.own.retain(|(minute, _)| minute * MINUTE > now - REMEMBERED);
        self.times.push(took);
        let is_new = self.own.is_empty();
        if self.times.len() == PAGES {
            self.times.sort_unstable();
            // A queue may have begun with the first pages, so the quickest counts.
            let time = if is_new { self.times[0] } else { self.times[1] };
            self.times.clear();
            let minute = now / MINUTE;
            match self.own.last_mut().filter(|(last, _)| *last == minute) {
                Some((_, least)) => *least = time.min(*least),
                None => self.own.push((minute, time)),
            }
        }
        let known = if is_new { self.times.iter() } else { [].iter() };
        self.own.iter().map(|(_, time)| time).chain(known).min().copied().unwrap_or(took)
    }
}

/// The longest time of a page that is not late.
const fn longest(own: i64) -> i64 {
    own.saturating_mul(TIMES).saturating_add(GRACE)
}

/// The load of the site in a window. Rates are per second.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Strain {
    /// When the window ended; 0 = there was none.
    pub at: i64,
    /// Whether pages were late or responses failed.
    pub strained: bool,
    /// Requests sent.
    pub sent: f64,
    /// Answers.
    pub answered: f64,
    /// Responses that did not fail.
    pub good: f64,
}

/// What the store keeps of one scope: the counts of the open window, and the result of the latest closed one.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Load {
    from: i64,
    last: i64,
    counts: Tally,
    /// When a member last reported the lowest own time.
    owned: i64,
    /// The latest window.
    pub strain: Strain,
}

impl Load {
    /// Adds a member's counts.
    pub fn count(&mut self, now: i64, tally: Tally) {
        if now - self.last > MINUTE {
            self.from = now - tally.over.clamp(0, MINUTE);
            self.counts = Tally { own: self.counts.own, ..Tally::default() };
        }
        self.last = now;
        if tally.own > 0 && (tally.own <= self.counts.own || now - self.owned > REMEMBERED) {
            (self.counts.own, self.owned) = (tally.own, now);
        }
        // A member that has only seen a queue mistakes its response time for the scope's own.
        let all = self.counts.own > 0 && tally.quickest > longest(self.counts.own);
        let late = if all { tally.answered.saturating_sub(tally.failed) } else { tally.late };
        let counts = &mut self.counts;
        counts.sent = counts.sent.saturating_add(tally.sent);
        counts.answered = counts.answered.saturating_add(tally.answered);
        counts.failed = counts.failed.saturating_add(tally.failed);
        counts.late = counts.late.saturating_add(late);
        let Tally { sent, answered, failed, late, .. } = self.counts;
        if now - self.from < WINDOW || answered < ENOUGH {
            return;
        }
        let seconds = exact(now - self.from) / exact(SECOND);
        let good = answered.saturating_sub(failed);
        let fails = failed >= FAILURES && f64::from(failed) >= f64::from(answered) * FAILING;
        let lags = late > 0 && f64::from(late) >= f64::from(good) * LATE;
        self.strain = Strain {
            at: now,
            strained: fails || lags,
            sent: f64::from(sent) / seconds,
            answered: f64::from(answered) / seconds,
            good: f64::from(good) / seconds,
        };
        self.from = now;
        self.counts = Tally { own: self.counts.own, ..Tally::default() };
    }

    /// Moves all times back with the clock.
    pub fn set_back(&mut self, back: i64) {
        for moment in [&mut self.from, &mut self.last, &mut self.owned, &mut self.strain.at] {
            *moment = if *moment > 0 { *moment - back } else { 0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends `count` pages, a tenth of a second apart. Each takes `took` tenths. Returns the reports.
    fn pages(meter: &mut Meter, from: i64, count: i64, took: i64) -> Vec<Tally> {
        let tenth = SECOND / 10;
        (0..count)
            .filter_map(|n| {
                meter.sent(from + n * tenth);
                meter.answered(from + n * tenth, Outcome::Page(took * tenth), false).0
            })
            .collect()
    }

    #[test]
    fn a_site_that_answers_in_its_own_time_costs_no_report() {
        let mut meter = Meter::default();
        assert_eq!(pages(&mut meter, 0, 1_000, 3), []);
        assert_eq!(
            pages(&mut meter, 100 * SECOND, 1_000, 12),
            [],
            "twice as slow and half a second"
        );
    }

    #[test]
    fn late_pages_are_reported_once_a_second_and_for_a_minute() {
        let mut meter = Meter::default();
        pages(&mut meter, 0, 100, 3);
        let reports = pages(&mut meter, 10 * SECOND, 100, 20);
        assert!((9..=10).contains(&reports.len()), "{} in ten seconds", reports.len());
        assert!(reports.iter().all(|tally| (10..=11).contains(&tally.late)), "{reports:?}");
        assert!(reports.iter().all(|tally| tally.sent == tally.answered), "{reports:?}");
        let after = pages(&mut meter, 20 * SECOND, 1_000, 3);
        assert!((50..=60).contains(&after.len()), "{} in a minute", after.len());
        assert!(after.iter().skip(1).all(|tally| tally.late == 0));
    }

    #[test]
    fn the_own_time_is_a_minimum_and_follows_only_after_ten_minutes() {
        let mut meter = Meter::default();
        pages(&mut meter, 0, 100, 3);
        let late = |reports: Vec<Tally>| reports.iter().map(|tally| tally.late).sum::<u32>();
        assert!(late(pages(&mut meter, 10 * SECOND, 5_000, 20)) > 4_900, "slow for eight minutes");
        let later = pages(&mut meter, 700 * SECOND, 1_000, 20);
        assert_eq!(late(later), 0, "it is the site's own by now");
        assert!(meter.own.len() <= 11, "{} minutes", meter.own.len());
    }

    #[test]
    fn a_queue_that_begins_with_the_first_page_is_noticed() {
        let mut meter = Meter::default();
        let reports: Vec<_> = (1..40)
            .filter_map(|n| meter.answered(n * SECOND / 2, Outcome::Page(n * SECOND / 4), false).0)
            .collect();
        assert!(reports.iter().map(|tally| tally.late).sum::<u32>() > 30, "{reports:?}");
    }

    #[test]
    fn an_occasional_fast_page_does_not_make_others_late() {
        let mut meter = Meter::default();
        for n in 0..1_000 {
            let took = if n % 50 == 49 { SECOND / 100 } else { SECOND };
            let answered = meter.answered(n * SECOND, Outcome::Page(took), false);
            assert_eq!(answered, (None, false), "page {n}");
        }
    }

    const STRAINED: Tally =
        Tally { over: SECOND, sent: 6, answered: 4, failed: 0, late: 3, own: 0, quickest: 0 };

    #[test]
    fn a_member_that_has_only_seen_a_queue_uses_the_own_time_of_others() {
        let (mut load, start) = (Load::default(), 1_000 * SECOND);
        let knows =
            Tally { over: 2 * SECOND, late: 4, own: SECOND / 4, quickest: 9 * SECOND, ..STRAINED };
        let new =
            Tally { late: 0, own: 8 * SECOND, quickest: 9 * SECOND, answered: 40, ..STRAINED };
        load.count(start, new);
        load.count(start + SECOND, knows);
        assert!(!load.strain.strained, "the one came first, the other is few");
        load.count(start + 3 * SECOND, new);
        assert!(load.strain.strained);
        let long = start + 700 * SECOND;
        load.count(long, Tally { over: 2 * SECOND, ..new });
        assert!(!load.strain.strained, "it is the site's own time by now");
    }

    #[test]
    fn a_window_over_all_members_measures_the_capacity_of_the_site() {
        let mut load = Load::default();
        let start = 1_000 * SECOND;
        load.count(start, STRAINED);
        load.count(start + SECOND / 2, STRAINED);
        assert_eq!(load.strain.at, 0, "it is open");
        load.count(start + SECOND, Tally { failed: 2, ..STRAINED });
        let Strain { at, strained, sent, answered, good } = load.strain;
        assert!(strained);
        assert_eq!((at, sent, answered, good), (start + SECOND, 9.0, 6.0, 5.0));
        // After a minute without reports, another window begins.
        load.count(start + 90 * SECOND, STRAINED);
        load.set_back(80 * SECOND);
        assert_eq!(load.strain.at, start - 79 * SECOND);
        load.count(start + 11 * SECOND, STRAINED);
        assert!((load.strain.sent - 6.0).abs() < 1e-9, "{load:?}");
    }

    #[test]
    fn an_isolated_failure_and_a_few_slow_pages_are_not_strain() {
        for (failed, late, strained) in
            [(1, 0, false), (2, 0, true), (0, 9, false), (0, 10, true), (0, 0, false)]
        {
            let mut load = Load::default();
            let (sent, answered) = (20, 20);
            let tally = Tally { over: 5 * SECOND, sent, answered, failed, late, ..STRAINED };
            load.count(1_000 * SECOND, tally);
            assert_eq!(load.strain.strained, strained, "{failed} failed, {late} late");
        }
    }

    #[test]
    fn absurd_counts_do_no_harm() {
        let mut load = Load::default();
        let most = u32::MAX;
        let (over, own, quickest) = (i64::MAX, i64::MAX, i64::MAX);
        let (sent, answered, failed, late) = (most, most, most, most);
        let tally = Tally { over, sent, answered, failed, late, own, quickest };
        load.count(1_000 * SECOND, tally);
        load.count(1_001 * SECOND, Tally { over: -1, ..tally });
        let Strain { sent, answered, good, .. } = load.strain;
        assert!([sent, answered, good].iter().all(|rate| rate.is_finite() && *rate >= 0.0));
    }
}
