//! The names of keys in Redis.

/// The keys of one rule. They share a hash tag, so a Cluster keeps them on one node.
#[derive(Debug)]
pub(super) struct RuleKeys {
    stem: String,
}

impl RuleKeys {
    pub(super) fn new(prefix: &str, rule: &str) -> Self {
        Self { stem: format!("{prefix}:{{{rule}}}") }
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

    /// The store's memory of the rule.
    pub(super) fn memory(&self) -> String {
        format!("{}:m", self.stem)
    }
}
