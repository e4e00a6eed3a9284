//! How many tickets a member holds and requests at a time. Members take turns, with few calls.

use std::time::Duration;

use super::{BucketQueue, State, scheduler::Call};
use crate::{limiter::bucket, store::Granted};

/// Tickets per round of turns: a fortieth of the thousand tickets over which members get equal shares.
const SHORT: usize = 25;
/// Calls per second that short turns may cost a bucket; at higher rates, turns are longer.
const CALLS: f64 = 800.0;
/// The largest call while filling up, in units of this member's share of a round trip. One unit is used meanwhile, and
/// the other fills up the horizon, at any latency.
const FILL: f64 = 2.0;
/// Longest wait that is planned, in seconds: as long as the longest `max_wait`.
const A_DAY: f64 = 86_400.0;

impl BucketQueue {
    /// Chooses how many tickets to hold and to request at a time. A single member requests more when half of its
    /// tickets are used. With others it requests fewer and more often, so that turns are short compared with a window
    /// of fairness. A member below its share fills up at a pace that does not depend on its latency.
    /// pace that does not depend on its latency.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a few tickets"
    )]
    pub(super) fn take_turns(&self, state: &mut State, call: &Call, granted: &Granted) {
        let count = granted.tickets.len();
        let in_hand = call.unused + count;
        let (members, cost) = (granted.members.max(1), self.entry.load().rule.limits.cost);
        let share = bucket::share(granted.rate, cost, members) as usize;
        let got_all = call.for_all && granted.come_back == 0;
        let full = if got_all || count == 0 { in_hand } else { share };
        let rate = granted.rate / f64::from(cost);
        let at_least = ((rate / CALLS) as usize).max(1);
        let turn = if members > 1 { at_least.max(SHORT / members as usize) } else { share };
        let turn = turn.min(full.div_ceil(2));
        state.refill = full - turn;
        let own = rate / f64::from(members) * FILL;
        let worth = (own * state.lead.as_secs_f64()).ceil() as usize;
        // A new member may be one of many that do not know each other yet. The next reply contains them.
        let most = if state.fill_at.is_none() { (worth / 4).max(in_hand) } else { usize::MAX };
        // A single member needs no short steps.
        let step = if members == 1 && state.fill_at.is_some() { turn } else { at_least };
        let fill = worth.max(step).min(most).max(1);
        // Only tickets handed out ahead are shared in turns. Saved tokens, and tokens without a rate, are taken at
        // once.
        let paced = own > 0.0 && granted.is_ahead();
        state.most = match in_hand < state.refill {
            _ if !paced => 0,
            true => fill,
            false => worth.max(turn),
        };
        let filled = (fill as f64 / own).min(A_DAY);
        state.fill_at = paced.then(|| call.sent + Duration::from_secs_f64(filled));
    }
}
