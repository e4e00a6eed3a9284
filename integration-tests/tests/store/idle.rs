//! How long Redis keeps an unused scope, and how much memory it takes.

use super::*;

const MINUTE: i64 = 60_000;
const DAY: i64 = 24 * 60 * MINUTE;
/// How long a key outlives its content.
const SLACK: i64 = MINUTE;

fn number(reply: &str) -> i64 {
    reply.trim_start_matches(':').trim().parse().unwrap()
}

#[test]
fn a_scope_that_taught_nothing_is_forgotten_soon_and_one_that_did_after_a_week() {
    let redis = Redis::start();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let store = runtime.block_on(shared(&redis));
    let learn = Learn { start: 3.0, floor: 0.1, back_off: 0.87, patience: 60_000_000 };
    let limits = Limits { rate: Some(3.0), burst: 5, quotas: vec![], cost: 1, learn: Some(learn) };
    let longest = Duration::from_secs(600);
    let cooldown = CooldownPolicy { max: longest, ..policy(None, true, 1.0, Duration::ZERO) };
    let mut pair = Pair::new(store, limited(limits, cooldown), "host-1234.example");
    let key = "tidegate:{same}:b:host-1234.example";
    let ttl = || number(&redis.command(&["PTTL", key]));
    for _ in 0..3 {
        runtime.block_on(pair.take(&Ask { wanted: 1, ..Ask::default() })).unwrap();
    }
    // A trip is learned from once the scope is open again.
    let most = 10 * MINUTE + SLACK;
    assert!((10 * MINUTE..=most).contains(&ttl()), "{} ms", ttl());
    let bytes = number(&redis.command(&["MEMORY", "USAGE", key]));
    assert!(bytes <= 320, "{bytes} bytes");
    runtime
        .block_on(pair.override_rate(RateOverride::Set { rate: Some(2.0), frozen: None }))
        .unwrap();
    assert!((6 * DAY..8 * DAY).contains(&ttl()), "{} ms", ttl());
    runtime.block_on(pair.override_rate(RateOverride::Forget)).unwrap();
    assert!(ttl() <= most, "{} ms", ttl());
}

#[test]
fn a_key_that_lost_its_end_gets_one_at_the_next_touch() {
    let redis = Redis::start();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let store = runtime.block_on(shared(&redis));
    let limits = Limits { rate: Some(10.0), burst: 5, quotas: vec![], cost: 1, learn: None };
    let mut pair = Pair::new(store, limited(limits, policy(None, true, 1.0, Duration::ZERO)), "");
    let keys = ["tidegate:{same}:m", "tidegate:{same}:b:"];
    for _ in 0..2 {
        runtime.block_on(pair.take(&Ask { wanted: 1, ..Ask::default() })).unwrap();
        for key in keys {
            let ttl = number(&redis.command(&["PTTL", key]));
            assert!(ttl > 0, "{key}: {ttl} ms");
            assert_eq!(number(&redis.command(&["PERSIST", key])), 1);
        }
    }
}
