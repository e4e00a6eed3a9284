//! The fleet's news, as the scripts publish them: trips, openings, lost probes, streaks, slots, rates and memories.

use std::sync::Arc;

use super::{scripts::sane, shard::Shard};
use crate::{
    classify::verdict::Verdict,
    limiter::cooldown::{Blocks, Cause},
};

/// The event of a scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// Its probe succeeded.
    Opened,
    /// An operator ended the cooldown.
    Cleared,
    /// A cooldown began.
    Tripped,
    /// A probe was lost; the next request probes.
    Due,
    /// Its streak grew or was reset.
    Streak,
}

/// The news about a scope.
#[derive(Debug, Clone, PartialEq)]
pub struct ScopeNews {
    /// The rule.
    pub rule: Arc<str>,
    /// The cooldown's key.
    pub key: Arc<str>,
    /// The epoch.
    pub epoch: u64,
    /// The event.
    pub what: What,
    /// The rest of the cooldown, in microseconds; 0 if there is none.
    pub remaining: i64,
    /// Blocks in a row.
    pub streak: f64,
    /// The sender.
    pub member: Arc<str>,
    /// What tripped the latest cooldown.
    pub cause: Option<Cause>,
    /// The streak that tripped it.
    pub peak: f64,
    /// The blocks that tripped it.
    pub blocks: Blocks,
    /// The last of them.
    pub by: Option<Verdict>,
}

/// News that other members push.
#[derive(Debug, Clone, PartialEq)]
pub enum News {
    /// A scope changed.
    Scope(ScopeNews),
    /// An operator has changed a learned rate.
    Rate {
        /// The rule.
        rule: Arc<str>,
        /// The cooldown's key, which is the bucket's too.
        key: Arc<str>,
        /// The sender.
        member: Arc<str>,
    },
    /// Slots have become free, or a member needs some.
    Slots {
        /// The rule.
        rule: Arc<str>,
        /// The bucket's key.
        key: Arc<str>,
        /// The queue that can have one; empty if a member needs some, so that all return unused
        /// ones.
        queue: Arc<str>,
    },
    /// The store has lost its data of a shard, and waits for the members' knowledge.
    Lost {
        /// The shard.
        shard: Shard,
        /// The memory that it has now.
        since: i64,
    },
    /// The store has all of it again, and grants tickets.
    Recovered {
        /// The shard.
        shard: Shard,
    },
    /// News may have been lost: read every scope again.
    Resync,
    /// For operators: an outage of the store began or ended.
    Up(bool),
    /// The news reach this member again, or no longer.
    Heard {
        /// Whether they do.
        hears: bool,
        /// The store's error, if it sent one.
        reason: Option<String>,
    },
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "what `filter` hands over")]
fn is_weight(sum: &f64) -> bool {
    sum.is_finite()
}

/// News as `lib/news.lua`, `rate.lua` and `memory.lua` publish them.
pub(super) fn parse(text: &str) -> Option<News> {
    if let [rule, about, what, member] = text.split('\x1f').collect::<Vec<_>>()[..] {
        let shard = Shard::parse(rule);
        let (rule, about, member) = (Arc::from(rule), Arc::from(about), Arc::from(member));
        return match what {
            "slots" => Some(News::Slots { rule, key: about, queue: member }),
            "rate" => Some(News::Rate { rule, key: about, member }),
            "lost" => Some(News::Lost { shard: shard?, since: about.parse().ok().and_then(sane)? }),
            "told" => Some(News::Recovered { shard: shard? }),
            _ => None,
        };
    }
    let mut parts = text.split('\x1f');
    let mut next = || parts.next();
    let mut news = ScopeNews {
        rule: Arc::from(next()?),
        key: Arc::from(next()?),
        epoch: next()?.parse().ok()?,
        what: match next()? {
            "open" => What::Opened,
            "clear" => What::Cleared,
            "cooling" => What::Tripped,
            "due" => What::Due,
            "streak" => What::Streak,
            _ => return None,
        },
        remaining: next()?.parse().ok().and_then(sane)?,
        streak: next()?.parse().ok().filter(is_weight)?,
        member: Arc::from(next()?),
        cause: next()?.parse().ok(),
        peak: next()?.parse().ok().filter(is_weight)?,
        blocks: Blocks::default(),
        by: None,
    };
    let letters = next()?;
    news.blocks = Blocks::of_letters(letters);
    news.by = letters.chars().last().and_then(Verdict::of_letter);
    Some(News::Scope(news))
}
