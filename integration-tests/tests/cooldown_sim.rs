//! The probe in a fleet of fifty, in virtual time, with the real gate, store code and scripts; see
//! `integration_tests::sim`.

use std::{sync::Arc, time::Duration};

use integration_tests::sim::{Fleet, Plan, permit, target};
use tidegate::{
    classify::verdict::{Judgement, Verdict},
    gate::{Gate, Permit},
};
use tokio::sync::mpsc::{Receiver, Sender, channel};

const MEMBERS: usize = 50;
const HELD: usize = 4;
/// The rule's longest first cooldown, and `grow`.
const COOLDOWN: Duration = Duration::from_secs(60);
const GROW: u32 = 2;
/// The lease of a probe.
const LEASE: Duration = Duration::from_secs(90);
/// Long compared with every round trip, short compared with every cooldown.
const MOMENT: Duration = Duration::from_secs(5);

/// A request at the site that waits for its response.
type Arrived = (usize, Permit);

/// One request: held, sent, and handed to the site.
async fn request(gate: Arc<Gate>, member: usize, site: Sender<Arrived>) {
    let permit = permit(&gate, &target(), 1).await.expect("there is time");
    // After the end of the test, nothing receives it.
    drop(site.send((member, permit)).await);
}

fn blocked() -> Judgement {
    Judgement { verdict: Verdict::RateLimited, status: Some(429), ..Judgement::ok(429) }
}

/// A fleet in its cooldown, with held requests at each member, and the requests that reach the
/// site.
async fn walled(fleet: &mut Fleet) -> Receiver<Arrived> {
    let (site, mut arrived) = channel(MEMBERS * HELD);
    for member in 0..3 {
        fleet.client(member, request(fleet.gate(member), member, site.clone()));
        let (_, mut permit) = arrived.recv().await.expect("it goes");
        permit.report(&blocked()).await;
    }
    for member in 0..MEMBERS {
        for _ in 0..HELD {
            fleet.client(member, request(fleet.gate(member), member, site.clone()));
        }
    }
    arrived
}

/// The next request at the site within `at_most`. It must be the only one.
async fn exactly_one(
    fleet: &mut Fleet,
    arrived: &mut Receiver<Arrived>,
    at_most: Duration,
) -> Arrived {
    let one = tokio::time::timeout(at_most, arrived.recv()).await.expect("one goes");
    fleet.pass(MOMENT).await;
    let more = std::iter::from_fn(|| arrived.try_recv().ok()).count();
    assert_eq!(more, 0, "the probe goes alone");
    one.expect("the fleet lives")
}

/// All held requests are sent once the scope is open.
async fn the_rest_goes(fleet: &mut Fleet, arrived: &mut Receiver<Arrived>, count: usize) {
    for _ in 0..count {
        let (_, mut permit) = arrived.recv().await.expect("it goes");
        permit.report(&Judgement::ok(200)).await;
    }
    fleet.pass(MOMENT).await;
    assert!(arrived.try_recv().is_err(), "each goes once");
}

#[test]
fn exactly_one_of_fifty_members_probes_and_a_blocked_probe_starts_the_next_cooldown() {
    Plan::new(MEMBERS, 1_000.0, 0).play(async |fleet| {
        let mut arrived = walled(fleet).await;
        let (_, mut probe) = exactly_one(fleet, &mut arrived, COOLDOWN + MOMENT).await;
        probe.report(&blocked()).await;
        let nobody = tokio::time::timeout(COOLDOWN - MOMENT, arrived.recv()).await;
        assert!(nobody.is_err(), "the next cooldown is twice as long as at least half a minute");
        let (_, mut probe) = exactly_one(fleet, &mut arrived, COOLDOWN * GROW).await;
        probe.report(&Judgement::ok(200)).await;
        the_rest_goes(fleet, &mut arrived, MEMBERS * HELD - 2).await;
    });
}

#[test]
fn exactly_one_of_fifty_members_replaces_a_lost_probe() {
    Plan::new(MEMBERS, 1_000.0, 0).play(async |fleet| {
        let mut arrived = walled(fleet).await;
        let (left_at, left) = exactly_one(fleet, &mut arrived, COOLDOWN + MOMENT).await;
        drop(left);
        let (silent_at, mut silent) = exactly_one(fleet, &mut arrived, MOMENT).await;
        silent.report(&Judgement::transport(Verdict::Timeout, "no answer")).await;
        let (broken_at, mut broken) = exactly_one(fleet, &mut arrived, MOMENT).await;
        broken.report(&Judgement::transport(Verdict::ConnectionError, "reset")).await;
        let (killed, never_answered) = exactly_one(fleet, &mut arrived, MOMENT).await;
        fleet.kill(killed);
        let nobody = tokio::time::timeout(LEASE - 3 * MOMENT, arrived.recv()).await;
        assert!(nobody.is_err(), "its lease has not ended");
        let (last_at, mut last) = exactly_one(fleet, &mut arrived, 3 * MOMENT).await;
        drop(never_answered);
        last.report(&Judgement::ok(200)).await;
        // The requests of the killed member are lost.
        let tried = [left_at, silent_at, broken_at, last_at];
        let tried = tried.iter().filter(|member| **member != killed).count();
        the_rest_goes(fleet, &mut arrived, (MEMBERS - 1) * HELD - tried).await;
    });
}
