//! A member without its store.

use super::share::{fixed, scaled};
use crate::{learn::Learn, rules::Limits};

#[test]
fn a_member_alone_keeps_to_its_share_of_the_rate_in_force() {
    let learn = Learn { start: 0.5, floor: 0.02, back_off: 0.87, patience: 60_000_000 };
    let limits = Limits { rate: Some(12.0), burst: 9, quotas: vec![], cost: 1, learn: Some(learn) };
    let alone = |limits: &Limits, known| scaled(&fixed(limits, known), 1.0 / 3.0);
    assert_eq!(alone(&limits, 3.0).rate, Some(1.0), "a third of what was learned");
    assert_eq!(alone(&limits, 3.0).learn, None);
    assert_eq!(alone(&limits, 30.0).rate, Some(4.0), "never above the ceiling");
    assert_eq!(alone(&limits, 0.0).rate, Some(0.5 / 3.0), "nothing known: as at the start");
    let written = Limits { learn: None, ..limits };
    assert_eq!(alone(&written, 3.0).rate, Some(4.0), "a fixed rate is as written");
    assert_eq!(alone(&written, 3.0).burst, 3);
}
