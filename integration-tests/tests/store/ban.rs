//! The learned rate after bans that plain refusals brought. Bans last minutes, so the scripts run in virtual time here.

use integration_tests::sim::{self, line::Line, redis::VirtualRedis};

use super::*;

/// How often the rate rose within half an hour after a ban of this length.
async fn rises_after(ban: Duration) -> usize {
    let redis = VirtualRedis::start(1_000_000_000_000_000);
    let line = Line::new(&redis, &Arc::default(), 0, Duration::from_millis(4), 1);
    let store =
        SharedStore::over(Box::new(line), sim::settings("redis://simulated"), Metrics::new());
    tokio::time::sleep(Duration::from_secs(2)).await;
    // It climbs at first, so that the ban shows no limit by count.
    let learn = Learn { start: 1.0, floor: 0.01, back_off: 0.87, patience: 60_000_000 };
    let limits = Limits { rate: Some(10.0), burst: 5, quotas: vec![], cost: 1, learn: Some(learn) };
    let kept = Duration::from_secs(7_200);
    let policy = CooldownPolicy {
        length: (ban, ban),
        max: kept,
        forget_after: kept,
        ..policy(None, true, 2.0, Duration::ZERO)
    };
    let mut pair = Pair::new(store, limited(limits, policy), "");
    let mut rates = Vec::new();
    let (mut second, mut opened) = (0, None);
    while opened.is_none_or(|opened| second < opened + 1_800) {
        second += 1;
        assert!(second < 7_200, "it never opened");
        tokio::time::sleep(Duration::from_secs(1)).await;
        let wanted = pair.learned.rate.max(1.0).ceil() + 1.0;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most 12")]
        let ask =
            Ask { wanted: wanted as u32, bound: 1_000_000, lease: 3_000_000, ..Ask::default() };
        let before = (pair.epoch, pair.probe);
        pair.take(&ask).await.expect("both grant the same");
        let blocked = (601..=603).contains(&second);
        let is_probe = pair.probe != before.1;
        if is_probe {
            opened = Some(second);
        }
        if opened.is_some() {
            rates.push(pair.learned.rate);
        }
        let verdict = Verdict::Forbidden;
        let block = Answer::Block { weight: 1.0, retry_after: 0, sure: false, verdict };
        let answer = if blocked { block } else { Answer::Ok };
        let (oks, old, draw, named, error, load) = (0, false, 0.5, None, None, None);
        let report = Op::Report { answer, oks, old, probe: is_probe, draw, named, error, load };
        pair.step(&report).await.expect("both answer the same");
    }
    rates.windows(2).filter(|pair| pair[1] > pair[0]).count()
}

#[test]
fn both_stores_wait_alike_after_a_long_ban_that_plain_refusals_brought() {
    let rises = [30, 600].map(|seconds| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(rises_after(Duration::from_secs(seconds)))
    });
    assert!(rises[0] > 2 * rises[1].max(1), "after half a minute, and after ten: {rises:?}");
}
