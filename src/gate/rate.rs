//! Changes a learned rate manually.

use std::sync::Arc;

use super::{Gate, status::ScopeError};
use crate::limiter::learn::{KnownRate, RateOverride};

impl Gate {
    /// Sets, freezes, thaws or forgets the learned rate of a scope for the whole fleet, and returns the new state.
    /// `who`: the name that the operator gave.
    ///
    /// # Errors
    /// No such scope, a rule that learns no rate, a rate outside of its bounds, or a store that is away.
    pub async fn override_rate(
        &self,
        scope: &str,
        change: RateOverride,
        who: Option<Arc<str>>,
    ) -> Result<KnownRate, ScopeError> {
        let (entry, scope) = self.named(scope)?;
        let limits = &entry.rule.limits;
        let (Some(ceiling), Some(learn)) = (limits.rate, &limits.learn) else {
            return Err(ScopeError::NotLearned(entry.rule.name.to_string()));
        };
        if let RateOverride::Set { rate: Some(rate), .. } = change
            && !(learn.floor..=ceiling).contains(&rate)
        {
            return Err(ScopeError::OutOfBounds { rate, floor: learn.floor, ceiling });
        }
        let store = &self.shared.store;
        let learned =
            store.override_rate(&scope.stored, &entry.rule, scope.queue.learned(), change).await?;
        scope.queue.rate_overridden(learned, who);
        Ok(learned)
    }

    /// A manual change at another member.
    pub(super) fn rate_changed(&self, rule: &str, key: &str) {
        let table = self.table.load();
        let entry = table.entries.iter().find(|entry| &*entry.rule.name == rule);
        if let Some(scope) = entry.and_then(|entry| entry.scopes.named(key)) {
            scope.queue.ask_again();
        }
    }
}
