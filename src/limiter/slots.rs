//! Limits the concurrent requests of a scope (`parallel`), divided among the members of a fleet.
//!
//! Each member has an allotment of slots, and starts a request only in a free slot. Only the member's own call changes
//! its allotment, so a late or lost message never lets two members use the same slot. While no member is short, each
//! keeps its slots. Once one is short, the others return each slot that becomes free, and the member that has waited
//! longest gets it.
//!
//! An allotment is a lease: it ends [`LEASE`] after the latest call, so the slots of a crashed member come back. A
//! lower limit revokes nothing, but no member gets more until the limit holds. `lua/lib/slots.lua` has the same
//! operations in the same order.
//! All times are microseconds of the store's clock.

use std::sync::Arc;

/// How long an allotment is valid after the call that set it.
pub const LEASE: i64 = 20_000_000;

/// After the store was away or lost its memory, no member gets another slot for this long. By then all running members
/// have reported their requests in flight.
pub const SETTLE: i64 = 3_000_000;

/// What a member reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    /// The member's name.
    pub member: Arc<str>,
    /// Slots that it uses.
    pub under_way: u32,
    /// Slots that it could use, including those in use; 0 = the member leaves.
    pub wanted: u32,
    /// The size of the fleet that it knows of.
    pub fleet: u32,
    /// Whether it has started requests without the store since the latest reply.
    pub was_local: bool,
}

/// The reply to a member.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Allotted {
    /// The most requests that it may have in flight.
    pub slots: u32,
    /// Whether others are short of slots, so that it must return each one that becomes free.
    pub contended: bool,
    /// When to ask again; 0 = it has all the slots that it wants.
    pub come_back: i64,
    /// Other members that can get a slot now.
    pub can_have: Vec<Arc<str>>,
    /// Whether it has just become short of slots, so that the others must be notified.
    pub is_newly_short: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Share {
    member: Arc<str>,
    slots: u32,
    wanted: u32,
    /// When its lease ends.
    until: i64,
    /// When it last got a slot.
    served: i64,
}

impl Share {
    fn is_short(&self) -> bool {
        self.wanted > self.slots
    }
}

/// The slots of one scope.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Slots {
    shares: Vec<Share>,
    /// No member gets another slot before this moment.
    settled: i64,
}

impl Slots {
    /// Records the need of a member, and allots slots to it: at most `most` over the fleet. `lost` is when the
    /// store lost its memory (0 = it did not).
    pub fn allot(&mut self, now: i64, most: u32, need: &Need, lost: i64) -> Allotted {
        for share in &mut self.shares {
            share.until = share.until.min(now + LEASE);
        }
        self.shares.retain(|share| share.until > now);
        self.settled = self.settled.min(now + SETTLE);
        if need.was_local && self.settled <= now {
            self.settled = now + SETTLE;
        }
        let recovers = if lost > 0 { (lost + SETTLE).min(now + SETTLE) } else { 0 };
        let settled = self.settled.max(recovers);
        let at = self.shares.iter().position(|share| share.member == need.member);
        let before = at.map(|at| self.shares.remove(at));
        let used: u32 = self.shares.iter().map(|share| share.slots).sum();
        let contended = self.shares.iter().any(Share::is_short);
        let free = most.saturating_sub(used);
        let mut own = Share {
            member: Arc::clone(&need.member),
            slots: need.under_way,
            wanted: need.wanted,
            until: now + LEASE,
            served: before.as_ref().map_or(0, |share| share.served),
        };
        let stays = need.wanted > 0 || need.under_way > 0;
        if stays {
            self.shares.push(own.clone());
        }
        let goal = if settled > now || !stays {
            0
        } else if contended {
            let before = self.short().into_iter().take_while(|share| share.member != own.member);
            need.wanted.min(free.saturating_sub(u32::try_from(before.count()).unwrap_or(most)))
        } else {
            need.wanted.max(most / need.fleet.max(1)).min(free)
        };
        own.slots = need.under_way.max(goal);
        if own.slots > need.under_way {
            own.served = now;
        }
        let left = if settled > now { 0 } else { free.saturating_sub(own.slots) };
        let (slots, is_short) = (own.slots, own.is_short());
        if let Some(share) = self.shares.last_mut().filter(|_| stays) {
            *share = own;
        }
        let leases = self.shares.iter().filter(|share| share.member != need.member);
        let ends = leases.map(|share| share.until).min().unwrap_or(now + LEASE);
        let ends = if settled > now { settled.min(ends) } else { ends };
        let others = self.short().into_iter().filter(|share| share.member != need.member);
        Allotted {
            slots,
            contended,
            come_back: if is_short { ends } else { 0 },
            can_have: others.take(left as usize).map(|share| Arc::clone(&share.member)).collect(),
            is_newly_short: is_short && !before.is_some_and(|share| share.is_short()),
        }
    }

    /// The members that are short of slots; the one that has waited longest comes first.
    fn short(&self) -> Vec<&Share> {
        let mut short: Vec<_> = self.shares.iter().filter(|share| share.is_short()).collect();
        short.sort_by(|one, other| (one.served, &one.member).cmp(&(other.served, &other.member)));
        short
    }

    /// Slots that other members than `member` use or want, as of their last calls.
    #[must_use]
    pub fn in_use(&self, now: i64, member: &str) -> u32 {
        let others = self.shares.iter().filter(|share| *share.member != *member);
        let running = others.filter(|share| share.until.min(now + LEASE) > now);
        running.map(|share| share.slots.min(share.wanted)).sum()
    }

    /// When the last lease ends, and the state can be dropped.
    #[must_use]
    pub fn ends(&self) -> i64 {
        self.shares.iter().map(|share| share.until).max().unwrap_or(0).max(self.settled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;

    fn need(member: &str, under_way: u32, wanted: u32) -> Need {
        Need { member: Arc::from(member), under_way, wanted, fleet: 3, was_local: false }
    }

    #[test]
    fn a_member_gets_what_it_wants_up_to_its_even_share_or_more() {
        let mut slots = Slots::default();
        assert_eq!(slots.allot(SECOND, 9, &need("a", 0, 1), 0).slots, 3);
        assert_eq!(slots.allot(SECOND, 9, &need("b", 0, 6), 0).slots, 6);
        let third = slots.allot(SECOND, 9, &need("c", 0, 1), 0);
        assert_eq!((third.slots, third.is_newly_short), (0, true));
        assert_eq!(third.come_back, SECOND + LEASE);
    }

    #[test]
    fn a_slot_that_becomes_free_goes_to_whoever_has_waited_longest() {
        let mut slots = Slots::default();
        assert_eq!(slots.allot(1, 2, &need("a", 0, 9), 0).slots, 2);
        for (moment, member) in [(2, "b"), (3, "c")] {
            let said = slots.allot(moment, 2, &need(member, 0, 9), 0);
            assert_eq!((said.slots, said.is_newly_short), (0, true));
            assert!(!slots.allot(moment, 2, &need(member, 0, 9), 0).is_newly_short, "once");
        }
        let said = slots.allot(4, 2, &need("a", 1, 9), 0);
        assert_eq!((said.slots, said.contended), (1, true), "it keeps what it uses");
        assert_eq!(said.can_have, [Arc::from("b")]);
        assert_eq!(slots.allot(5, 2, &need("b", 0, 9), 0).slots, 1);
        assert_eq!(slots.allot(6, 2, &need("a", 0, 9), 0).can_have, [Arc::from("c")]);
        assert_eq!(slots.allot(7, 2, &need("c", 0, 9), 0).slots, 1);
        assert_eq!(slots.allot(8, 2, &need("b", 0, 9), 0).can_have, [Arc::from("a")]);
    }

    #[test]
    fn the_slots_of_a_crashed_member_come_back_when_its_lease_ends() {
        let mut slots = Slots::default();
        assert_eq!(slots.allot(0, 2, &need("a", 0, 2), 0).slots, 2);
        let said = slots.allot(LEASE - 1, 2, &need("b", 0, 2), 0);
        assert_eq!((said.slots, said.come_back), (0, LEASE));
        assert_eq!(slots.allot(LEASE, 2, &need("b", 0, 2), 0).slots, 2);
    }

    #[test]
    fn a_lower_limit_revokes_nothing() {
        let mut slots = Slots::default();
        assert_eq!(slots.allot(1, 8, &need("a", 0, 6), 0).slots, 6);
        assert_eq!(slots.allot(2, 2, &need("a", 6, 9), 0).slots, 6);
        assert_eq!(slots.allot(3, 2, &need("b", 0, 1), 0).slots, 0);
        assert_eq!(slots.allot(4, 2, &need("a", 2, 9), 0).slots, 2);
        assert_eq!(slots.allot(5, 2, &need("b", 0, 1), 0).slots, 0);
        assert_eq!(slots.allot(6, 2, &need("a", 1, 9), 0).slots, 1);
        assert_eq!(slots.allot(7, 2, &need("b", 0, 1), 0).slots, 1);
    }

    #[test]
    fn after_a_loss_nobody_gets_more_before_all_have_reported() {
        let mut slots = Slots::default();
        let lost = 50 * SECOND;
        assert_eq!(slots.allot(lost, 4, &need("a", 1, 4), lost).slots, 1);
        assert_eq!(slots.allot(lost + SECOND, 4, &need("b", 2, 4), lost).slots, 2);
        assert_eq!(slots.allot(lost + SETTLE, 4, &need("a", 1, 4), lost).slots, 2);
        let alone = Need { was_local: true, ..need("b", 2, 4) };
        assert_eq!(slots.allot(lost + SETTLE, 4, &alone, lost).slots, 2);
        assert_eq!(slots.allot(lost + SETTLE + 1, 4, &need("a", 0, 4), lost).slots, 0);
    }

    /// Members start and end requests, ask, crash and lose replies at random.
    #[test]
    fn slots_never_exceed_the_limit_and_no_member_starves() {
        for seed in 0..200 {
            let mut random = fastrand::Rng::with_seed(seed);
            let most = random.u32(1..6);
            let (mut slots, mut now) = (Slots::default(), SECOND);
            // The slots that each may use, and those that it uses.
            let mut members = [(0_u32, 0_u32); 4];
            let mut begun = [0; 4];
            for _ in 0..3_000 {
                now += random.i64(1..SECOND / 100);
                let at = random.usize(..members.len());
                let (allotted, under_way) = &mut members[at];
                match random.u8(0..3) {
                    0 if *under_way < *allotted => {
                        *under_way += 1;
                        begun[at] += 1;
                    }
                    1 if *under_way > 0 => *under_way -= 1,
                    _ => {
                        // A member starts nothing while its call is in progress.
                        *allotted = *under_way;
                        let name = at.to_string();
                        let wanted = *under_way + 5;
                        let said = slots.allot(now, most, &need(&name, *under_way, wanted), 0);
                        // The reply may be lost.
                        if random.u8(0..10) > 0 {
                            *allotted = said.slots;
                        }
                    }
                }
                let total: u32 = members.iter().map(|(_, under_way)| under_way).sum();
                assert!(total <= most, "{total} of {most} with seed {seed}");
            }
            assert!(begun.iter().all(|count| *count > 10), "{begun:?} with seed {seed}");
        }
    }
}
