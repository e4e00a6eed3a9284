//! An outage of the store for the whole fleet, with or without a loss of its data.

use std::collections::BTreeMap;

use integration_tests::sim::{Fleet, figures::Sent, health::Health};
use tidegate::{limiter::policy::Quota, runtime::clock::Instant};

use super::*;

/// What a fleet may send beyond the bound in virtual time. The shares add up to the rate at most,
/// but each begins at its own time; timers count whole milliseconds, and latencies differ.
fn jitter(rate: f64) -> f64 {
    2.0 + rate * 0.03
}

/// Seconds of the rate that outages of 2.5 and 7 s may cost a fleet. The first costs all of it. The
/// second costs three seconds in which all members pause, another one for the call that hangs
/// before local mode, and in both cases the time until the members find the store again.
const LOST: f64 = 2.5 + 3.0 + 1.0 + 2.0 * 0.7;

#[test]
fn an_outage_breaks_no_bound_neither_when_it_begins_nor_when_members_come_back() {
    for (members, rate, health) in [
        (1, 20, Health::Frozen),
        (2, 20, Health::Frozen),
        (2, 20, Health::Gone),
        (5, 50, Health::Gone),
        (10, 2, Health::Frozen),
        (20, 200, Health::Gone),
        (3, 100, Health::Frozen),
    ] {
        let figures =
            Plan::new(members, f64::from(rate), rate as usize * 20 / members).play(async |fleet| {
                for away in [Duration::from_millis(2_500), Duration::from_secs(7)] {
                    fleet.pass(Duration::from_millis(4_321)).await;
                    fleet.redis.set(health);
                    fleet.pass(away).await;
                    fleet.redis.set(Health::Well);
                }
                fleet.finish().await;
                fleet.figures()
            });
        show(&format!("{members} members at {rate}/s, {health:?} twice"), &figures);
        assert!(figures.ticket_excess <= ROUNDING, "{figures}");
        assert!(figures.sent_excess <= jitter(f64::from(rate)), "{figures}");
        let lost = figures.took.as_secs_f64() * (1.0 - figures.used);
        assert!(lost <= if members == 1 { 3.0 } else { LOST }, "{lost:.1} s lost; {figures}");
    }
}

const WINDOW: Duration = Duration::from_secs(10);
const QUOTA: u64 = 30;

/// How much later than its ticket a request may be sent: timers count whole milliseconds, and
/// replies have a latency.
const LATE: Duration = Duration::from_millis(5);

/// The most requests in any window. A window starts with the first request after the previous one.
/// That depends on when, up to `LATE` before it was sent, a request had its ticket, and on unused
/// tickets (of a call that timed out). So the assignment with the fewest requests in the fullest
/// window counts.
fn fullest(fleet: &Fleet) -> u64 {
    let sent = fleet.ledger.all().into_iter().map(|Sent { at, .. }| (at, 1));
    let tickets = fleet.ledger.moments().into_iter().map(|ticket| (fleet.redis.when(ticket), 0));
    let mut events: Vec<(Instant, u64)> = sent.chain(tickets).collect();
    events.sort_unstable();
    // Ways to see it so far: start of the window and requests in it, and requests in the fullest.
    let mut ways = BTreeMap::from([((events[0].0 - 2 * WINDOW, 0), 0)]);
    for (at, requests) in events {
        let mut next = BTreeMap::new();
        let mut may = |start, count, most: u64| {
            let best = next.entry((start, count)).or_insert(u64::MAX);
            *best = most.max(count).min(*best);
        };
        for ((start, count), most) in &ways {
            if requests == 0 || at - LATE < *start + WINDOW {
                may(*start, count + requests, *most);
            }
            if at >= *start + WINDOW {
                may(at, requests, *most);
            }
        }
        ways = next;
    }
    ways.into_values().min().unwrap_or(0)
}

fn millis(from: u64, to: u64) -> Duration {
    Duration::from_millis(fastrand::u64(from..to))
}

/// Members with a quota, some of them idle until the store is away.
fn with_quota(seed: u64, rate: f64, story: impl AsyncFnOnce(&mut Fleet)) -> Figures {
    let mut plan = Plan::new(4, rate, 60);
    plan.seed = seed;
    plan.round_trips = vec![Duration::from_millis(1); 4];
    plan.burst = 5;
    plan.quotas = vec![Quota { tokens: QUOTA, window: WINDOW }];
    plan.play(async |fleet| {
        fleet.leave(3, 60);
        story(fleet).await;
        fleet.finish().await;
        let most = fullest(fleet);
        assert!(most <= QUOTA, "seed {seed}: {most} of {QUOTA}; {}", fleet.figures());
        assert!(most >= QUOTA, "seed {seed}: the quota is never used, {most}");
        fleet.figures()
    })
}

#[test]
fn no_quota_is_exceeded_by_an_outage_with_any_knowledge_of_the_members() {
    for seed in 0..28 {
        let figures = with_quota(seed, 20.0, async |fleet| {
            for _ in 0..2 {
                fleet.pass(millis(100, 14_000)).await;
                // A frozen server keeps its data; a replacement may have none.
                let (health, forgets) = match seed % 4 {
                    0 | 3 => (Health::Gone, true),
                    1 => (Health::Gone, false),
                    _ => (Health::Frozen, false),
                };
                // The store returns before any member notices, before all have noticed, or much
                // later.
                let away = [1_000, 3_000, 20_000][usize::try_from(seed / 4 % 3).expect("small")];
                fleet.redis.set(health);
                fleet.pass(millis(0, away / 2)).await;
                fleet.hold(3, 10);
                fleet.pass(millis(0, away)).await;
                if forgets {
                    fleet.redis.flush_all();
                }
                fleet.redis.set(Health::Well);
            }
        });
        show(&format!("4 members at 20/s and 30/10s, away twice (seed {seed})"), &figures);
    }
}

#[test]
fn no_quota_is_exceeded_after_a_flush_if_the_first_member_knows_little() {
    for seed in 0..12 {
        let figures = with_quota(seed, 20.0, async |fleet| {
            for _ in 0..3 {
                fleet.pass(millis(100, 9_000)).await;
                fleet.redis.flush_all();
                fleet.hold(3, 10);
            }
        });
        show(&format!("4 members at 20/s and 30/10s, three flushes (seed {seed})"), &figures);
        assert!(figures.ticket_excess <= ROUNDING, "seed {seed}: {figures}");
    }
}

#[test]
fn nothing_is_exceeded_by_a_failover_to_a_server_that_lacks_the_latest() {
    for seed in 0..24 {
        let figures = with_quota(seed, 20.0, async |fleet| {
            for _ in 0..2 {
                fleet.pass(millis(100, 9_000)).await;
                let old = fleet.redis.snapshot();
                // As much as the burst and more, or as good as nothing.
                fleet.pass(millis(0, [3_000, 100][usize::from(seed % 4 == 3)])).await;
                // In no time, before all have noticed, or later.
                let away = [0, 1_500, 4_000][usize::try_from(seed % 3).expect("small")];
                if away > 0 {
                    fleet.redis.set(Health::Gone);
                    fleet.pass(millis(0, away)).await;
                }
                fleet.redis.replace(old);
                fleet.redis.set(Health::Well);
                fleet.hold(3, 10);
            }
        });
        show(&format!("4 members at 20/s and 30/10s, two stale servers (seed {seed})"), &figures);
        assert!(figures.ticket_excess <= ROUNDING, "seed {seed}: {figures}");
        assert!(figures.sent_excess <= jitter(20.0), "seed {seed}: {figures}");
    }
}

#[test]
fn a_server_without_the_latest_data_refills_no_bucket_for_the_first_member() {
    for (rate, burst, idle, away) in [(50.0, 40, 1, 0), (0.5, 5, 1, 4_000), (1_000.0, 100, 3, 300)]
    {
        let mut plan = Plan::new(5, rate, (rate as usize * 5).max(12));
        plan.burst = burst;
        let figures = plan.play(async |fleet| {
            for member in 0..idle {
                fleet.leave(member, usize::MAX);
            }
            for _ in 0..3 {
                fleet.pass(Duration::from_secs_f64(f64::from(burst) / rate)).await;
                let old = fleet.redis.snapshot();
                fleet.pass(Duration::from_secs_f64(f64::from(burst) / rate)).await;
                if away > 0 {
                    fleet.redis.set(Health::Gone);
                    fleet.pass(Duration::from_millis(away)).await;
                }
                fleet.redis.replace(old);
                fleet.redis.set(Health::Well);
                for member in 0..idle {
                    fleet.hold(member, 20);
                }
            }
            fleet.finish().await;
            fleet.figures()
        });
        show(&format!("5 members at {rate}/s, {idle} of them idle, three stale servers"), &figures);
        assert!(figures.ticket_excess <= ROUNDING, "{figures}");
        assert!(figures.sent_excess <= jitter(rate), "{figures}");
    }
}
