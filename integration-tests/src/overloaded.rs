//! A site without a wall, but with a limited capacity in pages per second. Further requests queue up there, and get a
//! 503 once the queue is long. A fleet crawls it in virtual time, through the real gates and scripts.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tidegate::{classify::verdict::Judgement, config, gate::Gate, rules::Rule, runtime::clock};

use crate::sim::{Plan, permit, target};

/// The shortest and the longest time for a page without a queue, in seconds.
const LATENCY: (f64, f64) = (0.1, 0.4);
/// The site refuses requests that would wait longer, in seconds.
const LONGEST: f64 = 30.0;
/// Members of the fleet.
const MEMBERS: usize = 3;
/// Requests that each member has at a time: enough to fill the queue.
const SLOTS: usize = 120;

/// The site: a pure function of the moments of its requests, in seconds.
#[derive(Debug, Clone)]
pub struct Overloaded {
    rate: f64,
    free: f64,
    draw: fastrand::Rng,
}

impl Overloaded {
    /// It gives `rate` pages per second.
    #[must_use]
    pub fn new(rate: f64, seed: u64) -> Self {
        Self { rate, free: 0.0, draw: fastrand::Rng::with_seed(seed) }
    }

    /// How long a request would wait at `now` before the site begins with it.
    #[must_use]
    pub fn queue(&self, now: f64) -> f64 {
        (self.free - now).max(0.0)
    }

    /// Answers a request that comes at `now`, not before the previous one. Returns whether it gets a page, and the time
    /// until the response.
    pub fn answer(&mut self, now: f64) -> (bool, f64) {
        let (least, most) = LATENCY;
        let own = least + self.draw.f64() * (most - least);
        let wait = self.queue(now);
        if wait > LONGEST {
            return (false, own);
        }
        // Pages differ.
        let took = (0.5 + self.draw.f64()) / self.rate;
        self.free = now + wait + took;
        (true, wait + took + own)
    }
}

/// The results of a crawl up to a moment.
#[derive(Debug, Clone, Copy, Default)]
pub struct Haul {
    /// Pages in per cent of the capacity of the site.
    pub pages: f64,
    /// Refused requests per 100 pages.
    pub refused: f64,
    /// The longest queue at the site from the third minute on, in seconds.
    pub queue: f64,
    /// Whether a cooldown has tripped.
    pub tripped: bool,
}

/// The state that the clients share.
#[derive(Debug)]
struct Shared {
    site: Overloaded,
    since: clock::Instant,
    pages: f64,
    refused: f64,
    queue: f64,
}

/// A fleet of three crawls a site with a capacity of `rate` pages per second, under a rule with these keys, as fast as
/// the rule allows. Returns the results at each of `moments`, in seconds.
///
/// # Panics
/// If the rule is invalid.
#[must_use]
pub fn crawl<const N: usize>(rate: f64, keys: &str, moments: [u64; N], seed: u64) -> [Haul; N] {
    let plan = Plan { seed, written: Some(rule(keys)), ..Plan::new(MEMBERS, 1.0, 0) };
    plan.play(async |fleet| {
        let site = Overloaded::new(rate, seed);
        let since = clock::now();
        let shared = Shared { site, since, pages: 0.0, refused: 0.0, queue: 0.0 };
        let shared = Arc::new(Mutex::new(shared));
        for slot in 0..SLOTS * MEMBERS {
            let member = slot % MEMBERS;
            fleet.client(member, client(fleet.gate(member), Arc::clone(&shared)));
        }
        let mut hauls = [Haul::default(); N];
        let mut passed = 0;
        for (haul, moment) in hauls.iter_mut().zip(moments) {
            fleet.pass(Duration::from_secs(moment - passed)).await;
            passed = moment;
            let scopes = fleet.gate(0).snapshot();
            let Shared { pages, refused, queue, .. } = &*shared.lock();
            *haul = Haul {
                pages: 100.0 * pages / (rate * Duration::from_secs(moment).as_secs_f64()),
                refused: 100.0 * refused / pages.max(1.0),
                queue: *queue,
                tripped: scopes.iter().any(|scope| scope.facts.epoch > 0),
            };
        }
        hauls
    })
}

fn rule(keys: &str) -> Rule {
    let text = format!("rules: [{{name: a, match: '*', max_wait: 24h, {keys}}}]");
    let loaded = config::parse(&text, "overloaded", &|_| None).expect("a good rule");
    (*loaded.rules.as_slice()[0]).clone()
}

/// Requests one page after the other.
async fn client(gate: Arc<Gate>, shared: Arc<Mutex<Shared>>) {
    while let Some(mut permit) = permit(&gate, &target(), 1).await {
        let (good, took) = shared.lock().answer();
        let took = Duration::from_secs_f64(took);
        tokio::time::sleep(took).await;
        shared.lock().count(good);
        permit.hear_time(took);
        permit.report(&Judgement::ok(if good { 200 } else { 503 })).await;
    }
}

impl Shared {
    fn answer(&mut self) -> (bool, f64) {
        let now = self.since.elapsed().as_secs_f64();
        if now >= 120.0 {
            self.queue = self.queue.max(self.site.queue(now));
        }
        self.site.answer(now)
    }

    fn count(&mut self, good: bool) {
        *if good { &mut self.pages } else { &mut self.refused } += 1.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_serves_its_capacity_at_any_demand() {
        let mut site = Overloaded::new(4.0, 7);
        let (mut pages, mut refused) = (0, 0);
        for n in 0..12_000 {
            let (good, _) = site.answer(f64::from(n) / 20.0);
            *if good { &mut pages } else { &mut refused } += 1;
        }
        assert!((2_400..2_600).contains(&pages), "{pages} pages in ten minutes");
        assert_eq!(pages + refused, 12_000);
        assert!((29.0..31.0).contains(&site.queue(600.0)), "{}", site.queue(600.0));
    }
}
