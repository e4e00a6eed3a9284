//! The same crawl through the real code of a process: three gates, the scripts on a virtual Redis,
//! news, batched reports, and connections with a latency.
//!
//! It costs a hundred times as much as the decisions alone, and checks their results.

use std::{sync::Arc, time::Duration};

use integration_tests::{
    sim::{Plan, permit, target},
    walls::{Answer, Wall},
};
use parking_lot::Mutex;
use tidegate::{
    classify::verdict::{Confidence, Judgement, Verdict},
    gate::Gate,
    runtime::clock,
};

use super::{
    fleet::{LATENCY, SLOTS, Tallies, Tally},
    policy::{WORKERS, rule},
};

/// Shared by the clients.
#[derive(Debug)]
struct Site {
    wall: Wall,
    tallies: Tallies<2>,
    draw: fastrand::Rng,
    since: clock::Instant,
}

/// Crawls until the last of `moments` under a rule with these keys, and returns the results at
/// each.
pub(crate) fn crawl(wall: Wall, keys: &str, moments: [i64; 2], seed: u64) -> [Tally; 2] {
    let keys = format!("{keys}, max_wait: 24h");
    let plan = Plan { seed, written: Some((*rule(&keys)).clone()), ..Plan::new(WORKERS, 1.0, 0) };
    plan.play(async |fleet| {
        let draw = fastrand::Rng::with_seed(seed ^ 0xA5A5);
        let site = Site { wall, tallies: Tallies::new(moments), draw, since: clock::now() };
        let site = Arc::new(Mutex::new(site));
        for slot in 0..SLOTS {
            let member = slot % WORKERS;
            fleet.client(member, client(fleet.gate(member), Arc::clone(&site)));
        }
        let last = u64::try_from(moments[1]).expect("it is later than the start");
        fleet.pass(Duration::from_micros(last + 1)).await;
        let mut site = site.lock();
        site.tallies.until(moments[1]);
        site.tallies.all()
    })
}

async fn client(gate: Arc<Gate>, site: Arc<Mutex<Site>>) {
    while let Some(mut permit) = permit(&gate, &target(), 1).await {
        let (answer, took) = site.lock().answer();
        tokio::time::sleep(took).await;
        permit.report(&judged(answer)).await;
    }
}

impl Site {
    fn answer(&mut self) -> (Answer, Duration) {
        let now = i64::try_from(self.since.elapsed().as_micros()).expect("hours at most");
        self.tallies.until(now);
        let answer = self.wall.answer(now);
        self.tallies.count(now, answer == Answer::Page);
        (answer, Duration::from_secs_f64(LATENCY.0 + self.draw.f64() * (LATENCY.1 - LATENCY.0)))
    }
}

fn judged(answer: Answer) -> Judgement {
    match answer {
        Answer::Page => Judgement::ok(200),
        Answer::Refusal => Judgement::ok(503),
        Answer::Silence => Judgement { verdict: Verdict::ConnectionError, ..Judgement::ok(0) },
        Answer::Block { retry_after, sure } => Judgement {
            verdict: if sure { Verdict::RateLimited } else { Verdict::Forbidden },
            confidence: if sure { Confidence::High } else { Confidence::Low },
            retry_after: (retry_after > 0)
                .then(|| Duration::from_micros(retry_after.unsigned_abs())),
            ..Judgement::ok(if sure { 429 } else { 403 })
        },
    }
}
