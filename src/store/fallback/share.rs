//! What is left of a rule's limits for a member that decides alone.

use crate::rules::{Limits, Quota};

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

/// A share of the limits, at least one request's worth.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
pub(super) fn scaled(limits: &Limits, share: f64) -> Limits {
    let part = |whole: f64| (whole * share).floor();
    Limits {
        rate: limits.rate.map(|rate| rate * share),
        burst: (part(f64::from(limits.burst)) as u32).max(limits.cost),
        quotas: limits
            .quotas
            .iter()
            .map(|quota| Quota {
                tokens: (part(quota.tokens as f64) as u64).max(u64::from(limits.cost)),
                window: quota.window,
            })
            .collect(),
        cost: limits.cost,
        learn: None,
    }
}
