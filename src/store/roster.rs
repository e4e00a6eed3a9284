//! The roster: every member publishes its figures under its own key, and one call reads all of
//! them. No decision uses it.

use std::{sync::Arc, time::Duration};

use super::{
    SharedStore,
    failure::Failure,
    redis::Redis,
    scripts::{Announce, AnnounceArguments, Roster, RosterArguments, RosterKeys, RosterReply},
};
use crate::runtime::clock;

/// How long the figures of a silent member stay visible.
const KEPT: Duration = Duration::from_secs(300);
/// Most members in one reply.
const MOST_MEMBERS: u32 = 1_000;

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
fn keys(prefix: &str) -> RosterKeys {
    RosterKeys {
        members: format!("{prefix}:{{roster}}:seen"),
        figures: format!("{prefix}:{{roster}}:figures"),
    }
}

impl SharedStore {
    /// Publishes this member's figures (JSON); empty ones remove it from the roster. Skipped while
    /// the store is away.
    pub async fn announce(&self, figures: String) {
        let (member, kept) = (Arc::clone(self.member()), clock::micros(KEPT));
        let arguments = AnnounceArguments { member, figures, kept };
        self.call::<Announce>(keys(self.prefix()), arguments).await;
    }
}

/// The members that a store knows; those seen most recently come first. Invalid entries are skipped.
pub(super) async fn look(redis: &Redis, prefix: &str) -> Result<Vec<Announced>, Failure> {
    let reply = redis.call::<Roster>(keys(prefix), RosterArguments { most: MOST_MEMBERS }).await?;
    Ok(reply.0.into_iter().filter_map(announced).collect())
}

fn announced(reply: RosterReply) -> Option<Announced> {
    let RosterReply { member, ago, figures } = reply;
    Some(Announced { member, ago: Duration::from_micros(u64::try_from(ago).ok()?), figures })
}

#[cfg(test)]
mod tests {
    use fred::types::Value;

    use super::*;
    use crate::store::scripts;

    #[test]
    fn entries_of_the_roster_that_make_no_sense_are_left_out() {
        let entry = |ago: Value| Value::Array(vec!["m1".into(), ago, "{}".into()]);
        let reply = vec![entry(Value::Integer(5)), entry("x".into()), Value::Null, "m".into()];
        let found = scripts::read::<Roster>(Value::Array(reply)).expect("a list");
        let found: Vec<_> = found.0.into_iter().filter_map(announced).collect();
        let one = Announced {
            member: "m1".to_owned(),
            ago: Duration::from_micros(5),
            figures: "{}".to_owned(),
        };
        assert_eq!(found, [one]);
    }
}
