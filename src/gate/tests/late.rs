//! Late tickets, and the actions of a process that slept.

use tokio::sync::broadcast;

use super::*;
use crate::{
    gate::bucket::SLACK,
    limiter::policy::Quota,
    store::{Answering, Reply},
};

#[tokio::test(start_paused = true)]
async fn a_ticket_is_void_once_its_moment_has_passed_by_more_than_the_slack() {
    let gate = gate(rule(Some(10.0), 1));
    let mut permit = hold(&gate, 1).await.expect("a permit");
    tokio::time::advance(SLACK).await;
    assert!(permit.may_send(), "a busy machine is late");
    let mut slept = hold(&gate, 1).await.expect("the next");
    tokio::time::advance(SLACK + Duration::from_millis(1)).await;
    assert!(!slept.may_send() && slept.is_late());
    let start = clock::now();
    slept.again().await.expect("another ticket");
    assert!(slept.may_send());
    assert!(start.elapsed() < Duration::from_millis(100), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_tunnel_uses_its_ticket_when_it_begins_to_connect() {
    let gate = gate(rule(Some(10.0), 1));
    let mut permit = hold(&gate, 1).await.expect("a permit");
    tokio::time::advance(SLACK * 10).await;
    assert!(permit.may_open() && !permit.may_send());
}

#[tokio::test(start_paused = true)]
async fn a_quota_gets_the_token_of_a_void_ticket_back() {
    let mut rule = rule(None, 1);
    rule.limits.quotas = vec![Quota { tokens: 2, window: Duration::from_secs(3_600) }];
    let gate = gate(rule);
    let mut late = hold(&gate, 1).await.expect("a permit");
    tokio::time::advance(SLACK * 2).await;
    assert!(!late.may_send());
    late.again().await.expect("the token of its own ticket at the latest");
    assert!(late.may_send());
    assert!(hold(&gate, 1).await.expect("the second of two").may_send());
    assert_eq!(
        hold(&gate, 1).await.map(drop).map_err(|refused| refused.why),
        Err(RefusalReason::Limit)
    );
}

#[tokio::test(start_paused = true)]
async fn a_trip_gives_the_tickets_that_it_voids_back_to_the_quotas() {
    let mut rule = rule(Some(1.0), 1);
    rule.limits.quotas = vec![Quota { tokens: 8, window: Duration::from_secs(86_400) }];
    let gate = gate(rule);
    block(&gate, 2).await;
    let mut third = hold(&gate, 1).await.expect("the third");
    assert!(third.may_send());
    let mut unsent = hold(&gate, 1).await.expect("a permit");
    third.report(&forbidden()).await;
    assert!(!unsent.may_send(), "the third block trips");
    // Three are used and the fourth is returned, so five are left.
    unsent.again().await.expect("the probe");
    assert!(unsent.may_send());
    unsent.report(&Judgement::ok(200)).await;
    for left in (0..4).rev() {
        let permit = hold(&gate, 1).await;
        assert!(permit.is_ok_and(|mut permit| permit.may_send()), "{left} after it");
    }
    assert_eq!(
        hold(&gate, 1).await.map(drop).map_err(|refused| refused.why),
        Err(RefusalReason::Limit)
    );
}

/// A store that counts its members, and knows of no scope.
#[derive(Debug)]
struct Counts(broadcast::Sender<String>);

impl ScriptServer for Counts {
    fn run<'a>(
        &'a self,
        name: &'static str,
        _text: &'static str,
        _keys: Vec<String>,
        _arguments: Vec<String>,
    ) -> Answering<'a> {
        Box::pin(async move {
            match name {
                "members" => Ok(Reply::members(2)),
                _ => Err("ERR nothing here".to_owned()),
            }
        })
    }

    fn subscribe(&self, _channel: &str) -> broadcast::Receiver<String> {
        self.0.subscribe()
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_that_slept_asks_before_it_sends_requests_without_a_rate() {
    let gate = gate_over(Counts(broadcast::Sender::new(1)), rule(None, 1)).await;
    let mut permits =
        [hold(&gate, 1).await, hold(&gate, 1).await].map(|one| one.expect("a permit"));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(permits[0].may_send(), "heartbeats keep the lease");
    tokio::time::advance(Duration::from_secs(3)).await;
    assert!(!permits[1].may_send(), "a trip of the last three seconds would not be known here");
    permits[1].again().await.expect("the store answers");
    assert!(permits[1].may_send());
    assert!(hold(&gate, 1).await.expect("a permit").may_send());
}
