//! A plain, slow and obvious model of the promises: a history, and conclusions from it.

use tidegate::limiter::{
    cooldown::{Cause, Change},
    policy::CooldownPolicy,
};

use crate::Reply;

/// The events of a scope since it last opened.
#[derive(Debug, Clone, Copy)]
enum Seen {
    /// A success. A quiet one needed no call and does not affect the streak.
    Ok { quiet: bool },
    /// A block of this weight.
    Block { weight: f64, at: i64 },
}

/// A cooldown that is on.
#[derive(Debug, Clone, Copy)]
struct Cooling {
    until: i64,
    /// The probe that is out and the end of its lease.
    probe: Option<(i64, i64)>,
}

/// The model.
#[derive(Debug)]
pub(crate) struct Plain {
    policy: CooldownPolicy,
    pub(crate) epoch: u64,
    history: Vec<Seen>,
    cooling: Option<Cooling>,
    length: i64,
    failures: u32,
    sufficed: i64,
    /// How often that length must be enough before a shorter one is tried, and how often it still must.
    patience: (u32, u32),
    /// When the first cooldown since the scope was open began.
    since: i64,
    /// How long the scope was closed last time, if that was long.
    enough: i64,
    /// Why the latest cooldown began, and how many blocks built it.
    pub(crate) blame: Option<(Cause, usize)>,
}

/// The result that the model expects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leave {
    Open,
    CoolingUntil(i64),
    ProbeOutUntil(i64),
    Probe,
}

impl Plain {
    pub(crate) fn new(policy: CooldownPolicy) -> Self {
        Self {
            policy,
            epoch: 0,
            history: Vec::new(),
            cooling: None,
            length: 0,
            failures: 0,
            sufficed: 0,
            patience: (0, 0),
            since: 0,
            enough: 0,
            blame: None,
        }
    }

    pub(crate) fn until(&self) -> i64 {
        self.cooling.map_or(0, |cooling| cooling.until)
    }

    pub(crate) fn ask(&mut self, now: i64, lease: i64) -> Leave {
        self.come_to_an_end(now);
        let Some(cooling) = &mut self.cooling else { return Leave::Open };
        match cooling.probe {
            _ if now < cooling.until => Leave::CoolingUntil(cooling.until),
            Some((_, end)) if now < end => Leave::ProbeOutUntil(end),
            _ => {
                cooling.probe = Some((now, now + lease));
                Leave::Probe
            }
        }
    }

    pub(crate) fn answer(
        &mut self,
        now: i64,
        (epoch, probe): (u64, i64),
        reply: Reply,
        oks: u32,
        draw: f64,
    ) -> Change {
        if epoch < self.epoch {
            return Change::Stale;
        }
        self.come_to_an_end(now);
        if self.cooling.is_some() {
            return if probe == 0 { Change::None } else { self.probed(now, probe, reply) };
        }
        match reply {
            Reply::Nothing => Change::None,
            Reply::Ok => {
                let had = self.streak() > 0.0;
                let more = (0..oks).map(|_| Seen::Ok { quiet: true });
                self.history.extend(more.chain([Seen::Ok { quiet: false }]));
                if had { Change::Streak } else { Change::None }
            }
            Reply::Block(quarters, wait) => {
                self.history.extend((0..oks).map(|_| Seen::Ok { quiet: true }));
                self.history.push(Seen::Block { weight: f64::from(quarters) / 4.0, at: now });
                let named = self.policy.respect_retry_after && wait > 0;
                let blame = if named {
                    (Cause::Named, self.blocks_in_a_row())
                } else if self.streak() >= self.policy.after {
                    (Cause::Streak, self.blocks_in_a_row())
                } else if let Some(blocks) = self.share_that_is_reached() {
                    (Cause::Ratio, blocks)
                } else {
                    return Change::Streak;
                };
                self.blame = Some(blame);
                let (low, high) = (us(self.policy.length.0), us(self.policy.length.1));
                let drawn = low + whole(draw * exact(high - low));
                let length = if named { wait * 1_000 } else { drawn.max(self.sufficed) };
                self.trip(now, length.min(us(self.policy.max)));
                Change::Tripped
            }
        }
    }

    pub(crate) fn trip(&mut self, now: i64, length: i64) {
        self.begin_epoch(now);
        self.length = length;
        if self.failures == 0 {
            self.since = now;
        }
        self.cooling = Some(Cooling { until: now + length, probe: None });
        self.history.clear();
    }

    /// Epochs are numbered by the clock, and rise even if it is set back.
    fn begin_epoch(&mut self, now: i64) {
        self.epoch = (self.epoch + 1).max(u64::try_from(now).unwrap());
    }

    pub(crate) fn clear(&mut self, now: i64) {
        self.begin_epoch(now);
        self.sufficed = 0;
        self.patience = (0, 0);
        self.enough = 0;
        self.open();
    }

    /// The sum of the weights since the last ok, or since the blocks last paused for too long.
    pub(crate) fn streak(&self) -> f64 {
        let mut sum = 0.0;
        let mut last = i64::MIN / 2;
        for seen in &self.history {
            match seen {
                Seen::Ok { quiet: true } => {}
                Seen::Ok { quiet: false } => sum = 0.0,
                Seen::Block { weight, at } => {
                    if at - last > us(self.policy.forget_after) {
                        sum = 0.0;
                    }
                    sum += weight;
                    last = *at;
                }
            }
        }
        sum
    }

    /// The blocks that the streak sums up.
    fn blocks_in_a_row(&self) -> usize {
        let (mut blocks, mut last) = (0, i64::MIN / 2);
        for seen in &self.history {
            match seen {
                Seen::Ok { quiet: true } => {}
                Seen::Ok { quiet: false } => blocks = 0,
                Seen::Block { at, .. } => {
                    let forgotten = at - last > us(self.policy.forget_after);
                    blocks = if forgotten { 1 } else { blocks + 1 };
                    last = *at;
                }
            }
        }
        blocks
    }

    /// The blocks among the last verdicts, if they are too many.
    fn share_that_is_reached(&self) -> Option<usize> {
        let ratio = self.policy.ratio?;
        let from = self.history.len().checked_sub(ratio.of as usize)?;
        let is_block = |seen: &&Seen| matches!(seen, Seen::Block { .. });
        let blocks = self.history[from..].iter().filter(is_block).count();
        let reached = blocks * 100 >= (ratio.share * 100.0).round() as usize * ratio.of as usize;
        reached.then_some(blocks)
    }

    fn probed(&mut self, now: i64, probe: i64, reply: Reply) -> Change {
        let max = us(self.policy.max);
        match reply {
            Reply::Ok => {
                // If the cooldown had to grow, the next one starts at its length. If it was enough
                // at once, a later one may be shorter.
                let (usual, left) = self.patience;
                let next = match (self.failures, left) {
                    (0, 0 | 1) => whole(exact(self.sufficed) / self.policy.grow.max(1.25)),
                    (0, _) => self.sufficed,
                    _ => self.length,
                };
                let failed_sooner = if left == 0 { (usual * 2 + 1).min(31) } else { usual };
                self.patience = match self.failures {
                    _ if next <= us(self.policy.length.1) => (0, 0),
                    0 => (usual, left.saturating_sub(1)),
                    _ => (failed_sooner, failed_sooner),
                };
                let closed = self.until() - self.since;
                self.enough = if closed >= LONG { closed } else { 0 };
                self.sufficed = if next > us(self.policy.length.1) { next } else { 0 };
                self.open();
                Change::Opened
            }
            Reply::Block(_, wait) => {
                let named = self.policy.respect_retry_after && wait > 0;
                let grown = whole(exact(self.length) * self.policy.grow);
                let aimed = self.aim(now - self.since, grown);
                let length = if named { wait * 1_000 } else { aimed.max(us(self.policy.length.0)) };
                self.failures += 1;
                let hopeless = self.failures >= 10;
                self.blame = Some((if hopeless { Cause::Hopeless } else { Cause::Probe }, 1));
                let rare = whole(exact(self.length) * self.policy.grow.max(2.0)).max(max);
                self.trip(now, if hopeless { rare.min(us(DAY)) } else { length.min(max) });
                Change::Tripped
            }
            Reply::Nothing => match &mut self.cooling {
                Some(cooling) if cooling.probe.is_some_and(|(id, _)| id == probe) => {
                    cooling.probe = None;
                    Change::ProbeLost
                }
                _ => Change::None,
            },
        }
    }

    /// How long to wait on if the scope has been closed for `closed`, and `grown` is planned: a long cooldown ends when
    /// the last one did, or right after a round time.
    fn aim(&self, closed: i64, grown: i64) -> i64 {
        let planned = closed + grown;
        let is_later = |end: &i64| *end > closed && exact(*end) <= 1.5 * exact(planned);
        let is_near = |end: &i64| is_later(end) && 1.5 * exact(*end) >= exact(planned);
        if planned < LONG {
            return grown;
        }
        let minutes = [5, 10, 20, 30, 60, 120, 240, 1_440];
        let mut ends = minutes.map(|minutes| minutes * 60_600_000).to_vec();
        ends.retain(|end| is_near(end) || *end > planned && is_later(end));
        let known = Some(self.enough).filter(is_later);
        let sooner = ends.iter().copied().filter(|end| *end <= planned).max();
        known.or(sooner).or(ends.iter().copied().min()).map_or(grown, |end| end - closed)
    }

    fn come_to_an_end(&mut self, now: i64) {
        if !self.policy.probe && self.cooling.is_some_and(|cooling| now >= cooling.until) {
            self.open();
        }
    }

    fn open(&mut self) {
        self.cooling = None;
        self.failures = 0;
        self.history.clear();
    }
}

/// From four minutes on, a cooldown is long.
const LONG: i64 = 240_000_000;
/// Between two probes of a hopeless scope, at most.
const DAY: std::time::Duration = std::time::Duration::from_secs(86_400);

fn us(length: std::time::Duration) -> i64 {
    i64::try_from(length.as_micros()).unwrap()
}

#[allow(clippy::cast_precision_loss, reason = "cooldowns of seconds")]
fn exact(micros: i64) -> f64 {
    micros as f64
}

#[allow(clippy::cast_possible_truncation, reason = "cooldowns of seconds")]
fn whole(micros: f64) -> i64 {
    micros.floor() as i64
}
