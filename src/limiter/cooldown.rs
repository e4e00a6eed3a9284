//! The cooldown state machine: when to trip, for how long, who probes.
//!
//! ```text
//!               enough blocks, or one that names its wait, or by hand
//!        +--------------------------------------------------------------+
//!        |                 |  the same                                  v
//!   +--------+ ramp  +---------+  ok of the probe   +---------+    +---------+
//!   |  open  | <---- | ramping | <----------------- | probing | <- | cooling |
//!   +--------+ over  +---------+  (or by hand)      +---------+    +---------+
//!                                                    |  ^  |  time    ^
//!                             probe lost: next asks  +--+  |   up     |
//!                                                          +----------+
//!                                                          block: longer
//! ```
//!
//! Each trip and each manual clear starts a new *epoch*. Its number is the store's time, so epochs rise even if the
//! store loses its data. A grant carries its epoch, and a response from an older epoch changes nothing: a late success
//! does not end a cooldown, and a late block neither starts nor extends one. A member that knows a later epoch than the
//! store sends it with each call ([`KnownCooldown`]); that has no other effect.
//!
//! The state lives in the store. `lua/lib/cooldown.lua` has the same operations in the same order. All times are
//! microseconds of the store's clock.

mod cause;
pub(crate) mod length;
pub(crate) mod probes;
mod report;

pub use cause::{Blocks, Cause, culprit};
pub(crate) use length::{DAY, HOPELESS_GROW};
pub use report::{Answer, Change, KnownCooldown, KnownPhase, Named, NamedRate, Report};

use crate::{
    classify::verdict::Verdict,
    limiter::{errors::ErrorLog, load::Load, policy::CooldownPolicy, shares::Shares},
    runtime::clock,
};

/// Weight of a plain refusal: it starts a streak, so that all members report their successes, but it never fills one.
pub const REFUSAL_WEIGHT: f64 = 1e-6;

/// Number of block types that a streak remembers: more than any sensible `after`.
pub(crate) const KINDS: usize = 64;

/// After this many blocked probes in a row a scope is hopeless: its cooldowns grow beyond `max`.
pub(crate) const HOPELESS: u32 = 10;

/// The weight of a silent connection: `silence` of them in a row reach `after`.
#[must_use]
pub fn silence_weight(after: f64, silence: u32) -> f64 {
    after / f64::from(silence.max(1))
}

/// The state of one cooldown scope.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Cooldown {
    /// Names the latest trip or clear; 0 = there was none.
    pub epoch: u64,
    /// End of the cooldown; 0 while open.
    pub until: i64,
    /// The probe in flight, as the moment of its grant; 0 = none.
    pub probe: i64,
    /// When the probe in flight counts as lost.
    pub probe_until: i64,
    /// The member that holds the probe; empty = unknown.
    pub prober: String,
    /// When the scope last opened again; 0 = it never cooled.
    pub opened: i64,
    /// Weight of the blocks in a row.
    pub streak: f64,
    /// When the last block came.
    pub last_block: i64,
    /// Whether it was a sure sign.
    pub sure: bool,
    /// The last verdicts, oldest first: a block's letter ([`Verdict::letter`]), `0` for an ok.
    pub recent: String,
    /// The letters of the streak's blocks, oldest first.
    pub kinds: String,
    /// What tripped the latest cooldown.
    pub cause: Option<Cause>,
    /// The letters of the blocks that tripped it.
    pub blamed: String,
    /// The streak that tripped it.
    pub peak: f64,
    /// How many blocks tripped it, without those of its probes.
    pub blocks: u32,
    /// Length of the latest cooldown.
    pub length: i64,
    /// The length that last worked, if it had to grow; 0 = the usual one did.
    pub sufficed: i64,
    /// How often that length must work before a shorter one is tried. It doubles with each shorter one that fails.
    pub wary: u32,
    /// How often it must still work; 0 = a shorter one is being tried.
    pub repeats: u32,
    /// When the cooldown with the failed probes began; 0 = unknown.
    pub since: i64,
    /// How long the previous ban lasted, if it was long; 0 = unknown.
    pub enough: i64,
    /// Probes that failed in a row.
    pub failed: u32,
    /// The latest reading of the clock, to detect when it is set back.
    pub seen: i64,
    /// The share of responses that are blocks.
    pub shares: Shares,
    /// The rate that the site announces, in tokens per second, and when that expires.
    pub named: Option<(f64, i64)>,
    /// Error responses, if the rule limits them.
    pub errors: ErrorLog,
    /// The load of the site, if the rule measures it.
    pub load: Load,
}

/// How a scope treats the next request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Requests are sent.
    Open,
    /// No request is sent before this moment.
    Cooling(i64),
    /// A probe is in flight; ask again at this moment at the latest.
    Probing(i64),
    /// The cooldown is over and no probe is in flight: the next request is the probe.
    Due,
}

impl Cooldown {
    /// Records the time. If the clock was set back, every stored time moves with it.
    pub fn observe(&mut self, now: i64) {
        let back = self.seen - now;
        if back > 0 && self.seen > 0 {
            for moment in [
                &mut self.until,
                &mut self.probe,
                &mut self.probe_until,
                &mut self.opened,
                &mut self.last_block,
                &mut self.since,
            ] {
                *moment = if *moment > 0 { *moment - back } else { 0 };
            }
            if let Some((_, until)) = &mut self.named {
                *until -= back;
            }
            self.errors.set_back(back);
            self.load.set_back(back);
        }
        self.seen = now;
    }

    /// Takes over a member's copy that the store has lost (a flush, a failover, an outage with a local trip or a local
    /// probe, an old snapshot). This does not start a ramp or change the learned rate. Blocks that were counted
    /// meanwhile stay counted.
    pub fn restore(&mut self, known: KnownCooldown, now: i64) {
        if !known.is_news_to(self.epoch, self.until > 0) {
            return;
        }
        self.epoch = known.epoch;
        self.until = 0;
        self.cause = self.cause.filter(|cause| !cause.is_pause());
        self.end_probe();
        match known.phase {
            KnownPhase::Open | KnownPhase::Opened => {}
            KnownPhase::Cooling(left) => {
                self.until = now + left;
                self.length = left;
                self.since = now;
            }
            KnownPhase::Probing(left) => {
                self.until = now;
                if left > 0 {
                    self.probe = now;
                    self.probe_until = now + left;
                }
            }
        }
    }

    /// How the next request is treated. A cooldown without a probe ends here.
    pub fn phase(&mut self, now: i64, policy: &CooldownPolicy) -> Phase {
        if self.until == 0 {
            return Phase::Open;
        }
        if now < self.until {
            return Phase::Cooling(self.until);
        }
        // A pause has a known end, so it needs no probe.
        if !policy.probe || self.cause.is_some_and(Cause::is_pause) {
            self.open(self.until);
            return Phase::Open;
        }
        if self.probe > 0 && now < self.probe_until {
            return Phase::Probing(self.probe_until);
        }
        Phase::Due
    }

    /// Grants the probe to `member` for `moment`. It counts as lost after `lease`.
    pub fn lend_probe(&mut self, member: &str, moment: i64, lease: i64) {
        self.probe = moment;
        self.probe_until = moment + lease;
        member.clone_into(&mut self.prober);
    }

    /// Grants the probe in flight to its member once more, and returns its moment. It counts as lost after `lease`.
    pub fn lend_again(&mut self, now: i64, lease: i64) -> i64 {
        self.probe_until = self.probe.max(now) + lease;
        self.probe
    }

    /// Whether `member` holds the probe in flight. If it asks again without the probe, the reply with the probe was
    /// lost, and the member gets it again.
    #[must_use]
    pub fn is_prober(&self, member: &str) -> bool {
        self.probe > 0 && self.prober == member
    }

    fn end_probe(&mut self) {
        self.probe = 0;
        self.probe_until = 0;
        self.prober.clear();
    }

    /// The epoch that begins now. It is later than the previous one, even if the clock is behind.
    fn next_epoch(&self, now: i64) -> u64 {
        (self.epoch + 1).max(u64::try_from(now).unwrap_or(0))
    }

    /// The rate that the site announces, in tokens per second, while it applies.
    #[must_use]
    pub fn named_at(&self, now: i64) -> Option<f64> {
        self.named.filter(|(_, until)| now < *until).map(|(rate, _)| rate)
    }

    /// Applies a report.
    pub fn report(&mut self, now: i64, report: &Report, policy: &CooldownPolicy) -> Change {
        let room = report.error.map_or(0, |limit| self.errors.count(now, limit));
        if self.until > now && self.cause == Some(Cause::Errors) {
            // The site also counts the errors of requests that were in flight.
            self.until = self.until.max(room);
        }
        if report.epoch < self.epoch {
            return Change::Stale;
        }
        if let Some(tally) = report.load {
            self.load.count(now, tally);
        }
        let change = self.take(now, report, policy);
        if room > now && self.until == 0 && report.probe == 0 {
            self.trip(now, room - now, Cause::Errors);
            return Change::Tripped;
        }
        let Some(Named { ceiling, hold }) = report.named else { return change };
        if let Some(NamedRate { rate, lasts }) = ceiling {
            self.named = Some((rate, now + lasts));
        }
        match hold {
            Some(hold) if self.until == 0 && report.probe == 0 => {
                self.trip(now, hold.min(clock::micros(policy.max)), Cause::SiteLimit);
                Change::Tripped
            }
            _ => change,
        }
    }

    fn take(&mut self, now: i64, report: &Report, policy: &CooldownPolicy) -> Change {
        // A report of a probe tells a store that lost its memory that the scope is closed.
        let phase = if report.probe > 0 { KnownPhase::Probing(0) } else { KnownPhase::Open };
        self.restore(KnownCooldown { phase, ..KnownCooldown::open(report.epoch) }, now);
        // A cooldown without a probe may have ended, although no request has come yet.
        self.phase(now, policy);
        if self.until > 0 {
            return self.report_probe(now, report, policy);
        }
        match report.answer {
            Answer::Nothing => Change::None,
            Answer::Ok => {
                let oks = report.oks.saturating_add(1);
                self.remember(oks, '0', policy);
                self.shares.count(oks, &self.kinds);
                let had = self.streak > 0.0;
                self.forget_streak();
                if had { Change::Streak } else { Change::None }
            }
            Answer::Block { weight, .. }
            | Answer::Silence { weight, .. }
            | Answer::Refusal { weight } => {
                let verdict = report.answer.verdict();
                if now - self.last_block > clock::micros(policy.forget_after) {
                    self.forget_streak();
                }
                // Unreported successes came before the streak, because a member that knows of a streak reports each
                // success.
                self.remember(report.oks, '0', policy);
                self.shares.count(report.oks, "");
                self.count(weight, verdict);
                self.last_block = now;
                let (retry_after, cause) = match report.answer {
                    Answer::Block { retry_after, sure, .. } => {
                        self.remember(1, verdict.letter(), policy);
                        self.sure = sure;
                        (retry_after, self.cause(retry_after, policy))
                    }
                    // `ratio` is a share of blocks. Occasional 503s and connection errors are not a wall.
                    Answer::Refusal { .. } => {
                        self.sure = false;
                        (0, self.is_wall(policy).then_some(Cause::Streak))
                    }
                    _ => {
                        self.sure = false;
                        (0, self.is_streak_full(policy).then_some(Cause::Silence))
                    }
                };
                let Some(cause) = cause else { return Change::Streak };
                let length = self.first_length(report.draw, retry_after, policy);
                self.trip(now, length, cause);
                Change::Tripped
            }
        }
    }

    /// Starts a cooldown of `length` now.
    pub fn trip(&mut self, now: i64, length: i64, cause: Cause) {
        self.epoch = self.next_epoch(now);
        self.until = now + length;
        self.length = length;
        self.end_probe();
        self.cause = Some(cause);
        self.peak = self.streak;
        self.blamed = match cause {
            Cause::Ratio => self.recent.replace('0', ""),
            Cause::Manual | Cause::SiteLimit | Cause::Errors => String::new(),
            Cause::Streak | Cause::Named | Cause::Probe | Cause::Silence | Cause::Hopeless => {
                self.kinds.replace(Verdict::Ok.letter(), &Verdict::Forbidden.letter().to_string())
            }
        };
        if self.failed == 0 {
            self.since = now;
            self.blocks = u32::try_from(self.blamed.len()).unwrap_or(u32::MAX);
        }
        self.forget_streak();
        if !cause.is_pause() {
            self.shares.tripped();
        }
        self.recent.clear();
    }

    /// Ends a cooldown manually.
    pub fn clear(&mut self, now: i64) {
        self.epoch = self.next_epoch(now);
        self.sufficed = 0;
        (self.wary, self.repeats) = (0, 0);
        self.enough = 0;
        self.open(now);
    }

    /// How long from `now` the state must be kept.
    #[must_use]
    pub fn forgettable_in(&self, now: i64, policy: &CooldownPolicy) -> i64 {
        let quiet = clock::micros(policy.forget_after).max(clock::micros(policy.max));
        let named = self.named.map_or(0, |(_, until)| until);
        (self.until.max(named).max(self.errors.until) - now).max(0)
            + quiet.saturating_add(clock::micros(policy.ramp))
    }

    /// Whether the scope never had a problem, so that its state need not be kept.
    #[must_use]
    pub fn is_blank(&self) -> bool {
        let shares = Shares::new(self.shares.tested);
        *self == Self { seen: self.seen, shares, ..Self::default() }
    }

    fn report_probe(&mut self, now: i64, report: &Report, policy: &CooldownPolicy) -> Change {
        if report.probe == 0 {
            return Change::None;
        }
        match report.answer {
            Answer::Ok => {
                self.settle(policy);
                self.open(now);
                Change::Opened
            }
            Answer::Block { weight, retry_after, verdict, .. } => {
                self.fail_probe(now, weight, retry_after, verdict, policy)
            }
            Answer::Silence { weight, verdict } if self.is_silent() => {
                self.fail_probe(now, weight, 0, verdict, policy)
            }
            Answer::Silence { .. } | Answer::Refusal { .. } | Answer::Nothing
                if report.probe == self.probe =>
            {
                self.end_probe();
                Change::ProbeLost
            }
            Answer::Silence { .. } | Answer::Refusal { .. } | Answer::Nothing => Change::None,
        }
    }

    fn fail_probe(
        &mut self,
        now: i64,
        weight: f64,
        retry_after: i64,
        verdict: Verdict,
        policy: &CooldownPolicy,
    ) -> Change {
        self.failed = self.failed.saturating_add(1);
        let length = self.next_length(now, retry_after, policy);
        self.count(weight, verdict);
        let cause = if self.failed < HOPELESS { Cause::Probe } else { Cause::Hopeless };
        self.trip(now, length, cause);
        Change::Tripped
    }

    /// Whether silence caused the latest cooldown. Then a silent probe is a failed probe. After any other trip, a
    /// broken connection says nothing about the wall.
    fn is_silent(&self) -> bool {
        matches!(culprit(&self.blamed), Some(Verdict::ConnectionError | Verdict::Timeout))
    }

    fn open(&mut self, moment: i64) {
        self.until = 0;
        self.end_probe();
        self.forget_streak();
        self.failed = 0;
        if !self.cause.is_some_and(Cause::is_pause) {
            self.opened = moment;
        }
        self.recent.clear();
    }

    fn count(&mut self, weight: f64, verdict: Verdict) {
        self.streak += weight;
        self.kinds.push(verdict.letter());
        let surplus = self.kinds.len().saturating_sub(KINDS);
        self.kinds.drain(..surplus);
    }

    fn forget_streak(&mut self) {
        self.streak = 0.0;
        self.kinds.clear();
    }

    /// Why the latest block trips the cooldown; `None` if it does not.
    fn cause(&self, retry_after: i64, policy: &CooldownPolicy) -> Option<Cause> {
        if policy.respect_retry_after && retry_after > 0 {
            return Some(Cause::Named);
        }
        if self.is_wall(policy) {
            return Some(Cause::Streak);
        }
        let ratio = policy.ratio?;
        let blocks = self.recent.bytes().filter(|b| *b != b'0').count();
        let of = f64::from(ratio.of);
        let needed = f64::max(ratio.share * of, self.shares.needed(of));
        let reached = self.recent.len() >= ratio.of as usize && blocks as f64 >= needed - 1e-9;
        reached.then_some(Cause::Ratio)
    }

    /// Whether the streak is full and not likely by chance.
    fn is_wall(&self, policy: &CooldownPolicy) -> bool {
        self.is_streak_full(policy) && !self.shares.are_chance(&self.kinds)
    }

    /// Weights are sums of decimal fractions, so 0.1 + 0.2 must reach 0.3.
    fn is_streak_full(&self, policy: &CooldownPolicy) -> bool {
        self.streak + 1e-9 >= policy.after
    }

    fn remember(&mut self, times: u32, mark: char, policy: &CooldownPolicy) {
        let Some(ratio) = policy.ratio else { return };
        let of = ratio.of as usize;
        let times = (times as usize).min(of);
        self.recent.extend(std::iter::repeat_n(mark, times));
        let surplus = self.recent.len().saturating_sub(of);
        self.recent.drain(..surplus);
    }
}

#[cfg(test)]
mod tests;
