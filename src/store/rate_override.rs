//! Manual changes of a learned rate, in either store.

use super::{Backend, Scope, SharedStore, StoreError, scripts::Rate};
use crate::{
    limiter::learn::{KnownRate, RateOverride},
    rules::Rule,
};

impl Backend {
    /// Sets, freezes, unfreezes or forgets the learned rate of `scope` for the whole fleet at once,
    /// and returns the new state. `known`: this member's knowledge of it.
    ///
    /// # Errors
    /// A store that is away: nothing changes.
    pub async fn override_rate(
        &self,
        scope: &Scope,
        rule: &Rule,
        known: KnownRate,
        change: RateOverride,
    ) -> Result<KnownRate, StoreError> {
        match self {
            Self::Memory(memory) => Ok(memory.override_rate_now(scope, rule, known, change)),
            Self::Shared(shared) => {
                shared.override_rate(scope, rule, known, change).await.map(|changed| changed.1)
            }
        }
    }
}

impl SharedStore {
    /// Like [`Backend::override_rate`], together with the store's time.
    ///
    /// # Errors
    /// A store that is away.
    pub async fn override_rate(
        &self,
        scope: &Scope,
        rule: &Rule,
        known: KnownRate,
        change: RateOverride,
    ) -> Result<(i64, KnownRate), StoreError> {
        let away = || StoreError::Away(self.why_down());
        let keys = scope.keys.as_ref().ok_or_else(away)?;
        let arguments = keys.arguments(rule).rate(change, known, self.member(), keys.news());
        let reply = self.call::<Rate>(keys.both(), arguments).await.ok_or_else(away)?;
        Ok((reply.now, reply.learned))
    }
}
