//! Short outages of the store, for all members or some of them: no member switches to local mode,
//! and no bound is broken. Longer ones, in which each member uses its share.

use integration_tests::{
    bound::worst_window_excess,
    sim::{Fleet, health::Health},
};
use tidegate::runtime::clock::{self, Instant};

use super::*;

/// Outages that are drawn: short ones for whomever, and longer ones for all.
const SHORT: u64 = 24;
const LONG: u64 = 12;
/// Fleets whose members lose the store at different times, four runs each.
const ONE_BY_ONE: u64 = 5;
/// How much later than its ticket a request may be sent: the reply has a latency, and timers count
/// whole milliseconds.
const LATE: Duration = Duration::from_millis(25);
/// Until all members have found the store again: a call that hangs, and a knock.
const FOUND: Duration = Duration::from_millis(2_000);
/// After an outage longer than this, members keep their shares for this long.
const AWAY: Duration = Duration::from_secs(2);
const GRACE: Duration = Duration::from_secs(3);
/// The period over which the rate is then measured.
const LOOKS: Duration = Duration::from_secs(3);
/// How long a member keeps still.
const OUTAGE_TIMEOUT: Duration = Duration::from_secs(3);

/// One outage of a fleet whose busy members always have waiting requests.
#[derive(Debug)]
struct Case {
    seed: u64,
    members: usize,
    rate: u32,
    burst: u32,
    /// Members that have nothing to do before the outage.
    idle: usize,
    /// Members that it hits.
    hit: usize,
    health: Health,
    away: Duration,
}

/// The result.
#[derive(Debug)]
struct Came {
    /// Requests that went without a ticket of the store.
    alone: usize,
    /// How far the worst window of tickets, and of requests, is above the bound.
    tickets: f64,
    sent: f64,
    /// The share of the rate that is used once all is well again.
    used: f64,
}

impl Case {
    fn draw(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut one_of = |of: &[u32]| of[random.usize(..of.len())];
        let rate = one_of(&[5, 20, 50, 100, 200]);
        let burst = one_of(&[1, 1, 3, rate.div_ceil(4), rate]);
        let health = [Health::Gone, Health::Frozen, Health::Mute][one_of(&[0, 1, 2]) as usize];
        let members = random.usize(1..=20.min(rate as usize * 2));
        let idle = if random.bool() { random.usize(..members) } else { 0 };
        let hit = [members, members, 1, random.usize(1..=members)][random.usize(..4)];
        let away = Duration::from_millis(random.u64(100..2_500));
        Self { seed, members, rate, burst, idle, hit, health, away }
    }

    /// The same for longer, and for all members. A server that is gone still accepts calls.
    fn longer(self) -> Self {
        let health = if self.health == Health::Mute { Health::Gone } else { self.health };
        Self { hit: self.members, health, away: self.away + OUTAGE_TIMEOUT, ..self }
    }

    /// A request that was in flight for longer than another one looks like an excess.
    fn under_way(&self) -> f64 {
        0.5 + f64::from(self.rate) * 0.015
    }

    #[allow(clippy::cast_precision_loss, reason = "counts")]
    fn play(&self) -> Came {
        let rate = f64::from(self.rate);
        let busy = self.members - self.idle;
        let settles = FOUND + if self.away > AWAY { GRACE } else { Duration::ZERO };
        let tokens = rate * (self.away + settles + LOOKS).as_secs_f64() + rate * 4.0;
        let each = (tokens as usize + self.burst as usize) / busy + 40;
        let mut plan = Plan::new(self.members, rate, each);
        (plan.seed, plan.burst) = (self.seed, self.burst);
        plan.play(async |fleet| {
            let idle = busy..self.members;
            idle.clone().for_each(|member| fleet.leave(member, each));
            fleet.pass(Duration::from_millis(fastrand::u64(2_000..3_500))).await;
            self.set(fleet, self.health);
            fleet.pass(self.away / 2).await;
            // A member without knowledge of the scope joins in the middle.
            idle.for_each(|member| fleet.hold(member, each));
            fleet.pass(self.away / 2).await;
            self.set(fleet, Health::Well);
            fleet.pass(settles).await;
            let before = fleet.ledger.count();
            fleet.pass(LOOKS).await;
            let used = (fleet.ledger.count() - before) as f64 / (rate * LOOKS.as_secs_f64());
            let times: Vec<_> = fleet.ledger.all().iter().map(|one| one.at.into_std()).collect();
            let burst = f64::from(self.burst);
            let tickets = fleet.ledger.ticket_excess(rate, burst);
            let sent = worst_window_excess(&times, rate, burst);
            Came { alone: alone(fleet, 0..self.members).len(), tickets, sent, used }
        })
    }

    fn set(&self, fleet: &Fleet, health: Health) {
        if self.hit == self.members {
            fleet.redis.set(health);
        } else {
            (0..self.hit).for_each(|member| fleet.cut_off(member, health));
        }
    }
}

/// When requests were sent without a ticket of the store: one of that member's own that was due then, and each for one.
fn alone(fleet: &Fleet, members: std::ops::Range<usize>) -> Vec<Instant> {
    let sent = fleet.ledger.all();
    let mut without = Vec::new();
    for member in members {
        let tickets = fleet.ledger.of(member).into_iter();
        let mut tickets = tickets.map(|ticket| fleet.redis.when(ticket)).peekable();
        for one in sent.iter().filter(|one| one.member == member) {
            // Those that are older have never been used.
            while tickets.next_if(|due| *due + LATE < one.at).is_some() {}
            if tickets.next_if(|due| *due <= one.at).is_none() {
                without.push(one.at);
            }
        }
    }
    without
}

#[test]
#[allow(clippy::print_stdout, reason = "the figures are what a person runs this for")]
fn nothing_is_sent_without_a_ticket_in_a_short_outage_of_any_members() {
    for case in (0..SHORT).map(Case::draw) {
        let came = case.play();
        println!("{case:?}: {came:?}");
        assert!(came.tickets <= ROUNDING, "{case:?}: {came:?}");
        // A member that knows of no other one need not wait.
        assert!(came.alone == 0 || case.members == 1, "{case:?}: {came:?}");
        assert!(came.sent <= case.under_way(), "{case:?}: {came:?}");
        assert!(came.used >= 0.98, "{case:?}: {came:?}");
    }
}

#[test]
#[allow(clippy::print_stdout, reason = "the figures are what a person runs this for")]
#[allow(clippy::cast_precision_loss, reason = "counts")]
fn a_longer_outage_for_all_lets_shares_add_up_to_no_more_than_the_rate() {
    for case in (0..LONG).map(|seed| Case::draw(100 + seed).longer()) {
        let came = case.play();
        println!("{case:?}: {came:?}");
        assert!(came.tickets <= ROUNDING, "{case:?}: {came:?}");
        // Each member sends at its own pace, not exactly between those of others, so this many may
        // coincide.
        let together = 1.7 * (case.members as f64).sqrt();
        assert!(came.sent <= case.under_way() + together, "{case:?}: {came:?}");
    }
}

#[test]
fn a_member_that_is_cut_off_for_longer_pauses_and_then_sends_at_its_share() {
    let mut plan = Plan::new(4, 40.0, 250);
    plan.burst = 10;
    plan.play(async |fleet| {
        fleet.pass(Duration::from_secs(3)).await;
        let begun = clock::now();
        fleet.cut_off(0, Health::Gone);
        fleet.pass(Duration::from_secs(12)).await;
        fleet.cut_off(0, Health::Well);
        fleet.pass(Duration::from_secs(3)).await;
        let ended = clock::now();
        let went = alone(fleet, 0..4);
        let still = *went.iter().min().expect("it goes on alone") - begun;
        assert!(still >= OUTAGE_TIMEOUT, "only {still:?}");
        // A quarter of the rate, at most a second later, because the last call hangs for that long.
        let count = went.len();
        assert!((60..=92).contains(&count), "{count} without a ticket in about 8 s at 10/s");
        fleet.pass(Duration::from_secs(2)).await;
        assert!(alone(fleet, 0..4).iter().all(|at| *at < ended), "it is back");
    });
}

/// Each member loses the store at its own time and reaches it again at its own: the time, the
/// member, and the new health.
fn one_by_one(random: &mut fastrand::Rng, members: usize) -> Vec<(u64, usize, Health)> {
    let mut changes = Vec::new();
    for member in 0..members {
        let health = [Health::Gone, Health::Frozen, Health::Mute][random.usize(..3)];
        let (from, length) = (random.u64(0..1_500), random.u64(100..2_400));
        if random.u8(..3) > 0 {
            changes.push((from, member, health));
            changes.push((from + length, member, Health::Well));
        }
    }
    changes.sort_unstable_by_key(|change| change.0);
    changes
}

#[test]
fn nothing_is_sent_without_a_ticket_if_members_lose_the_store_one_by_one_repeatedly() {
    for seed in 0..ONE_BY_ONE {
        let mut random = fastrand::Rng::with_seed(seed);
        let members = random.usize(2..=12);
        let rate = [20_u32, 60, 200][random.usize(..3)];
        let mut plan = Plan::new(members, f64::from(rate), rate as usize * 26 / members + 60);
        plan.seed = seed;
        plan.burst = [1, 5, 40][random.usize(..3)];
        let burst = f64::from(plan.burst);
        plan.play(async |fleet| {
            fleet.pass(Duration::from_secs(2)).await;
            for _ in 0..4 {
                let mut now = 0;
                for (at, member, health) in one_by_one(&mut random, members) {
                    fleet.pass(Duration::from_millis(at - now)).await;
                    fleet.cut_off(member, health);
                    now = at;
                }
                fleet.pass(FOUND).await;
            }
            let case = format!("seed {seed}: {members} members at {rate}/s, burst {burst}");
            assert_eq!(alone(fleet, 0..members), [], "{case}");
            let excess = fleet.ledger.ticket_excess(f64::from(rate), burst);
            assert!(excess <= ROUNDING, "{case}: {excess}");
        });
    }
}
