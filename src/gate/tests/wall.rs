//! A learned rate against a wall, in virtual time.

use super::*;
use crate::limiter::learn::Learn;

/// A site that accepts this many requests per minute. A client that sends more is banned for twenty seconds.
struct Wall {
    limit: usize,
    good: Vec<Instant>,
    until: Option<Instant>,
    blocks: Vec<Instant>,
}

impl Wall {
    fn answer(&mut self) -> Judgement {
        let now = clock::now();
        let recent = self.good.iter().rev().take_while(|at| now - **at < Duration::from_secs(60));
        if self.until.is_some_and(|until| now < until) || recent.count() >= self.limit {
            self.until = Some(now + Duration::from_secs(20));
            self.blocks.push(now);
            return Judgement { verdict: Verdict::Forbidden, status: Some(429), ..forbidden() };
        }
        self.good.push(now);
        Judgement::ok(200)
    }
}

#[tokio::test(start_paused = true)]
async fn a_rate_written_twice_too_high_settles_below_the_wall() {
    let mut written = rule(Some(2.0), 2);
    written.limits.learn =
        Some(Learn { start: 2.0, floor: 0.02, back_off: 0.87, patience: 60_000_000 });
    let gate = gate(written);
    let wall = Wall { limit: 60, good: vec![], until: None, blocks: vec![] };
    let wall = Arc::new(parking_lot::Mutex::new(wall));
    let start = clock::now();
    let crawl = |gate: Arc<Gate>, wall: Arc<parking_lot::Mutex<Wall>>, who| async move {
        while start.elapsed() < Duration::from_secs(5_400) {
            let Ok(mut permit) = hold(&gate, who).await else {
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            };
            if permit.may_send() {
                tokio::time::sleep(Duration::from_millis(250)).await;
                let answer = wall.lock().answer();
                permit.report(&answer).await;
            }
        }
    };
    let workers: Vec<_> =
        (1..4).map(|who| tokio::spawn(crawl(Arc::clone(&gate), Arc::clone(&wall), who))).collect();
    for worker in workers {
        worker.await.expect("no panic");
    }
    let late = |moments: &[Instant]| {
        moments.iter().filter(|at| **at - start > Duration::from_secs(1_800)).count()
    };
    let seen = wall.lock();
    let (good, blocks) = (late(&seen.good), late(&seen.blocks));
    let rate = gate.snapshot()[0].facts.rate_current.expect("it has one");
    assert!((0.5..1.1).contains(&rate), "{rate} per second at a wall of 1 per second");
    assert!(good > 3_600 * 2 / 3, "{good} pages in an hour at a wall of 3600");
    assert!(blocks * 50 < good, "{blocks} blocks for {good} pages");
}
