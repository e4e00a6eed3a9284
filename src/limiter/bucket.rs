//! The token bucket with its quotas: pure arithmetic on the store's clock.
//!
//! A bucket hands out *tickets*: the moment at which a request may be sent. A ticket moves the
//! bucket's own clock (`at`) forward to that moment, together with every limit. So order, all
//! limits together, and the bound
//!
//! > grants in any window of length t <= burst + rate * t
//!
//! hold by construction, for any number of members and any look-ahead. `lua/lib/bucket.lua` does
//! the same arithmetic, operation by operation, so that both stores give the same results to the
//! last bit.

use std::borrow::Cow;

use crate::{
    limiter::{
        learn::{KnownRate, Learned, News, RateOverride},
        policy::Limits,
        shares::Shares,
    },
    runtime::clock::{self, exact},
};

/// How far ahead of now tickets are handed out while several requests wait, in microseconds. Longer
/// than a slow round trip to the store, so that members with slow connections keep their turn.
pub const HORIZON: i64 = 250_000;

/// The most tickets that a member may hold when it has only begun to wait. All members of a fleet
/// may begin at once, before the store knows how many there are.
pub const FIRST: u32 = 1;

/// Most tickets per call, which bounds the time that a script keeps Redis busy.
pub const BATCH: u32 = 1_000;

/// Most returned tickets that a bucket keeps for the next requests.
pub const RETURNED: usize = 64;

/// The start of a quota window that has not begun: before any real time, but far from overflow.
pub const LONG_AGO: i64 = i64::MIN / 2;

/// How long a learned rate is kept: longer than an idle week.
pub(crate) const LEARNED_FOR: i64 = 7 * 24 * 3_600 * 1_000_000;

/// A fixed window in progress, identified by its length. A change of other quotas does not restart
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// How long it lasts, in microseconds.
    pub length: i64,
    /// The time of its first request.
    pub start: i64,
    /// Tokens taken in it.
    pub taken: u64,
}

/// One bucket. All times are microseconds of the store's clock.
#[derive(Debug, Clone, PartialEq)]
pub struct Bucket {
    /// The time up to which tokens are accounted for: that of the latest ticket.
    pub at: i64,
    /// Tokens at `at`.
    pub tokens: f64,
    /// One window per length, ascending: those of the rule's quotas, and others that have not
    /// ended.
    pub windows: Vec<Window>,
    /// Start of the ramp back to the full rate after a cooldown; 0 = none.
    pub ramp_from: i64,
    /// Returned tickets, ascending. The next requests get them.
    pub returned: Vec<i64>,
    /// What the fleet has learned about the rate that the site tolerates.
    pub learned: Learned,
    /// The latest reading of the clock, to detect when it is set back.
    pub seen: i64,
    /// The rate and burst since `at`; `None` if unknown, or if there was no rate.
    pub filling: Option<(f64, u32)>,
    /// The limits for which tickets were voided after a reload.
    pub voided_for: Option<Limits>,
    /// Whether a window begins at the end of the previous one instead of with its first request.
    /// Members without a store then still share the same windows.
    pub steady: bool,
}

/// How fast a bucket currently fills.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pace {
    /// The rate in force, in tokens per second; `None` limits nothing.
    pub rate: Option<f64>,
    /// Length of the ramp after a cooldown.
    pub ramp: i64,
}

impl Bucket {
    /// A full bucket.
    #[must_use]
    pub fn full(now: i64, limits: &Limits) -> Self {
        Self {
            at: now,
            tokens: f64::from(limits.burst),
            windows: Vec::new(),
            ramp_from: 0,
            returned: Vec::new(),
            learned: Learned::default(),
            seen: now,
            filling: None,
            voided_for: None,
            steady: false,
        }
    }

    /// Records the time. If the clock was set back, every time of the bucket moves back with it, so
    /// that the bucket neither blocks nor grants anything twice.
    pub fn observe(&mut self, now: i64, limits: &Limits) {
        let back = self.seen - now;
        if back > 0 {
            self.at -= back;
            self.ramp_from = if self.ramp_from > 0 { self.ramp_from - back } else { 0 };
            self.windows.iter_mut().for_each(|window| window.start -= back);
            self.returned.iter_mut().for_each(|moment| *moment -= back);
            self.learned.set_back(back);
        }
        self.seen = now;
        let lengths: Vec<i64> = limits.quotas.iter().map(|q| clock::micros(q.window)).collect();
        self.windows.retain(|window| {
            lengths.contains(&window.length) || window.start + window.length > now
        });
        for length in lengths {
            if self.window(length).is_none() {
                self.windows.push(Window { length, start: LONG_AGO, taken: 0 });
            }
        }
        self.windows.sort_unstable_by_key(|window| window.length);
        self.drop_returned(now, limits);
    }

    /// The pace from `now` on. If the rate is learned, a cooldown or a calm period since the last
    /// change may set another rate, and a test of `shares` may begin or end.
    pub fn pace(
        &mut self,
        now: i64,
        limits: &Limits,
        ramp: i64,
        news: News,
        known: KnownRate,
        shares: &mut Shares,
    ) -> Pace {
        let (Some(ceiling), Some(learn)) = (limits.rate, &limits.learn) else {
            shares.tested = false;
            return Pace { rate: limits.rate, ramp };
        };
        self.learned.observe(now, self.at, (news, shares), known, ceiling, learn);
        Pace { rate: Some(self.learned.rate), ramp }
    }

    /// Applies a manual change to the learned rate. Does nothing if the rate is not learned.
    /// `known`: as in [`Learned::observe`].
    pub fn override_rate(
        &mut self,
        now: i64,
        limits: &Limits,
        ramp: i64,
        news: News,
        known: KnownRate,
        change: RateOverride,
    ) {
        let (Some(ceiling), Some(learn)) = (limits.rate, &limits.learn) else { return };
        self.learned.override_rate(now, news, known, change, ceiling, learn);
        self.fill_by(now, limits, Pace { rate: Some(self.learned.rate), ramp });
    }

    /// Continues to fill at `pace`. If the rate or burst has changed (learned, or a reload), the
    /// time until now counts at the old ones. Tokens are carried over, so a change does not refill
    /// the bucket.
    pub fn fill_by(&mut self, now: i64, limits: &Limits, pace: Pace) {
        let new = pace.rate.map(|rate| (rate, limits.burst));
        if let (Some((rate, burst)), Some(_)) = (self.filling, new)
            && self.filling != new
            && self.at < now
        {
            let climb = Climb { rate: rate / 1e6, from: self.ramp_from, ramp: pace.ramp };
            self.tokens = self.tokens_at(now, f64::from(burst), climb);
            self.at = now;
        }
        if let Some((_, burst)) = new {
            self.tokens = self.tokens.min(f64::from(burst));
        }
        self.filling = new;
    }

    /// Empties the bucket once after each cooldown. The scope opened at `opened` and ramps up from
    /// there.
    pub fn restart(&mut self, opened: i64, limits: &Limits) {
        if opened > self.ramp_from {
            self.drain(opened, limits);
            self.ramp_from = opened;
        }
    }

    /// After a change of the limits, voids all tickets handed out ahead, once. Each member of a
    /// fleet calls this at its own reload; tickets under the new limits stay valid. What a returned
    /// ticket cost under the old limits is unknown. A bucket without tickets ahead keeps its tokens.
    pub fn void(&mut self, now: i64, limits: &Limits) {
        // How the rate is learned does not matter here.
        let limits = Limits { learn: None, ..limits.clone() };
        if self.voided_for.as_ref() != Some(&limits) {
            self.returned.clear();
            if self.at > now {
                self.drain(now, &limits);
            }
            self.voided_for = Some(limits);
        }
    }

    /// Empties the bucket at `now`: no saved tokens, no tickets ahead.
    pub fn drain(&mut self, now: i64, limits: &Limits) {
        self.at = now;
        self.tokens = 0.0;
        let returned = std::mem::take(&mut self.returned);
        self.refund_all(&returned, limits);
    }

    /// The earliest time for the next request, not before `now`.
    #[must_use]
    pub fn next(&self, now: i64, limits: &Limits, pace: Pace) -> i64 {
        if let Some(moment) = self.returned.first() {
            return *moment;
        }
        let cost = f64::from(limits.cost);
        let mut moment = self.at.max(now);
        if let Some(rate) = pace.rate {
            let climb = Climb { rate: rate / 1e6, from: self.ramp_from, ramp: pace.ramp };
            if self.tokens_at(moment, f64::from(limits.burst), climb) < cost {
                moment = moment.max(climb.when(self.at, cost - self.tokens));
            }
        }
        for quota in &limits.quotas {
            let Some(window) = self.window(clock::micros(quota.window)) else { continue };
            let end = window.start + window.length;
            if moment < end && window.taken + u64::from(limits.cost) > quota.tokens {
                moment = end;
            }
        }
        moment
    }

    /// Takes the ticket for `moment`, the latest result of [`Bucket::next`].
    pub fn take(&mut self, moment: i64, limits: &Limits, pace: Pace) {
        if self.returned.first() == Some(&moment) {
            self.returned.remove(0);
            return;
        }
        if let Some(rate) = pace.rate {
            let climb = Climb { rate: rate / 1e6, from: self.ramp_from, ramp: pace.ramp };
            let tokens = self.tokens_at(moment, f64::from(limits.burst), climb);
            self.tokens = (tokens - f64::from(limits.cost)).max(0.0);
        }
        if limits.learn.is_some() {
            self.learned.count(moment, f64::from(limits.cost));
        }
        self.at = moment;
        for window in &mut self.windows {
            let length = window.length;
            if moment >= window.start + length {
                // A window of an earlier limit that has ended stays ended.
                if !limits.quotas.iter().any(|quota| clock::micros(quota.window) == length) {
                    continue;
                }
                let late = if self.steady { (moment - window.start) % length } else { 0 };
                *window = Window { length, start: moment - late, taken: 0 };
            }
            window.taken += u64::from(limits.cost);
        }
    }

    /// The window of this length.
    fn window(&self, length: i64) -> Option<&Window> {
        self.windows.iter().find(|window| window.length == length)
    }

    /// Takes back tickets of cancelled requests. A ticket in the past is used up, but its quotas
    /// get their tokens back.
    pub fn return_tickets(&mut self, moments: &[i64], now: i64, limits: &Limits) {
        self.returned.extend(moments);
        self.returned.sort_unstable();
        self.drop_returned(now, limits);
        while let Some(moment) = self.returned.get(RETURNED).copied() {
            self.refund(moment, limits);
            self.returned.remove(RETURNED);
        }
    }

    /// Unused tickets in the past return their tokens to the quotas.
    fn drop_returned(&mut self, now: i64, limits: &Limits) {
        let late = self.returned.partition_point(|moment| *moment < now);
        let late: Vec<_> = self.returned.drain(..late).collect();
        self.refund_all(&late, limits);
    }

    /// Returns the tokens of unused tickets to the quotas. The tickets themselves are void: the rate has its tokens back
    /// already.
    pub fn refund_all(&mut self, moments: &[i64], limits: &Limits) {
        moments.iter().for_each(|moment| self.refund(*moment, limits));
    }

    /// Returns the tokens of an unused ticket to those of its windows that still run.
    fn refund(&mut self, moment: i64, limits: &Limits) {
        for window in &mut self.windows {
            if (window.start..window.start + window.length).contains(&moment) {
                window.taken = window.taken.saturating_sub(u64::from(limits.cost));
            }
        }
    }

    /// How long from `now` until the bucket is full and every window has ended. Then it need not be
    /// kept. A learned rate is kept longer, because a trip changes it only when the scope opens
    /// again, after `closed` at most.
    #[must_use]
    pub fn forgettable_in(&self, now: i64, limits: &Limits, pace: Pace, closed: i64) -> i64 {
        let fill = pace.rate.map_or(0, |rate| ceil(f64::from(limits.burst) / rate * 1e6));
        let quotas = self.windows.iter().map(|window| window.length).max().unwrap_or(0);
        let learned = match (limits.rate, &limits.learn) {
            (Some(ceiling), Some(learn)) if self.learned.has_taught(ceiling, learn) => LEARNED_FOR,
            (Some(_), Some(_)) => closed,
            _ => 0,
        };
        (self.at.max(now) - now) + fill.saturating_add(pace.ramp).max(quotas).max(learned)
    }

    fn tokens_at(&self, moment: i64, burst: f64, climb: Climb) -> f64 {
        (self.tokens + climb.accrued(self.at, moment)).min(burst)
    }
}

/// A rate that climbs linearly from zero to `rate` (tokens per microsecond) over `ramp`, beginning
/// at `from`.
#[derive(Debug, Clone, Copy)]
struct Climb {
    rate: f64,
    from: i64,
    ramp: i64,
}

impl Climb {
    /// Tokens that flow in between two times: the integral of the rate.
    fn accrued(self, start: i64, end: i64) -> f64 {
        if self.is_over(start) {
            return exact(end - start) * self.rate;
        }
        self.since_start(end) - self.since_start(start)
    }

    /// The first time at which `tokens` have flowed in since `start`.
    fn when(self, start: i64, tokens: f64) -> i64 {
        if self.is_over(start) {
            return start.saturating_add(ceil(tokens / self.rate));
        }
        let total = self.since_start(start) + tokens;
        let ramp = exact(self.ramp);
        let climb = self.rate * ramp / 2.0;
        let elapsed = if total <= climb {
            (2.0 * ramp * total / self.rate).sqrt()
        } else {
            total / self.rate + ramp / 2.0
        };
        self.from.saturating_add(ceil(elapsed))
    }

    fn is_over(self, moment: i64) -> bool {
        self.from == 0 || self.ramp == 0 || moment >= self.from + self.ramp
    }

    fn since_start(self, moment: i64) -> f64 {
        let elapsed = exact(moment - self.from);
        let ramp = exact(self.ramp);
        if elapsed <= 0.0 {
            0.0
        } else if elapsed < ramp {
            elapsed * elapsed * self.rate / (2.0 * ramp)
        } else {
            (elapsed - ramp / 2.0) * self.rate
        }
    }
}

/// The limits and pace under the rate that the site announces, in tokens per second. At most one
/// second of that rate is saved up.
#[must_use]
pub fn under(limits: &Limits, pace: Pace, named: Option<f64>) -> (Cow<'_, Limits>, Pace) {
    let (Some(rate), Some(named)) = (pace.rate, named) else {
        return (Cow::Borrowed(limits), pace);
    };
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
    let second = named.ceil() as u32;
    let burst = limits.burst.min(second.max(limits.cost));
    let pace = Pace { rate: Some(rate.min(named)), ..pace };
    (Cow::Owned(Limits { burst, ..limits.clone() }), pace)
}

/// Tickets that each of `members` waiting members may hold ahead. Together they are what flows in
/// within the horizon.
#[must_use]
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub fn share(rate: f64, cost: u32, members: u32) -> u32 {
    let ahead = rate * (exact(HORIZON) / 1e6) / f64::from(cost) / f64::from(members);
    ahead.ceil().clamp(1.0, 1e9) as u32
}

/// The next whole microsecond.
fn ceil(micros: f64) -> i64 {
    clock::whole(micros.ceil())
}

#[cfg(test)]
mod tests;
