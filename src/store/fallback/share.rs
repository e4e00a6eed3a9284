//! What is left of a rule's limits for a member that decides alone.

use crate::limiter::policy::{Limits, Quota};

/// The limits with the learned rate in force, as far as the member knows it, in place of the ceiling: one member's
/// verdicts are too few to learn from, and the others would not hear of it.
pub(super) fn fixed(limits: &Limits, known: f64) -> Limits {
    let in_force = |ceiling: f64| match &limits.learn {
        None => ceiling,
        Some(_) if known > 0.0 => known.min(ceiling),
        Some(learn) => learn.start.min(ceiling),
    };
    Limits { rate: limits.rate.map(in_force), learn: None, ..limits.clone() }
}

/// A share of the limits: of rate and burst at least one request's worth, of quotas what there is.
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

/// A share of so many, in whole ones.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
pub(super) fn part(whole: u64, share: f64) -> u64 {
    (whole as f64 * share).floor() as u64
}
