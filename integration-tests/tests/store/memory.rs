//! A Redis that has lost its memory, or from which a member was cut off.

use integration_tests::wait::{wait_until, wait_until_blocking};
use tidegate::store::Backend;

use super::*;

const SOON: Duration = Duration::from_secs(20);

#[test]
fn a_flush_refills_no_bucket_that_a_member_knows() {
    let redis = Redis::start();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let store = runtime.block_on(shared(&redis));
    let limits = Limits { rate: Some(1.0), burst: 10, quotas: vec![], cost: 1, learn: None };
    let rule = limited(limits, policy(None, true, 1.0, Duration::ZERO));
    let name = ScopeName::plain(&rule.name, &"".into());
    let scope = store.scope(name);
    let ask = Ask { wanted: 10, ..Ask::default() };
    let first = runtime.block_on(store.take(&scope, &rule, &ask)).unwrap();
    assert_eq!(first.tickets.len(), 10, "the burst");
    assert!(redis.command(&["FLUSHALL"]).starts_with("+OK"));
    let second = runtime.block_on(store.take(&scope, &rule, &ask)).unwrap();
    assert_eq!(second.tickets.len(), 0, "no second burst, {second:?}");
}

#[test]
fn a_flush_forgets_no_quota_that_members_know() {
    let redis = Redis::start();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let limits = Limits {
        rate: None,
        burst: 1,
        quotas: vec![
            Quota { tokens: 50, window: Duration::from_secs(3_600) },
            Quota { tokens: 1_000, window: Duration::from_secs(86_400) },
        ],
        cost: 1,
        learn: None,
    };
    let rule = limited(limits, policy(None, true, 1.0, Duration::ZERO));
    let member = || {
        let store = runtime.block_on(shared(&redis));
        Backend::Shared(Arc::clone(&store)).attend(&rule);
        let name = ScopeName::plain(&rule.name, &"".into());
        let scope = store.scope(name);
        (store, scope)
    };
    let fleet = [member(), member(), member()];
    let [first, second, third] = &fleet;
    runtime.block_on(wait_until("all know of all", SOON, async || {
        fleet.iter().all(|(store, _)| store.members() == 3)
    }));
    let take = |(store, scope): &(Arc<SharedStore>, Scope), wanted: u32| {
        let ask = Ask { wanted, ..Ask::default() };
        runtime.block_on(store.take(scope, &rule, &ask)).unwrap()
    };
    let taken = |member, wanted| take(member, wanted).tickets.len();
    assert_eq!((taken(first, 10), taken(second, 15)), (10, 15));
    assert!(redis.command(&["FLUSHALL"]).starts_with("+OK"));
    // A member without knowledge of it comes first, and has to wait until the others have reported.
    let held = take(third, 5);
    assert!(held.tickets.is_empty() && held.come_back > held.now, "{held:?}");
    runtime.block_on(wait_until("the others have reported", SOON, async || {
        let ask = Ask { wanted: 1, ..Ask::default() };
        third.0.take(&third.1, &rule, &ask).await.unwrap().tickets.len() == 1
    }));
    assert_eq!(taken(first, 50), 24, "25 before, 1 since, 50 in all");
    assert!(redis.command(&["FLUSHALL"]).starts_with("+OK"));
    let all = |granted: &Granted| granted.windows.first().map(|window| window.taken) == Some(50);
    runtime.block_on(wait_until("the store knows it again", SOON, async || {
        let granted = second.0.take(&second.1, &rule, &Ask::default()).await.unwrap();
        all(&granted)
    }));
    for member in &fleet {
        assert_eq!(taken(member, 50), 0, "nothing is left of the hour");
    }
}

#[test]
fn a_flush_refills_no_bucket_that_is_used_after_all_members_reported() {
    let redis = Redis::start();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let limits = Limits { rate: Some(0.1), burst: 10, quotas: vec![], cost: 1, learn: None };
    let rule = limited(limits, policy(None, true, 1.0, Duration::ZERO));
    let fleet = [(); 2].map(|()| runtime.block_on(shared(&redis)));
    runtime.block_on(wait_until("both know of both", SOON, async || {
        fleet.iter().all(|store| store.members() == 2)
    }));
    let take = |member: usize, key: &str| {
        let (rule_name, key) = (Arc::clone(&rule.name), Arc::from(key));
        let name = ScopeName::plain(&rule_name, &key);
        let (store, ask) = (&fleet[member], Ask { wanted: 10, ..Ask::default() });
        runtime.block_on(store.take(&store.scope(name), &rule, &ask)).unwrap()
    };
    assert_eq!((take(0, "a").tickets.len(), take(1, "b").tickets.len()), (10, 10), "the bursts");
    assert!(redis.command(&["FLUSHALL"]).starts_with("+OK"));
    let held = take(0, "a");
    assert!(held.tickets.is_empty() && held.come_back > held.now, "{held:?}");
    wait_until_blocking("both have reported", SOON, || {
        let granted = take(0, "a");
        granted.come_back - granted.now > 1_000_000
    });
    assert_eq!(take(0, "b").tickets.len(), 0, "the member that took them has reported");
}

#[test]
fn a_returning_member_leaves_the_others_their_tickets() {
    let redis = Redis::start();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let store = runtime.block_on(shared(&redis));
    let limits = Limits { rate: Some(100.0), burst: 1, quotas: vec![], cost: 1, learn: None };
    let mut pair = Pair::new(store, limited(limits, policy(None, true, 1.0, Duration::ZERO)), "");
    let ahead = Ask { wanted: 20, bound: 10_000_000, ..Ask::default() };
    runtime.block_on(pair.take(&ahead)).unwrap();
    runtime.block_on(pair.take(&ahead)).unwrap();
    let latest = pair.tickets.iter().copied().max().unwrap();
    let back = Ask { wanted: 1, bound: 10_000_000, drain: true, ..Ask::default() };
    runtime.block_on(pair.take(&back)).unwrap();
    assert!(pair.tickets.last().is_some_and(|ticket| *ticket > latest));
}
