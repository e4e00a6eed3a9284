//! Sites that strain under the load. Windows last seconds, so the scripts run in virtual time here.

use std::collections::BTreeSet;

use integration_tests::sim::{self, line::Line, redis::VirtualRedis};
use tidegate::limiter::learn::RateReason;

use super::*;

/// A site that gives so many answers per second, or is slow or broken by itself.
struct Site {
    gives: f64,
    queue: f64,
    slow: bool,
    broken: bool,
    draw: fastrand::Rng,
}

impl Site {
    /// What a member counts in a second in which it sends `sent`.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "hundreds at most")]
    fn second(&mut self, sent: f64) -> Tally {
        let answered = self.gives.min(sent + self.queue).floor();
        self.queue = (self.queue + sent - answered).max(0.0);
        let late = if self.slow || self.queue > self.gives { answered } else { 0.0 };
        let failed = if self.broken { answered * 0.3 } else { 0.0 };
        let over = self.draw.i64(900_000..1_100_000);
        Tally {
            over,
            sent: sent as u32,
            answered: answered as u32,
            failed: failed as u32,
            late: late as u32,
            own: self.draw.i64(0..400_000),
            quickest: if late > 0.0 { 2_000_000 } else { self.draw.i64(0..1_000_000) },
        }
    }
}

async fn hour(seed: u64) -> BTreeSet<&'static str> {
    let redis = VirtualRedis::start(1_000_000_000_000_000);
    let line = Line::new(&redis, &Arc::default(), 0, Duration::from_millis(4), seed);
    let store =
        SharedStore::over(Box::new(line), sim::settings("redis://simulated"), Metrics::new());
    tokio::time::sleep(Duration::from_secs(2)).await;
    let learn = Learn { start: 40.0, floor: 0.4, back_off: 0.87, patience: 60_000_000 };
    let limits = Limits { rate: Some(40.0), burst: 5, quotas: vec![], cost: 1, learn: Some(learn) };
    let kept = Duration::from_secs(600);
    let policy = CooldownPolicy { forget_after: kept, ..policy(None, true, 2.0, Duration::ZERO) };
    let mut pair = Pair::new(store, limited(limits, policy), "");
    let mut draw = fastrand::Rng::with_seed(seed);
    let mut site = Site { gives: 1e9, queue: 0.0, slow: false, broken: false, draw: draw.fork() };
    let mut reasons = BTreeSet::new();
    for second in 0..3_600 {
        if second % 240 == 0 {
            site.gives = if draw.bool() { 4.0 + 20.0 * draw.f64() } else { 1e9 };
            (site.slow, site.broken) = (draw.u8(0..4) == 0, draw.u8(0..4) == 0);
            site.queue = 0.0;
        }
        let pause = if draw.u16(0..500) == 0 { 70 } else { 1 };
        tokio::time::sleep(Duration::from_secs(pause)).await;
        let ask = Ask { wanted: 1, bound: 1_000_000, ..Ask::default() };
        pair.take(&ask).await.expect("both grant the same");
        reasons.insert(pair.learned.why.as_str());
        let used = if draw.u8(0..10) == 0 { 0.1 } else { 1.0 };
        let load = Some(site.second(pair.learned.rate * used));
        let (answer, draw) = (Answer::Nothing, 0.5);
        let (oks, old, probe, named, error) = (0, false, false, None, None);
        let report = Op::Report { answer, oks, old, probe, draw, named, error, load };
        pair.step(&report).await.expect("both answer the same");
        if second == 1_800 {
            redis.set_back(Duration::from_secs(40));
        }
    }
    assert_eq!(pair.epoch, 0, "nothing tripped");
    reasons
}

#[test]
fn both_stores_ease_alike() {
    let mut reasons = BTreeSet::new();
    for seed in 0..8 {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        reasons.extend(runtime.block_on(hour(seed)));
    }
    for why in [RateReason::Overload, RateReason::Relieved, RateReason::NoRelief, RateReason::Try] {
        assert!(reasons.contains(why.as_str()), "never {}", why.as_str());
    }
}
