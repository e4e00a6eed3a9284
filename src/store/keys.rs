//! One scope in Redis: its keys, its arguments, and what this member last heard of it, with which a store that lost its
//! memory is repaired.

use std::sync::Arc;

use super::{Granted, ScopeName, push::Channel, scripts::RuleArguments};
use crate::{bucket::Window, rules::Rule};

/// The keys of one scope, and its arguments that only change with the rule.
#[derive(Debug)]
pub(crate) struct Keys {
    pub(super) take: Vec<String>,
    pub(super) own: bool,
    /// The scope's name in the news.
    news: String,
    /// Where they are published.
    channel: Channel,
    arguments: parking_lot::Mutex<Option<(Arc<RuleIdentity>, Arc<RuleArguments>)>>,
    /// The latest ticket that the store gave this member here: where the store loses its memory, the bucket goes on
    /// from there.
    latest: parking_lot::Mutex<Latest>,
    /// The windows of its quotas as last heard, and when. They outlive a trip.
    windows: parking_lot::Mutex<(i64, Vec<Window>)>,
    /// Whether decisions were taken without the store since it last answered.
    pub(super) strayed: std::sync::atomic::AtomicBool,
}

#[derive(Debug, Default, Clone, Copy)]
struct Latest {
    ticket: i64,
    told: i64,
    members: u32,
    epoch: u64,
}

/// A rule's limits and policy, to notice that a reload changed them.
#[derive(Debug, PartialEq)]
struct RuleIdentity {
    limits: crate::rules::Limits,
    cooldown: Option<crate::rules::CooldownPolicy>,
}

impl Keys {
    pub(super) fn new(prefix: &str, name: &ScopeName, channel: Channel) -> Self {
        let ScopeName { rule, bucket, cooldown } = name;
        let key = |kind: char, part: &str| format!("{prefix}:{{{rule}}}:{kind}:{part}");
        Self {
            take: vec![key('b', bucket), key('c', cooldown), key('w', bucket)],
            own: bucket == cooldown,
            news: format!("{rule}\x1f{cooldown}"),
            channel,
            arguments: parking_lot::Mutex::new(None),
            latest: parking_lot::Mutex::default(),
            windows: parking_lot::Mutex::default(),
            strayed: false.into(),
        }
    }

    pub(super) fn cooldown(&self) -> Vec<String> {
        vec![self.take[1].clone()]
    }

    /// What a script needs to publish as `member`.
    pub(super) fn news<'a>(&'a self, member: &'a str) -> [&'a str; 4] {
        [member, self.channel.0, &self.channel.1, &self.news]
    }

    /// Takes note of an answer of the store.
    pub(super) fn granted(&self, granted: &Granted) {
        if !granted.windows.is_empty() {
            *self.windows.lock() = (granted.now, granted.windows.clone());
        }
        let mut latest = self.latest.lock();
        if latest.epoch != granted.epoch {
            *latest = Latest { epoch: granted.epoch, ..Latest::default() };
        }
        if let Some(ticket) = granted.tickets.last() {
            latest.ticket = *ticket;
            latest.told = granted.now;
            latest.members = granted.members;
        }
    }

    /// What to tell a store that may have lost its memory; nothing where a trip has voided it.
    pub(super) fn latest(&self, epoch: u64) -> String {
        let Latest { ticket, told, members, epoch: of } = *self.latest.lock();
        if ticket == 0 || of != epoch {
            return String::new();
        }
        format!("{ticket}:{told}:{members}")
    }

    /// What was taken in the windows of its quotas, as this member heard.
    pub(super) fn windows(&self) -> String {
        let (told, windows) = &*self.windows.lock();
        if windows.is_empty() {
            return String::new();
        }
        let each = windows.iter().map(|window| format!("{}:{}", window.start, window.taken));
        format!("{told};{}", each.collect::<Vec<_>>().join(","))
    }

    pub(super) fn arguments(&self, rule: &Rule) -> Arc<RuleArguments> {
        let mut cached = self.arguments.lock();
        if let Some((identity, arguments)) = &*cached
            && identity.limits == rule.limits
            && identity.cooldown == rule.cooldown
        {
            return Arc::clone(arguments);
        }
        let identity =
            RuleIdentity { limits: rule.limits.clone(), cooldown: rule.cooldown.clone() };
        let arguments = Arc::new(RuleArguments::new(rule, self.own));
        *cached = Some((Arc::new(identity), Arc::clone(&arguments)));
        arguments
    }
}
