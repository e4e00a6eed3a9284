//! Slots (`parallel`): Redis allots them as `limiter::slots` does.

use tidegate::{
    limiter::slots::{LEASE, Need, Slots},
    store::SlotAsk,
};

use super::*;

#[tokio::test]
async fn redis_allots_slots_as_the_model_does() {
    let redis = Redis::start();
    let store = shared(&redis).await;
    let cooldown = policy(None, true, 1.0, Duration::ZERO);
    for seed in 0..20 {
        let mut random = fastrand::Rng::with_seed(seed);
        let key = Arc::from(format!("host-{seed}.example"));
        let name = ScopeName::plain(&Arc::from("slots"), &key);
        let (scope, mut model) = (store.scope(name), Slots::default());
        for step in 0..100 {
            let most = random.u32(1..7);
            let under_way = random.u32(0..4);
            let ask = SlotAsk {
                queue: Arc::from(format!("member-{}", random.u8(0..5))),
                most,
                under_way,
                wanted: under_way + random.u32(0..5),
            };
            let there = store.slots(&scope, &ask).await.unwrap();
            let SlotAsk { queue, under_way, wanted, .. } = ask;
            let need = Need { member: queue, under_way, wanted, fleet: 1, was_local: false };
            let here = model.allot(there.now, most, &need, 0);
            let same = (here.slots, here.contended, here.come_back)
                == (there.slots, there.contended, there.come_back);
            assert!(same, "seed {seed}, step {step}: {there:?} and {here:?} for {need:?}");
            let mut query = query(&scope, &limited(Limits::NONE, cooldown.clone()), None);
            query.queue = Arc::clone(&need.member);
            query.rule = Arc::new(Rule { parallel: Some(most), ..Rule::clone(&query.rule) });
            let foretold = store.forecast(&[query]).await.remove(0);
            let left = most.saturating_sub(model.in_use(foretold.now, &need.member));
            assert_eq!(foretold.slots_left, left, "seed {seed}, step {step}");
        }
        let key = format!("tidegate:{{slots}}:p:host-{seed}.example");
        let ttl: i64 =
            redis.command(&["PTTL", &key]).trim_start_matches(':').trim().parse().unwrap();
        assert!((1..=LEASE / 1_000 + 60_000).contains(&ttl), "{ttl} ms");
    }
}
