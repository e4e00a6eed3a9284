//! Limits of users (`each_user`): both stores take their tokens with the rule's, or not at all.

use super::*;

#[tokio::test]
async fn memory_and_redis_limit_users_alike() {
    let redis = Redis::start();
    let store = shared(&redis).await;
    let limit =
        |rate, burst, quotas| Limits { rate: Some(rate), burst, quotas, cost: 1, learn: None };
    let quota = Quota { tokens: 4, window: Duration::from_millis(40) };
    for seed in 0..10 {
        let mut random = fastrand::Rng::with_seed(seed);
        let cooldown = policy(None, true, 1.0, Duration::ZERO);
        let rule = Rule {
            each_user: Some(limit(200.0, 2, vec![quota])),
            ..limited(limit(2_000.0, 6, vec![]), cooldown)
        };
        let mut pair = Pair::new(Arc::clone(&store), rule, &format!("host-{seed}.example"));
        let (mut granted, mut over, mut foreseen) = (0, 0, 0);
        for _ in 0..100 {
            let user = [None, Some("alice"), Some("bob")][random.usize(0..3)].map(Arc::from);
            let bound = random.i64(0..20_000);
            let foretold = pair.foretell(user.clone()).await.unwrap();
            if user.is_none() {
                assert_ne!(foretold.reason, Some(WaitsFor::User));
            }
            foreseen += usize::from(foretold.reason == Some(WaitsFor::User));
            let ask = Ask { wanted: random.u32(1..4), bound, user, ..Ask::default() };
            let before = pair.tickets.len();
            over += usize::from(pair.take(&ask).await.unwrap());
            granted += pair.tickets.len() - before;
            if random.bool() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        assert!(granted > 50 && over > 10, "{granted} granted, {over} times over");
        assert!(foreseen > 10, "{foreseen} times foretold");
    }
}
