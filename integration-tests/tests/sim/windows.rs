//! Quota windows are identified by their length: a member with other quotas does not end a running
//! one.

use tidegate::{
    limiter::policy::{Limits, Quota},
    rules::Rule,
};

use super::{
    lost_memory::{members, play, rule},
    *,
};

const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);

fn with(quotas: &[(u64, Duration)]) -> Rule {
    let quotas = quotas.iter().map(|(tokens, window)| Quota { tokens: *tokens, window: *window });
    let (rate, quotas) = (Some(1_000.0), quotas.collect());
    rule(Limits { rate, burst: 1_000, quotas, cost: 1, learn: None })
}

#[test]
fn a_member_with_other_quotas_ends_no_window_and_counts_in_the_current_ones() {
    play(async |redis| {
        let [first, second] = members(redis).await;
        let (hourly, none, daily) = (with(&[(30, HOUR)]), with(&[]), with(&[(50, DAY)]));
        assert_eq!(first.gets(&hourly, "", 20).await, 20);
        assert_eq!(second.gets(&none, "", 1).await, 1);
        assert_eq!(second.gets(&daily, "", 2).await, 2);
        assert_eq!(first.gets(&hourly, "", 30).await, 7, "23 of 30 are taken");
        // The day has begun with the first request of the member that has it.
        assert_eq!(second.gets(&daily, "", 100).await, 41, "9 of 50 are taken");
        tokio::time::sleep(HOUR).await;
        assert_eq!(first.gets(&hourly, "", 100).await, 30);
        tokio::time::sleep(HOUR).await;
        assert_eq!(second.gets(&daily, "", 100).await, 0, "the day has not ended");
    });
}

#[test]
fn a_reload_to_another_list_ends_no_window() {
    play(async |redis| {
        let [first, _] = members(redis).await;
        let gets = async |rule: &Rule, wanted| first.gets(rule, "", wanted).await;
        assert_eq!(gets(&with(&[(30, HOUR), (40, DAY)]), 29).await, 29);
        assert_eq!(gets(&with(&[]), 5).await, 5);
        assert_eq!(gets(&with(&[(40, DAY), (30, HOUR)]), 9).await, 0, "34 of 30 are taken");
        tokio::time::sleep(HOUR).await;
        assert_eq!(gets(&with(&[(40, DAY), (30, HOUR)]), 9).await, 6, "34 of 40 are taken");
    });
}

#[test]
fn a_members_knowledge_of_a_window_survives_a_flush_for_a_member_with_another_list() {
    play(async |redis| {
        let [first, second] = members(redis).await;
        let (hourly, both) = (with(&[(30, HOUR)]), with(&[(50, DAY), (30, HOUR)]));
        assert_eq!(first.gets(&hourly, "", 30).await, 30);
        assert_eq!(second.gets(&both, "", 1).await, 0);
        redis.flush_all();
        second.gets(&both, "", 1).await;
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(second.gets(&both, "", 1).await, 0);
        assert_eq!(first.gets(&hourly, "", 1).await, 0);
        tokio::time::sleep(HOUR).await;
        assert_eq!(second.gets(&both, "", 1).await, 1);
    });
}

#[test]
fn clients_that_disconnect_cost_a_quota_nothing() {
    const QUOTA: u64 = 24;
    for seed in 0..10 {
        let mut plan = Plan { seed, burst: 3, ..Plan::new(2, 20.0, 0) };
        plan.quotas = vec![Quota { tokens: QUOTA, window: HOUR }];
        let sent = plan.play(async |fleet| {
            for _ in 0..4 {
                for member in [0, 1] {
                    fleet.hold(member, 8);
                }
                fleet.pass(Duration::from_millis(60 + seed * 7)).await;
                for member in [0, 1] {
                    fleet.leave(member, 8);
                }
                fleet.pass(Duration::from_millis(300)).await;
            }
            let early = fleet.ledger.all().len();
            assert!(early < 24, "seed {seed}: {early} were sent before any patient client came");
            for member in [0, 1] {
                fleet.hold(member, 30);
            }
            fleet.pass(Duration::from_secs(60)).await;
            fleet.ledger.all().len()
        });
        assert_eq!(u64::try_from(sent), Ok(QUOTA), "seed {seed}");
    }
}
