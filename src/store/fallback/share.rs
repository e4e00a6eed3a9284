//! The part of a rule's limits that is left for a member in local mode.

use crate::limiter::policy::{Limits, Quota};

/// The limits with the current learned rate, if the member knows it, instead of the ceiling. One
/// member's verdicts are too few to learn from, and the others would not get the result.
pub(super) fn fixed(limits: &Limits, known: f64) -> Limits {
    let in_force = |ceiling: f64| match &limits.learn {
        None => ceiling,
        Some(_) if known > 0.0 => known.min(ceiling),
        Some(learn) => learn.start.min(ceiling),
    };
    Limits { rate: limits.rate.map(in_force), learn: None, ..limits.clone() }
}

/// A share of the limits: at least one request of rate and burst, and of quotas what is left.
#[allow(clippy::cast_possible_truncation)]
pub(super) fn scaled(limits: &Limits, share: f64) -> Limits {
    let burst = part(u64::from(limits.burst), share) as u32;
    let quota = |quota: &Quota| Quota { tokens: part(quota.tokens, share), window: quota.window };
    Limits {
        rate: limits.rate.map(|rate| rate * share),
        burst: burst.max(limits.cost),
        quotas: limits.quotas.iter().map(quota).collect(),
        cost: limits.cost,
        learn: None,
    }
}

/// A share in whole tokens.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
pub(super) fn part(whole: u64, share: f64) -> u64 {
    (whole as f64 * share).floor() as u64
}
