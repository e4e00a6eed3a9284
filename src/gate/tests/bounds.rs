//! The gate drops sites without requests, and recovers from a scheduler that fails.

use std::sync::atomic::AtomicUsize;

use tokio::sync::broadcast;

use super::*;
use crate::{
    gate::cache::CachedPhase,
    store::{Answering, Reply},
};

/// Registries are not swept up to this number of scopes.
const UNSWEPT: usize = 1_024;

fn by_host(rate: Option<f64>) -> Rule {
    let mut rule = rule(rate, 5);
    rule.per = Split::Host;
    if let Some(policy) = &mut rule.cooldown {
        policy.per = Split::Host;
    }
    rule
}

fn site(number: usize) -> Target {
    Target { host: Host::Name(Arc::from(format!("h{number}.example"))), ..target() }
}

async fn go(gate: &Gate, target: &Target) -> Permit {
    let entry = gate.find(target).expect("the rule matches everything");
    let mut permit =
        gate.hold(&entry, target, &client(1), Preferences::default()).await.expect("a permit");
    assert!(permit.may_send());
    permit
}

async fn trip(gate: &Gate, target: &Target) {
    for _ in 0..3 {
        go(gate, target).await.report(&forbidden()).await;
    }
}

fn kept(gate: &Gate) -> (usize, (usize, usize)) {
    let Backend::Memory(store) = &gate.shared.store else { panic!("the embedded store") };
    (gate.scopes().len(), store.kept())
}

#[tokio::test(start_paused = true)]
async fn sites_that_were_requested_once_leave_nothing_behind() {
    let gate = gate(by_host(Some(10.0)));
    for number in 0..10 * UNSWEPT {
        go(&gate, &site(number)).await.report(&Judgement::ok(200)).await;
        // A bucket is kept for half a second and the ramp: about five hundred of them at this pace.
        tokio::time::advance(Duration::from_millis(20)).await;
    }
    let (scopes, (buckets, cooldowns)) = kept(&gate);
    assert!(scopes <= UNSWEPT, "{scopes} scopes");
    assert!(buckets <= 2 * UNSWEPT, "{buckets} buckets");
    assert!(cooldowns <= 2 * UNSWEPT, "{cooldowns} cooldowns of sites that never blocked");
}

#[tokio::test(start_paused = true)]
async fn sites_that_blocked_and_are_not_requested_again_leave_nothing_behind() {
    let gate = gate(by_host(None));
    for number in 0..4 * UNSWEPT {
        trip(&gate, &site(number)).await;
        tokio::time::advance(Duration::from_secs(2)).await;
    }
    let (scopes, (_, cooldowns)) = kept(&gate);
    assert!(scopes <= UNSWEPT, "{scopes} scopes");
    // A trip is remembered for eleven minutes: 320 of them at this pace.
    assert!(cooldowns <= 2 * UNSWEPT, "{cooldowns} cooldowns");
}

#[tokio::test(start_paused = true)]
async fn a_dropped_scope_is_not_forgotten_by_the_store() {
    let gate = gate(by_host(None));
    trip(&gate, &site(0)).await;
    tokio::time::advance(Duration::from_secs(31)).await;
    for number in 1..=UNSWEPT {
        go(&gate, &site(number)).await.report(&Judgement::ok(200)).await;
    }
    assert!(kept(&gate).0 < UNSWEPT, "the scope of the first site is gone");
    let mut probe = go(&gate, &site(0)).await;
    let scope = gate.scopes().into_iter().find(|scope| &*scope.cooldown.key == "h0.example");
    let phase = scope.expect("a scope again").cooldown.phase();
    assert!(matches!(phase, CachedPhase::Probing(_)), "one request goes to see: {phase:?}");
    probe.report(&forbidden()).await;
    let target = site(0);
    let entry = gate.find(&target).expect("the rule matches everything");
    let soon = Preferences { max_wait: Some(Duration::from_secs(1)), ..Preferences::default() };
    let refused = gate.hold(&entry, &target, &client(1), soon).await.expect_err("it cools again");
    assert_eq!(refused.why, RefusalReason::Cooldown);
}

/// A store whose first `take` ends the calling task.
#[derive(Debug)]
struct Deadly {
    taken: AtomicUsize,
    news: broadcast::Sender<String>,
}

impl ScriptServer for Deadly {
    fn run<'a>(
        &'a self,
        name: &'static str,
        _text: &'static str,
        _keys: Vec<String>,
        _arguments: Vec<String>,
    ) -> Answering<'a> {
        Box::pin(async move {
            match name {
                "take" if self.taken.fetch_add(1, Ordering::Relaxed) == 0 => panic!("on purpose"),
                "members" => Ok(Reply::members(1)),
                _ => Err("ERR nothing here".to_owned()),
            }
        })
    }

    fn subscribe(&self, _channel: &str) -> broadcast::Receiver<String> {
        self.news.subscribe()
    }
}

#[tokio::test(start_paused = true)]
async fn a_scheduler_that_panics_refuses_waiting_requests_and_the_next_request_starts_another() {
    let server = Deadly { taken: AtomicUsize::new(0), news: broadcast::Sender::new(1) };
    let gate = gate_over(server, rule(Some(10.0), 5)).await;
    let waiting = tokio::time::timeout(Duration::from_secs(5), hold(&gate, 1)).await;
    let refused = waiting.expect("an answer").expect_err("nobody decided");
    assert_eq!(
        (refused.why, refused.retry_after),
        (RefusalReason::Store, Some(Duration::from_secs(1)))
    );
    assert_eq!(gate.scopes().iter().map(|scope| scope.held()).sum::<usize>(), 0);
    let next = tokio::time::timeout(Duration::from_secs(5), hold(&gate, 1)).await;
    assert!(next.expect("an answer").is_ok(), "the scope goes on");
}
