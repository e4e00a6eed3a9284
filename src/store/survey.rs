//! A look at a whole fleet from outside: what Redis holds of it, without being a member.
//!
//! It walks the keys of the prefix, which no member ever does: for a person's question, not for a scraper.

use std::{collections::BTreeSet, time::Duration};

use fred::prelude::SortedSetsInterface as _;

use super::{
    Peeked, StoreError,
    failure::Failure,
    redis::Redis,
    scripts::{self, Scripts},
};
use crate::settings::RedisSettings;

/// Scopes in one survey; a fleet that crawls many sites may have more, and `more` says so.
const MOST_SCOPES: usize = 10_000;
/// Keys walked: a scope has three.
const MOST_KEYS: usize = 3 * MOST_SCOPES;
/// How long a person waits for the connection and for each answer; a proxy would have given up long before.
const PATIENCE: Duration = Duration::from_secs(2);

/// A fleet as its store knows it.
#[derive(Debug, Clone, Default)]
pub struct Survey {
    /// Names of the running members, as said in the last seconds.
    pub members: Vec<String>,
    /// Its scopes, by name.
    pub scopes: Vec<Surveyed>,
    /// Whether there are more scopes than these.
    pub more: bool,
}

/// One scope as the store knows it.
#[derive(Debug, Clone, PartialEq)]
pub struct Surveyed {
    /// The rule.
    pub rule: String,
    /// The scope's key; empty where the rule is not split.
    pub key: String,
    /// Its cooldown.
    pub cooldown: Peeked,
    /// The learned rate in tokens per second, where there is one.
    pub rate: Option<f64>,
    /// Members with requests that wait for its bucket.
    pub waiting: u64,
}

/// Looks at the fleet that lives in this store.
///
/// # Errors
/// A URL that is none, a store that does not answer in time, or one that refuses: the words say which.
pub async fn survey(settings: &RedisSettings) -> Result<Survey, StoreError> {
    let patient = RedisSettings { timeout: PATIENCE.max(settings.timeout), ..settings.clone() };
    let redis = Redis::new(&patient).map_err(|error| StoreError::Away(error.to_string()))?;
    let survey = look(&redis, &settings.prefix).await;
    redis.quit().await;
    survey.map_err(|failure| StoreError::Away(failure.text))
}

async fn look(redis: &Redis, prefix: &str) -> Result<Survey, Failure> {
    let client = redis.connected(PATIENCE).await?;
    let members = client.zrange(format!("{prefix}:members"), 0, -1, None, false, None, false);
    let members: Vec<String> = members.await?;
    let keys = redis.keys(format!("{prefix}:{{*"), MOST_KEYS).await?;
    let names: BTreeSet<_> = keys.iter().filter_map(|key| scope_of(prefix, key)).collect();
    let more = keys.len() == MOST_KEYS || names.len() > MOST_SCOPES;
    let scripts = Scripts::new();
    let mut scopes = Vec::new();
    for (rule, key) in names.into_iter().take(MOST_SCOPES) {
        let keys = ['b', 'c', 'w'].map(|kind| format!("{prefix}:{{{rule}}}:{kind}:{key}"));
        let reply = redis.run(&scripts.survey, keys.to_vec(), Vec::new()).await?;
        let (cooldown, rate, waiting) = scripts::surveyed(reply)?;
        let (rule, key) = (rule.to_owned(), key.to_owned());
        scopes.push(Surveyed { rule, key, cooldown, rate, waiting });
    }
    Ok(Survey { members, scopes, more })
}

/// Rule and key of a scope's key, `prefix:{rule}:KIND:key`.
fn scope_of<'k>(prefix: &str, key: &'k str) -> Option<(&'k str, &'k str)> {
    let (rule, rest) = key.strip_prefix(prefix)?.strip_prefix(":{")?.split_once("}:")?;
    let (kind, key) = rest.split_once(':')?;
    matches!(kind, "b" | "c" | "w").then_some((rule, key))
}

#[cfg(test)]
mod tests {
    use super::scope_of;

    #[test]
    fn keys_of_scopes_are_told_from_others() {
        for (key, expected) in [
            ("tidegate:{shops}:c:example.com", Some(("shops", "example.com"))),
            ("tidegate:{default}:b:", Some(("default", ""))),
            ("tidegate:{default}:w:[::1]:80", Some(("default", "[::1]:80"))),
            ("tidegate:members", None),
            ("tidegate:{default}:x:", None),
            ("other:{default}:b:", None),
        ] {
            assert_eq!(scope_of("tidegate", key), expected, "{key}");
        }
    }
}
