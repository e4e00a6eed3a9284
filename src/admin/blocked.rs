//! Finds the member of a scope that is blocked far more often than the others. The site may block
//! its address, and then a lower rate of the fleet does not help.

use std::collections::BTreeMap;

use crate::{
    classify::verdict::Verdict,
    observability::status::{BlockedMember, MemberStatus, ScopeFigures, ScopeStatus},
};

/// Factor for each count every second. After about four minutes half of it is left.
const KEPT: f64 = 0.997;
/// Fewer blocks of a member than this say nothing.
const FEWEST_BLOCKS: f64 = 3.0;
/// The others must have at least so many responses.
const FEWEST_OTHERS: f64 = 10.0;
/// Below this, the share of blocks of a member does not differ.
const LEAST_SHARE: f64 = 0.2;
/// The share of the others must be smaller by this factor.
const FACTOR: f64 = 3.0;

/// Responses and blocks of one scope at this member.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Recent {
    /// Since the start, at the latest second.
    total: [u64; 2],
    /// In the last minutes; older ones count less.
    latest: [f64; 2],
}

impl Recent {
    /// Adds the last second.
    pub(super) fn update(&mut self, scope: &ScopeStatus) {
        let total = totals(scope);
        for ((latest, total), before) in self.latest.iter_mut().zip(total).zip(self.total) {
            let new = u32::try_from(total.saturating_sub(before)).unwrap_or(u32::MAX);
            *latest = *latest * KEPT + f64::from(new);
        }
        self.total = total;
    }

    pub(super) fn responses(&self) -> f64 {
        self.latest[0]
    }

    pub(super) fn blocks(&self) -> f64 {
        self.latest[1]
    }
}

/// Responses, and the blocks among them. A request without a response is neither.
fn totals(scope: &ScopeStatus) -> [u64; 2] {
    let mut totals = [0, 0];
    for verdict in Verdict::ALL {
        let n = scope.verdicts.get(verdict.as_str()).copied().unwrap_or(0);
        match verdict {
            Verdict::ConnectionError | Verdict::Timeout => {}
            Verdict::Ok => totals[0] += n,
            _ => totals.iter_mut().for_each(|total| *total += n),
        }
    }
    totals
}

/// The member of each scope that differs, by the name of the scope.
pub(super) fn members(members: &[MemberStatus]) -> BTreeMap<&str, BlockedMember> {
    let mut scopes: BTreeMap<&str, Vec<(&str, &ScopeFigures)>> = BTreeMap::new();
    for member in members.iter().filter(|member| member.up) {
        for (scope, figures) in &member.figures.scopes {
            scopes.entry(scope).or_default().push((&member.name, figures));
        }
    }
    scopes.into_iter().filter_map(|(scope, seen)| Some((scope, one_of(&seen)?))).collect()
}

/// The member with the largest share of blocks, if chance and the others do not explain it.
fn one_of(members: &[(&str, &ScopeFigures)]) -> Option<BlockedMember> {
    let share = |figures: &ScopeFigures| figures.blocks / figures.responses.max(1.0);
    let (name, worst) = members.iter().max_by(|a, b| share(a.1).total_cmp(&share(b.1)))?;
    let sum =
        |of: fn(&ScopeFigures) -> f64| members.iter().map(|(_, figures)| of(figures)).sum::<f64>();
    let others = ScopeFigures {
        responses: sum(|figures| figures.responses) - worst.responses,
        // Rounding must not show as a negative share.
        blocks: (sum(|figures| figures.blocks) - worst.blocks).max(0.0),
        ..ScopeFigures::default()
    };
    let expected = share(&others) * worst.responses;
    let differs = worst.blocks >= FEWEST_BLOCKS
        && others.responses >= FEWEST_OTHERS
        && share(worst) >= LEAST_SHARE
        && share(worst) > FACTOR * share(&others)
        && worst.blocks > expected + 4.0 * expected.sqrt();
    differs.then(|| BlockedMember {
        name: (*name).to_owned(),
        share: share(worst),
        others: share(&others),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(members: &[(f64, f64)]) -> Option<String> {
        let names = ["a", "b", "c"];
        let figures: Vec<_> = members
            .iter()
            .map(|(responses, blocks)| ScopeFigures {
                responses: *responses,
                blocks: *blocks,
                ..ScopeFigures::default()
            })
            .collect();
        let seen: Vec<_> = names.into_iter().zip(&figures).collect();
        one_of(&seen).map(|member| member.name)
    }

    #[test]
    fn the_member_that_alone_is_blocked_is_named() {
        assert_eq!(named(&[(40.0, 0.0), (38.0, 1.0), (12.0, 11.0)]), Some("c".to_owned()));
    }

    #[test]
    fn a_wall_for_all_names_nobody() {
        assert_eq!(named(&[(20.0, 12.0), (20.0, 10.0), (20.0, 15.0)]), None, "all are blocked");
        assert_eq!(named(&[(40.0, 4.0), (40.0, 2.0), (40.0, 7.0)]), None, "chance");
    }

    #[test]
    fn few_responses_name_nobody() {
        assert_eq!(named(&[(4.0, 0.0), (3.0, 3.0)]), None, "the others have few");
        assert_eq!(named(&[(40.0, 0.0), (2.0, 2.0)]), None, "two blocks");
        assert_eq!(named(&[(9.0, 9.0)]), None, "a member alone");
    }
}
