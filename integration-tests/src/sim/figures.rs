//! The figures of a simulated fleet: bound, use of the rate, fairness, calls, waits.

use std::{collections::BTreeMap, fmt, time::Duration};

use parking_lot::Mutex;
use tidegate::{runtime::clock::Instant, store::Reply};

/// One request that was sent.
#[derive(Debug, Clone, Copy)]
pub struct Sent {
    /// When, on the virtual clock.
    pub at: Instant,
    /// By which member.
    pub member: usize,
    /// After how long.
    pub held: Duration,
}

/// A record of all events.
#[derive(Debug, Default)]
pub struct Ledger {
    tickets: Mutex<BTreeMap<i64, Vec<usize>>>,
    sent: Mutex<Vec<Sent>>,
}

impl Ledger {
    /// Records the tickets of a reply; `returned` are those that the call returned.
    pub(super) fn taken(&self, member: usize, reply: &[Reply], returned: &str) {
        let Some(Reply::Whole(now)) = reply.first() else { return };
        let mut tickets = self.tickets.lock();
        for moment in returned.split(',').filter_map(|moment| moment.parse::<i64>().ok()) {
            // Tickets in the past are used up.
            if let Some(holders) = tickets.get_mut(&moment).filter(|_| moment >= *now)
                && let Some(at) = holders.iter().position(|holder| *holder == member)
            {
                holders.remove(at);
            }
        }
        let mut last = 0;
        // The only list in the reply.
        let tickets_granted = reply.iter().find_map(|field| match field {
            Reply::List(tickets) => Some(tickets),
            Reply::Whole(_) | Reply::Text(_) => None,
        });
        for ticket in tickets_granted.into_iter().flatten() {
            let Reply::Whole(number) = *ticket else { continue };
            // A negative number after a moment means that many more tickets of that moment.
            let (moment, count) = if number < 0 { (last, -number) } else { (number, 1) };
            last = moment;
            let count = usize::try_from(count).expect("a script grants no more than a thousand");
            tickets.entry(moment).or_default().extend(std::iter::repeat_n(member, count));
        }
    }

    /// Records a request that was sent.
    pub fn sent(&self, sent: Sent) {
        self.sent.lock().push(sent);
    }

    /// How many were sent so far.
    #[must_use]
    pub fn count(&self) -> usize {
        self.sent.lock().len()
    }

    /// The sent requests, in order.
    #[must_use]
    pub fn all(&self) -> Vec<Sent> {
        let mut sent = self.sent.lock().clone();
        sent.sort_by_key(|sent| sent.at);
        sent
    }

    /// The holder of each ticket, in the order of their moments, without returned ones.
    #[must_use]
    pub fn turns(&self) -> Vec<usize> {
        self.tickets.lock().values().flatten().copied().collect()
    }

    /// The moments of all tickets, on the store's clock, including lost and returned ones.
    #[must_use]
    pub fn moments(&self) -> Vec<i64> {
        self.tickets.lock().keys().copied().collect()
    }

    /// The moments of a member's tickets, on the store's clock, including lost ones.
    #[must_use]
    pub fn of(&self, member: usize) -> Vec<i64> {
        let tickets = self.tickets.lock();
        let own = |holders: &[usize]| holders.iter().filter(|holder| **holder == member).count();
        let each = tickets.iter().map(|(moment, holders)| (*moment, own(holders)));
        each.flat_map(|(moment, count)| std::iter::repeat_n(moment, count)).collect()
    }

    /// By how much the worst window of tickets (on the store's clock) exceeds `burst + rate * t`.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "far fewer than 2^52")]
    pub fn ticket_excess(&self, rate: f64, burst: f64) -> f64 {
        let tickets = self.tickets.lock();
        let Some(first) = tickets.keys().next().copied() else { return -burst };
        let (mut granted, mut lowest, mut worst) = (0.0, f64::INFINITY, f64::NEG_INFINITY);
        for (moment, holders) in tickets.iter().filter(|(_, holders)| !holders.is_empty()) {
            let flowed = rate * (moment - first) as f64 / 1e6;
            lowest = f64::min(lowest, granted - flowed);
            granted += holders.len() as f64;
            worst = f64::max(worst, granted - flowed - lowest - burst);
        }
        worst
    }
}

/// The figures of one run.
#[derive(Debug, Clone)]
pub struct Figures {
    /// Requests that were sent.
    pub sent: usize,
    /// Virtual time from the first to the last of them.
    pub took: Duration,
    /// By how much the worst window of tickets exceeds the bound; zero or less if it holds.
    pub ticket_excess: f64,
    /// The same for the requests when they were sent.
    pub sent_excess: f64,
    /// Share of the rate that was used while requests waited.
    pub used: f64,
    /// Jain's index of the worst window.
    pub jain: f64,
    /// Tickets of the busiest member divided by those of the idlest one, in the worst window.
    pub max_over_min: f64,
    /// How far a member was from its equal share, in tickets beyond 5 %, in the worst window.
    pub unfair_by: f64,
    /// The same in the first window, in which the store does not know all members yet.
    pub unfair_at_first: f64,
    /// The same in the first window in which the store knows all members.
    pub unfair_once_known: f64,
    /// The number of windows.
    pub windows: usize,
    /// Calls to the script `take` per sent request.
    pub calls_per_grant: f64,
    /// Real time of one call in the interpreter.
    pub script: Duration,
    /// Percentiles of the time held: 50, 90, 99, 100.
    pub waits: [Duration; 4],
}

/// Tickets in a window of fairness, as promised.
pub const WINDOW: usize = 1_000;

/// Fairness over each window of so many tickets: worst Jain index, worst max/min, worst distance beyond 5 %.
#[must_use]
#[allow(clippy::cast_precision_loss, reason = "counts")]
pub fn fairness(turns: &[usize], members: &[usize]) -> (f64, f64, f64) {
    let (mut jain, mut ratio, mut unfair) = (1.0_f64, 1.0_f64, 0.0_f64);
    for window in turns.chunks_exact(WINDOW) {
        let mut counts: BTreeMap<usize, f64> = members.iter().map(|m| (*m, 0.0)).collect();
        for one in window {
            if let Some(count) = counts.get_mut(one) {
                *count += 1.0;
            }
        }
        let n = counts.len() as f64;
        let sum: f64 = counts.values().sum();
        let squares: f64 = counts.values().map(|count| count * count).sum();
        jain = jain.min(sum * sum / (n * squares));
        let most = counts.values().copied().fold(0.0, f64::max);
        let least = counts.values().copied().fold(f64::INFINITY, f64::min);
        ratio = ratio.max(most / least.max(1.0));
        let share = sum / n;
        unfair = unfair.max((most - share).max(share - least) - share * 0.05);
    }
    (jain, ratio, unfair)
}

/// Percentiles 50, 90, 99 and 100 of the time held.
#[must_use]
pub fn waits(sent: &[Sent]) -> [Duration; 4] {
    let mut held: Vec<_> = sent.iter().map(|sent| sent.held).collect();
    held.sort_unstable();
    let at = |percent: usize| {
        let index = (held.len() * percent / 100).min(held.len().saturating_sub(1));
        held.get(index).copied().unwrap_or_default()
    };
    [at(50), at(90), at(99), at(100)]
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [p50, p90, p99, most] = self.waits.map(|wait| wait.as_secs_f64());
        write!(
            f,
            "{} requests in {:.1} s; excess of tickets {:.3}, as sent {:.2}; used {:.2} % of the rate; \
             Jain {:.4}, max/min {:.2}, beyond 5 % by {:.1} (at first {:.1}, once all are known {:.1}) in {} windows; {:.3} calls per grant ({:.0} us each); \
             held p50 {p50:.1} p90 {p90:.1} p99 {p99:.1} max {most:.1} s",
            self.sent,
            self.took.as_secs_f64(),
            self.ticket_excess,
            self.sent_excess,
            self.used * 100.0,
            self.jain,
            self.max_over_min,
            self.unfair_by,
            self.unfair_at_first,
            self.unfair_once_known,
            self.windows,
            self.calls_per_grant,
            self.script.as_secs_f64() * 1e6,
        )
    }
}
