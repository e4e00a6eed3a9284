//! The ramp after a cooldown: the rate of the whole fleet climbs linearly.

use std::time::Duration;

use integration_tests::{
    member::{Member, RuleFile},
    redis::Redis,
    site::Site,
};

use crate::{spawn_get, three_blocks};

const RATE: f64 = 40.0;
const RAMP: f64 = 4.0;

/// Tokens that have come `t` seconds after the scope opened: the rate climbs, then stays.
fn tokens(t: f64) -> f64 {
    if t < RAMP { RATE * t * t / (2.0 * RAMP) } else { RATE * (t - RAMP / 2.0) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_cooldown_the_rate_climbs_and_the_whole_fleet_keeps_to_it() {
    let (redis, site) = (Redis::start(), Site::start());
    let file = RuleFile::one_rule(
        "rate: 40/s, burst: 10, learn: false, cooldown: {for: 1s, ratio: off, ramp: 4s}",
    )
    .redis(&redis);
    let fleet = Member::fleet(3, &file).await;
    three_blocks(&fleet[0], &site).await;
    let waiting: Vec<_> = (0..150).map(|n| spawn_get(&fleet[n % 3], site.url("/"))).collect();
    for answer in waiting {
        assert_eq!(answer.await.expect("the client lives").status, 200);
    }
    let times = site.times();
    assert_eq!(times.len(), 3 + 150);
    let (probe, later) = (times[3], &times[4..]);
    assert!(probe - times[2] >= Duration::from_secs(1), "the probe waits for the end");
    // The scope opened after the probe had arrived, so that every count here is on the safe side.
    for (n, time) in (1u32..).zip(later) {
        let t = (*time - probe).as_secs_f64();
        let most = tokens(t) + 1.0;
        assert!(f64::from(n) <= most, "{n} requests {t:.3} s after the probe, of {most:.1}");
    }
    let half = later.iter().filter(|time| (**time - probe).as_secs_f64() < RAMP / 2.0).count();
    assert!(half > 0, "it climbs from the start, and does not wait for the end of the ramp");
}
