//! A plain, slow and obvious model of a bucket's promises. It keeps only the history and computes
//! every level from the beginning.

use std::collections::BTreeMap;

use tidegate::{limiter::policy::Limits, runtime::clock};

/// The rounding error of a double after a long history, in tokens.
const ROUNDING: f64 = 1e-6;

/// Something that changed the bucket.
#[derive(Debug, Clone, Copy)]
enum Event {
    /// A request was granted.
    Grant(f64),
    /// The bucket is empty.
    Empty,
    /// The scope opened again: empty, with a rate that climbs from zero over this time.
    Opened(f64),
    /// Rate and burst are these from now on.
    Limits { rate: f64, burst: f64 },
}

/// The model of one bucket under one rule.
#[derive(Debug)]
pub(crate) struct Plain {
    pub(crate) limits: Limits,
    history: Vec<(i64, Event)>,
    /// Start of each window and grants in it, by its length; other limits end none that runs.
    windows: BTreeMap<i64, (i64, u64)>,
    /// Tickets that came back and are free for the next.
    free: Vec<i64>,
    voided_for: Option<Limits>,
}

impl Plain {
    /// A full bucket.
    pub(crate) fn new(now: i64, limits: Limits) -> Self {
        let windows = BTreeMap::new();
        let mut new = Self { limits, history: vec![], windows, free: vec![], voided_for: None };
        new.note_limits(now);
        new
    }

    /// The moment of the last thing that happened.
    pub(crate) fn latest(&self) -> i64 {
        self.history.last().map_or(i64::MIN, |(at, _)| *at)
    }

    /// The rule file has other limits.
    pub(crate) fn reload(&mut self, now: i64, limits: Limits) {
        self.limits = limits;
        self.note_limits(now.max(self.latest()));
    }

    /// Tickets handed out ahead are void, once for these limits.
    pub(crate) fn void(&mut self, now: i64) {
        if self.voided_for.as_ref() != Some(&self.limits) {
            self.voided_for = Some(self.limits.clone());
            // Their cost under the old limits is unknown.
            self.free.clear();
            if self.latest() <= now {
                return;
            }
            self.history.retain(|(at, _)| *at <= now);
            self.note_limits(now);
            self.empty(now);
        }
    }

    /// A member returns from an outage.
    pub(crate) fn drain(&mut self, now: i64) {
        self.empty(now.max(self.latest()));
    }

    /// A cooldown is over since then.
    pub(crate) fn opened(&mut self, at: i64, ramp: f64) {
        // Tickets handed out beyond it are void, because the epoch has changed.
        self.history.retain(|(moment, _)| *moment <= at);
        self.note_limits(at);
        self.history.push((at, Event::Opened(ramp)));
        self.refund_all();
    }

    /// Tickets of cancelled requests.
    pub(crate) fn hand_back(&mut self, tickets: &[i64], now: i64) {
        self.free.extend(tickets);
        self.free.sort_unstable();
        self.expire(now);
    }

    /// Unused tickets in the past are used up, but do not count against their quotas.
    pub(crate) fn expire(&mut self, now: i64) {
        let late = self.free.partition_point(|ticket| *ticket < now);
        let in_future = self.free.split_off(late);
        self.refund_all();
        self.free = in_future;
    }

    /// Returned tickets that nobody can use do not count against their quotas.
    fn refund_all(&mut self) {
        for ticket in std::mem::take(&mut self.free) {
            for (length, (start, taken)) in &mut self.windows {
                if (*start..*start + length).contains(&ticket) {
                    *taken = taken.saturating_sub(u64::from(self.limits.cost));
                }
            }
        }
    }

    /// Why `ticket` is not the next one at `now`, if it is not: the first moment at which every limit holds.
    pub(crate) fn is_wrong(&self, ticket: i64, now: i64) -> Option<String> {
        if let Some(free) = self.free.iter().find(|free| **free >= now) {
            return (*free != ticket).then(|| format!("{free} came back and is free"));
        }
        let from = now.max(self.latest());
        if ticket < from {
            return Some(format!("{ticket} is before {from}"));
        }
        if !self.fits(ticket, -ROUNDING) {
            return Some(format!("a limit does not hold at {ticket}"));
        }
        // One microsecond is the resolution of the store, and another one the error of a double.
        let earlier = ticket - 2;
        (earlier >= from && self.fits(earlier, ROUNDING))
            .then(|| format!("it could have been {earlier}"))
    }

    /// The request is granted.
    pub(crate) fn take(&mut self, ticket: i64) {
        if let Some(at) = self.free.iter().position(|free| *free == ticket) {
            self.free.remove(at);
            return;
        }
        self.history.push((ticket, Event::Grant(f64::from(self.limits.cost))));
        self.windows.retain(|length, (start, _)| ticket < *start + length);
        for quota in &self.limits.quotas {
            self.windows.entry(clock::micros(quota.window)).or_insert((ticket, 0));
        }
        for (_, taken) in self.windows.values_mut() {
            *taken += u64::from(self.limits.cost);
        }
    }

    /// Whether every limit holds for one more request at `moment`; `slack` tokens more or fewer are wanted.
    fn fits(&self, moment: i64, slack: f64) -> bool {
        let cost = f64::from(self.limits.cost);
        let tokens = self.limits.rate.is_none() || self.level(moment) >= cost + slack;
        let quotas = self.limits.quotas.iter().all(|quota| {
            let length = clock::micros(quota.window);
            self.windows.get(&length).is_none_or(|(start, taken)| {
                moment >= start + length || taken + u64::from(self.limits.cost) <= quota.tokens
            })
        });
        tokens && quotas
    }

    /// Tokens at `moment`, from the whole history.
    fn level(&self, moment: i64) -> f64 {
        let (mut level, mut rate, mut burst) = (f64::INFINITY, 0.0, f64::INFINITY);
        let (mut climb, mut since) = (None, i64::MIN);
        let all = self.history.iter().filter(|(at, _)| *at <= moment).copied();
        for (at, event) in all.map(|(at, event)| (at, Some(event))).chain([(moment, None)]) {
            if since > i64::MIN {
                level = f64::min(level + flowed(rate, climb, since, at), burst);
            }
            since = at;
            match event {
                Some(Event::Grant(cost)) => level = f64::max(level - cost, 0.0),
                Some(Event::Empty) => level = 0.0,
                Some(Event::Opened(ramp)) => (level, climb) = (0.0, Some((at, ramp))),
                Some(Event::Limits { rate: new, burst: most }) => {
                    (rate, burst, level) = (new, most, f64::min(level, most));
                }
                None => {}
            }
        }
        level
    }

    fn empty(&mut self, at: i64) {
        self.history.push((at, Event::Empty));
        self.refund_all();
    }

    fn note_limits(&mut self, at: i64) {
        if let Some(rate) = self.limits.rate {
            let burst = f64::from(self.limits.burst);
            self.history.push((at, Event::Limits { rate: rate / 1e6, burst }));
        }
    }
}

/// Tokens that flow in between two moments, at a rate that climbs linearly from nothing after a cooldown.
fn flowed(rate: f64, climb: Option<(i64, f64)>, start: i64, end: i64) -> f64 {
    let Some((from, ramp)) = climb.filter(|(_, ramp)| *ramp > 0.0) else {
        return rate * clock::exact(end - start);
    };
    let whole = |moment: i64| {
        let climbed = clock::exact(moment - from).clamp(0.0, ramp);
        let full = f64::max(clock::exact(moment - from) - ramp, 0.0);
        rate * (climbed * climbed / (2.0 * ramp) + full)
    };
    whole(end) - whole(start)
}

/// The same bucket, formulated by timestamps (the Generic Cell Rate Algorithm, ITU-T I.371): a
/// request conforms if it is not earlier than its theoretical arrival time minus a tolerance. In
/// integers: the unit is one `rate`-th of a microsecond, so a token is a million of them.
#[derive(Debug)]
pub(crate) struct Gcra {
    rate: i128,
    cost: i128,
    tolerance: i128,
    theoretical: i128,
}

/// One token.
const TOKEN: i128 = 1_000_000;

impl Gcra {
    pub(crate) fn new(now: i64, rate: u32, burst: u32, cost: u32) -> Self {
        let (rate, cost) = (i128::from(rate), i128::from(cost) * TOKEN);
        let tolerance = i128::from(burst) * TOKEN - cost;
        Self { rate, cost, tolerance, theoretical: i128::from(now) * rate }
    }

    /// The first microsecond from `from` on at which a request conforms.
    pub(crate) fn next(&self, from: i64) -> i64 {
        let earliest = self.theoretical - self.tolerance;
        let ceil = earliest.div_euclid(self.rate) + i128::from(earliest.rem_euclid(self.rate) > 0);
        from.max(i64::try_from(ceil).expect("within the years of a simulation"))
    }

    pub(crate) fn take(&mut self, moment: i64) {
        self.theoretical = self.theoretical.max(i128::from(moment) * self.rate) + self.cost;
    }

    /// Nothing is saved up at `moment`.
    pub(crate) fn drain(&mut self, moment: i64) {
        self.theoretical = i128::from(moment) * self.rate + self.tolerance + self.cost;
    }
}
