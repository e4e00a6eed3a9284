//! The gate over the embedded store, in virtual time.

mod bounds;
mod late;
mod named;
mod resync;
mod wall;

use std::{sync::Arc, time::Duration};

use tokio::task::JoinHandle;

use super::*;
use crate::{
    classify::verdict::{Judgement, Verdict},
    limiter::policy::{CooldownPolicy, Limits, Ratio, Split, Weights},
    observability::metrics::Observed,
    rules::{
        TunnelCount,
        secret::Secret,
        settings::{OnFailure, RedisSettings},
    },
    runtime::clock::Instant,
    store::{Memory, ScriptServer, SharedStore},
    target::{Host, Scheme},
};

/// A gate with one rule, over a server that the test provides.
async fn gate_over(server: impl ScriptServer + 'static, rule: Rule) -> Arc<Gate> {
    let metrics = Metrics::new();
    let settings = RedisSettings {
        url: Secret::new("redis://unused"),
        prefix: "tidegate".to_owned(),
        timeout: Duration::from_millis(500),
        on_failure: OnFailure::Local,
        local_share: None,
        ca: Vec::new(),
    };
    let store = SharedStore::over(Box::new(server), settings, Arc::clone(&metrics));
    store.first_word().await;
    let events = Events::new(Arc::clone(&metrics));
    let rules = RuleSet::new(vec![rule]);
    Gate::new(rules, Backend::Shared(store), metrics, events, Duration::from_secs(90))
}

fn rule(rate: Option<f64>, burst: u32) -> Rule {
    Rule {
        limits: Limits { rate, burst, quotas: vec![], cost: 1, learn: None },
        tunnel: TunnelCount::Connect,
        cooldown: Some(CooldownPolicy {
            per: Split::All,
            after: 3.0,
            ratio: Some(Ratio { share: 0.5, of: 20 }),
            silence: None,
            on: Weights { verdicts: vec![(Verdict::Forbidden, 1.0)], statuses: vec![] },
            length: (Duration::from_secs(30), Duration::from_secs(30)),
            forget_after: Duration::from_secs(600),
            probe: true,
            grow: 2.0,
            max: Duration::from_secs(600),
            respect_retry_after: true,
            ramp: Duration::from_secs(10),
        }),
        ..Rule::unlimited("default")
    }
}

fn gate(rule: Rule) -> Arc<Gate> {
    let metrics = Metrics::new();
    let events = Events::new(Arc::clone(&metrics));
    let store = Backend::Memory(Memory::default());
    Gate::new(RuleSet::new(vec![rule]), store, metrics, events, Duration::from_secs(90))
}

fn target() -> Target {
    Target {
        scheme: Scheme::Http,
        host: Host::Name(Arc::from("shop.example")),
        port: 80,
        path: Arc::from("/"),
        server: None,
    }
}

fn client(last: u8) -> Client {
    Client::Address(IpAddr::from([10, 0, 0, last]))
}

async fn hold(gate: &Gate, who: u8) -> Result<Permit, Refused> {
    let entry = gate.find(&target()).expect("the rule matches everything");
    gate.hold(&entry, &target(), &client(who), Preferences::default()).await
}

fn hold_many(gate: &Arc<Gate>, count: usize) -> Vec<JoinHandle<Option<(Instant, Permit)>>> {
    let one = |gate: Arc<Gate>| async move {
        let mut permit = hold(&gate, 1).await.ok()?;
        let may = permit.may_send();
        assert!(may, "nothing has tripped");
        Some((clock::now(), permit))
    };
    (0..count).map(|_| tokio::spawn(one(Arc::clone(gate)))).collect()
}

fn forbidden() -> Judgement {
    Judgement { verdict: Verdict::Forbidden, status: Some(403), ..Judgement::ok(403) }
}

async fn block(gate: &Gate, times: usize) {
    for _ in 0..times {
        let mut permit = hold(gate, 1).await.expect("a permit");
        assert!(permit.may_send());
        permit.report(&forbidden()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn held_requests_go_at_the_rate_after_the_burst() {
    let gate = gate(rule(Some(10.0), 5));
    let start = clock::now();
    let mut sent = vec![];
    for held in hold_many(&gate, 105) {
        sent.push(held.await.expect("no panic").expect("a permit").0 - start);
    }
    sent.sort_unstable();
    assert!(sent[4] < Duration::from_millis(5), "the burst goes at once");
    let last = sent[104].as_secs_f64();
    assert!((10.0..10.2).contains(&last), "100 more at 10/s took {last} s");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_cannot_go_in_time_is_refused_at_once() {
    let gate = gate(Rule { max_wait: Duration::from_secs(2), ..rule(Some(1.0), 1) });
    let start = clock::now();
    let held = hold_many(&gate, 10);
    let mut refused = 0;
    for held in held {
        refused += usize::from(held.await.expect("no panic").is_none());
    }
    assert_eq!(refused, 7, "one goes at once, two within two seconds");
    assert!(start.elapsed() < Duration::from_secs(3));
    let error = {
        let waiting = hold_many(&gate, 2);
        tokio::time::sleep(Duration::from_millis(10)).await;
        let error = hold(&gate, 1).await.expect_err("no room within two seconds");
        drop(waiting);
        error
    };
    assert_eq!(error.why, RefusalReason::Limit);
    assert!(error.retry_after.is_some_and(|wait| wait > Duration::from_secs(2)));
}

#[tokio::test(start_paused = true)]
async fn an_early_request_is_judged_by_the_first_reply_of_the_store() {
    // One per minute, three saved, and a `max_wait` of two minutes: three are released at once, two within two minutes.
    let gate = gate(rule(Some(1.0 / 60.0), 3));
    let start = clock::now();
    let mut waits = vec![];
    for held in hold_many(&gate, 9) {
        if let Some((at, _)) = held.await.expect("no panic") {
            waits.push((at - start).as_secs());
        }
    }
    waits.sort_unstable();
    assert_eq!(waits, [0, 0, 0, 60, 120]);
    let start = clock::now();
    for held in hold_many(&gate, 4).into_iter().skip(2) {
        assert!(held.await.expect("no panic").is_none(), "two within two minutes, and no third");
    }
    assert!(start.elapsed() < Duration::from_secs(1), "refused at once, not after waiting");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_disconnects_takes_no_token() {
    let gate = gate(rule(Some(1.0), 1));
    let first = hold(&gate, 1).await.expect("the burst");
    drop(first);
    let held = hold_many(&gate, 50);
    tokio::time::sleep(Duration::from_millis(100)).await;
    for held in held {
        held.abort();
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    let start = clock::now();
    let _permit = hold(&gate, 1).await.expect("a permit");
    assert!(start.elapsed() <= Duration::from_millis(1_000), "waited {:?}", start.elapsed());
    assert_eq!(gate.snapshot()[0].facts.held, 0);
}

#[tokio::test(start_paused = true)]
async fn three_blocks_hold_everything_until_the_probe_comes_back() {
    let gate = gate(rule(Some(100.0), 10));
    let early = hold(&gate, 1).await.expect("a permit");
    block(&gate, 3).await;
    let mut early = early;
    assert!(!early.may_send(), "unsent when the cooldown tripped");
    drop(early);
    let start = clock::now();
    let second = tokio::spawn({
        let gate = Arc::clone(&gate);
        async move { hold(&gate, 2).await.map(|permit| (permit, clock::now())) }
    });
    let mut probe = hold(&gate, 1).await.expect("the probe");
    assert!((29..31).contains(&start.elapsed().as_secs()), "held {:?}", start.elapsed());
    assert!(probe.may_send());
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(!second.is_finished(), "one probe at a time");
    probe.report(&Judgement::ok(200)).await;
    let (_, opened) = second.await.expect("no panic").expect("a permit");
    assert!(opened - start > Duration::from_secs(35));
}

#[tokio::test(start_paused = true)]
async fn another_request_probes_if_the_client_of_the_first_disconnects() {
    let gate = gate(rule(Some(100.0), 10));
    block(&gate, 3).await;
    let mut probe = hold(&gate, 1).await.expect("the probe");
    assert!(probe.may_send());
    let start = clock::now();
    drop(probe);
    let mut next = hold(&gate, 1).await.expect("the next probe");
    assert!(start.elapsed() < Duration::from_secs(1), "waited {:?}", start.elapsed());
    assert!(next.may_send());
    next.report(&forbidden()).await;
    let status = &gate.snapshot()[0].facts;
    assert!(status.remaining_ms > 55_000, "grown to {} ms", status.remaining_ms);
}

#[tokio::test(start_paused = true)]
async fn a_rule_without_a_rate_is_held_by_its_cooldown_and_spread_over_the_ramp() {
    let gate = gate(rule(None, 1));
    block(&gate, 3).await;
    let held = hold_many(&gate, 100);
    let mut sent = vec![];
    for held in held {
        let (at, mut permit) = held.await.expect("no panic").expect("a permit");
        permit.report(&Judgement::ok(200)).await;
        sent.push(at);
    }
    sent.sort_unstable();
    let spread = (sent[99] - sent[1]).as_secs_f64();
    assert!((8.0..=10.5).contains(&spread), "spread over {spread} s");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_lost_its_permit_goes_first_after_the_cooldown() {
    let gate = gate(rule(Some(1.0), 10));
    let mut early = hold(&gate, 1).await.expect("a permit");
    block(&gate, 3).await;
    let others = hold_many(&gate, 3);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!early.may_send());
    early.again().await.expect("leave again");
    assert!(early.may_send());
    assert!(others.iter().all(|other| !other.is_finished()));
}

#[tokio::test(start_paused = true)]
async fn a_repeated_blank_page_of_one_address_is_not_new_evidence() {
    let mut rule = rule(None, 1);
    let policy = rule.cooldown.as_mut().expect("it has one");
    policy.on.verdicts = vec![(Verdict::BlankPage, 1.0)];
    let gate = gate(rule);
    for _ in 0..5 {
        let mut permit = hold(&gate, 1).await.expect("a permit");
        let blank = Judgement { verdict: Verdict::BlankPage, ..Judgement::ok(200) };
        permit.report(&blank).await;
    }
    assert!((gate.snapshot()[0].facts.streak - 1.0).abs() < 1e-9);
}

#[tokio::test(start_paused = true)]
async fn observe_mode_counts_its_decisions_and_holds_nothing() {
    let gate = gate(Rule { mode: Mode::Observe, ..rule(Some(1.0), 1) });
    let start = clock::now();
    for _ in 0..5 {
        assert!(hold(&gate, 1).await.expect("a permit").may_send());
    }
    assert_eq!(start.elapsed(), Duration::ZERO);
    let entry = gate.find(&target()).expect("a rule");
    assert_eq!(entry.metrics.observed(Observed::Hold).get(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_reload_keeps_tokens_and_held_requests() {
    let gate = gate(rule(Some(1.0), 5));
    for _ in 0..5 {
        drop(hold(&gate, 1).await.map(|mut permit| permit.may_send()));
    }
    let held = hold_many(&gate, 10);
    tokio::time::sleep(Duration::from_millis(1)).await;
    let start = clock::now();
    gate.reload(RuleSet::new(vec![rule(Some(10.0), 5)]));
    for held in held {
        held.await.expect("no panic").expect("a permit");
    }
    let took = start.elapsed().as_secs_f64();
    assert!((0.9..2.1).contains(&took), "ten at 10/s, no refill by the reload: {took} s");
}

#[tokio::test(start_paused = true)]
async fn stopping_answers_held_requests() {
    let gate = gate(rule(Some(0.1), 1));
    let held = hold_many(&gate, 3);
    tokio::time::sleep(Duration::from_secs(1)).await;
    gate.stop();
    let mut refused = 0;
    for held in held {
        refused += usize::from(held.await.expect("no panic").is_none());
    }
    assert_eq!(refused, 2);
    assert_eq!(hold(&gate, 1).await.expect_err("it stops").why, RefusalReason::Stopping);
}

#[tokio::test(start_paused = true)]
async fn late_unsent_failures_do_not_release_a_burst() {
    let gate = gate(rule(Some(10.0), 1));
    let mut stuck = vec![];
    for held in hold_many(&gate, 1) {
        held.await.expect("no panic").expect("a permit");
    }
    for _ in 0..20 {
        stuck.push(hold(&gate, 1).await.expect("a permit"));
    }
    let held = hold_many(&gate, 30);
    tokio::time::sleep(Duration::from_millis(1)).await;
    let start = clock::now();
    drop(stuck);
    let mut sent = vec![];
    for held in held {
        sent.push(held.await.expect("no panic").expect("a permit").0 - start);
    }
    sent.sort_unstable();
    let last = sent[29].as_secs_f64();
    assert!(last >= 2.8, "30 at 10/s went within {last} s");
}

#[tokio::test(start_paused = true)]
async fn tokens_handed_out_and_requests_share_one_bound() {
    let (rate, burst) = (10.0, 5);
    let gate = gate(rule(Some(rate), burst));
    let start = clock::now();
    let handed_out = |gate: Arc<Gate>| async move {
        let entry = gate.find(&target()).expect("the rule matches everything");
        gate.acquire(&entry, &target(), &client(2), Preferences::default()).await.expect("a token");
        clock::now()
    };
    let outside: Vec<_> = (0..50).map(|_| tokio::spawn(handed_out(Arc::clone(&gate)))).collect();
    let mut sent = vec![];
    for held in hold_many(&gate, 50) {
        sent.push(held.await.expect("no panic").expect("a permit").0 - start);
    }
    for handed_out in outside {
        sent.push(handed_out.await.expect("no panic") - start);
    }
    sent.sort_unstable();
    for (first, from) in sent.iter().enumerate() {
        for (count, to) in (1_u32..).zip(&sent[first..]) {
            let bound = f64::from(burst) + rate * ((*to - *from).as_secs_f64() + 0.001);
            assert!(f64::from(count) <= bound, "{count} from {from:?} to {to:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn signatures_that_decide_nothing_are_counted() {
    let gate = gate(rule(None, 1));
    let mut permit = hold(&gate, 1).await.expect("a permit");
    assert!(permit.may_send());
    let judgement = Judgement {
        decoys: vec![Arc::from("widget")],
        logged: vec![Arc::from("on-trial")],
        ..Judgement::ok(200)
    };
    permit.report(&judgement).await;
    permit.report(&judgement).await;
    assert_eq!(gate.metrics.signature_decoys("widget").get(), 1);
    assert_eq!(gate.metrics.signature_hits("on-trial").get(), 1);
    assert_eq!(gate.metrics.signature_hits("widget").get(), 0, "a decoy is no hit");
}
