//! Finds the cooldowns that a sequence of responses would have tripped.
//!
//! Each request counts as sent directly after the response before it was judged. A trip is recorded
//! and the count starts again. The next response is taken as the first one after the cooldown.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    time::Duration,
};

use super::{Cooldown, Judged, Summary, report};
use crate::limiter::policy::{CooldownPolicy, Ratio};

/// Summarises all responses.
pub(super) fn sum_up(judged: &[Judged]) -> Summary {
    let mut verdicts = BTreeMap::new();
    let mut signatures = BTreeMap::new();
    let mut unexpected = None;
    for one in judged {
        *verdicts.entry(one.item.verdict.as_str()).or_insert(0) += 1;
        if let Some(evidence) = &one.item.evidence {
            *signatures.entry(evidence.signature.to_string()).or_insert(0) += 1;
        }
        if let Some(expected) = &one.item.expected {
            let met = report::meets(expected, one.item.verdict);
            *unexpected.get_or_insert(0) += usize::from(!met);
        }
    }
    Summary {
        responses: judged.len(),
        verdicts,
        signatures,
        cooldowns: cooldowns(judged),
        unexpected,
    }
}

/// The state of one scope.
#[derive(Default)]
struct Scope {
    streak: f64,
    last: VecDeque<bool>,
}

/// The cooldowns, in the order of their trips.
fn cooldowns(judged: &[Judged]) -> Vec<Cooldown> {
    let mut scopes: HashMap<String, Scope> = HashMap::new();
    let mut tripped = Vec::new();
    for (position, one) in judged.iter().enumerate() {
        let Some(rule) = &one.rule else { continue };
        let Some(policy) = &rule.cooldown else { continue };
        if one.judgement.neutral {
            continue;
        }
        let key = policy.per.key(&one.host);
        let name =
            if key.is_empty() { rule.name.to_string() } else { format!("{}/{key}", rule.name) };
        let scope = scopes.entry(name.clone()).or_default();
        let weight = policy.on.of(one.judgement.verdict, one.judgement.status);
        let wait = one.judgement.retry_after.filter(|_| policy.respect_retry_after);
        let Some((why, seconds)) = scope.observe(policy, weight, wait) else { continue };
        tripped.push(Cooldown {
            scope: name,
            tripped_by: one.item.name.clone(),
            position: position + 1,
            verdict: one.judgement.verdict,
            why,
            seconds,
        });
    }
    tripped
}

impl Scope {
    /// Counts one response. Returns the reason and length of a cooldown if the response trips one.
    fn observe(
        &mut self,
        policy: &CooldownPolicy,
        weight: Option<f64>,
        wait: Option<Duration>,
    ) -> Option<(String, (f64, f64))> {
        if let Some(ratio) = policy.ratio {
            self.last.push_back(weight.is_some());
            while self.last.len() > ratio.of as usize {
                self.last.pop_front();
            }
        }
        let Some(weight) = weight else {
            self.streak = 0.0;
            return None;
        };
        self.streak += weight;
        let (shortest, longest) = policy.length;
        let drawn = (shortest.as_secs_f64(), longest.as_secs_f64());
        let (why, seconds) = if let Some(wait) = wait {
            let wait = wait.min(policy.max).as_secs_f64();
            ("Retry-After".to_owned(), (wait, wait))
        } else if self.streak >= policy.after {
            (format!("{} in a row", self.streak), drawn)
        } else if let Some(ratio) = policy.ratio.filter(|ratio| self.is_mostly_blocked(*ratio)) {
            (format!("{:.0}% of the last {}", ratio.share * 100.0, ratio.of), drawn)
        } else {
            return None;
        };
        *self = Self::default();
        Some((why, seconds))
    }

    fn is_mostly_blocked(&self, ratio: Ratio) -> bool {
        let blocks = self.last.iter().filter(|block| **block).count();
        let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
        self.last.len() >= ratio.of as usize
            && f64::from(blocks) >= ratio.share * f64::from(ratio.of)
    }
}
