//! The roster: every member publishes its figures under its own key, and one call reads all of
//! them. No decision uses it.

use std::time::Duration;

use fred::types::Value;

use super::{Shared, failure::Failure, redis::Redis, scripts};
use crate::runtime::clock;

/// How long the figures of a silent member are shown.
const KEPT: Duration = Duration::from_secs(300);
/// Members in one look.
const MOST_MEMBERS: usize = 1_000;

/// A member as the store knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Announced {
    /// Its name.
    pub member: String,
    /// How long ago it was last seen, by the store's clock.
    pub ago: Duration,
    /// Its figures as published.
    pub figures: String,
}

/// The keys of the roster. The braces keep them in one slot of a cluster.
fn keys(prefix: &str) -> Vec<String> {
    vec![format!("{prefix}:{{roster}}:seen"), format!("{prefix}:{{roster}}:figures")]
}

impl Shared {
    /// Publishes this member's figures (JSON); empty ones remove it from the roster. Skipped while
    /// the store is away.
    pub async fn announce(&self, figures: String) {
        let kept = clock::micros(KEPT).to_string();
        let arguments = vec![self.member().to_string(), figures, kept];
        self.call(&self.scripts.announce, keys(self.prefix()), arguments).await;
    }
}

/// The members that a store knows; those seen most recently come first.
pub(super) async fn look(
    redis: &Redis,
    scripts: &scripts::Scripts,
    prefix: &str,
) -> Result<Vec<Announced>, Failure> {
    let reply = redis.run(&scripts.roster, keys(prefix), vec![MOST_MEMBERS.to_string()]).await?;
    Ok(members(reply))
}

/// The reply of `lua/roster.lua`; invalid entries are skipped.
fn members(reply: Value) -> Vec<Announced> {
    let member = |entry: Value| {
        let [member, ago, figures] = <[Value; 3]>::try_from(entry.into_array()).ok()?;
        Some(Announced {
            member: member.into_string()?,
            ago: Duration::from_micros(ago.as_u64()?),
            figures: figures.into_string()?,
        })
    };
    reply.into_array().into_iter().filter_map(member).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_the_roster_that_make_no_sense_are_left_out() {
        let entry = |ago: Value| Value::Array(vec!["m1".into(), ago, "{}".into()]);
        let reply = vec![entry(Value::Integer(5)), entry("x".into()), Value::Null, "m".into()];
        let found = members(Value::Array(reply));
        let one = Announced {
            member: "m1".to_owned(),
            ago: Duration::from_micros(5),
            figures: "{}".to_owned(),
        };
        assert_eq!(found, [one]);
    }
}
