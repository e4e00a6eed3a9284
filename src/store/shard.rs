//! Shards: the parts of a rule that a Cluster keeps on one node, and the names of their keys.
//!
//! All keys of a script must be on one node, so they share a hash tag. On one server that is the
//! tag of the rule. In a Cluster the scopes of a split rule are spread over [`SHARDS`] tags, so
//! that one rule uses every node.

use std::sync::Arc;

use fred::util::redis_keyslot;

use super::ScopeName;

/// Number of shards of a split rule. Three digits from 0 to 3 name a shard. A key's slot is a CRC, so these names put
/// one shard into each 1/64 of the slots, whatever the rule's name is.
const SHARDS: u16 = 64;
/// The slots of a Cluster.
const SLOTS: u16 = 16_384;

/// A part of a rule with one hash tag.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Shard {
    rule: Arc<str>,
    /// `None`: the rule is not spread.
    number: Option<u16>,
}

impl Shard {
    /// The whole rule as one shard.
    pub(super) fn whole(rule: &Arc<str>) -> Self {
        Self { rule: Arc::clone(rule), number: None }
    }

    /// The shard of a scope in a Cluster. Scopes that share a bucket or a cooldown have the same.
    pub(super) fn of(name: &ScopeName) -> Self {
        let number = redis_keyslot(name.part.as_bytes()) / (SLOTS / SHARDS);
        let number = (!name.part.is_empty()).then_some(number);
        Self { number, ..Self::whole(&name.rule) }
    }

    /// The shard with this tag; `None` if no rule has it.
    pub(super) fn parse(tag: &str) -> Option<Self> {
        let Some((rule, digits)) = tag.split_once('#') else {
            return Some(Self::whole(&Arc::from(tag)));
        };
        let number = u16::from_str_radix(digits, 4).ok()?;
        let shard = Self { number: Some(number), ..Self::whole(&Arc::from(rule)) };
        (shard.tag() == tag && number < SHARDS).then_some(shard)
    }

    /// Its rule.
    #[must_use]
    pub fn rule(&self) -> &Arc<str> {
        &self.rule
    }

    /// Its hash tag, without the braces.
    pub(super) fn tag(&self) -> String {
        let Self { rule, number } = self;
        match number {
            None => rule.to_string(),
            Some(number) => format!("{rule}#{}{}{}", number / 16, number / 4 % 4, number % 4),
        }
    }

    /// The channel of its news in a Cluster.
    pub(super) fn channel(&self, prefix: &str) -> String {
        format!("{prefix}:{{{}}}:news", self.tag())
    }
}

/// The keys of one shard.
#[derive(Debug)]
pub(super) struct ShardKeys {
    stem: String,
}

impl ShardKeys {
    pub(super) fn new(prefix: &str, shard: &Shard) -> Self {
        Self { stem: format!("{prefix}:{{{}}}", shard.tag()) }
    }

    fn key(&self, kind: char, part: &str) -> String {
        format!("{}:{kind}:{part}", self.stem)
    }

    pub(super) fn bucket(&self, bucket: &str) -> String {
        self.key('b', bucket)
    }

    /// The bucket of one user, under a rule with `each_user`.
    pub(super) fn user(&self, user: &str, bucket: &str) -> String {
        self.key('u', &format!("{user}:{bucket}"))
    }

    pub(super) fn cooldown(&self, cooldown: &str) -> String {
        self.key('c', cooldown)
    }

    /// The members that wait for a bucket.
    pub(super) fn waiting(&self, bucket: &str) -> String {
        self.key('w', bucket)
    }

    /// The members that are back from an outage.
    pub(super) fn back(&self, bucket: &str) -> String {
        self.key('r', bucket)
    }

    /// The slots of a bucket.
    pub(super) fn slots(&self, bucket: &str) -> String {
        self.key('p', bucket)
    }

    /// The store's memory of the shard.
    pub(super) fn memory(&self) -> String {
        format!("{}:m", self.stem)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shard_of(part: &str) -> Shard {
        let [rule, part] = ["shops", part].map(Arc::from);
        Shard::of(&ScopeName { rule, bucket: "b".into(), cooldown: "c".into(), part })
    }

    #[test]
    fn the_shards_of_any_rule_are_spread_evenly_over_the_slots() {
        for rule in ["default", "shops", "a", "many.sites_of-one", &"x".repeat(64)] {
            let shards =
                (0..SHARDS).map(|number| Shard { rule: rule.into(), number: Some(number) });
            let slots = shards
                .map(|shard| redis_keyslot(ShardKeys::new("tidegate", &shard).memory().as_bytes()));
            let mut parts: Vec<_> = slots.map(|slot| slot / (SLOTS / SHARDS)).collect();
            parts.sort_unstable();
            assert_eq!(parts, (0..SHARDS).collect::<Vec<_>>(), "{rule}");
        }
    }

    #[test]
    fn sites_are_spread_evenly_over_the_shards_and_never_change_theirs() {
        let mut counts = std::collections::BTreeMap::new();
        for site in 0..30_000 {
            *counts.entry(shard_of(&format!("site-{site}.example"))).or_insert(0) += 1;
        }
        assert_eq!(counts.len(), usize::from(SHARDS));
        assert!(counts.values().all(|count| (440..500).contains(count)), "{counts:?}");
        // Members of all versions must agree on them.
        assert_eq!(shard_of("example.com").tag(), "shops#201");
        assert_eq!(shard_of("").tag(), "shops");
    }

    #[test]
    fn a_tag_names_its_shard() {
        for number in [None, Some(0), Some(27), Some(63)] {
            let shard = Shard { rule: "shops".into(), number };
            assert_eq!(Shard::parse(&shard.tag()), Some(shard));
        }
        for tag in
            ["shops#", "shops#0", "shops#0000", "shops#004", "shops#1000", "shops#+12", "a#b"]
        {
            assert_eq!(Shard::parse(tag), None, "{tag}");
        }
    }
}
