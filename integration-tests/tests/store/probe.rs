//! A probe belongs to a member.

use tidegate::store::Phase;

use super::*;

#[test]
fn a_member_whose_reply_was_lost_gets_the_same_probe_again_and_nobody_else_does() {
    let redis = Redis::start();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let limits = Limits { rate: Some(0.1), burst: 3, quotas: vec![], cost: 1, learn: None };
    let rule = limited(limits, policy(None, true, 1.0, Duration::ZERO));
    let name = ScopeName::plain(&rule.name, &"".into());
    let [first, second] = [(); 2].map(|()| {
        let store = runtime.block_on(shared(&redis));
        let scope = store.scope(name.clone());
        (store, scope)
    });
    let trip = first.0.set(&first.1, &rule, Override::Trip(1));
    let epoch = runtime.block_on(trip).unwrap().epoch;
    let take = |(store, scope): &(Arc<SharedStore>, Scope), holds_probe| {
        let known = KnownCooldown { holds_probe, ..KnownCooldown::open(epoch) };
        let ask = Ask { wanted: 1, lease: 60_000_000, known, ..Ask::default() };
        runtime.block_on(store.take(scope, &rule, &ask)).unwrap()
    };
    let probe = take(&first, false);
    assert_eq!(probe.phase, Phase::Probe);
    assert_eq!(take(&second, false).phase, Phase::Probing, "it is another member's");
    assert_eq!(take(&first, true).phase, Phase::Probing, "it is out");
    let again = take(&first, false);
    assert_eq!((again.phase, &again.tickets), (Phase::Probe, &probe.tickets), "{again:?}");
    assert!(again.come_back > probe.come_back, "its lease begins again: {again:?}");
    let report = Report { probe: again.tickets[0], draw: 0.5, ..Report::new(epoch, Answer::Ok) };
    let reported = runtime.block_on(first.0.report(&first.1, &rule, &report)).unwrap();
    assert_eq!(reported.until, 0, "{reported:?}");
}
