//! Calls that reach the store after their members have given them up.

use tokio::task::JoinSet;

use super::*;

/// A server that is stopped executes the calls that wait in it once it goes on. Nobody uses their tickets.
#[tokio::test]
async fn calls_that_waited_in_a_stopped_server_take_nothing() {
    let redis = Redis::start();
    let limits = Limits { rate: Some(1.0), burst: 1, quotas: vec![], cost: 1, learn: None };
    let rule = limited(limits, policy(None, true, 1.0, Duration::ZERO));
    let name = ScopeName::plain(&Arc::from("late"), &Arc::from(""));
    let ask = Ask { wanted: 1, bound: 3_600_000_000, ..Ask::default() };
    let mut members = Vec::new();
    for _ in 0..8 {
        let store = start(&redis, Duration::from_secs(1)).await;
        let scope = store.scope(name.clone());
        store.take(&scope, &rule, &Ask::default()).await.unwrap();
        members.push((store, scope));
    }
    redis.freeze();
    let mut calls = JoinSet::new();
    for (store, scope) in members.clone() {
        let (rule, ask) = (rule.clone(), ask.clone());
        calls.spawn(async move { store.take(&scope, &rule, &ask).await.unwrap_err() });
    }
    calls.join_all().await;
    redis.thaw();
    let (store, scope) = &members[0];
    is_up(store).await;
    let granted = store.take(scope, &rule, &ask).await.unwrap();
    let wait = granted.tickets[0] - granted.now;
    assert!(wait <= 1_000_000, "{} tickets were taken for nobody", wait / 1_000_000);
}
