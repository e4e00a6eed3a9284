//! A survey of a whole fleet from outside: everything that Redis knows of it.
//!
//! It scans the keys of the prefix in bounded steps. It is meant for operators; no request and no scraper uses it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{
    Peeked, SharedStore, StoreError,
    failure::Failure,
    redis::Redis,
    roster::{self, Announced},
    scripts::{self, ScopeKeys, SurveyKeys},
    shard::{Shard, ShardKeys},
};
use crate::{limiter::learn::KnownRate, rules::settings::RedisSettings};

/// Most scopes in one survey. A fleet that crawls many sites may have more; then `more` is set.
const MOST_SCOPES: usize = 10_000;
/// Most keys to scan: a scope has three.
const MOST_KEYS: usize = 3 * MOST_SCOPES;
/// Scopes per script call, which blocks Redis for about a millisecond.
const BATCH: usize = 100;
/// How long an operator waits for the connection and for each reply; a proxy has shorter timeouts.
const SURVEY_TIMEOUT: Duration = Duration::from_secs(2);

/// A fleet as its store knows it.
#[derive(Debug, Clone, Default)]
pub struct Survey {
    /// Its members; those seen most recently come first.
    pub members: Vec<Announced>,
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
    /// The scope's key; empty if the rule is not split.
    pub key: String,
    /// Its cooldown.
    pub cooldown: Peeked,
    /// The learned rate.
    pub learned: KnownRate,
    /// Members with requests that wait for its bucket.
    pub waiting: u64,
}

/// Surveys the fleet of this store.
///
/// # Errors
/// An invalid URL, a store that does not reply in time, or one that refuses, as a message.
pub async fn survey(settings: &RedisSettings) -> Result<Survey, StoreError> {
    let patient =
        RedisSettings { timeout: SURVEY_TIMEOUT.max(settings.timeout), ..settings.clone() };
    let redis = Redis::new(&patient).map_err(|error| StoreError::Away(error.to_string()))?;
    let connected = redis.connected(SURVEY_TIMEOUT).await.map(drop);
    let survey = match connected {
        Ok(()) => look(&redis, &settings.prefix).await,
        Err(failure) => Err(failure),
    };
    redis.quit().await;
    survey.map_err(|failure| {
        StoreError::Away(format!("{} ({})", failure.text, failure.kind.advice()))
    })
}

impl SharedStore {
    /// Surveys the fleet of this member.
    ///
    /// # Errors
    /// The store is away, or refuses.
    pub async fn survey(&self) -> Result<Survey, StoreError> {
        let Some(redis) = self.redis().filter(|_| self.is_up()) else {
            return Err(StoreError::Away(self.why_down()));
        };
        let survey = look(redis, self.prefix()).await;
        survey.map_err(|failure| {
            StoreError::Unread(format!("{} ({})", failure.text, failure.kind.advice()))
        })
    }
}

async fn look(redis: &Redis, prefix: &str) -> Result<Survey, Failure> {
    let members = roster::look(redis, prefix).await?;
    let keys = redis.keys(format!("{prefix}:{{*"), MOST_KEYS).await?;
    let mut names: BTreeMap<Shard, BTreeSet<&str>> = BTreeMap::new();
    for (shard, key) in keys.iter().filter_map(|key| scope_of(prefix, key)) {
        names.entry(shard).or_default().insert(key);
    }
    let count: usize = names.values().map(BTreeSet::len).sum();
    let more = keys.len() >= MOST_KEYS || count > MOST_SCOPES;
    let mut scopes = Vec::with_capacity(count.min(MOST_SCOPES));
    for (shard, keys) in names {
        let keys: Vec<_> = keys.into_iter().take(MOST_SCOPES - scopes.len()).collect();
        for batch in keys.chunks(BATCH) {
            scopes.extend(read(redis, prefix, &shard, batch).await?);
        }
    }
    scopes.sort_by(|a, b| (&a.rule, &a.key).cmp(&(&b.rule, &b.key)));
    Ok(Survey { members, scopes, more })
}

/// Reads some scopes of one shard.
async fn read(
    redis: &Redis,
    prefix: &str,
    shard: &Shard,
    keys: &[&str],
) -> Result<Vec<Surveyed>, Failure> {
    let names = ShardKeys::new(prefix, shard);
    let of = |key: &&str| ScopeKeys {
        bucket: names.bucket(key),
        cooldown: names.cooldown(key),
        waiting: names.waiting(key),
    };
    let scope = keys.iter().map(of).collect();
    let found = redis.call::<scripts::Survey>(SurveyKeys { scope }, ()).await?;
    let found = found.into_iter().zip(keys).map(|(reply, key)| Surveyed {
        rule: shard.rule().to_string(),
        key: (*key).to_owned(),
        cooldown: reply.cooldown.into(),
        learned: reply.learned,
        waiting: reply.waiting,
    });
    Ok(found.collect())
}

/// Shard and key of a scope's key, `prefix:{tag}:KIND:key`.
fn scope_of<'k>(prefix: &str, key: &'k str) -> Option<(Shard, &'k str)> {
    let (tag, rest) = key.strip_prefix(prefix)?.strip_prefix(":{")?.split_once("}:")?;
    let (kind, key) = rest.split_once(':')?;
    let shard = matches!(kind, "b" | "c" | "w").then(|| Shard::parse(tag))??;
    Some((shard, key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_scopes_are_recognised() {
        for (key, expected) in [
            ("tidegate:{shops}:c:example.com", Some(("shops", "example.com"))),
            ("tidegate:{default}:b:", Some(("default", ""))),
            ("tidegate:{default}:w:[::1]:80", Some(("default", "[::1]:80"))),
            ("tidegate:{shops#012}:c:example.com", Some(("shops#012", "example.com"))),
            ("tidegate:{shops#444}:c:example.com", None),
            ("tidegate:members", None),
            ("tidegate:{default}:x:", None),
            ("other:{default}:b:", None),
        ] {
            let found = scope_of("tidegate", key);
            let found = found.as_ref().map(|(shard, key)| (shard.tag(), *key));
            let expected = expected.map(|(tag, key): (&str, &str)| (tag.to_owned(), key));
            assert_eq!(found, expected, "{key}");
        }
    }
}
