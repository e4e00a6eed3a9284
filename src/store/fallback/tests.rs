//! Tests of a member without its store.

use super::local_scope::{fixed, last_turn, scaled};
use crate::limiter::{learn::Learn, policy::Limits};

#[test]
fn an_isolated_member_keeps_to_its_share_of_the_rate_in_force() {
    let learn = Learn { start: 0.5, floor: 0.02, back_off: 0.87, patience: 60_000_000 };
    let limits = Limits { rate: Some(12.0), burst: 9, quotas: vec![], cost: 1, learn: Some(learn) };
    let local = |limits: &Limits, known| scaled(&fixed(limits, known), 1.0 / 3.0);
    assert_eq!(local(&limits, 3.0).rate, Some(1.0), "a third of what was learned");
    assert_eq!(local(&limits, 3.0).learn, None);
    assert_eq!(local(&limits, 30.0).rate, Some(4.0), "never above the ceiling");
    assert_eq!(local(&limits, 0.0).rate, Some(0.5 / 3.0), "nothing known: as at the start");
    let written = Limits { learn: None, ..limits };
    assert_eq!(local(&written, 3.0).rate, Some(4.0), "a fixed rate is as written");
    assert_eq!(local(&written, 3.0).burst, 3);
}

#[test]
fn an_isolated_member_continues_its_turns_from_its_latest_ticket() {
    const SECOND: i64 = 1_000_000;
    // Ten members at 2/s: each has a turn in five seconds.
    let limits = Limits { rate: Some(2.0), burst: 1, quotas: vec![], cost: 1, learn: None };
    let turn = |due: Option<i64>, lost, draw| {
        last_turn(&limits, 0.1, due.map(|due| due * SECOND), lost * SECOND, draw) + 5 * SECOND
    };
    let next = |due, lost| turn(Some(due), lost, 0.5);
    assert_eq!(next(-4, -3), SECOND, "five seconds after its ticket");
    assert_eq!(next(-7, -3), 3 * SECOND, "its next turn but one");
    assert_eq!(next(-5, -3), 0, "it is its turn");
    assert_eq!(next(2, -3), 7 * SECOND, "a ticket that is still to come");
    assert_eq!(turn(None, -3, 0.0), 0, "who has had none draws one");
    assert_eq!(turn(None, -3, 0.5), 2_250_000, "in the middle");
    let one = |due| last_turn(&limits, 1.0, due, 0, 0.9) + SECOND / 2;
    assert_eq!(one(None), SECOND / 2, "nobody else has one");
    assert_eq!(one(Some(-700_000)), 800_000, "a token may have come since the store was lost");
}
