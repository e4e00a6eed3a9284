//! Walls as sites and products document them (`python/tidegate/walls.tsv`), and sites without a wall: seeded, and pure
//! functions of the moments of the requests. Times are microseconds.

use std::{collections::VecDeque, time::SystemTime};

use http::HeaderMap;
use tidegate::{
    classify::site_limits::{SiteLimit, site_limit},
    runtime::clock::exact,
};

use crate::walls::{Answer, SECOND, exact_len};

/// The table.
const TABLE: &str = include_str!("../../python/tidegate/walls.tsv");
/// A site without a limit is crawled at this rate, in requests per second.
const CEILING: f64 = 10.0;
/// Longest ban if bans double.
const LONGEST_BAN: i64 = 7_200 * SECOND;
/// Bans start again at their first length after this time without one.
const FORGIVES_AFTER: i64 = 3_600 * SECOND;
/// The one of three members whose exit address is blocked.
const BLOCKED_MEMBER: usize = 2;

/// How requests are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    Sliding,
    Clock,
    Own,
    Bucket,
    Late,
    Two,
    Split,
    Pages,
    Member,
}

/// How a ban treats further requests and offences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ban {
    None,
    Fixed(i64),
    Renewed(i64),
    Doubling(i64),
}

/// A row of the table.
#[derive(Debug, Clone)]
pub struct Row {
    /// Its family: `F1` to `F15`, `none` for a site without a wall.
    pub family: &'static str,
    /// Its name in the reports.
    pub name: &'static str,
    shape: Shape,
    window: i64,
    extra: i64,
    ban: Ban,
    answer: &'static str,
    counts_refused: bool,
}

/// All rows, in the order of the table.
///
/// # Panics
/// If the table is not as its head says.
#[must_use]
pub fn rows() -> Vec<Row> {
    rows_of(TABLE)
}

/// The rows of another table with the same columns.
///
/// # Panics
/// If the table is not as the head of the first one says.
#[must_use]
pub fn rows_of(table: &'static str) -> Vec<Row> {
    table.lines().filter(|line| !line.starts_with('#')).map(row).collect()
}

fn row(line: &'static str) -> Row {
    let cells: Vec<&str> = line.split('\t').collect();
    let [family, name, shape, window, extra, ban, answer, counts] = cells[..] else {
        panic!("eight columns: {line}");
    };
    let whole = |text: &str| text.parse::<i64>().unwrap_or_else(|_| panic!("a number: {line}"));
    let shape = match shape {
        "sliding" => Shape::Sliding,
        "clock" => Shape::Clock,
        "own" => Shape::Own,
        "bucket" => Shape::Bucket,
        "late" => Shape::Late,
        "two" => Shape::Two,
        "split" => Shape::Split,
        "pages" => Shape::Pages,
        "member" => Shape::Member,
        _ => panic!("a shape: {line}"),
    };
    let ban = if let Some(length) = ban.strip_suffix('+') {
        Ban::Renewed(whole(length) * SECOND)
    } else if let Some(length) = ban.strip_suffix('x') {
        Ban::Doubling(whole(length) * SECOND)
    } else if ban == "-" {
        Ban::None
    } else {
        Ban::Fixed(whole(ban) * SECOND)
    };
    let (window, extra) = (whole(window) * SECOND, whole(extra));
    Row { family, name, shape, window, extra, ban, answer, counts_refused: counts == "yes" }
}

/// A row with the rate that a seed has drawn.
#[derive(Debug, Clone)]
pub struct Site {
    row: Row,
    rate: f64,
    hits: Vec<VecDeque<i64>>,
    window: (i64, f64),
    tokens: (i64, f64),
    looked: i64,
    over: bool,
    until: i64,
    next_ban: i64,
    last_ban: i64,
    draw: fastrand::Rng,
}

impl Site {
    /// The site for `row` and `seed`.
    #[must_use]
    pub fn new(row: &Row, seed: u64) -> Self {
        let mut draw = fastrand::Rng::with_seed(seed);
        let rate = if row.family == "none" { CEILING } else { 1.0 + 3.3 * draw.f64() };
        let nodes = if row.shape == Shape::Split { row.extra } else { 1 };
        let (Ban::Doubling(next_ban) | Ban::Fixed(next_ban) | Ban::Renewed(next_ban)) = row.ban
        else {
            return Self::with(row, rate, nodes, 0, draw);
        };
        Self::with(row, rate, nodes, next_ban, draw)
    }

    /// The site for `row`, which must have one counter and a ban, with this many requests per second.
    #[must_use]
    pub fn of_rate(row: &Row, rate: f64, seed: u64) -> Self {
        let site = Self::new(row, seed);
        Self::with(row, rate, 1, site.next_ban, site.draw)
    }

    fn with(row: &Row, rate: f64, nodes: i64, next_ban: i64, draw: fastrand::Rng) -> Self {
        let burst = rate * exact(row.window) / 1e6;
        Self {
            row: row.clone(),
            rate,
            hits: (0..nodes).map(|_| VecDeque::new()).collect(),
            window: (i64::MIN / 2, 0.0),
            tokens: (0, burst),
            looked: 0,
            over: false,
            until: 0,
            next_ban,
            last_ban: i64::MIN / 2,
            draw,
        }
    }

    /// Requests per second that it tolerates.
    #[must_use]
    pub const fn bears(&self) -> f64 {
        self.rate
    }

    /// Whether it has a limit.
    #[must_use]
    pub fn is_wall(&self) -> bool {
        self.row.family != "none"
    }

    /// Good pages per second of a crawler that knows the limit.
    #[must_use]
    pub fn oracle(&self) -> f64 {
        match self.row.shape {
            Shape::Pages => self.rate * (1.0 - exact(self.row.extra) / 100.0),
            _ => self.rate,
        }
    }

    /// The limit that a response at `now` announces, if the site announces one.
    #[must_use]
    pub fn says(&self, now: i64) -> Option<SiteLimit> {
        let (start, count) = self.window;
        if self.row.answer != "says" {
            return None;
        }
        let most = self.rate * exact(self.row.window) / 1e6;
        let (left, reset) = ((most - count).max(0.0).floor(), start + self.row.window - now);
        let mut fields = HeaderMap::new();
        fields.insert("x-ratelimit-remaining", format!("{left}").parse().ok()?);
        let reset = (reset + SECOND - 1) / SECOND;
        fields.insert("x-ratelimit-reset", reset.to_string().parse().ok()?);
        site_limit(&fields, SystemTime::UNIX_EPOCH)
    }

    /// Responds to a request of `member` at `now`, which must not be earlier than the last one.
    pub fn answer(&mut self, now: i64, member: usize) -> Answer {
        if now < self.until {
            if let Ban::Renewed(length) = self.row.ban {
                self.until = now + length;
            }
            return self.block(self.until - now);
        }
        match self.exceeds(now, member) {
            None => Answer::Page,
            Some(wait) => {
                let length = match self.row.ban {
                    Ban::None => 0,
                    Ban::Fixed(length) | Ban::Renewed(length) => length,
                    Ban::Doubling(first) => {
                        if now - self.last_ban > FORGIVES_AFTER {
                            self.next_ban = first;
                        }
                        self.last_ban = now;
                        let length = self.next_ban;
                        self.next_ban = (length * 2).min(LONGEST_BAN);
                        length
                    }
                };
                if length > 0 {
                    self.until = now + length;
                    self.hits.iter_mut().for_each(VecDeque::clear);
                }
                self.block(length.max(wait))
            }
        }
    }

    /// How long to wait for capacity, if there is none. Counts requests that are let through.
    fn exceeds(&mut self, now: i64, member: usize) -> Option<i64> {
        let window = self.row.window;
        let most = self.rate * exact(window) / 1e6;
        match self.row.shape {
            Shape::Pages => self.draw.i64(0..100).lt(&self.row.extra).then_some(0),
            Shape::Member => (member == BLOCKED_MEMBER).then_some(0),
            Shape::Bucket => {
                let (at, tokens) = self.tokens;
                let tokens = (tokens + exact(now - at) / 1e6 * self.rate).min(most);
                let full = tokens < 1.0;
                self.tokens = (now, if full { tokens } else { tokens - 1.0 });
                full.then_some(SECOND)
            }
            Shape::Clock | Shape::Own => {
                let (start, count) = self.window;
                if now >= start + window {
                    let start = if self.row.shape == Shape::Own { now } else { now - now % window };
                    self.window = (start, 1.0);
                    return None;
                }
                if count + 1.0 > most {
                    return Some(start + window - now);
                }
                self.window.1 += 1.0;
                None
            }
            Shape::Sliding | Shape::Split => {
                let node = self.draw.usize(0..self.hits.len());
                let most = most / self.hits.len() as f64;
                self.slides(node, now, window, most)
            }
            Shape::Two => {
                // The short window tolerates half as much again.
                let short = self.row.extra * SECOND;
                let few = self.rate * 1.5 * exact(short) / 1e6;
                let recent = self.hits[0].iter().rev().take_while(|hit| **hit > now - short);
                if exact_len(recent.count()) + 1.0 > few {
                    if self.row.counts_refused {
                        self.hits[0].push_back(now);
                    }
                    return Some(short);
                }
                self.slides(0, now, window, most)
            }
            Shape::Late => {
                self.hits[0].push_back(now);
                if now - self.looked >= self.row.extra * SECOND {
                    self.looked = now;
                    while self.hits[0].front().is_some_and(|hit| *hit <= now - window) {
                        self.hits[0].pop_front();
                    }
                    self.over = exact_len(self.hits[0].len()) > most;
                }
                self.over.then_some(self.row.extra * SECOND)
            }
        }
    }

    fn slides(&mut self, node: usize, now: i64, window: i64, most: f64) -> Option<i64> {
        let hits = &mut self.hits[node];
        while hits.front().is_some_and(|hit| *hit <= now - window) {
            hits.pop_front();
        }
        let full = exact_len(hits.len()) + 1.0 > most;
        let wait = hits.front().map_or(window, |first| first + window - now);
        if !full || self.row.counts_refused {
            hits.push_back(now);
        }
        full.then_some(wait)
    }

    fn block(&self, wait: i64) -> Answer {
        let second = |wait: i64| (wait + SECOND - 1) / SECOND * SECOND;
        match self.row.answer {
            "429" | "captcha" | "says" => Answer::Block { retry_after: 0, sure: true },
            "wait" => Answer::Block { retry_after: second(wait.max(1)), sure: true },
            "403" => Answer::Block { retry_after: 0, sure: false },
            "503" => Answer::Refusal,
            _ => Answer::Silence,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The share of good pages in an hour at `times` the tolerated rate.
    fn good(row: &Row, times: f64) -> f64 {
        let mut site = Site::new(row, 7);
        let step = 1e6 / (site.bears() * times);
        let (mut pages, mut all, mut now) = (0, 0, 0.0);
        while now < 3_600e6 {
            now += step;
            all += 1;
            #[allow(clippy::cast_possible_truncation, reason = "an hour")]
            let answer = site.answer(now as i64, all % 3);
            pages += usize::from(answer == Answer::Page);
        }
        exact_len(pages) / exact_len(all)
    }

    #[test]
    fn every_wall_passes_half_of_its_limit_and_refuses_twice_its_limit() {
        for row in rows().iter().filter(|row| row.family != "none" && row.shape != Shape::Split) {
            assert!(good(row, 0.5) > 0.999, "{}", row.name);
            assert!(good(row, 2.0) < 0.6, "{}: {}", row.name, good(row, 2.0));
        }
    }

    #[test]
    fn a_site_without_a_wall_refuses_the_same_share_at_any_rate() {
        for row in rows().iter().filter(|row| row.family == "none") {
            assert!((good(row, 0.5) - good(row, 2.0)).abs() < 0.02, "{}", row.name);
        }
    }
}
